"""A schema as a Jinja template, and what a prompt is rendered with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from jinja2 import Undefined
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.exchange.errors import ExchangeError
from engine.pml import (
    ArgumentText,
    Bound,
    Module,
    NewText,
    Param,
    Role,
    RoleOpen,
    Schema,
    SchemaText,
    Text,
    Union,
)
from engine.pml.conversation import conversation
from engine.pml.parts import part_text
from engine.programs.naming import VariableNames, quoted

NEW_TEXT: Final = "new_text"
"""The variable for what a prompt adds at its end."""

_RESERVED: Final = (
    *(NEW_TEXT, "true", "false", "none", "range", "dict", "lipsum", "cycler", "joiner", "namespace"),
    *("loop", "self", "super", "caller", "varargs", "kwargs", "context", "environment", "recursive"),
    *("block", "endblock", "set", "raw", "filter", "do", "macro", "call", "include", "extends", "autoescape"),
)
_SAID: Final = 20
_SPECIAL: Final = re.compile(r"\{(?=[{%#\r]|\Z)|\r")
_ESCAPES: Final = {"{": "{{ '{' }}", "\r": "{{ '\\r' }}"}


def to_jinja(schema: Schema, bound: Bound | None) -> tuple[str, tuple[str, ...]]:
    """The template of a schema, and notes.

    Rendered by jinja2 with its default settings, it gives the text of the bound prompt. A module is a
    variable that is true where it is imported, a union a variable with the name of the imported member, a
    parameter a variable, and a turn a block.

    Args:
        schema: the schema.
        bound: a prompt bound to it; the template then begins with a comment on what to render it with.

    Raises:
        ExchangeError: the template cannot hold the schema or the prompt.
    """
    names = VariableNames(schema, _RESERVED)
    template = "".join(_Writer(names).schema(schema))
    if template.endswith("\n"):
        template += "{##}"  # jinja2 drops a line break at the very end
    notes = _substitutes(names)
    context: dict[str, Any] = {}
    if bound is not None:
        context, lost = _context(bound, names)
        notes += lost
        shown = json.dumps(context, ensure_ascii=False, indent=2).replace("#}", "#\\u007d")
        template = f"{{# Render it with:\n{shown}\n#}}{template}"
    rendered = _render(template, context)
    if bound is not None and rendered != "".join(one.text for one in conversation(bound.parts)):
        message = (
            "a template holds the modules in the order of the schema, and this prompt has another; "
            "put its imports in the schema's order"
        )
        raise ExchangeError(message)
    return template, tuple(notes)


def _substitutes(names: VariableNames) -> list[str]:
    """Which names a template spells in another way, in one sentence."""
    pairs = [f"{found} for {name}" for found, name in names.substitutes.items()]
    more = f", and {len(pairs) - _SAID} more in the same way" if len(pairs) > _SAID else ""
    return [f"names are spelled as Jinja reads them: {', '.join(pairs[:_SAID])}{more}"] if pairs else []


def _render(template: str, context: dict[str, Any]) -> str:
    try:
        return ImmutableSandboxedEnvironment(undefined=Undefined).from_string(template).render(context)
    except (TemplateError, SyntaxError, RecursionError, MemoryError) as error:
        reason = str(error) if isinstance(error, TemplateError) else "it is nested deeper than Jinja allows"
        raise ExchangeError(f"this schema cannot be a template: {reason}; flatten it") from None


class _Writer:
    def __init__(self, names: VariableNames) -> None:
        self._names = names
        self._turns: dict[str, int] = {}

    def schema(self, schema: Schema) -> Iterator[str]:
        """The pieces of the template."""
        children = schema.children
        last = children[-1] if children else None
        inside = isinstance(last, Role) and last.role == "user"
        for child in children:
            if isinstance(child, Role):
                yield self._block(child)
                yield from self._children(child.children)
                if child is last and inside:
                    yield f"{{{{ {NEW_TEXT} }}}}"
                yield "{% endblock %}"
            else:
                yield from self._children((child,))
        if not inside:
            yield f"{{{{ {NEW_TEXT} }}}}"

    def _block(self, turn: Role) -> str:
        """What begins the block of a turn, whose name is its own."""
        number = self._turns[turn.role] = self._turns.get(turn.role, 0) + 1
        return f"{{% block {turn.role}{'' if number == 1 else f'_{number}'} %}}"

    def _children(self, children: tuple[Any, ...]) -> Iterator[str]:
        for child in children:
            match child:
                case Text(text):
                    yield _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text)
                case Param():
                    default = "" if child.default is None else f" | default({_string(child.default)})"
                    yield f"{{{{ {self._names.of(child)}{default} }}}}"
                case Role(_, inner):
                    yield self._block(child)
                    yield from self._children(inner)
                    yield "{% endblock %}"
                case Module():
                    yield f"{{% if {self._names.of(child)} %}}"
                    yield from self._children(child.children)
                    yield "{% endif %}"
                case Union(members):
                    for place, member in enumerate(members):
                        word = "elif" if place else "if"
                        yield f"{{% {word} {self._names.of(child)} == {_string(member.name)} %}}"
                        yield from self._children(member.children)
                    yield "{% endif %}" if members else ""


def _string(text: str) -> str:
    """A string of Jinja, in which no tag seems to begin or end."""
    return re.sub(r"[{}%#]", lambda found: f"\\x{ord(found[0]):02x}", quoted(text))


def _context(bound: Bound, names: VariableNames) -> tuple[dict[str, Any], list[str]]:
    """What the template is rendered with for one prompt."""
    context = names.values(bound)
    new = ""
    notes: list[str] = []
    for part in bound.parts:
        if isinstance(part, NewText):
            new += part.text
        elif isinstance(part, RoleOpen) and part.new:
            notes = [f"turns that the prompt adds are part of {NEW_TEXT}"]
        elif isinstance(part, (SchemaText, ArgumentText)) and new and part_text(part):
            raise ExchangeError("a template holds new text only at its end; move the prompt's text there")
    if new:
        context[NEW_TEXT] = new
    return context, notes
