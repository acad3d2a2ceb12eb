"""Converts tool definitions and calls to the engine's form, and reads the calls in an answer."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.truncate import listed, shown
from engine.base.strict_json import JsonError, read_json
from engine.grammars.grammar import GrammarError, compiled, of_schema
from engine.prompt.conversation.tools import NO_TOOLS, ToolCall, Tools, ToolsError
from engine.prompt.template.thinking import OFF, Thinking


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


def reasoning_of(effort: object, thinking: Thinking, where: str) -> dict[str, Any]:
    """Returns the chat template variables for an effort of reasoning, such as "none" or "high".

    Raises:
        ApiError: the chat template cannot change the reasoning; the message names the field, `where`.
    """
    if effort is None:
        return {}
    if not isinstance(effort, str):
        raise ApiError(INVALID, f"{where} is {shown(effort)}; it must be a text.", where)
    if (variables := thinking.variables(effort)) is not None:
        return variables
    if effort == OFF and not thinking:
        return {}
    words = "the model's chat template decides whether it thinks" if thinking else "the model does not think"
    raise unsupported(where, f"{words}. Remove the field.")


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


def forced_of(tools: Tools, name: object, where: str) -> tuple[str, ...]:
    """Returns the tools of which an answer must call one.

    Args:
        tools: all tools.
        name: the name of the one tool; None for any.
        where: the field with the choice.

    Raises:
        ApiError: there is no such tool.
    """
    if not tools:
        raise ApiError(INVALID, "There are no tools to call. Send tools.", where)
    if name is None:
        return tools.names
    if name not in tools.names:
        words = f"There is no tool {shown(name)}; the tools are {listed(tools.names)}."
        raise ApiError(INVALID, words, where)
    return (str(name),)


def strict_of(definitions: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns the names of `strict` tools; raises ApiError if the parameters of one cannot be enforced."""
    names = list[str]()
    for number, definition in enumerate(definitions):
        function = definition.get("function", definition)
        if function.get("strict") is True:
            names.append(str(function.get("name")))
            try:
                compiled(of_schema(function.get("parameters") or function.get("input_schema") or {}))
            except GrammarError as error:
                raise ApiError(INVALID, f"{error} Or remove strict.", f"tools[{number}]") from None
    return tuple(names)


def require_one_call(single: bool, forced: Sequence[str], where: str) -> None:
    """Rejects the wish for at most one call, which only a forced call guarantees, with an ApiError."""
    if single and not forced:
        raise unsupported(where, "the model may call several tools at once, unless a call is forced.")
