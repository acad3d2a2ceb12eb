"""Common parts of chat services' bodies: turns of blocks, and features that PML does not support."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import require_characters
from engine.exchange.base.notes import Notes
from engine.pml import RoleName

ROLES: Final[Mapping[str, str]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
}
ROLE_LINE: Final = re.compile(
    r"^[ \t]*#{0,2}[ \t]*(system|developer|user|human|assistant|ai)[ \t]*(?:\[[^\]\n]*\])?[ \t]*:[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
"""A template line that names the role of the next lines."""
RESULTS: Final = ("tool", "function", "ipython", "observation", "function_response")  # roles of tool results

_TEXT_TYPES: Final = ("text", "input_text", "output_text")
_NO_TURN: Final = "(PML turns are text)"
_KEPT: Final = frozenset({"role", "content", "type", "id", "status", "tool_call_id"})
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {}, False)


@dataclass(frozen=True)
class Block:
    """A piece of a turn.

    Attributes:
        text: the text.
        title: its title; empty if unknown.
        alone: whether it becomes a module even as the only block of a turn: a document, a tool's result, or a
            block with a cache mark.
    """

    text: str
    title: str = ""
    alone: bool = False


@dataclass(frozen=True)
class Turn:
    """A turn of a conversation.

    Attributes:
        role: its role.
        blocks: its content; empty if omitted.
        where: its name in messages.
        result: whether it is a tool's result, which joins the user turn before it.
    """

    role: RoleName
    blocks: tuple[Block, ...]
    where: str
    result: bool = False


def of_message(message: Any, where: str, notes: Notes) -> Turn | None:
    """Reads a message with a role and content; returns None if PML has no such turn.

    Raises:
        ExchangeError: it has no role, or its content is neither text nor blocks.
    """
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ExchangeError(f'{where} has no role; write {{"role": "user", "content": "…"}}')
    role_name = message["role"]
    content = message.get("content")
    for key, value in message.items():
        if key == "cache_control" and value not in _EMPTY:
            notes.count("cache mark", "became a module boundary (all modules are cached)", where)
        elif key not in _KEPT and value not in _EMPTY:
            shown = f"{where} ({value})" if isinstance(value, str) and key == "name" else where
            notes.count("message", f"without {key} now {_NO_TURN}", shown)
    marked = message.get("cache_control") not in _EMPTY
    if role_name.lower() in RESULTS:
        pieces = tuple(blocks(content, where, notes, alone=True, title=str(message.get("name") or "result")))
        if pieces:
            notes.count("result", "of tools became modules in user turns", where)
        return Turn("user", pieces, where, result=True)
    role = ROLES.get(role_name.lower())
    if role is None:
        notes.count("message", f"of the role {role_name!r} left out (PML has no such turn)", where)
        return None
    answered = isinstance(content, list) and any(
        isinstance(item, dict) and item.get("type") == "tool_result" for item in content
    )
    pieces = tuple(blocks(content, where, notes, alone=marked))
    return Turn(cast(RoleName, role), pieces, where, result=answered)


def blocks(
    content: Any, where: str, notes: Notes, *, alone: bool = False, title: str = ""
) -> Iterator[Block]:
    """Yields the blocks of a content that is a text, a block, or a list of both.

    With `alone`, each block becomes a module; `title` is the default title.

    Raises:
        ExchangeError: the content has another type, or contains invalid characters.
    """
    if isinstance(content, (str, dict)) or content is None:
        content = [content or ""]
    if not isinstance(content, list):
        raise ExchangeError(f"the content of {where} is neither text nor a list of blocks")
    for block in content:
        if isinstance(block, str):
            block = {"type": "text", "text": block}
        if not isinstance(block, dict):
            raise ExchangeError(f"{where} holds a block that is neither text nor an object")
        marked = block.get("cache_control") not in _EMPTY
        if marked:
            notes.count("cache mark", "became a module boundary (all modules are cached)", where)
        if block.get("citations") not in _EMPTY:
            notes.count("block", "without citations now (PML has none)", where)
        for piece in _of_block(block, where, notes):
            require_characters(piece.text, where)
            yield Block(piece.text, piece.title or title, piece.alone or alone or marked)


def _of_block(block: dict[str, Any], where: str, notes: Notes) -> Iterator[Block]:
    kind = block.get("type")
    words = block.get("text")
    if isinstance(words, str) and (kind in _TEXT_TYPES or (kind is None and not block.get("thought"))):
        if words:
            yield Block(words)
        return
    if kind == "input_json" and isinstance(block.get("data"), (dict, list)):
        yield Block(json.dumps(block["data"], ensure_ascii=False))
        return
    if kind == "document":
        pieces = tuple(_document(block, where, notes))
    elif kind == "search_result":
        title = str(block.get("title") or block.get("source") or "")
        pieces = tuple(_titled(blocks(block.get("content"), where, notes), title))
        if not pieces:
            notes.count("search result", "without text left out", where)
    elif kind in ("tool_result", "function_call_output"):
        inner = block.get("content") if kind == "tool_result" else block.get("output")
        pieces = tuple(blocks(inner, where, notes, alone=True, title="result"))
        if pieces:
            notes.count("result", "of tools became modules in user turns", where)
        else:
            notes.count("result", "of a tool left out (it has no text)", where)
    else:
        notes.count("block", f"of type {str(kind)[:40]!r} left out {_NO_TURN}", where)
        return
    for piece in pieces:
        yield Block(piece.text, piece.title, True)


def _document(block: dict[str, Any], where: str, notes: Notes) -> Iterator[Block]:
    """The text of a document block after its title and context, in the service's order."""
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    data = source.get("data") if isinstance(source, dict) else None
    if kind == "text" and isinstance(data, str):
        pieces = [Block(data)] if data else []
    elif kind == "content" and isinstance(source, dict):
        pieces = list(blocks(source.get("content"), where, notes))
    else:
        notes.count("document", f"left out (its source is {str(kind)[:40]!r}, and no text)", where)
        return
    if not pieces:
        notes.count("document", "without text left out", where)
    context = block.get("context")
    if isinstance(context, str) and context and pieces:
        pieces[0] = Block(f"{context}\n\n{pieces[0].text}")
    yield from _titled(pieces, str(block.get("title") or ""))


