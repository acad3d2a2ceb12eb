"""Tool definitions in Anthropic's form: initial ones and deferred ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.server.core.tool_use import tools_of
from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.truncate import shown
from engine.prompt.conversation.tools import NO_TOOLS, Tools

_NAMES = {"name": "name", "description": "description", "input_schema": "parameters"}
# Unsupported fields that would change the answer, each with its neutral value.
_REFUSED: tuple[tuple[str, object, str], ...] = (
    ("input_examples", [], "chat templates do not support examples; put them in the description."),
    ("allowed_callers", ["direct"], "only the model calls tools."),
)


class Definitions:
    """The tools of a request.

    The prompt defines a tool with `defer_loading` only after a tool search result refers to it. So the text
    before that stays unchanged and cached.

    Attributes:
        first: tools that the template writes.
        deferred: the other tools.

    Raises:
        ApiError: a definition is invalid or one of Anthropic's own tools, or all are deferred.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], *, used: bool = True) -> None:
        functions = [_function(tool, f"tools.{number}") for number, tool in enumerate(tools)]
        later = [tool.get("defer_loading") is True for tool in tools]
        tools_of(functions)  # checks that names are unique
        if functions and all(later):
            words = "All tools have defer_loading, so none can search for them. Remove it from one of them."
            raise ApiError(INVALID, words, "tools")
        self._told = {str(function["function"].get("name")): function for function in functions}
        parts = [
            [function for function, late in zip(functions, later, strict=True) if late is kind]
            for kind in (False, True)
        ]
        self.first, self.deferred = (tools_of(part) if used else NO_TOOLS for part in parts)

    def text(self, name: object, where: str) -> str:
        """Returns the definition that a result refers to, as text; raises ApiError if the name is unknown."""
        if not isinstance(name, str) or name not in self._told:
            raise ApiError(INVALID, f"There is no tool {shown(name)} among the tools.", where)
        return json.dumps(self._told[name], ensure_ascii=False)


def all_of(tools: Tools, deferred: Tools) -> Tools:
    """Returns all callable tools, initial and deferred."""
    return tools_of([*tools.definitions(), *deferred.definitions()]) if deferred else tools


def _function(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Converts a definition to OpenAI's form, as chat templates expect it."""
    if isinstance(tool.get("function"), Mapping):
        words = 'This is OpenAI\'s form. Send {"name": …, "description": …, "input_schema": …}.'
        raise ApiError(INVALID, words, where)
    if tool.get("type", "custom") != "custom":
        raise unsupported(f"{where}.type", f"{shown(tool['type'])} is a tool of Anthropic's servers.")
    for name, harmless, why in _REFUSED:
        if tool.get(name) not in (None, harmless):
            raise unsupported(f"{where}.{name}", why)
    return {"type": "function", "function": {to: tool[of] for of, to in _NAMES.items() if of in tool}}
