"""Tools of a request: their definitions and calls in the engine's terms, and the calls in an answer."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.server.http.errors import INVALID, ApiError, unsupported
from engine.base.strict_json import JsonError, read_json
from engine.prompt.conversation.tools import NO_TOOLS, ToolCall, Tools, ToolsError


@dataclass(frozen=True)
class Said:
    """An answer in parts.

    Attributes:
        text: what it says.
        thought: what the assistant thought before.
        calls: of tools, each with an id.
    """

    text: str
    thought: str = ""
    calls: tuple[ToolCall, ...] = ()


def tools_of(definitions: Sequence[Mapping[str, Any]], where: str = "tools") -> Tools:
    """Takes definitions in OpenAI's form.

    Raises:
        ApiError: something in them is none.
    """
    try:
        return Tools.of(definitions) if definitions else NO_TOOLS
    except ToolsError as error:
        raise ApiError(INVALID, str(error), where) from None


def with_variables(tools: Tools, variables: Mapping[str, Any] | None) -> Tools:
    """Adds the variables of a chat template that a request sets.

    Raises:
        ApiError: one of them is not for a request to set.
    """
    try:
        return replace(tools, variables_json=Tools.of((), variables).variables_json)
    except ToolsError as error:
        raise ApiError(INVALID, str(error), "chat_template_kwargs") from None


def call_of(name: object, arguments: object, identity: object, where: str) -> ToolCall:
    """Takes a call that the assistant made before.

    Args:
        name: of the function.
        arguments: an object, or JSON of one; null and no text stand for none, as some clients have it.
        identity: by which its result names it.
        where: the field.

    Raises:
        ApiError: it is none.
    """
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments or "{}")
        except JsonError as error:
            raise ApiError(INVALID, f"The arguments are no JSON: {error}.", where) from None
    if arguments is None:
        arguments = {}
    if not isinstance(name, str):
        raise ApiError(INVALID, "The call names no function. Send its name.", where)
    if not isinstance(arguments, dict):
        raise ApiError(INVALID, "The arguments of a call are an object, and these are none.", where)
    if not isinstance(identity, str | None):
        raise ApiError(INVALID, "The id of a call is a text.", where)
    return ToolCall(name, arguments, identity or "")


def identified(calls: Sequence[ToolCall], prefix: str) -> tuple[ToolCall, ...]:
    """Gives an id to calls that have none, as most models write none."""
    return tuple(
        ToolCall(one.name, one.arguments, one.id or f"{prefix}{secrets.token_hex(12)}") for one in calls
    )


def require_free_choice(forced: bool, single: bool, where: str) -> None:
    """Refuses what nobody can make a model do.

    Raises:
        ApiError: a call is forced, or more than one is forbidden.
    """
    if forced:
        raise unsupported(where, "whether the model calls a tool is its own choice; ask for it in words.")
    if single:
        raise unsupported(where, "the model may call several tools at once.")