def _titled(found: Any, title: str) -> Iterator[Block]:
    """Blocks under a title, a line before the first."""
    for place, piece in enumerate(found):
        yield Block(f"Document: {title}\n\n{piece.text}" if title and not place else piece.text, title, True)


def tools(given: Any, notes: Notes) -> None:
    """Notes the tools of a request; a data set may have them as JSON text, Gemini in groups."""
    if isinstance(given, str):
        given = _parsed(given)
    for tool in given if isinstance(given, list) else [given]:
        group = tool if isinstance(tool, dict) else {}
        declared = group.get("functionDeclarations") or group.get("function_declarations")
        for declaration in declared if isinstance(declared, list) else [tool]:
            inner = declaration.get("function") if isinstance(declaration, dict) else None
            named = inner if isinstance(inner, dict) else declaration
            name = (named.get("name") or named.get("type")) if isinstance(named, dict) else None
            outcome = "left out (PML has none; describe it in a turn)"
            notes.count("tool", outcome, str(name or "without a name"))


def rest(body: Mapping[str, Any], known: frozenset[str], notes: Notes) -> None:
    """Notes the other fields of a request."""
    for key, value in body.items():
        if key in known or value in _EMPTY:
            continue
        if key in ("tools", "functions"):
            tools(value, notes)
        else:
            notes.count("field", "of the request left out (settings belong to a run)", str(key))


def _parsed(words: str) -> Any:
    try:
        return json.loads(words)
    except (ValueError, RecursionError):
        return words
