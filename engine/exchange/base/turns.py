"""What the bodies of chat services have in common: turns of blocks, and what PML has no place for."""

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
"""A line of a template that names the role of what follows it."""
RESULTS: Final = ("tool", "function", "ipython", "observation", "function_response")
"""Roles of messages that hold what a tool has answered."""

_TEXT_TYPES: Final = ("text", "input_text", "output_text")
_NO_TURN: Final = "(a turn of PML is text)"
_KEPT: Final = frozenset({"role", "content", "type", "id", "status", "tool_call_id"})
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {}, False)


@dataclass(frozen=True)
class Block:
    """A piece of a turn.

    Attributes:
        text: what it says.
        title: what it is called; empty where nothing tells.
        alone: whether it becomes a module even where it is all of its turn: a document, what a tool has
            answered, or what ends in a cache mark.
    """

    text: str
    title: str = ""
    alone: bool = False


@dataclass(frozen=True)
class Turn:
    """A turn of a conversation.

    Attributes:
        role: its role.
        blocks: what it says; none where it is left out.
        where: what messages call it.
        result: whether a tool has answered, which joins the user's turn before it.
    """

    role: RoleName
    blocks: tuple[Block, ...]
    where: str
    result: bool = False


def of_message(message: Any, where: str, notes: Notes) -> Turn | None:
    """Reads a message with a role and content; None where PML has no turn for it.

    Raises:
        ExchangeError: it has no role, or its content is neither text nor blocks.
    """
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ExchangeError(f'{where} has no role; write {{"role": "user", "content": "…"}}')
    given = message["role"]
    content = message.get("content")
    for key, value in message.items():
        if key == "cache_control" and value not in _EMPTY:
            notes.count("cache mark", "became a border of modules, which are all cached", where)
        elif key not in _KEPT and value not in _EMPTY:
            shown = f"{where} ({value})" if isinstance(value, str) and key == "name" else where
            notes.count("message", f"without {key} now {_NO_TURN}", shown)
    marked = message.get("cache_control") not in _EMPTY
    if given.lower() in RESULTS:
        found = tuple(blocks(content, where, notes, alone=True, title=str(message.get("name") or "result")))
        if found:
            notes.count("result", "of tools became modules in turns of the user", where)
        return Turn("user", found, where, result=True)
    role = ROLES.get(given.lower())
    if role is None:
        notes.count("message", f"of the role {given!r} left out (PML has no such turn)", where)
        return None
    answered = isinstance(content, list) and any(
        isinstance(one, dict) and one.get("type") == "tool_result" for one in content
    )
    found = tuple(blocks(content, where, notes, alone=marked))
    return Turn(cast(RoleName, role), found, where, result=answered)


def blocks(
    content: Any, where: str, notes: Notes, *, alone: bool = False, title: str = ""
) -> Iterator[Block]:
    """The blocks of a turn's content.

    Args:
        content: a text, a block, or a list of both.
        where: which message it is of.
        notes: told of what is left out.
        alone: whether each becomes a module anyway.
        title: what the blocks are called.

    Raises:
        ExchangeError: it is none of these, or holds characters that no document may hold.
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
            notes.count("cache mark", "became a border of modules, which are all cached", where)
        if block.get("citations") not in _EMPTY:
            notes.count("block", "without citations now (PML has none)", where)
        for one in _of_block(block, where, notes):
            require_characters(one.text, where)
            yield Block(one.text, one.title or title, one.alone or alone or marked)


def _of_block(block: dict[str, Any], where: str, notes: Notes) -> Iterator[Block]:
    kind = block.get("type")
    words = block.get("text")
    if isinstance(words, str) and (kind in _TEXT_TYPES or (kind is None and not block.get("thought"))):
        if words:
            yield Block(words)
        return
    if kind == "document":
        found = tuple(_document(block, where, notes))
    elif kind == "search_result":
        title = str(block.get("title") or block.get("source") or "")
        found = tuple(_titled(blocks(block.get("content"), where, notes), title))
        if not found:
            notes.count("search result", "without text left out", where)
    elif kind in ("tool_result", "function_call_output"):
        inner = block.get("content") if kind == "tool_result" else block.get("output")
        found = tuple(blocks(inner, where, notes, alone=True, title="result"))
        if found:
            notes.count("result", "of tools became modules in turns of the user", where)
        else:
            notes.count("result", "of a tool left out (it has no text)", where)
    else:
        notes.count("block", f"of type {str(kind)[:40]!r} left out {_NO_TURN}", where)
        return
    for one in found:
        yield Block(one.text, one.title, True)


def _document(block: dict[str, Any], where: str, notes: Notes) -> Iterator[Block]:
    """The text of a document block, behind its title and context, as the service has the model read it."""
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    data = source.get("data") if isinstance(source, dict) else None
    if kind == "text" and isinstance(data, str):
        found = [Block(data)] if data else []
    elif kind == "content" and isinstance(source, dict):
        found = list(blocks(source.get("content"), where, notes))
    else:
        notes.count("document", f"left out (its source is {str(kind)[:40]!r}, and no text)", where)
        return
    if not found:
        notes.count("document", "without text left out", where)
    context = block.get("context")
    if isinstance(context, str) and context and found:
        found[0] = Block(f"{context}\n\n{found[0].text}")
    yield from _titled(found, str(block.get("title") or ""))


def _titled(found: Any, title: str) -> Iterator[Block]:
    """Blocks under a title: one line before the first."""
    for place, one in enumerate(found):
        yield Block(f"Document: {title}\n\n{one.text}" if title and not place else one.text, title, True)


def tools(given: Any, notes: Notes) -> None:
    """Notes the tools of a request; a data set may have them as JSON in a text, Gemini in groups."""
    if isinstance(given, str):
        given = _parsed(given)
    for tool in given if isinstance(given, list) else [given]:
        group = tool if isinstance(tool, dict) else {}
        declared = group.get("functionDeclarations") or group.get("function_declarations")
        for one in declared if isinstance(declared, list) else [tool]:
            inner = one.get("function") if isinstance(one, dict) else None
            named = inner if isinstance(inner, dict) else one
            name = (named.get("name") or named.get("type")) if isinstance(named, dict) else None
            what = "left out (PML has none; describe it in a turn)"
            notes.count("tool", what, str(name or "without a name"))


def rest(body: Mapping[str, Any], known: frozenset[str], notes: Notes) -> None:
    """Notes what a request holds besides its conversation."""
    for key, value in body.items():
        if key in known or value in _EMPTY:
            continue
        if key in ("tools", "functions"):
            tools(value, notes)
        elif key in ("response_format", "output_config", "text") and isinstance(value, dict):
            notes.say(f"{key} is left out, as PML says nothing of an answer's form; put it into words")
        else:
            notes.count("field", "of the request left out (settings are given to a run)", str(key))


def _parsed(words: str) -> Any:
    try:
        return json.loads(words)
    except (ValueError, RecursionError):
        return words
