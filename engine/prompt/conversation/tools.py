"""Tools of a model, earlier calls, and their results, as input of a chat template.

Values are hashable and stored as JSON. Independent of templates and tokenizers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.base.errors import PromptCacheError

_DEEPEST: Final = 32  # nesting of a definition or arguments; renderings have similar limits
_RESERVED: Final = frozenset(("messages", "tools", "add_generation_prompt", "self"))
_SHORT_ID: Final = re.compile(r"[A-Za-z0-9]{9}")


class ToolsError(PromptCacheError):
    """Tools, calls or results are invalid, or the model does not support them."""


@dataclass(frozen=True)
class Tools:
    """Input of a chat template besides the turns: tools and its own variables. Created by `Tools.of`.

    It is true if there are tools.

    Attributes:
        json: the definitions as one list, in their own order.
        names: the names of the functions.
        variables_json: the variables by name, as JSON; "" for none.
    """

    json: str = ""
    names: tuple[str, ...] = field(default=(), compare=False)
    variables_json: str = ""

    def __bool__(self) -> bool:
        return bool(self.names)

    @classmethod
    def of(
        cls, definitions: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None
    ) -> Tools:
        """Creates tools from definitions in OpenAI's form: `{"type": "function", "function": {"name": …}}`.

        Args:
            definitions: each has a unique name, and mostly a description and parameters (a JSON Schema of an
                object).
            variables: other variables of the chat template by name, such as `enable_thinking`.

        Raises:
            ToolsError: a definition is invalid, or a variable is reserved.
        """
        _require_list(definitions)
        names: list[str] = []
        for number, definition in enumerate(definitions, 1):
            names.append(_name_of(definition, f"Tool {number}"))
            if names[-1] in names[:-1]:
                raise ToolsError(
                    f"Tool {number} has the name {names[-1]!r} of an earlier tool. Give each its own name."
                )
            _require_shallow(definition, f"Tool {number}")
        written = _json(list(definitions), "The tools") if names else ""
        return cls(written, tuple(names), _variables(variables or {}))

    def without(self) -> Tools:
        """Returns only the variables."""
        return Tools(variables_json=self.variables_json)

    def definitions(self) -> list[dict[str, Any]]:
        """Returns the definitions, as a new value."""
        definitions: list[dict[str, Any]] = json.loads(self.json or "[]")
        return definitions

    def variables(self) -> dict[str, Any]:
        """Returns the variables by name, as a new value."""
        variables: dict[str, Any] = json.loads(self.variables_json or "{}")
        return variables


NO_TOOLS: Final = Tools()


@dataclass(frozen=True)
class ToolCall:
    """One tool call of the assistant, with arguments by name; its result refers to `id`, if any."""

    name: str
    arguments: Mapping[str, Any] = field(hash=False)
    id: str = ""


@dataclass(frozen=True)
class Form:
    """The form of calls in a chat template; templates differ, so several are tried.

    Attributes:
        spelled: arguments are JSON text, not an object.
        none: a turn with only calls has no content, not empty content.
        short_ids: ids have nine letters and digits; a digest replaces other ids.
    """

    spelled: bool = False
    none: bool = False
    short_ids: bool = False


FORMS: Final = tuple(
    Form(spelled, none, short)
    for short in (False, True)
    for none in (False, True)
    for spelled in (False, True)
)
"""All forms, in the order of attempts."""


@dataclass(frozen=True)
class Header:
    """A turn without its text, as input of a chat template.

    Attributes:
        role: the speaker.
        fields: JSON of its message without role and content; "" for nothing.
        blank: whether it has no text, so none is rendered.
    """

    role: str
    fields: str = ""
    blank: bool = False

    @property
    def calls(self) -> bool:
        """Whether it has tool calls."""
        return self.fields.startswith('{"tool_calls"')

    def without_calls(self) -> Header:
        """Returns the same turn without calls."""
        return Header(self.role, "", self.blank) if self.calls else self

    def message(self, text: str, form: Form) -> dict[str, Any]:
        """Returns the message for a template, with text and calls in the given form."""
        content = None if form.none and self.calls and not text else text
        message: dict[str, Any] = {"role": self.role, "content": content}
        if self.fields:
            message |= _formed(json.loads(self.fields), form)
        return message


def call_fields(calls: Sequence[ToolCall]) -> str:
    """Returns the message fields of tool calls, without role and content, as JSON.

    Raises:
        ToolsError: a call has no name, or its arguments are no JSON object.
    """
    entries = []
    for number, call in enumerate(calls, 1):
        if not call.name:
            raise ToolsError(f"Call {number} has no name; it must be that of a function.")
        if not isinstance(call.arguments, Mapping):
            raise ToolsError(f"The arguments of {call.name!r} must be a JSON object.")
        _require_shallow(call.arguments, f"The call of {call.name!r}")
        function = {"name": call.name, "arguments": dict(call.arguments)}
        entries.append({**({"id": call.id} if call.id else {}), "type": "function", "function": function})
    return _json({"tool_calls": entries}, "The calls") if entries else ""


def result_fields(call_id: str = "", name: str = "") -> str:
    """Returns the message fields of a tool's result, without role and content, as JSON."""
    fields = {"tool_call_id": call_id, "name": name}
    return _json({key: value for key, value in fields.items() if value}, "The result")


