"""Converts a schema to a Jinja template, and a prompt to its variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from jinja2 import Undefined
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.turns import ROLE_LINE
from engine.pml import (
    ArgumentText,
    Bound,
    Module,
    NewText,
    Param,
    Role,
    RoleClose,
    RoleOpen,
    Schema,
    SchemaText,
    Text,
    Union,
)
from engine.pml.tree.conversation import conversation
from engine.pml.tree.parts import part_text
from engine.pml.whitespace.separators import own_seam
from engine.programs.compile.naming import VariableNames, quoted
from engine.programs.schema_endings import has_seams

NEW_TEXT: Final = "new_text"  # the variable for new text at a prompt's end
GAP: Final = "pml_gap"  # the macro before a text, which writes the pending separator
SEAM: Final = "pml_seam"  # the macro that adds a pending separator, until a text follows in the same turn

TURN: Final = "pml_turn"
"""The macro at the start and end of a turn: drops the separator, except after a user turn for new text."""

STATE: Final = "pml"
"""State of the macros: pending separator, separator of the last turn, number of texts in the turn."""

_MACROS: Final = f"""{{# White space between modules is written where text stands on either side of
it in one turn.
#}}{{% set {STATE} = namespace(gap="", last="", read=0) %}}{{#
#}}{{% macro {TURN}(ends="") %}}{{% if ends == "user" %}}{{#
#}}{{% set {STATE}.last = {STATE}.gap %}}{{% endif %}}{{#
#}}{{% set {STATE}.gap = "" %}}{{% set {STATE}.read = 0 %}}{{% endmacro %}}{{#
#}}{{% macro {GAP}(text=".", joins=false, own=false) %}}{{% if text | string %}}{{#
#}}{{% set gap = {STATE}.last if joins else {STATE}.gap %}}{{#
#}}{{% set bare = (text | string).lstrip() %}}{{#
#}}{{% set lead = (text | string)[: (text | string | length) - (bare | length)] %}}{{#
#}}{{% if not own or (lead.count("\n"), lead | length) <= (gap.count("\n"), gap | length) %}}{{#
#}}{{{{ gap }}}}{{% endif %}}{{#
#}}{{% set {STATE}.gap = "" %}}{{% set {STATE}.last = "" %}}{{#
#}}{{% set {STATE}.read = {STATE}.read + 1 %}}{{% endif %}}{{% endmacro %}}{{#
#}}{{% macro {SEAM}(text, since=0) %}}{{% if {STATE}.read > since and
  (text.count("\\n"), text | length) > ({STATE}.gap.count("\\n"), {STATE}.gap | length) %}}{{#
#}}{{% set {STATE}.gap = text %}}{{% endif %}}{{% endmacro %}}{{#
#}}"""
_RESERVED: Final = (
    *(GAP, SEAM, TURN, STATE),
    *(NEW_TEXT, "true", "false", "none", "range", "dict", "lipsum", "cycler", "joiner", "namespace"),
    *("loop", "self", "super", "caller", "varargs", "kwargs", "context", "environment", "recursive"),
    *("block", "endblock", "set", "raw", "filter", "do", "macro", "call", "include", "extends", "autoescape"),
)
_SAID: Final = 20
_SPECIAL: Final = re.compile(r"\{(?=[{%#\r]|\Z)|\r")
_ESCAPES: Final = {"{": "{{ '{' }}", "\r": "{{ '\\r' }}"}


def to_jinja(schema: Schema, bound: Bound | None) -> tuple[str, tuple[str, ...]]:
    """Returns the template of a schema, and notes.

    With jinja2's default settings, it renders to the text of the bound prompt, whose variables a comment at
    its start lists. A module is a variable that is true if imported. A union is a variable with the name of
    the imported member. A parameter is a variable, and a turn is a block.

    Raises:
        ExchangeError: a template cannot express the schema or the prompt.
    """
    names = VariableNames(schema, _RESERVED)
    pieces = _Writer(names, seams=has_seams(schema)).schema(schema, joins=_joins(bound), own=_own_seam(bound))
    template = "".join(pieces)
    if template.endswith("\n"):
        template += "{##}"  # jinja2 drops a line break at the very end
    first = ROLE_LINE.search(template)
    if first and not template[: first.start()].strip():
        template = "{##}" + template  # otherwise text like a role's name would become a role
    notes = _substitutes(names)
    context: dict[str, Any] = {}
    if bound is not None:
        context, lost = _context(bound, names)
        notes += lost
        shown = json.dumps(context, ensure_ascii=False, indent=2).replace("#}", "#\\u007d")
        template = f"{{# Render it with:\n{shown}\n#}}{template}"
    rendered = _render(template, context)
    if bound is not None and rendered != "".join(turn.text for turn in conversation(bound.parts)):
        message = (
            "a template has modules in the order of the schema and new text after them, but this prompt "
            "has another order; put its imports in the schema's order and its text after them"
        )
        raise ExchangeError(message)
    return template, tuple(notes)


def _substitutes(names: VariableNames) -> list[str]:
    """A sentence on names that the template spells differently."""
    pairs = [f"{variable} for {name}" for variable, name in names.substitutes.items()]
    more = f", and {len(pairs) - _SAID} more in the same way" if len(pairs) > _SAID else ""
    return [f"names are respelled for Jinja: {', '.join(pairs[:_SAID])}{more}"] if pairs else []


def _render(template: str, context: dict[str, Any]) -> str:
    try:
        return ImmutableSandboxedEnvironment(undefined=Undefined).from_string(template).render(context)
    except (TemplateError, SyntaxError, RecursionError, MemoryError) as error:
        reason = str(error) if isinstance(error, TemplateError) else "it is nested deeper than Jinja allows"
        raise ExchangeError(f"this schema cannot be a template: {reason}; flatten it") from None


def _joins(bound: Bound | None) -> bool:
    """Whether new text continues the end of the schema, not a turn of the prompt."""
    added = False
    for part in bound.parts if bound else ():
        if isinstance(part, RoleOpen | RoleClose):
            added = isinstance(part, RoleOpen) and part.new
        elif isinstance(part, NewText) and part.text and not part.seam:
            return not added
    return True


def _own_seam(bound: Bound | None) -> bool:
    """Whether the first new text is a separator of the prompt."""
    first = next((part for part in bound.parts if isinstance(part, NewText)), None) if bound else None
    return first is not None and first.seam


class _Writer:
    """Writes a schema as a template; `seams` adds the macros for separators."""

    def __init__(self, names: VariableNames, *, seams: bool) -> None:
        self._names = names
        self._turns: dict[str, int] = {}
        self._seams = seams
        self._unread = True  # whether a separator may be pending, or the module or turn is still empty

    def schema(self, schema: Schema, *, joins: bool, own: bool) -> Iterator[str]:
        """The parts of the template.

        With `joins`, new text may continue the end of the schema. With `own`, new text begins with white
        space that replaces a smaller separator.
        """
        children = schema.children
        last = children[-1] if children else None
        inside = joins and isinstance(last, Role) and last.role == "user"
        behind = ", true" if schema.index.turns and not inside else ""
        behind += ", own=true" if own else ""
        new_text = "".join(self._value(NEW_TEXT, gap=joins, behind=behind))
        if self._seams:
            yield _MACROS
        for place, child in enumerate(children):
            if isinstance(child, Role):
                fresh = not place or isinstance(children[place - 1], Role)
                yield from self._turn(child, new_text if child is last and inside else "", fresh=fresh)
            else:
                yield from self._children((child,), 0)
        if not inside:
            yield new_text

    def _turn(self, turn: Role, new_text: str = "", *, fresh: bool = False) -> Iterator[str]:
        """The block of a turn, with a unique name; `fresh` if no separator can be pending."""
        number = self._turns[turn.role] = self._turns.get(turn.role, 0) + 1
        border = f"{{{{ {TURN}() }}}}" if self._seams else ""
        yield f"{{% block {turn.role}{'' if number == 1 else f'_{number}'} %}}{'' if fresh else border}"
        self._unread = True
        yield from self._children(turn.children, 0)  # nothing outside the turn ends its content
        end = border.replace("()", '("user")') if turn.role == "user" else border
        yield f"{new_text or end}{{% endblock %}}"
        self._unread = True

    def _children(self, children: tuple[Any, ...], depth: int) -> Iterator[str]:
        for child in children:
            match child:
                case Text(text, seam=True):
                    yield self._seam(text)
                case Text(text):
                    if self._seams and self._unread and text:
                        self._unread = False
                        yield f"{{{{ {GAP}() }}}}"
                    yield _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)
                case Param():
                    default = "" if child.default is None else f" | default({_string(child.default)})"
                    yield from self._value(f"{self._names.of(child)}{default}", gap=self._unread)
                case Role():
                    yield from self._turn(child)
                case Module():
                    yield f"{{% if {self._names.of(child)} %}}"
                    yield from self._module(child, depth)
                    yield "{% endif %}"
                case Union(members):
                    for place, member in enumerate(members):
                        word = "elif" if place else "if"
                        yield f"{{% {word} {self._names.of(child)} == {_string(member.name)} %}}"
                        yield from self._module(member, depth)
                    yield "{% endif %}" if members else ""

    def _value(self, expression: str, *, gap: bool, behind: str = "") -> Iterator[str]:
        """A variable with the separator before it; `behind` if it follows the turn that it may join."""
        if self._seams and gap:
            yield f"{{{{ {GAP}({expression}{behind}) }}}}"
        yield f"{{{{ {expression} }}}}"

    def _module(self, module: Module, depth: int) -> Iterator[str]:
        """A module, whose separator becomes pending only if the module wrote text."""
        self._unread = True
        seam = own_seam(module)
        inner = module.children[:-1] if seam else module.children
        if seam and seam.implied and depth:
            seam = None  # it ends with its parent
        certain = any(isinstance(child, Text) and child.text and not child.seam for child in inner)
        before = "" if certain else f"{STATE}.before_{depth}"
        if seam and before:
            yield f"{{% set {before} = {STATE}.read %}}"
        yield from self._children(inner, depth + 1)
        if seam:
            yield self._seam(seam.text, before)
        self._unread = True

    def _seam(self, text: str, since: str = "") -> str:
        """Makes a separator pending if text was written, since `since` if given."""
        self._unread = True
        return f"{{{{ {SEAM}({_string(text)}{since and f', {since}'}) }}}}"


def _string(text: str) -> str:
    """A Jinja string without any apparent tag."""
    return re.sub(r"[{}%#]", lambda match: f"\\x{ord(match[0]):02x}", quoted(text))


def _context(bound: Bound, names: VariableNames) -> tuple[dict[str, Any], list[str]]:
    """The template's variables for one prompt."""
    context = names.values(bound)
    new: list[NewText] = []
    notes: list[str] = []
    for part in bound.parts:
        if isinstance(part, NewText):
            new.append(part)
        elif isinstance(part, RoleOpen) and part.new:
            notes = [f"turns that the prompt adds are part of {NEW_TEXT}"]
        elif isinstance(part, (SchemaText, ArgumentText)) and new and part_text(part):
            if all(item.seam for item in new):
                message = (
                    "the schema has text outside turns on both sides of an omitted turn, and a template "
                    "cannot separate it; put that text into turns"
                )
                raise ExchangeError(message)
            raise ExchangeError("a template allows new text only at its end; move the prompt's text there")
    if new:
        context[NEW_TEXT] = "".join(part.text for part in new)
    return context, notes
