"""Items of responses: messages, calls of functions and their results; in the input, and in the output."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from app.server.core.tool_use import Said, call_of, identified, tools_of
from app.server.http.bodies import Many
from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.truncate import shown
from app.server.openai.wire import ROLES, Conversation, Part, Wire, require_no_module, require_role
from engine.pml.tree.tree import TurnName
from engine.prompt.conversation.tools import ToolCall, Tools

TURNS: Mapping[str, TurnName] = {**ROLES, "tool": "tool"}
_DEFINED = ("name", "description", "parameters")


class Item(Wire):
    """An item of the input: a message, a call of a function, its result, or something that is refused."""

    type: str = "message"
    role: str | None = None
    content: str | Many[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | Many[Part] | None = None


def read_items(items: Sequence[Item], conversation: Conversation) -> None:
    """Reads the items of an input.

    Calls belong to the turn of the assistant before them. What the model thought is left out, as chat
    templates leave it out of earlier turns.

    Args:
        items: in order.
        conversation: reads them as turns.

    Raises:
        ApiError: an item is none that is known, or lacks something.
    """
    number = 0
    while number < len(items):
        item, where = items[number], f"input[{number}]"
        number += 1
        require_no_module(item, where)
        match item.type:
            case "message":
                require_role(item.role or "", ROLES, where)
                if item.content is None:
                    raise ApiError(INVALID, "There is no content in this message.", f"{where}.content")
                calls = _calls(items, number) if item.role == "assistant" else ()
                conversation.read(item.role or "", item.content, where, calls=calls)
                number += len(calls)
            case "function_call":
                calls = _calls(items, number - 1)
                conversation.read("assistant", None, where, calls=calls)
                number += len(calls) - 1
            case "function_call_output":
                if item.output is None:
                    raise ApiError(INVALID, "There is no output in this item.", f"{where}.output")
                conversation.read("tool", item.output, where, answers=_call_id(item, where), field="output")
            case "reasoning":
                pass
            case _:
                raise unsupported(
                    f"{where}.type",
                    f"the input is messages, calls of functions and their results, not {shown(item.type)}.",
                )


def _calls(items: Sequence[Item], number: int) -> tuple[ToolCall, ...]:
    """The calls that stand from a place on, side by side."""
    found = []
    while number < len(items) and items[number].type == "function_call":
        item, where = items[number], f"input[{number}]"
        found.append(call_of(item.name, item.arguments, _call_id(item, where), where))
        number += 1
    return tuple(found)


def _call_id(item: Item, where: str) -> str:
    if not item.call_id:
        raise ApiError(
            INVALID,
            "There is no call_id, by which a call and its result belong together.",
            f"{where}.call_id",
        )
    return item.call_id


def functions_of(tools: Sequence[Mapping[str, Any]]) -> Tools:
    """Takes definitions of functions as responses have them.

    Raises:
        ApiError: something in them is none.
    """
    found = []
    for number, tool in enumerate(tools):
        if tool.get("type") != "function":
            words = f"functions are known alone, and this is {shown(tool.get('type'))}."
            raise unsupported(f"tools[{number}].type", words)
        told = {name: tool[name] for name in _DEFINED if tool.get(name) is not None}
        found.append({"type": "function", "function": told})
    return tools_of(found)


def output_of(said: Said, status: str, message_id: str) -> list[dict[str, Any]]:
    """Returns the items that an answer is.

    Args:
        said: the answer in parts.
        status: of each item.
        message_id: of the message.
    """
    items = []
    if said.thought:
        items.append(_reasoning(said.thought, status))
    if said.text or not said.calls:
        items.append(message_item(message_id, status, said.text))
    return [*items, *(_call_item(call, status) for call in identified(said.calls, "call_"))]


def message_item(identity: str, status: str, text: str | None) -> dict[str, Any]:
    """Returns a message of the assistant; without a text one that has no part yet."""
    content = [] if text is None else [part_of(text)]
    return {"id": identity, "type": "message", "role": "assistant", "status": status, "content": content}


def part_of(text: str) -> dict[str, Any]:
    """Returns a text as the part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _reasoning(thought: str, status: str) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": thought}]
    identity = f"rs_{secrets.token_hex(12)}"
    return {"id": identity, "type": "reasoning", "status": status, "summary": [], "content": content}


def _call_item(call: ToolCall, status: str) -> dict[str, Any]:
    return {
        "id": f"fc_{secrets.token_hex(12)}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": json.dumps(call.arguments, ensure_ascii=False),
        "status": status,
    }
