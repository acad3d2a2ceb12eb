"""Definitions of tools in Anthropic's form: those that stand at the beginning, and those that come later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.server.core.tool_use import tools_of
from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.truncate import shown
from engine.prompt.conversation.tools import NO_TOOLS, Tools

_NAMES = {"name": "name", "description": "description", "input_schema": "parameters"}
# What would change the answer, with the value that asks for nothing.
_REFUSED: tuple[tuple[str, object, str], ...] = (
    ("input_examples", [], "chat templates have no place for examples; write them into the description."),
    ("allowed_callers", ["direct"], "the model alone calls tools."),
)


class Definitions:
    """The tools of a request.

    One with `defer_loading` is not written at the beginning, but where the result of a search for tools
    refers to it. So what stands before that in the prompt stays what it was, and is read.

    Args:
        tools: as the request has them.
        used: whether the assistant may call any.

    Attributes:
        first: those that the template writes.
        deferred: the others.

    Raises:
        ApiError: something in them is no definition, is a tool of Anthropic's, or all are deferred.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], *, used: bool = True) -> None:
        functions = [_function(tool, f"tools.{number}") for number, tool in enumerate(tools)]
        later = [tool.get("defer_loading") is True for tool in tools]
        tools_of(functions)  # names are told apart among all of them
        if functions and all(later):
            words = "All tools have defer_loading, so none could look for them. Leave it out of one at least."
            raise ApiError(INVALID, words, "tools")
        self._told = {str(one["function"].get("name")): one for one in functions}
        parts = [
            [one for one, late in zip(functions, later, strict=True) if late is kind]
            for kind in (False, True)
        ]
        self.first, self.deferred = (tools_of(part) if used else NO_TOOLS for part in parts)

    def text(self, name: object, where: str) -> str:
        """Returns the definition that a result refers to, as text of its own.

        Raises:
            ApiError: there is none of this name.
        """
        if not isinstance(name, str) or name not in self._told:
            raise ApiError(INVALID, f"There is no tool {shown(name)} among the tools.", where)
        return json.dumps(self._told[name], ensure_ascii=False)


def all_of(tools: Tools, deferred: Tools) -> Tools:
    """Returns what the assistant may call, wherever it is defined."""
    return tools_of([*tools.definitions(), *deferred.definitions()]) if deferred else tools


def _function(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A definition in OpenAI's form, as chat templates take it.

    Raises:
        ApiError: it is one of Anthropic's own tools, or says what is not honoured.
    """
    if isinstance(tool.get("function"), Mapping):
        words = 'This is OpenAI\'s form. Send {"name": …, "description": …, "input_schema": …}.'
        raise ApiError(INVALID, words, where)
    if tool.get("type", "custom") != "custom":
        raise unsupported(f"{where}.type", f"{shown(tool['type'])} is a tool of Anthropic's servers.")
    for name, harmless, why in _REFUSED:
        if tool.get(name) not in (None, harmless):
            raise unsupported(f"{where}.{name}", why)
    return {"type": "function", "function": {to: tool[of] for of, to in _NAMES.items() if of in tool}}
