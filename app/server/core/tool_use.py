"""Converts tool definitions and calls to the engine's form, and reads the calls in an answer."""

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
    """An answer in parts."""

    text: str
    thought: str = ""  # the reasoning before it
    calls: tuple[ToolCall, ...] = ()  # tool calls, each with an id


def tools_of(definitions: Sequence[Mapping[str, Any]], where: str = "tools") -> Tools:
    """Converts definitions from OpenAI's form; raises ApiError if a definition is invalid."""
    try:
        return Tools.of(definitions) if definitions else NO_TOOLS
    except ToolsError as error:
        raise ApiError(INVALID, str(error), where) from None


def with_variables(tools: Tools, variables: Mapping[str, Any] | None) -> Tools:
    """Adds chat template variables from a request; raises ApiError for a reserved one."""
    try:
        return replace(tools, variables_json=Tools.of((), variables).variables_json)
    except ToolsError as error:
        raise ApiError(INVALID, str(error), "chat_template_kwargs") from None


def call_of(name: object, arguments: object, identity: object, where: str) -> ToolCall:
    """Converts an earlier call of the assistant.

    Args:
        name: name of the function.
        arguments: an object or its JSON; null and "" mean no arguments, because some clients send them.
        identity: the id that its result refers to.
        where: the field.

    Raises:
        ApiError: the call is invalid.
    """
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments or "{}")
        except JsonError as error:
            raise ApiError(INVALID, f"The arguments are not JSON: {error}.", where) from None
    if arguments is None:
        arguments = {}
    if not isinstance(name, str):
        raise ApiError(INVALID, "The call names no function. Send its name.", where)
    if not isinstance(arguments, dict):
        raise ApiError(INVALID, "The arguments of a call must be an object.", where)
    if not isinstance(identity, str | None):
        raise ApiError(INVALID, "The id of a call must be a text.", where)
    return ToolCall(name, arguments, identity or "")


def identified(calls: Sequence[ToolCall], prefix: str) -> tuple[ToolCall, ...]:
    """Gives an id to calls without one; most models write none."""
    return tuple(
        ToolCall(call.name, call.arguments, call.id or f"{prefix}{secrets.token_hex(12)}") for call in calls
    )


def require_free_choice(forced: bool, single: bool, where: str) -> None:
    """Rejects forced and single tool calls, which a model does not guarantee, with an ApiError."""
    if forced:
        raise unsupported(where, "the model decides whether to call a tool; ask for the call in the prompt.")
    if single:
        raise unsupported(where, "the model may call several tools at once.")
