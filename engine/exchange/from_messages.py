"""Chat messages as a schema and the prompt that spells them.

The last turn of the user is new text; what comes before it is the schema. Where a turn has several blocks,
each becomes a module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from engine.exchange.errors import ExchangeError
from engine.exchange.imported import (
    Imported,
    first_words,
    imports,
    module,
    require_characters,
    role,
    text,
)
from engine.pml import Prompt, RoleName, Schema
from engine.pml.diagnostics import NOWHERE

_ROLES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_NO_TEXT: Final = ("tool_calls", "function_call", "refusal", "audio")
_TEXT_TYPES: Final = ("text", "input_text", "output_text")


@dataclass(frozen=True)
class _Turn:
    role: RoleName
    blocks: tuple[str, ...]


def from_messages(source: str, name: str) -> Imported:
    """Reads the messages of a request to OpenAI or Anthropic.

    Args:
        source: JSON: a list of messages, or an object with `messages` and perhaps `system`.
        name: name of the schema.

    Raises:
        ExchangeError: it is not JSON, holds no messages, or a message is none.
    """
    try:
        body = json.loads(source)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise ExchangeError(f"this is not valid JSON: {reason}") from None
    notes: list[str] = []
    turns = [turn for turn in _turns(body, notes) if turn.blocks]
    if not turns:
        raise ExchangeError("the messages hold no text, so there is nothing to make a schema of")
    return _build(turns, name, notes)


def _turns(body: Any, notes: list[str]) -> Iterator[_Turn]:
    messages = body.get("messages") if isinstance(body, dict) else body
    if not isinstance(messages, list):
        message = 'there are no messages; give a list of them, or an object such as {"messages": […]}'
        raise ExchangeError(message)
    system = body.get("system") if isinstance(body, dict) else None
    if system is not None:
        yield _Turn("system", tuple(_blocks(system, "system", notes)))
    for place, message in enumerate(messages, 1):
        where = f"message {place}"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ExchangeError(f'{where} has no role; write {{"role": "user", "content": "…"}}')
        known = _ROLES.get(message["role"])
        if known is None:
            notes.append(f"{where} is left out: its role is {message['role']!r}, for which PML has no turn")
            continue
        lost = [other for other in _NO_TEXT if message.get(other)]
        notes.extend(f"{where}: {other} is left out, as a turn of PML is text" for other in lost)
        yield _Turn(cast(RoleName, known), tuple(_blocks(message.get("content"), where, notes)))


def _blocks(content: Any, where: str, notes: list[str]) -> Iterator[str]:
    if isinstance(content, str) or content is None:
        content = [{"type": "text", "text": content or ""}]
    if not isinstance(content, list):
        raise ExchangeError(f"the content of {where} is neither text nor a list of blocks")
    for block in content:
        if isinstance(block, str):
            block = {"type": "text", "text": block}
        if not isinstance(block, dict):
            raise ExchangeError(f"{where} holds a block that is neither text nor an object")
        kind = block.get("type")
        if kind not in _TEXT_TYPES or not isinstance(block.get("text"), str):
            notes.append(f"{where}: a block of type {kind!r} is left out, as a turn of PML is text")
        elif block["text"]:
            yield require_characters(block["text"], where)


def _build(turns: list[_Turn], name: str, notes: list[str]) -> Imported:
    *earlier, last = turns
    taken: dict[str, int] = {}
    names: list[str] = []
    children: list[Any] = []
    tail: tuple[Any, ...] = ()
    if last.role != "user":
        earlier = turns
        notes.append("the messages end with no turn of the user, so the prompt adds no text")
    elif len(last.blocks) == 1:
        tail = (role("user", text(last.blocks[0])),)
    children.extend(role(turn.role, _contents(turn.blocks, taken, names)) for turn in earlier)
    if last.role == "user" and len(last.blocks) > 1:
        *blocks, words = last.blocks
        children.append(role("user", _modules(tuple(blocks), taken, names)))
        tail = text(words)
    schema = Schema(name, tuple(children), (), NOWHERE)
    return Imported(schema, Prompt(name, (*imports(names), *tail), NOWHERE), tuple(notes))


def _contents(blocks: tuple[str, ...], taken: dict[str, int], names: list[str]) -> tuple[Any, ...]:
    return text(blocks[0]) if len(blocks) == 1 else _modules(blocks, taken, names)


def _modules(blocks: tuple[str, ...], taken: dict[str, int], names: list[str]) -> tuple[Any, ...]:
    found = []
    for block in blocks:
        names.append(first_words(block, "part", taken))
        found.append(module(names[-1], text(block)))
    return tuple(found)
