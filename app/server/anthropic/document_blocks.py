"""Blocks of Anthropic's that hold documents or results of a search, as texts that a model reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.truncate import shown

DOCUMENTS = ("document", "search_result")
BLANK_LINE = "\n\n"


def text_of(block: Mapping[str, Any], at: str) -> str:
    """Returns a document or a result of a search as text.

    What is said of it stands before its own text, a line each, and a blank line behind them.

    Args:
        block: one of `DOCUMENTS`.
        at: its field.

    Raises:
        ApiError: it is no text, or asks for citations.
    """
    _refuse_citations(block.get("citations"), f"{at}.citations")
    if block["type"] == "document":
        head, said = ("title", "context"), _source(block.get("source"), f"{at}.source")
    else:
        head, said = ("title", "source"), _joined(_texts(block.get("content"), f"{at}.content"))
    lines = [f"{name.capitalize()}: {told}" for name in head if (told := _named(block, name, at))]
    return BLANK_LINE.join(filter(None, ("\n".join(lines), said)))


def _source(source: object, at: str) -> str:
    """The text of a document."""
    if not isinstance(source, Mapping):
        words = '{"type": "text", "media_type": "text/plain", "data": "…"}'
        raise ApiError(INVALID, f"{at} must be an object with the document's text: {words}.", at)
    match kind := source.get("type"):
        case "text":
            if source.get("media_type") not in (None, "text/plain"):
                given = shown(source["media_type"])
                raise unsupported(f"{at}.media_type", f"the model reads text/plain, and this is {given}.")
            return _text(source.get("data"), f"{at}.data")
        case "content":
            return _joined(_texts(source.get("content"), f"{at}.content"))
    words = f"the model reads text, and this is {shown(kind)}. Send the text, as a source of the type 'text'."
    raise unsupported(f"{at}.type", words)


def _texts(content: object, at: str) -> list[str]:
    """The texts of a text, or of blocks of text."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise ApiError(INVALID, f"{at} must be a text, or a list of blocks of text.", at)
    found = []
    for number, part in enumerate(content):
        place = f"{at}.{number}"
        if not isinstance(part, Mapping) or part.get("type") != "text":
            kind = shown(part.get("type") if isinstance(part, Mapping) else part)
            raise unsupported(f"{place}.type", f"the model reads text, and this is {kind}.")
        if part.get("cache_control") is not None:
            words = "A part of a document cannot be marked. Mark the document."
            raise ApiError(INVALID, words, f"{place}.cache_control")
        found.append(_text(part.get("text"), f"{place}.text"))
    return found


def _named(block: Mapping[str, Any], name: str, at: str) -> str:
    """What is said of a document; "" for nothing."""
    return "" if block.get(name) is None else _text(block[name], f"{at}.{name}")


def _text(value: object, at: str) -> str:
    if not isinstance(value, str):
        raise ApiError(INVALID, f"{at} must be a text, and this is {shown(value)}.", at)
    return value


def _refuse_citations(given: object, at: str) -> None:
    """Refuses answers that quote by place; `{"enabled": false}` asks for none."""
    if given is None:
        return
    if not isinstance(given, Mapping) or not isinstance(given.get("enabled", False), bool):
        raise ApiError(INVALID, f'{at} must be {{"enabled": false}}, or be left out.', at)
    if given.get("enabled"):
        raise unsupported(f"{at}.enabled", "an answer does not say where it found what it says.")


def _joined(texts: Iterable[str]) -> str:
    """Texts as one; between two of them a blank line, where neither has white space there."""
    found = list[str]()
    for text in filter(None, texts):
        if found and not (found[-1][-1].isspace() or text[0].isspace()):
            found.append(BLANK_LINE)
        found.append(text)
    return "".join(found)
