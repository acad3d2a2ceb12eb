"""Formats of answers in requests to chat services, and in prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.notes import Notes
from engine.grammars.grammar import GrammarError, compiled
from engine.pml.tree.tree import AnswerFormat

_OF_VLLM: Final = "structured_outputs is a field of vLLM and of pml serve; OpenAI's own API refuses it"
_GUIDED: Final = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice"}
_FIELDS: Final = ("response_format", "output_config", "output_format", "text", "structured_outputs", *_GUIDED)


def to_openai_format(given: AnswerFormat) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the fields of a request to OpenAI or a compatible service, and notes."""
    match given.kind:
        case "choice":
            return {"structured_outputs": {"choice": [*given.options]}}, (_OF_VLLM,)
        case "regex":
            return {"structured_outputs": {"regex": given.text}}, (_OF_VLLM,)
    if not given.text:
        return {"response_format": {"type": "json_object"}}, ()
    named = {"name": "answer", "schema": json.loads(given.text)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}, ()


def to_anthropic_format(given: AnswerFormat) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the fields of a request to Anthropic, and notes."""
    if given.kind != "json":
        return {}, (f"the answer format of the prompt, a {given.kind}, is left out: Anthropic has only JSON",)
    schema = json.loads(given.text) if given.text else {"type": "object"}
    return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}, ()


def taken_format(body: Any, notes: Notes) -> tuple[AnswerFormat | None, Any]:
    """Reads the format in the body of a request.

    Args:
        body: the parsed body.
        notes: gets a note on a format that is left out.

    Returns:
        The format, if there is one, and the body without it.
    """
    if not isinstance(body, dict) or not any(name in body for name in _FIELDS):
        return None, body
    rest, found = dict(body), list[AnswerFormat]()
    for name in _FIELDS:
        outer = rest.get(name)
        beside = outer if name in ("output_config", "text") and isinstance(outer, dict) else None
        value = outer if beside is None else beside.get("format")
        if value is None:
            continue
        try:
            read = _read(name, value)
            if read is not None:
                compiled(read.grammar)
        except (ExchangeError, GrammarError) as error:
            notes.say(f"{name} is left out: {str(error).rstrip('.')}")
            read = None
        found += [] if read is None else [read]
        del rest[name]
        if beside is not None and len(beside) > 1:
            rest[name] = {key: one for key, one in beside.items() if key != "format"}
    if len(found) > 1:
        notes.say("only the first of several answer formats is imported")
    return found[0] if found else None, rest


def _read(name: str, value: Any) -> AnswerFormat | None:
    if name in _GUIDED:
        return _of_kind(_GUIDED[name], value)
    if not isinstance(value, Mapping):
        raise ExchangeError("it is no object")
    if name == "structured_outputs":
        kinds = [(kind, inner) for kind, inner in value.items() if inner not in (None, False)]
        if len(kinds) != 1:
            raise ExchangeError("it has not one kind of format")
        return _of_kind(*kinds[0])
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            return AnswerFormat("json")
        case "json_schema":
            inner = value.get("json_schema", value)
            if isinstance(inner, Mapping) and isinstance(inner.get("schema"), Mapping | bool):
                return _of_kind("json", inner["schema"])
            raise ExchangeError("it has no schema")
    raise ExchangeError(f"its type is {value.get('type')!r}; PML has json_object and json_schema")


def _of_kind(kind: str, value: Any) -> AnswerFormat:
    match kind, value:
        case "json_object", _:
            return AnswerFormat("json")
        case "json", str():
            return AnswerFormat("json", value.strip())
        case "json", Mapping() | bool():
            return AnswerFormat("json", json.dumps(value, ensure_ascii=False, indent=2))
        case "regex", str():
            return AnswerFormat("regex", value)
        case "choice", list() if value and all(isinstance(one, str) for one in value):
            return AnswerFormat("choice", "", tuple(dict.fromkeys(value)))
    raise ExchangeError(f"PML has no answer format {kind!r} of this form")
