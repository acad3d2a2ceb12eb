"""Tools that a model may call, earlier calls, and their results: what a chat template is told of them.

Values that can be compared and looked up, kept as JSON. Knows no template and no tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.base.errors import PromptCacheError

_DEEPEST: Final = 32
"""How deep a definition or arguments may nest; chat templates are rendered within such bounds."""
_RESERVED: Final = frozenset(("messages", "tools", "add_generation_prompt"))
_SHORT_ID: Final = re.compile(r"[A-Za-z0-9]{9}")


class ToolsError(PromptCacheError):
    """Tools, calls or results are not what they must be, or the model has no place for them."""


@dataclass(frozen=True)
class Tools:
    """What a chat template reads besides the turns: tools, and variables of its own. Made by `Tools.of`.

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
        """Takes definitions in OpenAI's form: `{"type": "function", "function": {"name": …}}`.

        Args:
            definitions: each with a name of its own, and mostly a description and parameters, which are a
                JSON Schema of an object.
            variables: what else the chat template reads, by name, such as `enable_thinking`.

        Raises:
            ToolsError: something in them is no such definition, or a variable is not for the caller to set.
        """
        _require_list(definitions)
        names: list[str] = []
        for number, one in enumerate(definitions, 1):
            names.append(_name_of(one, f"Tool {number}"))
            if names[-1] in names[:-1]:
                raise ToolsError(
                    f"Tool {number} is called {names[-1]!r}, as an earlier one is. Give each its own name."
                )
            _require_shallow(one, f"Tool {number}")
        written = _json(list(definitions), "The tools") if names else ""
        return cls(written, tuple(names), _variables(variables or {}))

    def without(self) -> Tools:
        """Returns the variables alone."""
        return Tools(variables_json=self.variables_json)

    def definitions(self) -> list[dict[str, Any]]:
        """Returns the definitions, as a new value."""
        found: list[dict[str, Any]] = json.loads(self.json or "[]")
        return found

    def variables(self) -> dict[str, Any]:
        """Returns the variables by name, as a new value."""
        found: dict[str, Any] = json.loads(self.variables_json or "{}")
        return found


NO_TOOLS: Final = Tools()


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool by the assistant.

    Attributes:
        name: of the function.
        arguments: by name.
        id: by which its result names it; "" where it has none.
    """

    name: str
    arguments: Mapping[str, Any] = field(hash=False)
    id: str = ""


@dataclass(frozen=True)
class Form:
    """The form in which a chat template wants calls; templates differ, so several are tried.

    Attributes:
        spelled: arguments as a text of JSON, not as an object.
        none: no content, and not empty content, in a turn of calls alone.
        short_ids: ids of nine letters and digits; of others a digest stands for them.
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
"""All forms, in the order in which they are tried."""


@dataclass(frozen=True)
class Header:
    """What a chat template is told of a turn besides its text.

    Attributes:
        role: who speaks.
        fields: JSON of what its message has beside role and content; "" for nothing.
        blank: it has no text, so it is rendered without any.
    """

    role: str
    fields: str = ""
    blank: bool = False

    @property
    def calls(self) -> bool:
        """Whether it holds calls of tools."""
        return self.fields.startswith('{"tool_calls"')

    def without_calls(self) -> Header:
        """The same turn as if it called nothing."""
        return Header(self.role, "", self.blank) if self.calls else self

    def message(self, text: str, form: Form) -> dict[str, Any]:
        """Returns the message that a template is given.

        Args:
            text: what is said.
            form: how calls are written.
        """
        content = None if form.none and self.calls and not text else text
        message: dict[str, Any] = {"role": self.role, "content": content}
        if self.fields:
            message |= _formed(json.loads(self.fields), form)
        return message


def call_fields(calls: Sequence[ToolCall]) -> str:
    """Returns what the message of a turn has beside role and content if it calls tools, as JSON.

    Raises:
        ToolsError: a call has no name, or arguments that are no JSON object.
    """
    found = []
    for number, one in enumerate(calls, 1):
        if not one.name:
            raise ToolsError(f"Call {number} has no name; it must be that of a function.")
        if not isinstance(one.arguments, Mapping):
            raise ToolsError(f"The arguments of {one.name!r} must be a JSON object.")
        _require_shallow(one.arguments, f"What {one.name!r} is called with")
        function = {"name": one.name, "arguments": dict(one.arguments)}
        found.append({**({"id": one.id} if one.id else {}), "type": "function", "function": function})
    return _json({"tool_calls": found}, "The calls") if found else ""


def result_fields(call_id: str = "", name: str = "") -> str:
    """Returns what the message of a tool's result has beside role and content, as JSON.

    Args:
        call_id: the id of the call that it answers.
        name: the function that was called.
    """
    fields = {"tool_call_id": call_id, "name": name}
    return _json({key: value for key, value in fields.items() if value}, "The result")


def characters(value: object) -> int:
    """Returns how long all texts in a JSON value are together, names in objects left out."""
    total, pending = 0, [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            total += len(one)
        else:
            pending.extend(_below(one))
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
    given: object = variables
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ToolsError("The variables of the chat template must be an object with names.")
    reserved = sorted(_RESERVED.intersection(variables))
    if reserved:
        raise ToolsError(
            f"The chat template's variable {reserved[0]!r} is set by the conversation itself. Leave it out."
        )
    _require_shallow(variables, "The variables of the chat template")
    return _json(dict(variables), "The variables of the chat template") if variables else ""


def _require_shallow(value: object, what: str) -> None:
    pending = [(value, 1)]
    while pending:
        one, depth = pending.pop()
        if depth > _DEEPEST:
            raise ToolsError(f"{what} nests more than {_DEEPEST} deep. Make it flatter.")
        pending.extend((part, depth + 1) for part in _below(one))


def _json(value: object, what: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except (TypeError, ValueError) as error:  # a lone surrogate too
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
