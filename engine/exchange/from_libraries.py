"""Prompts of LangChain, Langfuse and promptfoo as schemas: templates in JSON or YAML, and turns of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from engine.base.strict_json import JsonError, JsonValueError, read_json, text_of
from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import Imported
from engine.exchange.base.notes import Notes
from engine.exchange.base.turns import ROLES
from engine.exchange.from_messages import picked
from engine.exchange.templates.from_templates import FORMS, Form, TemplateTurn, from_turns, role_turns
from engine.pml import RoleName

_MESSAGES: Final = {
    "SystemMessagePromptTemplate": "system",
    "HumanMessagePromptTemplate": "user",
    "AIMessagePromptTemplate": "assistant",
    "SystemMessage": "system",
    "HumanMessage": "user",
    "AIMessage": "assistant",
}
_PROMPTS: Final = ("ChatPromptTemplate", "PromptTemplate", "StructuredPrompt", "RunnableSequence", *_MESSAGES)
_OTHER: Final = re.compile(r"@@@langfusePrompt:.*?@@@")
_DEEPEST: Final = 20


def library_of(value: Any) -> str | None:
    """Which library a parsed document is of: `langchain`, `langfuse`, `promptfoo`, or None."""
    if isinstance(value, list) and value and all(library_of(one) == "langfuse" for one in value):
        return "langfuse"
    if not isinstance(value, dict):
        return None
    if ("lc" in value and _kind(value) in _PROMPTS) or ("_type" in value and "template" in value):
        return "langchain"
    if "prompts" in value:
        return "promptfoo"
    if isinstance(value.get("prompt"), (str, list)):
        told = {"labels", "version", "config", "tags"} & set(value)
        return "langfuse" if told or value.get("type") in ("chat", "text") else None
    return None


# LangChain


def from_langchain(value: Any, name: str, length: int) -> Imported:
    """Reads a prompt that LangChain has written, by `dumps` or by `save`.

    Raises:
        ExchangeError: it holds no prompt, or its templates cannot be read.
    """
    notes = Notes()
    turns = tuple(_langchain(value, None, {}, notes, 0))
    if not turns:
        raise ExchangeError("; ".join(["there is no prompt of LangChain in it", *notes.told()[:3]]))
    return from_turns(turns, name, length, notes=notes)


def _langchain(
    value: Any, role: RoleName | None, constants: Mapping[str, Any], notes: Notes, depth: int
) -> Iterator[TemplateTurn]:
    if not isinstance(value, dict) or depth > _DEEPEST:
        return
    kind = _kind(value)
    held: dict[Any, Any] = value["kwargs"] if isinstance(value.get("kwargs"), dict) else value
    given = held.get("partial_variables")
    for key, one in given.items() if isinstance(given, dict) else ():
        if isinstance(one, str | int | float):  # a template asks whether 0 and false hold
            constants = {**constants, key: text_of(one) if one and one is not True else one}
        else:
            notes.count("value", "of a variable left out (it is no text; give it as an argument)", str(key))
    if isinstance(held.get("template"), str):
        form = str(held.get("template_format") or "f-string")
        form = {"jinja2": "jinja"}.get(form, form)
        if form not in FORMS:
            known = "there are f-string, mustache, jinja2"
            raise ExchangeError(f"the template format {form[:40]!r} is unknown; {known}")
        yield TemplateTurn(role, held["template"], cast(Form, form), constants=constants)
        return
    own = _MESSAGES.get(kind) or ROLES.get(str(held.get("role") or "").lower())
    role = cast(RoleName, own) if own else role
    if isinstance(held.get("content"), str):
        yield TemplateTurn(role, held["content"], "plain")
        return
    inner = [held.get(key) for key in ("messages", "first", "prompt")]
    held_in = [part if isinstance(part, list) else [part] for part in inner if part is not None]
    found = [one for part in held_in for one in part]
    parts = [turn for one in found for turn in _langchain(one, role, constants, notes, depth + 1)]
    if own and parts:  # a message of several parts is one turn
        whole = replace(parts[0], text="".join(part.text for part in parts))
        if all(replace(part, text=whole.text) == whole for part in parts):
            parts = [whole]
        else:
            notes.say(f"a message of the {role} has parts of several kinds, and each became a turn")
    yield from parts
    for key in ("middle", "last", "schema_", "examples"):
        if held.get(key):
            notes.count("part", "of the chain left out (PML holds its prompt)", key)
    if not found:
        shown = str(held.get("variable_name") or kind or value.get("_type") or "?")
        notes.count("part", "left out (it holds no template of text)", shown)


def _kind(value: dict[Any, Any]) -> str:
    found = value.get("id")
    return str(found[-1]) if isinstance(found, list) and found else ""


# Langfuse


def from_langfuse(value: Any, name: str, length: int, row: int = 1) -> Imported:
    """Reads a prompt of Langfuse, or one of a list.

    Raises:
        ExchangeError: it holds no prompt, or its templates cannot be read.
    """
    notes = Notes()
    one = picked(value, row, "prompt", notes) if isinstance(value, list) else value
    if not isinstance(one, dict):
        raise ExchangeError("there is no prompt of Langfuse in it")
    if one.get("config"):
        notes.count("field", "left out (settings are given to a run)", "config")
    turns = tuple(_chat(one.get("prompt"), "mustache", notes))
    for named in (name for turn in turns for name in _OTHER.findall(turn.text)):
        notes.count("other prompt", "not put in its place (its name stays in the text)", named)
    if not turns:
        raise ExchangeError("; ".join(["there is no prompt of Langfuse in it", *notes.told()[:3]]))
    return from_turns(turns, name, length, notes=notes)


def _chat(prompt: Any, form: Form, notes: Notes) -> Iterator[TemplateTurn]:
    """A prompt that is a text, or a list of messages."""
    if isinstance(prompt, str):
        yield TemplateTurn("user", prompt, form)
        return
    for place, message in enumerate(prompt if isinstance(prompt, list) else [], 1):
        role = ROLES.get(str(message.get("role") or "").lower()) if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            content = "".join(one for one in texts if isinstance(one, str))
            notes.count("message", "of several parts kept as its text", f"message {place}")
        if role is not None and isinstance(content, str):
            yield TemplateTurn(cast(RoleName, role), content, form, f"message {place}")
        else:
            shown = message.get("name") if isinstance(message, dict) else None
            what = "left out (a place for others, or of no role PML has)"
            notes.count("message", what, str(shown or place))


# promptfoo


def from_promptfoo(value: Any, name: str, length: int, row: int = 1) -> Imported:
    """Reads a prompt of promptfoo's configuration.

    Raises:
        ExchangeError: it holds no prompt, or its templates cannot be read.
    """
    notes = Notes()
    given = value.get("prompts") if isinstance(value, dict) else None
    prompts = [given] if isinstance(given, str) else list(given) if isinstance(given, (list, dict)) else []
    held: list[Any] = []
    for prompt in prompts:
        if isinstance(prompt, dict):
            prompt = prompt.get("raw", prompt.get("prompt", prompt.get("id")))
        if isinstance(prompt, str) and _is_file(prompt):
            notes.count("prompt", "left out (it is in a file of its own; import that)", prompt)
        elif prompt:
            held.append(prompt)
    if not held:
        raise ExchangeError("; ".join(["there is no prompt in it", *notes.told()[:3]]))
    prompt = picked(held, row, "prompt", notes)
    for key, other in (value if isinstance(value, dict) else {}).items():
        if key in ("tests", "providers", "scenarios") and isinstance(other, list):
            for place, _ in enumerate(other, 1):
                notes.count(str(key).removesuffix("s"), "left out (PML holds prompts)", str(place))
        elif key not in ("prompts", "description") and other:
            notes.count("field", "left out (PML holds prompts)", str(key))
    return from_turns(tuple(_promptfoo(prompt, notes)), name, length, notes=notes)


def _promptfoo(prompt: Any, notes: Notes) -> Iterator[TemplateTurn]:
    if isinstance(prompt, str) and prompt.lstrip().startswith("["):
        try:
            prompt = read_json(prompt)
        except JsonValueError as error:
            raise ExchangeError(f"the messages of the prompt are not valid JSON: {error}") from None
        except JsonError:  # a template that begins like a list
            pass
    if isinstance(prompt, str) and (turns := role_turns(prompt, None)):
        yield from turns
    else:
        yield from _chat(prompt, "jinja", notes)


def _is_file(prompt: str) -> bool:
    words = prompt.strip()
    ends = (".txt", ".md", ".json", ".yaml", ".yml", ".j2", ".py", ".js", ".mjs", ".ts", ".csv")
    return words.startswith("file://") or ("\n" not in words and " " not in words and words.endswith(ends))
