"""Conversations as services and data sets write them, each recognised by what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from engine.base.strict_json import written
from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.notes import Notes
from engine.exchange.base.turns import Block, Turn, blocks, of_message, rest

_CONVERSATIONS: Final = ("messages", "conversations", "conversation", "contents", "input", "prompt")
_LANGCHAIN: Final = {
    "human": "user",
    "humanmessage": "user",
    "ai": "assistant",
    "aimessage": "assistant",
    "system": "system",
    "systemmessage": "system",
    "tool": "tool",
    "toolmessage": "tool",
    "function": "function",
    "functionmessage": "function",
}
_SYSTEM: Final = "the system text"
_NONE: Final = (
    'there are no messages; give a list of them, or an object such as {"messages": […]}, or the body of a '
    "request to a chat service"
)


def rows(value: Any) -> list[Any] | None:
    """The rows of a data set: a list of objects that hold a conversation each; None where it is none."""
    if not isinstance(value, list) or not value:
        return None
    held = [isinstance(one, dict) and any(key in one for key in _CONVERSATIONS) for one in value]
    return value if all(held) and not any("role" in one for one in value) else None


def turns(body: Any, notes: Notes) -> Iterator[Turn]:
    """Reads a conversation.

    Args:
        body: the parsed document: messages or a request for OpenAI or Anthropic, a request to OpenAI's
            Responses or to Gemini, a row of ShareGPT, or messages of LangChain.
        notes: told of what is left out.

    Raises:
        ExchangeError: it holds no messages, or one of them is none.
    """
    if isinstance(body, list):
        yield from _messages([_plain(one) for one in body], notes)
    elif not isinstance(body, dict):
        raise ExchangeError(_NONE)
    elif isinstance(body.get("messages"), list):
        yield from _system(body.get("system"), notes)
        yield from _messages([_plain(one) for one in body["messages"]], notes)
        rest(body, frozenset({"messages", "system"}), notes)
    elif "contents" in body:
        yield from _gemini(body, notes)
    elif isinstance(body.get("conversations", body.get("conversation")), list):
        yield from _sharegpt(body, notes)
    elif isinstance(body.get("input"), (str, list)):
        yield from _responses(body, notes)
    else:
        raise ExchangeError(_NONE)


def _system(content: Any, notes: Notes) -> Iterator[Turn]:
    if content is not None:
        yield Turn("system", tuple(blocks(content, "system", notes)), _SYSTEM)


def _messages(messages: list[Any], notes: Notes) -> Iterator[Turn]:
    for place, message in enumerate(messages, 1):
        turn = of_message(message, f"message {place}", notes)
        if turn is not None:
            yield turn


def _plain(message: Any) -> Any:
    """A message of LangChain as others write it; any other message as it is."""
    if not isinstance(message, dict) or "role" in message:
        return message
    held, kind = message.get("data"), message.get("type")
    if isinstance(message.get("id"), list) and isinstance(message.get("kwargs"), dict):
        held, kind = message["kwargs"], (message["id"] or [""])[-1]
    known = _LANGCHAIN.get(str(kind).lower().removesuffix("chunk"))
    if not isinstance(held, dict) or (known is None and "role" not in held):
        return message
    left = {key: value for key, value in held.items() if key != "type"}
    return {**left, "role": known or held["role"]}


def _gemini(body: dict[str, Any], notes: Notes) -> Iterator[Turn]:
    for key in ("systemInstruction", "system_instruction"):
        held = body.get(key)
        if held is not None:
            parts = held.get("parts") if isinstance(held, dict) else held
            yield Turn("system", tuple(_parts(parts, "system", notes)), _SYSTEM)
    contents = body["contents"]
    for place, one in enumerate(contents if isinstance(contents, list) else [contents], 1):
        where = f"message {place}"
        if isinstance(one, str):
            one = {"parts": [{"text": one}]}
        if not isinstance(one, dict):
            raise ExchangeError(
                f'{where} is no content; write {{"role": "user", "parts": [{{"text": "…"}}]}}'
            )
        role = str(one.get("role") or "user")
        found = tuple(_parts(one.get("parts"), where, notes))
        if role == "model":
            yield Turn("assistant", found, where)
        elif role in ("user", "function", "tool"):
            yield Turn("user", found, where, result=role != "user" or any(block.alone for block in found))
        else:
            notes.count("message", f"of the role {role!r} left out (PML has no such turn)", where)
    rest(body, frozenset({"contents", "systemInstruction", "system_instruction"}), notes)


def _parts(parts: Any, where: str, notes: Notes) -> Iterator[Block]:
    """The parts of a turn for Gemini: text, and what tools have answered."""
    if isinstance(parts, (str, dict)):
        parts = [parts]
    for part in parts if isinstance(parts, list) else []:
        answered = (
            part.get("functionResponse", part.get("function_response")) if isinstance(part, dict) else None
        )
        if isinstance(answered, dict):
            notes.count("result", "of tools became modules in turns of the user", where)
            said = written(answered.get("response"))
            yield from blocks(said, where, notes, alone=True, title=str(answered.get("name") or "result"))
        elif isinstance(part, dict) and "text" not in part:
            kind = next(iter(part), None)
            yield from blocks({"type": kind}, where, notes)
        elif isinstance(part, dict) and part.get("thought"):
            yield from blocks({"type": "thought"}, where, notes)
        else:
            yield from blocks(part if isinstance(part, str) else {"type": "text", **part}, where, notes)


def _sharegpt(body: dict[str, Any], notes: Notes) -> Iterator[Turn]:
    key = "conversations" if isinstance(body.get("conversations"), list) else "conversation"
    yield from _system(body.get("system"), notes)
    messages = []
    for one in body[key]:
        if isinstance(one, dict) and "from" in one:
            left = {name: value for name, value in one.items() if name not in ("from", "value")}
            one = {**left, "role": one["from"], "content": one.get("value")}
        messages.append(one)
    yield from _messages(messages, notes)
    if body.get("id") not in (None, ""):
        notes.count("id", "of the row left out (a schema has its name alone)", str(body["id"]))
    rest(body, frozenset({key, "system", "id"}), notes)


def _responses(body: dict[str, Any], notes: Notes) -> Iterator[Turn]:
    yield from _system(body.get("instructions"), notes)
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for place, item in enumerate(items, 1):
        where = f"message {place}"
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(item, dict) and "role" not in item and kind is not None:
            found = tuple(blocks(item, where, notes))
            if found or kind == "function_call_output":
                yield Turn("user", found, where, result=True)
            continue
        turn = of_message(item, where, notes)
        if turn is not None:
            yield turn
    rest(body, frozenset({"input", "instructions"}), notes)
