"""Input and output items of the Responses API: messages, function calls and their results."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from app.server.core.tool_use import Said, call_of, identified, tools_of
from app.server.http.bodies import Many
from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.shapes import optional
from app.server.http.truncate import shown
from app.server.openai.response_shapes import (
    ItemStatus,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputText,
    Reasoning,
    ReasoningText,
)
from app.server.openai.wire import CONTENT, ROLES, Conversation, Part, Wire, require_no_module, require_role
from engine.pml.tree.tree import TurnName
from engine.prompt.conversation.tools import ToolCall, Tools

TURNS: Mapping[str, TurnName] = {**ROLES, "tool": "tool"}
_DEFINED = ("name", "description", "parameters")


class Item(Wire):
    """An input item: a message, a function call, its result, or an unsupported item."""

    type: str = optional("The kind of item.", "message")
    role: str | None = optional("The role of a message.")
    content: str | Many[Part] | None = optional(CONTENT)
    call_id: str | None = optional("The id of the call; its result has the same.")
    name: str | None = optional("The name of the function.")
    arguments: str | None = optional("The arguments, as a JSON text.")
    output: str | Many[Part] | None = optional("The result: a text, or parts of text.")


def read_items(items: Sequence[Item], conversation: Conversation) -> None:
    """Reads the items of an input.

    Function calls belong to the assistant's turn before them. Reasoning items are ignored, because chat
    templates omit earlier reasoning.

    Raises:
        ApiError: an item is unknown or incomplete.
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
                    raise ApiError(INVALID, "This message has no content.", f"{where}.content")
                calls = _calls(items, number) if item.role == "assistant" else ()
                conversation.read(item.role or "", item.content, where, calls=calls)
                number += len(calls)
            case "function_call":
                calls = _calls(items, number - 1)
                conversation.read("assistant", None, where, calls=calls)
                number += len(calls) - 1
            case "function_call_output":
                if item.output is None:
                    raise ApiError(INVALID, "This item has no output.", f"{where}.output")
                conversation.read("tool", item.output, where, answers=_call_id(item, where), field="output")
            case "reasoning":
                pass
            case _:
                raise unsupported(
                    f"{where}.type",
                    f"the input has messages, function calls and their results, not {shown(item.type)}.",
                )


def _calls(items: Sequence[Item], number: int) -> tuple[ToolCall, ...]:
    """The consecutive calls from a position on."""
    calls = []
    while number < len(items) and items[number].type == "function_call":
        item, where = items[number], f"input[{number}]"
        calls.append(call_of(item.name, item.arguments, _call_id(item, where), where))
        number += 1
    return tuple(calls)


def _call_id(item: Item, where: str) -> str:
    if not item.call_id:
        raise ApiError(
            INVALID,
            "call_id is missing. It links a call to its result.",
            f"{where}.call_id",
        )
    return item.call_id


def functions_of(tools: Sequence[Mapping[str, Any]]) -> Tools:
    """Converts function definitions of the Responses API; raises ApiError if a definition is invalid."""
    functions = []
    for number, tool in enumerate(tools):
        if tool.get("type") != "function":
            words = f"only functions are supported, not {shown(tool.get('type'))}."
            raise unsupported(f"tools[{number}].type", words)
        function = {name: tool[name] for name in _DEFINED if tool.get(name) is not None}
        functions.append({"type": "function", "function": function})
    return tools_of(functions)


def output_of(said: Said, status: ItemStatus, message_id: str, reasoning_id: str) -> list[OutputItem]:
    """Returns the output items of an answer."""
    items: list[OutputItem] = []
    if said.thought:
        thought = ReasoningText(text=said.thought)
        items.append(Reasoning(id=reasoning_id, status=status, content=[thought]))
    if said.text or not said.calls:
        items.append(message_item(message_id, status, said.text))
    return [*items, *(_call_item(call, status) for call in identified(said.calls, "call_"))]


def message_item(identity: str, status: ItemStatus, text: str | None) -> OutputMessage:
    """Returns an assistant message; without a text it has no parts yet."""
    content = [] if text is None else [OutputText(text=text)]
    return OutputMessage(id=identity, status=status, content=content)


def _call_item(call: ToolCall, status: ItemStatus) -> OutputFunctionCall:
    return OutputFunctionCall(
        id=f"fc_{secrets.token_hex(12)}",
        call_id=call.id,
        name=call.name,
        arguments=json.dumps(call.arguments, ensure_ascii=False),
        status=status,
    )
