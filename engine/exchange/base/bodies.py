"""Reads conversations in the forms of services and data sets, recognised by their fields."""

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
    """Returns the rows of a data set, a list of objects with a conversation each; None for other values."""
    if not isinstance(value, list) or not value:
        return None
    is_row = [isinstance(row, dict) and any(key in row for key in _CONVERSATIONS) for row in value]
    return value if all(is_row) and not any("role" in row for row in value) else None


def asks(body: Any) -> bool:
    """Whether a body is a request to OpenAI's Decisions API."""
    questions = body.get("questions") if isinstance(body, dict) and "input" in body else None
    return (
        isinstance(questions, list)
        and bool(questions)
        and all(isinstance(one, dict) and "instructions" in one for one in questions)
    )


def turns(body: Any, notes: Notes) -> Iterator[Turn]:
    """Reads a conversation.

    Args:
        body: the parsed document: messages or a request for OpenAI or Anthropic, a request to OpenAI's
            Responses or to Gemini, a row of ShareGPT, or messages of LangChain.
        notes: collects omissions.

    Raises:
        ExchangeError: there are no messages, or a message is invalid.
    """
    if isinstance(body, list):
        yield from _messages([_plain(message) for message in body], notes)
    elif not isinstance(body, dict):
        raise ExchangeError(_NONE)
    elif isinstance(body.get("messages"), list):
        yield from _system(body.get("system"), notes)
        yield from _messages([_plain(message) for message in body["messages"]], notes)
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
    """Converts a LangChain message to the common form; returns other messages unchanged."""
    if not isinstance(message, dict) or "role" in message:
        return message
    fields, kind = message.get("data"), message.get("type")
    if isinstance(message.get("id"), list) and isinstance(message.get("kwargs"), dict):
        fields, kind = message["kwargs"], (message["id"] or [""])[-1]
    known = _LANGCHAIN.get(str(kind).lower().removesuffix("chunk"))
    if not isinstance(fields, dict) or (known is None and "role" not in fields):
        return message
    left = {key: value for key, value in fields.items() if key != "type"}
    return {**left, "role": known or fields["role"]}


def _gemini(body: dict[str, Any], notes: Notes) -> Iterator[Turn]:
    for key in ("systemInstruction", "system_instruction"):
        instruction = body.get(key)
        if instruction is not None:
            parts = instruction.get("parts") if isinstance(instruction, dict) else instruction
            yield Turn("system", tuple(_parts(parts, "system", notes)), _SYSTEM)
    contents = body["contents"]
    for place, content in enumerate(contents if isinstance(contents, list) else [contents], 1):
        where = f"message {place}"
        if isinstance(content, str):
            content = {"parts": [{"text": content}]}
        if not isinstance(content, dict):
            raise ExchangeError(
                f'{where} is not valid content; write {{"role": "user", "parts": [{{"text": "…"}}]}}'
            )
        role = str(content.get("role") or "user")
        pieces = tuple(_parts(content.get("parts"), where, notes))
        if role == "model":
            yield Turn("assistant", pieces, where)
        elif role in ("user", "function", "tool"):
            yield Turn("user", pieces, where, result=role != "user" or any(block.alone for block in pieces))
        else:
            notes.count("message", f"of the role {role!r} left out (PML has no such turn)", where)
    rest(body, frozenset({"contents", "systemInstruction", "system_instruction"}), notes)


def _parts(parts: Any, where: str, notes: Notes) -> Iterator[Block]:
    """The parts of a Gemini turn: text and results of tools."""
    if isinstance(parts, (str, dict)):
        parts = [parts]
    for part in parts if isinstance(parts, list) else []:
        answered = (
            part.get("functionResponse", part.get("function_response")) if isinstance(part, dict) else None
        )
        if isinstance(answered, dict):
            notes.count("result", "of tools became modules in user turns", where)
            response = written(answered.get("response"))
            yield from blocks(response, where, notes, alone=True, title=str(answered.get("name") or "result"))
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
    for message in body[key]:
        if isinstance(message, dict) and "from" in message:
            left = {name: value for name, value in message.items() if name not in ("from", "value")}
            message = {**left, "role": message["from"], "content": message.get("value")}
        messages.append(message)
    yield from _messages(messages, notes)
    if body.get("id") not in (None, ""):
        notes.count("id", "of the row left out (a schema has only a name)", str(body["id"]))
    rest(body, frozenset({key, "system", "id"}), notes)


def _responses(body: dict[str, Any], notes: Notes) -> Iterator[Turn]:
    yield from _system(body.get("instructions"), notes)
    input_value = body["input"]
    items = [{"role": "user", "content": input_value}] if isinstance(input_value, str) else input_value
    for place, item in enumerate(items, 1):
        where = f"message {place}"
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(item, dict) and "role" not in item and kind is not None:
            pieces = tuple(blocks(item, where, notes))
            if pieces or kind == "function_call_output":
                yield Turn("user", pieces, where, result=True)
            continue
        turn = of_message(item, where, notes)
        if turn is not None:
            yield turn
    asked = {"questions"} if asks(body) else set()
    rest(body, frozenset({"input", "instructions", *asked}), notes)
