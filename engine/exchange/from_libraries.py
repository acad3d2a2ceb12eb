"""Converts prompts of LangChain, Langfuse and promptfoo, which are templates and turns in JSON or YAML."""

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
    """Returns the library of a parsed document: `langchain`, `langfuse`, `promptfoo`, or None."""
    if isinstance(value, list) and value and all(library_of(item) == "langfuse" for item in value):
        return "langfuse"
    if not isinstance(value, dict):
        return None
    if ("lc" in value and _kind(value) in _PROMPTS) or ("_type" in value and "template" in value):
        return "langchain"
    if "prompts" in value:
        return "promptfoo"
    if isinstance(value.get("prompt"), (str, list)):
        langfuse_fields = {"labels", "version", "config", "tags"} & set(value)
        return "langfuse" if langfuse_fields or value.get("type") in ("chat", "text") else None
    return None


# LangChain


def from_langchain(value: Any, name: str, length: int) -> Imported:
    """Reads a LangChain prompt, written by `dumps` or by `save`.

    Raises:
        ExchangeError: there is no prompt, or its templates are invalid.
    """
    notes = Notes()
    turns = tuple(_langchain(value, None, {}, notes, 0))
    if not turns:
        raise ExchangeError("; ".join(["it has no LangChain prompt", *notes.told()[:3]]))
    return from_turns(turns, name, length, notes=notes)


def _langchain(
    value: Any, role: RoleName | None, constants: Mapping[str, Any], notes: Notes, depth: int
) -> Iterator[TemplateTurn]:
    if not isinstance(value, dict) or depth > _DEEPEST:
        return
    kind = _kind(value)
    fields: dict[Any, Any] = value["kwargs"] if isinstance(value.get("kwargs"), dict) else value
    partial = fields.get("partial_variables")
    for key, item in partial.items() if isinstance(partial, dict) else ():
        if isinstance(item, str | int | float):  # a template tests whether 0 and false are true
            constants = {**constants, key: text_of(item) if item and item is not True else item}
        else:
            notes.count("value", "of a variable left out (not text; pass it as an argument)", str(key))
    if isinstance(fields.get("template"), str):
        form = str(fields.get("template_format") or "f-string")
        form = {"jinja2": "jinja"}.get(form, form)
        if form not in FORMS:
            known = "use f-string, mustache or jinja2"
            raise ExchangeError(f"the template format {form[:40]!r} is unknown; {known}")
        yield TemplateTurn(role, fields["template"], cast(Form, form), constants=constants)
        return
    named_role = _MESSAGES.get(kind) or ROLES.get(str(fields.get("role") or "").lower())
    role = cast(RoleName, named_role) if named_role else role
    if isinstance(fields.get("content"), str):
        yield TemplateTurn(role, fields["content"], "plain")
        return
    inner = [fields.get(key) for key in ("messages", "first", "prompt")]
    held_in = [part if isinstance(part, list) else [part] for part in inner if part is not None]
    items = [item for part in held_in for item in part]
    parts = [turn for item in items for turn in _langchain(item, role, constants, notes, depth + 1)]
    if named_role and parts:  # a message of several parts is one turn
        whole = replace(parts[0], text="".join(part.text for part in parts))
        if all(replace(part, text=whole.text) == whole for part in parts):
            parts = [whole]
        else:
            notes.say(f"a message of the {role} has parts of several kinds, and each became a turn")
    yield from parts
    for key in ("middle", "last", "schema_", "examples"):
        if fields.get(key):
            notes.count("part", "of the chain left out (PML has only its prompt)", key)
    if not items:
        shown = str(fields.get("variable_name") or kind or value.get("_type") or "?")
        notes.count("part", "left out (it has no text template)", shown)


def _kind(value: dict[Any, Any]) -> str:
    identity = value.get("id")
    return str(identity[-1]) if isinstance(identity, list) and identity else ""


# Langfuse


def from_langfuse(value: Any, name: str, length: int, row: int = 1) -> Imported:
    """Reads a Langfuse prompt, or one of a list.

    Raises:
        ExchangeError: there is no prompt, or its templates are invalid.
    """
    notes = Notes()
    prompt = picked(value, row, "prompt", notes) if isinstance(value, list) else value
    if not isinstance(prompt, dict):
        raise ExchangeError("it has no Langfuse prompt")
    if prompt.get("config"):
        notes.count("field", "left out (settings belong to a run)", "config")
    turns = tuple(_chat(prompt.get("prompt"), "mustache", notes))
    for named in (name for turn in turns for name in _OTHER.findall(turn.text)):
        notes.count("other prompt", "not replaced (its name stays in the text)", named)
    if not turns:
        raise ExchangeError("; ".join(["it has no Langfuse prompt", *notes.told()[:3]]))
    return from_turns(turns, name, length, notes=notes)


def _chat(prompt: Any, form: Form, notes: Notes) -> Iterator[TemplateTurn]:
    """A prompt that is a text or a list of messages."""
    if isinstance(prompt, str):
        yield TemplateTurn("user", prompt, form)
        return
    for place, message in enumerate(prompt if isinstance(prompt, list) else [], 1):
        role = ROLES.get(str(message.get("role") or "").lower()) if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            content = "".join(item for item in texts if isinstance(item, str))
            notes.count("message", "of several parts reduced to its text", f"message {place}")
        if role is not None and isinstance(content, str):
            yield TemplateTurn(cast(RoleName, role), content, form, f"message {place}")
        else:
            shown = message.get("name") if isinstance(message, dict) else None
            problem = "left out (a placeholder, or a role that PML does not have)"
            notes.count("message", problem, str(shown or place))


# promptfoo


def from_promptfoo(value: Any, name: str, length: int, row: int = 1) -> Imported:
    """Reads a prompt of promptfoo's configuration.

    Raises:
        ExchangeError: there is no prompt, or its templates are invalid.
    """
    notes = Notes()
    entry = value.get("prompts") if isinstance(value, dict) else None
    prompts = [entry] if isinstance(entry, str) else list(entry) if isinstance(entry, (list, dict)) else []
    usable: list[Any] = []
    for prompt in prompts:
        if isinstance(prompt, dict):
            prompt = prompt.get("raw", prompt.get("prompt", prompt.get("id")))
        if isinstance(prompt, str) and _is_file(prompt):
            notes.count("prompt", "left out (it is in its own file; import that file)", prompt)
        elif prompt:
            usable.append(prompt)
    if not usable:
        raise ExchangeError("; ".join(["it has no prompt", *notes.told()[:3]]))
    prompt = picked(usable, row, "prompt", notes)
    for key, other in (value if isinstance(value, dict) else {}).items():
        if key in ("tests", "providers", "scenarios") and isinstance(other, list):
            for place, _ in enumerate(other, 1):
                notes.count(str(key).removesuffix("s"), "left out (PML has only prompts)", str(place))
        elif key not in ("prompts", "description") and other:
            notes.count("field", "left out (PML has only prompts)", str(key))
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