def characters(value: object) -> int:
    """Returns the total length of all texts in a JSON value, without names of fields."""
    total, pending = 0, [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            total += len(item)
        else:
            pending.extend(_below(item))
    return total


def _below(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _require_list(definitions: object) -> None:
    if not isinstance(definitions, Sequence) or isinstance(definitions, str | bytes):
        raise ToolsError("The tools must be a list of definitions.")


def _name_of(definition: object, what: str) -> str:
    function = definition.get("function") if isinstance(definition, Mapping) else None
    if not isinstance(definition, Mapping) or definition.get("type") != "function" or not function:
        raise ToolsError(
            f'{what} must be an object like {{"type": "function", "function": {{"name": "…"}}}}.'
        )
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise ToolsError(f"{what} has no name; write one into its function.")
    if not isinstance(function.get("description", ""), str | None):
        raise ToolsError(f"The description of tool {name!r} must be a text.")
    if not isinstance(function.get("parameters", {}), Mapping | None):
        raise ToolsError(f"The parameters of tool {name!r} must be a JSON Schema, which is an object.")
    return name


def _variables(variables: Mapping[str, Any]) -> str:
    checked: object = variables
    if not isinstance(checked, Mapping) or not all(isinstance(name, str) for name in checked):
        raise ToolsError("The variables of the chat template must be an object with names.")
    reserved = sorted(_RESERVED.intersection(variables))
    if reserved:
        raise ToolsError(
            f"The chat template's variable {reserved[0]!r} is set by the conversation itself. Remove it."
        )
    _require_shallow(variables, "The variables of the chat template")
    return _json(dict(variables), "The variables of the chat template") if variables else ""


def _require_shallow(value: object, what: str) -> None:
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > _DEEPEST:
            raise ToolsError(f"{what} nests more than {_DEEPEST} deep. Make it flatter.")
        pending.extend((part, depth + 1) for part in _below(item))


def _json(value: object, what: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except (TypeError, ValueError) as error:  # includes lone surrogates
        raise ToolsError(f"{what} cannot be written as JSON: {error}.") from error
    return text


def _formed(fields: dict[str, Any], form: Form) -> dict[str, Any]:
    for call in fields.get("tool_calls", ()):
        function = call["function"]
        if form.spelled:
            function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
        if form.short_ids and "id" in call:
            call["id"] = _short(call["id"])
    if form.short_ids and "tool_call_id" in fields:
        fields["tool_call_id"] = _short(fields["tool_call_id"])
    return fields


def _short(identity: str) -> str:
    known = _SHORT_ID.fullmatch(identity)
    return identity if known else hashlib.sha256(identity.encode()).hexdigest()[:9]
