"""What the nodes of a template are in a schema. Templates are parsed by jinja2 and never rendered.

What has no counterpart in a schema is left out and noted with its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from jinja2 import nodes

from engine.exchange.imported import require_characters
from engine.exchange.jinja import GAP, NEW_TEXT, SEAM, STATE, TURN
from engine.pml import NAME, ROLES, RoleName
from engine.programs.expressions import Const, Expr, Ref
from engine.programs.naming import legible, unique
from engine.programs.outline import ModuleNode, Node, Say, Seam, Turn, UnionNode
from engine.programs.parameters import Arg, Parameter

_ALWAYS: Final = Const(True)
_MACROS: Final = (GAP, SEAM, TURN)
"""The macros of our own templates, which a schema needs no counterpart of."""


class Place:
    """Where nodes stand: the names of modules taken there, whether in a module, and whether at the top."""

    def __init__(self, taken: dict[str, int], module: bool, top: bool) -> None:
        self.taken = taken
        self.module = module
        self.top = top

    def inside(self) -> Place:
        """The place in a module here."""
        return Place({}, True, False)

    def turn(self) -> Place:
        """The place in a turn here."""
        return Place(self.taken, False, False)


class TemplateReader:
    """Turns nodes of templates into what a schema is built of.

    Args:
        length: length of the parameters, in tokens.
        constants: values that variables have in the template itself.
        defaults: what parameters are where a prompt gives nothing.

    Attributes:
        parameters: those that came up, by name.
        notes: what was left out, a sentence each.
        always: names of the modules that stand under no condition.
    """

    def __init__(
        self,
        length: int,
        constants: Mapping[str, Any] | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self._length = length
        self._constants: dict[str, Any] = dict(constants or {})
        self._defaults = dict(defaults or {})
        self.parameters: dict[str, Parameter] = {}
        self.notes: list[str] = []
        self.always: list[str] = []

    def body(self, items: list[nodes.Node], place: Place) -> list[Node]:
        """The nodes of one body."""
        found: list[Node] = []
        for item in items:
            found.extend(self._item(item, place))
        return found

    def _item(self, item: nodes.Node, place: Place) -> Iterator[Node]:
        match item:
            case nodes.Output():
                for node in item.nodes:
                    if isinstance(node, nodes.CondExpr):
                        yield from self._condition_text(node, place)
                        continue
                    if isinstance(node, nodes.Call) and _path(node.node) in _MACROS:
                        yield from _seam(node)
                        continue
                    parts = tuple(self._parts(node))
                    if parts:
                        yield Say(parts)
            case nodes.If():
                yield from self._if(item, place)
            case nodes.Block():
                yield from self._block(item, place)
            case nodes.Scope() | nodes.ScopedEvalContextModifier():
                yield from self.body(item.body, place)
            case nodes.Macro(name=name) if name in _MACROS:
                return
            case nodes.Assign(target=nodes.Name(name=name) | nodes.NSRef(name=name)) if name == STATE:
                return
            case nodes.Assign(target=nodes.Name(name=name), node=nodes.Const(value=value)):
                self._constants[name] = value
            case _:
                self._leave_out(item, _SPELLING.get(type(item).__name__, type(item).__name__.lower()))

    def told(self) -> tuple[str, ...]:
        """The notes, each once, with one on the lengths of parameters before them."""
        notes = list(dict.fromkeys(self.notes))
        if self.parameters:
            listed = ", ".join(list(self.parameters)[:5])
            got = f"got len={self._length}, as a template says no length; set your own"
            notes.insert(0, f"each parameter ({listed}) {got}")
        return tuple(notes)

    def _leave_out(self, node: nodes.Node, what: str) -> None:
        inside = ", ".join(f"{{{{ {path} }}}}" for path in _written(node))
        lost = f" with {inside} in it" if inside else ""
        self.notes.append(f"line {node.lineno}: {what} is left out{lost}, as a schema has nothing like it")

    # Text

    def _parts(self, node: nodes.Expr) -> Iterator[Expr]:
        match node:
            case nodes.TemplateData(data=data):
                yield Const(require_characters(data, f"line {node.lineno}"))
            case nodes.Const(value=value):
                yield Const(require_characters(str(value), f"line {node.lineno}"))
            case nodes.Concat():
                for one in node.nodes:
                    yield from self._parts(one)
            case nodes.Add():
                yield from self._parts(node.left)
                yield from self._parts(node.right)
            case nodes.Filter(node=inner, name=name) if inner is not None:
                yield from self._filtered(node, inner, name)
            case nodes.Name(name=name) if name in self._constants:
                yield Const(require_characters(str(self._constants[name]), f"line {node.lineno}"))
            case nodes.Name(name=name) if name == NEW_TEXT:
                self.notes.append(f"line {node.lineno}: {NEW_TEXT} is where a prompt adds its own text")
            case _:
                path = _path(node)
                if path is None:
                    self._leave_out(node, "what {{ … }} computes")
                else:
                    yield self._parameter(path, None)

    def _filtered(self, node: nodes.Filter, inner: nodes.Expr, name: str) -> Iterator[Expr]:
        path = _path(inner)
        match node.args:
            case [nodes.Const(value=str(default)), *_] if name in ("default", "d") and path is not None:
                yield self._parameter(path, require_characters(default, f"line {node.lineno}"))
                return
        self.notes.append(f"line {node.lineno}: the filter {name} is left out; its value stands as it is")
        yield from self._parts(inner)

    def _parameter(self, path: str, default: str | None) -> Ref:
        name = path if NAME.fullmatch(path) else legible(path)
        default = self._defaults.get(path) if default is None else default
        known = self.parameters.setdefault(
            name, Parameter(name, Arg(self._length), 0, default is None, default)
        )
        return Ref(known if known.default == default else replace(known, default=default))

    def _one_each(self, body: list[Node]) -> list[Node]:
        """What stands in one module, with one default for all places of a variable, which is noted."""
        chosen: dict[str, Parameter] = {}
        for ref in _refs(body):
            name, default = ref.parameter.name, ref.parameter.default
            known = chosen.setdefault(name, ref.parameter)
            if (default or "") != (known.default or ""):
                several = default and known.default
                what = "several defaults" if several else "a default in one place and none in another"
                kept = f"one parameter, with the default {known.default or default!r}"
                self.notes.append(f"{name} has {what}; in a module it is {kept}")
            if known.default is None or (default and not known.default):
                chosen[name] = ref.parameter

        def settled(part: Expr) -> Expr:
            return replace(part, parameter=chosen[part.parameter.name]) if isinstance(part, Ref) else part

        return [Say(tuple(map(settled, one.parts))) if isinstance(one, Say) else one for one in body]

    # Modules

    def _if(self, item: nodes.If, place: Place) -> Iterator[Node]:
        branches = [(_words(item.test), item.body)]
        branches += [(_words(one.test), one.body) for one in item.elif_]
        if item.else_:
            branches.append((f"not-{branches[0][0]}" if len(branches) == 1 else "otherwise", item.else_))
        blocks = tuple(self._module(words, body, item, place) for words, body in branches)
        if len(blocks) == 1:
            yield blocks[0]
        else:
            yield UnionNode(blocks)

    def _condition_text(self, node: nodes.CondExpr, place: Place) -> Iterator[Node]:
        words = _words(node.test)
        sides = [(words, node.expr1), (f"not-{words}", node.expr2)]
        blocks = tuple(
            self._module(name, [nodes.Output([side], lineno=node.lineno)], node, place)
            for name, side in sides
            if side is not None
        )
        yield blocks[0] if len(blocks) == 1 else UnionNode(blocks)

    def _module(self, words: str, body: list[nodes.Node], item: nodes.Node, place: Place) -> ModuleNode:
        name = unique(legible(words), place.taken, item.lineno)
        inner = self._one_each(self.body(body, place.inside()))
        match inner:
            case [*said, Seam(seam)]:
                return ModuleNode(name, _ALWAYS, tuple(said), seam=seam)
        return ModuleNode(name, _ALWAYS, tuple(inner))

    def _block(self, item: nodes.Block, place: Place) -> Iterator[Node]:
        role = item.name.rstrip("0123456789").removesuffix("_")
        if role not in ROLES or not place.top:
            yield from self.body(item.body, place)
            return
        inner = self.anonymous(self.body(item.body, place.turn()), place)
        yield Turn(cast(RoleName, role), tuple(inner))

    def anonymous(self, body: list[Node], place: Place) -> list[Node]:
        """A body outside of modules: each line with a parameter becomes a module."""
        found: list[Node] = []
        parts: list[Expr] = []
        for node in [*body, None]:
            if isinstance(node, Say):
                parts.extend(node.parts)
                continue
            for line in _lines(parts):
                slot = next((one for one in line if isinstance(one, Ref)), None)
                if slot is None:
                    found.append(Say(line))
                else:
                    name = unique(legible(slot.parameter.name), place.taken, 0)
                    found.append(ModuleNode(name, _ALWAYS, tuple(self._one_each([Say(line)]))))
                    self.always.append(name)
            parts = []
            if node is not None:
                found.append(node)
        return found


def _refs(body: list[Node]) -> Iterator[Ref]:
    """The parameters that stand directly in a body."""
    for node in body:
        if isinstance(node, Say):
            yield from (part for part in node.parts if isinstance(part, Ref))


def _seam(call: nodes.Call) -> Iterator[Seam]:
    """The seam that a call of a macro remembers; the others write white space that is known already."""
    match call:
        case nodes.Call(node=nodes.Name(name=name), args=[nodes.Const(value=str(text)), *_]) if name == SEAM:
            yield Seam(text)


def _lines(parts: list[Expr]) -> Iterator[tuple[Expr, ...]]:
    """The parts cut at line breaks; neighbouring lines are joined where both or neither hold a parameter."""
    lines: list[list[Expr]] = [[]]
    for part in parts:
        if not isinstance(part, Const):
            lines[-1].append(part)
            continue
        for piece in part.value.splitlines(keepends=True):
            lines[-1].append(Const(piece))
            if piece.endswith("\n"):
                lines.append([])
    groups: list[tuple[bool, list[Expr]]] = []
    for line in lines:
        holds = any(isinstance(part, Ref) for part in line)
        if groups and groups[-1][0] == holds:
            groups[-1][1].extend(line)
        elif line:
            groups.append((holds, line))
    return iter([tuple(line) for _, line in groups])


_SPELLING: Final = {
    "For": "{% for %}",
    "Macro": "{% macro %}",
    "CallBlock": "{% call %}",
    "FilterBlock": "{% filter %}",
    "Include": "{% include %}",
    "Import": "{% import %}",
    "FromImport": "{% from … import %}",
    "Extends": "{% extends %}",
    "Assign": "{% set %} to what is no constant",
    "AssignBlock": "{% set %} of a block",
    "With": "{% with %}",
}


def _path(node: nodes.Expr | nodes.Node) -> str | None:
    """The variable that an expression names: `a`, `a.b`, `a["b"]`."""
    match node:
        case nodes.Name(name=name):
            return name
        case (
            nodes.Getattr(node=inner, attr=last) | nodes.Getitem(node=inner, arg=nodes.Const(value=str(last)))
        ):
            above = _path(inner)
            return None if above is None else f"{above}.{last}"
    return None


def _written(node: nodes.Node) -> tuple[str, ...]:
    """The variables whose values stand in the text that a statement makes."""
    names = [
        path
        for output in node.find_all(nodes.Output)
        for part in output.nodes
        for one in (part, *part.find_all((nodes.Name, nodes.Getattr, nodes.Getitem)))
        if (path := _path(one)) is not None
    ]
    whole = [one for one in names if not any(other.startswith(f"{one}.") for other in names)]
    return tuple(dict.fromkeys(whole))


def _words(test: nodes.Expr | nodes.Node) -> str:
    """A condition in a few words, from which a module gets its name."""
    match test:
        case nodes.Not(node=inner):
            return f"not-{_words(inner)}"
        case nodes.And(left=left, right=right):
            return f"{_words(left)}-and-{_words(right)}"
        case nodes.Or(left=left, right=right):
            return f"{_words(left)}-or-{_words(right)}"
        case nodes.Compare(ops=[nodes.Operand(op="eq", expr=nodes.Const(value=value))]):
            return str(value)
        case nodes.Compare(ops=[nodes.Operand(op="ne", expr=nodes.Const(value=value))]):
            return f"not-{value}"
        case nodes.Test(node=inner, name="defined"):
            return _words(inner)
    return _path(test) or "part"
