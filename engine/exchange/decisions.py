"""Questions in the shape of OpenAI's Decisions API, and the body of a request with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from engine.exchange.base.errors import ExchangeError
from engine.exchange.to_messages import to_openai
from engine.pml import Part
from engine.pml.tree.tree import Decide, DecideKind

_OPTIONS: Final = {"choice": ("choices", "value"), "score": ("levels", "label")}


def to_openai_decisions(
    parts: Iterable[Part], questions: Sequence[Decide]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the `input` and `questions` of a request to OpenAI's Decisions API, and notes.

    Raises:
        ExchangeError: the prompt is empty, or has no questions.
    """
    if not questions:
        raise ExchangeError("the prompt asks no questions; write a <decide> into it")
    body, notes = to_openai(parts)
    return {"input": body["messages"], "questions": [question_body(one) for one in questions]}, notes


def question_body(question: Decide) -> dict[str, Any]:
    """Returns a question as OpenAI's Decisions API takes it."""
    body: dict[str, Any] = {"type": question.kind, "instructions": question.instructions}
    if question.name:
        body["name"] = question.name
    if question.kind != "predicate":
        several, label = _OPTIONS[question.kind]
        body[several] = [
            {label: value, **({"description": words} if words else {})} for value, words in question.options
        ]
    return body


def read_questions(value: Any) -> tuple[Decide, ...]:
    """Reads the questions of a request to OpenAI's Decisions API.

    Args:
        value: the parsed array, or an object with it under `questions`.

    Raises:
        ExchangeError: it has another shape.
    """
    found = value.get("questions") if isinstance(value, dict) else value
    if not isinstance(found, list) or not found:
        raise ExchangeError('there are no questions; give a list of them, or {"questions": […]}')
    return tuple(_question(one, f"questions[{place}]") for place, one in enumerate(found))


def _question(value: Any, where: str) -> Decide:
    if not isinstance(value, dict):
        raise ExchangeError(f'{where} is no object; write {{"type": …, "instructions": …}}')
    kind, instructions, name = value.get("type"), value.get("instructions"), value.get("name") or ""
    if kind is None:
        raise ExchangeError(f"{where}.type is missing; it must be predicate, choice or score")
    if kind not in ("predicate", *_OPTIONS):
        raise ExchangeError(f"{where}.type is {kind!r}; it must be predicate, choice or score")
    if not isinstance(instructions, (str, list)) or not instructions:
        raise ExchangeError(f"{where}.instructions is no text; write the question")
    if isinstance(instructions, list):
        parts = (_part(one, f"{where}.instructions[{at}]") for at, one in enumerate(instructions))
        instructions = "\n\n".join(parts)
    if not isinstance(name, str):
        raise ExchangeError(f"{where}.name is no text")
    options: tuple[tuple[str, str], ...] = ()
    if kind != "predicate":
        several, label = _OPTIONS[kind]
        given = value.get(several)
        if not isinstance(given, list):
            raise ExchangeError(f"{where}.{several} is no list; a {kind} needs one")
        options = tuple(_option(one, label, f"{where}.{several}[{at}]") for at, one in enumerate(given))
    return Decide(cast(DecideKind, kind), instructions, options, name)


def _part(value: Any, where: str) -> str:
    """Returns the text of a part of the instructions."""
    kind, words, data = (
        value.get(key) if isinstance(value, dict) else None for key in ("type", "text", "data")
    )
    if kind == "input_text" and isinstance(words, str):
        return words
    if kind == "input_json" and isinstance(data, (dict, list)):
        return json.dumps(data, ensure_ascii=False)
    raise ExchangeError(f"{where} is neither input_text with a text nor input_json with an object or a list")


def _option(value: Any, label: str, where: str) -> tuple[str, str]:
    """Returns the label and description of an option; a text is an option without description."""
    words: Any = ""
    if isinstance(value, dict):
        value, words = value.get(label), value.get("description") or ""
    if isinstance(value, bool):
        value = str(value).lower()
    if not isinstance(value, str) or not isinstance(words, str):
        raise ExchangeError(f'{where} has no text; write {{"{label}": "…"}}')
    return value, words
