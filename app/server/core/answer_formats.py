"""Formats that a request demands of its answer, as grammars: JSON, a schema, a pattern, choices."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.truncate import cut, shown
from engine.grammars.grammar import JSON_OBJECT, GrammarError, compiled, of_choices, of_schema

Placed = tuple[str, str | None]
"""The request field with a format, and its grammar; None for any text."""
NO_FORMAT: Final[Placed] = ("response_format", None)
_NO_EFFECT: Final = ("disable_fallback", "disable_any_whitespace", "whitespace_pattern")
_FORMS: Final = (
    '{"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": …}}'
)


def format_of(value: Mapping[str, Any] | None, where: str) -> Placed:
    """Reads a format by its type, as the vendors send it; raises ApiError if it is invalid.

    A schema is next to the type, or in a field `json_schema`.
    """
    if value is None:
        return where, None
    match value.get("type"):
        case "text":
            return where, None
        case "json_object":
            return where, JSON_OBJECT
        case "json_schema":
            inner, at = (
                (value["json_schema"], f"{where}.json_schema") if "json_schema" in value else (value, where)
            )
            if not isinstance(inner, Mapping) or not isinstance(inner.get("schema"), Mapping | bool):
                raise ApiError(INVALID, "The JSON schema is missing. Send it as schema.", f"{at}.schema")
            return _checked(f"{at}.schema", lambda: of_schema(inner["schema"]))
    raise unsupported(f"{where}.type", f"it must be {_FORMS}.")


def format_among(fields: Mapping[str, Any], own: Placed = NO_FORMAT) -> Placed:
    """Reads the formats that other servers' clients send; raises ApiError if one is invalid.

    Args:
        fields: fields of the request by name; None for an absent one.
        own: the format in the vendor's own field.
    """
    found = [own] if own[1] is not None else []
    for name, value in fields.items():
        if value in (None, "", {}):
            continue
        if name != "structured_outputs":
            found.append(_read(_KINDS[name], value, name))
            continue
        if not isinstance(value, Mapping):
            raise ApiError(INVALID, 'It must be an object, such as {"choice": ["yes", "no"]}.', name)
        for kind, inner in value.items():
            if inner in (None, False) or kind in _NO_EFFECT:
                continue
            where = f"{name}.{cut(kind)}"
            if kind not in _READERS:
                raise unsupported(where, f"the formats are {', '.join(_READERS)}.")
            found.append(_read(kind, inner, where))
    if len(found) > 1:
        words = f"The answer cannot have two formats: {found[0][0]} is another. Send one."
        raise ApiError(INVALID, words, found[1][0])
    return found[0] if found else own


def _read(kind: str, value: Any, where: str) -> Placed:
    return _checked(where, lambda: _READERS[kind](value))


def _checked(where: str, read: Callable[[], str]) -> Placed:
    try:
        grammar = read()
        compiled(grammar)
    except GrammarError as error:
        raise ApiError(INVALID, str(error), where) from None
    return where, grammar


def _schema(value: Any) -> str:
    """A schema as an object or as its JSON text; Ollama's clients send "json" for any object."""
    if value == "json":
        return JSON_OBJECT
    return f"schema:{value}" if isinstance(value, str) else f"schema:{json.dumps(value, ensure_ascii=False)}"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise GrammarError(f"It must be a text, not {shown(value)}.")
    return value


def _choices(value: Any) -> str:
    return of_choices(value) if isinstance(value, list) else f"choices:{json.dumps(value)}"


_READERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "json": _schema,
    "json_object": lambda _: JSON_OBJECT,
    "regex": lambda value: f"regex:{_text(value)}",
    "choice": _choices,
    "grammar": lambda value: f"lark:{_text(value)}",
}
_KINDS: Final[Mapping[str, str]] = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "json_schema": "json",
    "format": "json",
    "regex": "regex",
    "grammar": "grammar",
    "ebnf": "grammar",
}
"""Fields of vLLM, SGLang, llama.cpp and Ollama, with the kind of their value."""
FIELDS: Final = ("structured_outputs", *_KINDS)
