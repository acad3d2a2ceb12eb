"""Converts Anthropic's document and search result blocks to text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.truncate import shown

DOCUMENTS = ("document", "search_result")
BLANK_LINE = "\n\n"


def text_of(block: Mapping[str, Any], at: str) -> str:
    """Returns a document or a search result as text.

    Its metadata come first, one a line, then a blank line, then its text.

    Raises:
        ApiError: it is not text, or requests citations.
    """
    _refuse_citations(block.get("citations"), f"{at}.citations")
    if block["type"] == "document":
        head, text = ("title", "context"), _source(block.get("source"), f"{at}.source")
    else:
        head, text = ("title", "source"), _joined(_texts(block.get("content"), f"{at}.content"))
    lines = [f"{name.capitalize()}: {value}" for name in head if (value := _named(block, name, at))]
    return BLANK_LINE.join(filter(None, ("\n".join(lines), text)))


def _source(source: object, at: str) -> str:
    if not isinstance(source, Mapping):
        words = '{"type": "text", "media_type": "text/plain", "data": "…"}'
        raise ApiError(INVALID, f"{at} must be an object with the document's text: {words}.", at)
    match kind := source.get("type"):
        case "text":
            if source.get("media_type") not in (None, "text/plain"):
                media = shown(source["media_type"])
                raise unsupported(f"{at}.media_type", f"the model reads text/plain, not {media}.")
            return _text(source.get("data"), f"{at}.data")
        case "content":
            return _joined(_texts(source.get("content"), f"{at}.content"))
    words = f"the model reads text, not {shown(kind)}. Send the text, as a source of the type 'text'."
    raise unsupported(f"{at}.type", words)


def _texts(content: object, at: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise ApiError(INVALID, f"{at} must be a text, or a list of blocks of text.", at)
    texts = []
    for number, part in enumerate(content):
        place = f"{at}.{number}"
        if not isinstance(part, Mapping) or part.get("type") != "text":
            kind = shown(part.get("type") if isinstance(part, Mapping) else part)
            raise unsupported(f"{place}.type", f"the model reads text, not {kind}.")
        if part.get("cache_control") is not None:
            words = "A part of a document cannot be marked. Mark the document."
            raise ApiError(INVALID, words, f"{place}.cache_control")
        texts.append(_text(part.get("text"), f"{place}.text"))
    return texts


def _named(block: Mapping[str, Any], name: str, at: str) -> str:
    """A metadata value of a document; "" without one."""
    return "" if block.get(name) is None else _text(block[name], f"{at}.{name}")


def _text(value: object, at: str) -> str:
    if not isinstance(value, str):
        raise ApiError(INVALID, f"{at} must be a text, not {shown(value)}.", at)
    return value


def _refuse_citations(given: object, at: str) -> None:
    """Rejects citations, except `{"enabled": false}`."""
    if given is None:
        return
    if not isinstance(given, Mapping) or not isinstance(given.get("enabled", False), bool):
        raise ApiError(INVALID, f'{at} must be {{"enabled": false}}, or be left out.', at)
    if given.get("enabled"):
        raise unsupported(f"{at}.enabled", "answers do not cite sources.")


def _joined(texts: Iterable[str]) -> str:
    """Joins texts; texts without white space between them get a blank line."""
    pieces = list[str]()
    for text in filter(None, texts):
        if pieces and not (pieces[-1][-1].isspace() or text[0].isspace()):
            pieces.append(BLANK_LINE)
        pieces.append(text)
    return "".join(pieces)
