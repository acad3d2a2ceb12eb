"""Converts the nodes of a template to a schema. Templates are parsed by jinja2 and never rendered.

Nodes that a schema cannot express are omitted and noted with their line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, cast

from jinja2 import nodes

from engine.exchange.base.imported import require_characters
from engine.exchange.templates.choices import Choices
from engine.exchange.templates.expressions import (
    UNDEFINED,
    adds_text,
    decided,
    negation,
    path_of,
    said,
    words,
)
from engine.exchange.templates.statements import set_in, silent, spelling, target_of, written_in
from engine.exchange.templates.to_jinja import GAP, NEW_TEXT, SEAM, STATE, TURN
from engine.exchange.templates.values import Values
from engine.pml import NAME, ROLES, RoleName
from engine.programs.compile.naming import legible, unique
from engine.programs.compile.outline import ModuleNode, Node, Say, Seam, Turn, UnionNode
from engine.programs.source.expressions import Const, Expr, Ref
from engine.programs.source.parameters import Arg, Parameter

_ALWAYS: Final = Const(True)
_MACROS: Final = (GAP, SEAM, TURN)  # macros of exported templates, which an import ignores


@dataclass(frozen=True)
class Place:
    """The place of nodes in a schema.

    Attributes:
        taken: the used module names.
        top: whether turns are allowed.
        path: the path of the enclosing module; empty outside modules.
        tests: the conditions under which its text is written.
    """

    taken: dict[str, int] = field(default_factory=dict)
    top: bool = True
    path: str = ""
    tests: tuple[nodes.Expr, ...] = ()

    def inside(self, name: str, tests: Iterable[nodes.Expr] = ()) -> Place:
        """Returns the place in an inner module with additional conditions."""
        path = f"{self.path}/{name}" if self.path else name
        return Place({}, False, path, (*self.tests, *tests))

    def turn(self) -> Place:
        """Returns the place in a turn."""
        return replace(self, top=False)


_Read = Callable[[Place], Iterable[Node]]


class TemplateReader:
    """Converts nodes of templates to nodes of a schema; `length` is that of each parameter, in tokens."""

    def __init__(self, length: int, defaults: Mapping[str, str] | None = None) -> None:
        self._length = length
        self._defaults = dict(defaults or {})
        self._values = Values()
        self._outside: Values | None = None
        self._where, self._before = "", 0
        self.choices = Choices()
        self.parameters: dict[str, Parameter] = {}
        self.notes: list[str] = []

    def begin(self, constants: Mapping[str, Any]) -> None:
        """Begins an independent template, in which variables have these values."""
        self._values = Values({path: nodes.Const(value) for path, value in constants.items()})

    def stand(self, where: str, before: int) -> None:
        """Sets the name of the next nodes in messages, and the number of source lines before them."""
        self._where, self._before = where, before

    def body(self, items: list[nodes.Node], place: Place) -> list[Node]:
        """Converts the nodes of one body."""
        converted: list[Node] = []
        for item in items:
            converted.extend(self._item(item, place))
        return converted

    def _item(self, item: nodes.Node, place: Place) -> Iterator[Node]:
        match item:
            case nodes.Output():
                for node in item.nodes:
                    if isinstance(node, nodes.Call) and path_of(node.node) in _MACROS:
                        yield from _seam(node)
                    else:
                        yield from self._said(self._values.resolved(node), place)
            case nodes.If():
                yield from self._if(item, place)
            case nodes.Block():
                yield from self._block(item, place)
            case nodes.With():
                yield from self._with(item, place)
            case nodes.Scope():
                yield from self._scope(item.body, place, self._values.scope())
            case nodes.ScopedEvalContextModifier():
                self.notes.append(f"{self._at(item)}: {{% autoescape %}} is left out; its content stays")
                yield from self.body(item.body, place)
            case nodes.Macro(name=name) if name in _MACROS:
                return
            case nodes.Assign(target=nodes.Name(name=name) | nodes.NSRef(name=name)) if name == STATE:
                return
            case nodes.Assign(
                target=nodes.Name(name=name),
                node=nodes.Call(node=nodes.Name(name="namespace"), args=[], dyn_args=None) as call,
            ) if call.dyn_kwargs is None:
                self._values.set(name, nodes.Name(name, "load"))
                for argument in call.kwargs:
                    self._set(f"{name}.{argument.key}", argument.value, item)
            case nodes.Assign(target=nodes.Name() | nodes.NSRef() as target):
                self._set(target_of(target), item.node, item)
            case _:
                self._leave_out(item, spelling(item))

    def told(self) -> tuple[str, ...]:
        """Returns the notes without repetition, after one on the lengths of parameters."""
        notes = list(dict.fromkeys((*self.notes, *self.choices.told())))
        if self.parameters:
            listed = ", ".join(list(self.parameters)[:5])
            got = f"got len={self._length}, because templates have no lengths; set your own"
            notes.insert(0, f"each parameter ({listed}) {got}")
        return tuple(notes)

    def _at(self, node: nodes.Node) -> str:
        line = f"line {node.lineno + self._before}" if node.lineno else ""
        return ", ".join(filter(None, (self._where, line))) or "the template"

    def _leave_out(self, node: nodes.Node, what: str, sets: str = "") -> None:
        inside = ", ".join(f"{{{{ {path} }}}}" for path in written_in(node))
        lost = f" with {inside} in it" if inside else ""
        line = (node.lineno or 0) + self._before
        variables = [self._values.lose(path, line) for path in ([sets] if sets else set_in(node))]
        instead = f"; a prompt gives {', '.join(variables)}" if variables else ""
        self.notes.append(
            f"{self._at(node)}: {what} is left out{lost}, because schemas do not support it{instead}"
        )

    # Variables

    def _set(self, path: str, value: nodes.Node, item: nodes.Node) -> None:
        if not self._values.set(path, value):
            self._leave_out(item, f"{{% set {path} %}} to a value that is no constant", path)

    def _with(self, item: nodes.With, place: Place) -> Iterator[Node]:
        inner = self._values.scope()
        for target, value in zip(item.targets, item.values, strict=True):
            if not isinstance(target, nodes.Name):
                self._leave_out(item, "{% with %} of several values at once")
                return
            if not inner.set(target.name, value, self._values):
                name = inner.lose(target.name, item.lineno + self._before)
                note = f"the value of {target.name} is left out (it is no constant); a prompt gives {name}"
                self.notes.append(f"{self._at(item)}: {note}")
        yield from self._scope(item.body, place, inner)

    def _scope(self, body: list[nodes.Node], place: Place, inner: Values) -> Iterator[Node]:
        """Converts a body with its own variables."""
        outer, outside = self._values, self._outside
        self._values, self._outside = inner, outer if outside is None else outside
        yield from self.body(body, place)
        outer.leave(inner)
        self._values, self._outside = outer, outside

    # Text

    def _said(self, node: nodes.Expr, place: Place) -> Iterator[Node]:
        """The output of a resolved expression."""
        match node:
            case nodes.CondExpr():
                yield from self._condition_text(node, place)
            case nodes.Concat():
                for child in node.nodes:
                    yield from self._said(child, place)
            case nodes.Add() if adds_text(node):
                yield from self._said(node.left, place)
                yield from self._said(node.right, place)
            case nodes.Filter(node=inner) if inner is not None:
                yield from self._filtered(node, inner, place)
            case nodes.Or(left=left, right=nodes.Const(value=str(default))) if path_of(left) is not None:
                yield Say((self._parameter(str(path_of(left)), self._checked(default, node)),))
            case nodes.Or(left=left, right=right):
                either = nodes.CondExpr(left, left, right, lineno=node.lineno)
                yield from self._said(self._values.settled().resolved(either), place)
            case _:
                parts = tuple(self._parts(node))
                if parts:
                    yield Say(parts)

    def _checked(self, text: str, node: nodes.Node) -> str:
        return require_characters(text, self._at(node))

    def _parts(self, node: nodes.Expr) -> Iterator[Expr]:
        match node:
            case nodes.TemplateData(data=data):
                yield Const(self._checked(data, node))
            case nodes.Const(value=value):
                yield Const(self._checked(str(value), node))
            case nodes.Name(name=name) if name == NEW_TEXT:
                self.notes.append(f"{self._at(node)}: {NEW_TEXT} is where a prompt adds its own text")
            case _:
                path = path_of(node)
                if path is None:
                    self._leave_out(node, "the computation in {{ … }}")
                else:
                    yield self._parameter(path, None)

    def _filtered(self, node: nodes.Filter, inner: nodes.Expr, place: Place) -> Iterator[Node]:
        path = path_of(inner)
        match node.args:
            case [nodes.Const(value=str() | int() | float() as default), *_] if (
                node.name in ("default", "d") and path is not None
            ):
                yield Say((self._parameter(path, self._checked(str(default), node)),))
                return
        kind = "format" if node.name[:1] in ("!", ":") else "filter"
        self.notes.append(f"{self._at(node)}: the {kind} {node.name} is left out; its value stays unchanged")
        yield from self._said(inner, place)

    def _parameter(self, path: str, default: str | None) -> Ref:
        name = path if NAME.fullmatch(path) else legible(path)
        default = self._defaults.get(path) if default is None else default
        known = self.parameters.setdefault(
            name, Parameter(name, Arg(self._length), 0, default is None, default)
        )
        return Ref(known if known.default == default else replace(known, default=default))

    def _one_each(self, body: list[Node], path: str) -> list[Node]:
        """Gives all places of a variable in one module the same default, and notes changes."""
        chosen: dict[str, Parameter] = {}
        for ref in _refs(body):
            name, default = ref.parameter.name, ref.parameter.default
            self.choices.use(name, path)
            known = chosen.setdefault(name, ref.parameter)
            if (default or "") != (known.default or ""):
                several = default and known.default
                difference = "several defaults" if several else "a default in one place and none in another"
                result = f"one parameter, with the default {known.default or default!r}"
                self.notes.append(f"{name} has {difference}; in a module it is {result}")
            if known.default is None or (default and not known.default):
                chosen[name] = ref.parameter

        def settled(part: Expr) -> Expr:
            return replace(part, parameter=chosen[part.parameter.name]) if isinstance(part, Ref) else part

        return [Say(tuple(map(settled, item.parts))) if isinstance(item, Say) else item for item in body]

    # Modules

    def _if(self, item: nodes.If, place: Place) -> Iterator[Node]:
        outer = state = self._values
        branches: list[tuple[nodes.Expr, list[nodes.Node], Values]] = []
        rest = item.else_
        for branch in (item, *item.elif_):
            body, known = branch.body, state.condition(cast(nodes.Expr, branch.test))
            if decided(known):
                rest = body
                break
            if decided(known) is None:
                branches.append((known, body, state.within(known, True)))
                state = state.within(known, False)
        if not branches:
            yield from self.body(rest, place)
            return
        reads = [(test, self._reading(body, values)) for test, body, values in branches]
        yield from self._union(reads, self._reading(rest, state) if rest else None, item, place)
        self._values = outer
        for path in outer.join([(test, values) for test, _, values in branches], state, item.lineno):
            self.notes.append(f"{self._at(item)}: {path} has too many values, so a prompt gives it")

    def _reading(self, body: list[nodes.Node], values: Values) -> _Read | None:
        """The reader of a branch; None for a branch that only sets variables, which is evaluated here."""

        def read(place: Place) -> Iterable[Node]:
            self._values = values
            return self.body(body, place)

        if not silent(body):
            return read
        read(Place())
        return None

    def _condition_text(self, node: nodes.CondExpr, place: Place) -> Iterator[Node]:
        rest: nodes.Expr = node
        reads = []
        while isinstance(rest, nodes.CondExpr):
            reads.append((rest.test, self._saying(rest.expr1)))
            rest = rest.expr2 or UNDEFINED
        yield from self._union(reads, self._saying(rest), node, place)

    def _saying(self, node: nodes.Expr) -> _Read | None:
        return None if said(node) is False else partial(self._said, node)

    def _union(
        self,
        branches: list[tuple[nodes.Expr, _Read | None]],
        rest: _Read | None,
        node: nodes.Node,
        place: Place,
    ) -> Iterator[Node]:
        """The modules of which a prompt imports at most one."""
        members: list[ModuleNode] = []
        before: list[nodes.Expr] = []
        left = False  # whether a branch has no module, so later ones need all conditions
        for test, read in branches:
            if read is None:
                left = True
            else:
                tests = [*before, test]
                members.append(self._module(_named(tests if left else [test]), tests, read, node, place))
            before.append(negation(test))
        if rest is not None:
            name = _named(before) if left or len(branches) == 1 else "otherwise"
            members.append(self._module(name, before, rest, node, place))
        if members:
            paths = [place.inside(member.name).path for member in members]
            self.choices.between(paths, [test for test, _ in branches], self._at(node))
            yield members[0] if len(members) == 1 else UnionNode(tuple(members))

    def _module(
        self,
        name: str,
        tests: list[nodes.Expr],
        read: _Read,
        item: nodes.Node,
        place: Place,
    ) -> ModuleNode:
        name = unique(legible(name), place.taken, item.lineno)
        inside = place.inside(name, tests)
        self.choices.written[inside.path] = inside.tests
        inner = self._one_each(list(read(inside)), inside.path)
        match inner:
            case [*children, Seam(seam)]:
                return ModuleNode(name, _ALWAYS, tuple(children), seam=seam)
        return ModuleNode(name, _ALWAYS, tuple(inner))

    def _block(self, item: nodes.Block, place: Place) -> Iterator[Node]:
        inner = self._values.scope()
        if self._outside is not None and not item.scoped:
            inner = self._outside.scope()
            inner.leave(self._values)
        role = item.name.rstrip("0123456789").removesuffix("_")
        if role not in ROLES or not place.top:
            if role in ROLES:
                note = (
                    f"{{% block {item.name} %}} begins no turn here, because it is inside another statement"
                )
                self.notes.append(f"{self._at(item)}: {note}")
            yield from self._scope(item.body, place, inner)
            return
        inside = list(self._scope(item.body, place.turn(), inner))
        yield Turn(cast(RoleName, role), tuple(self.anonymous(inside, place)))

    def anonymous(self, body: list[Node], place: Place) -> list[Node]:
        """Converts a body outside modules: each line with a parameter becomes a module."""
        result: list[Node] = []
        parts: list[Expr] = []
        for node in [*body, None]:
            if isinstance(node, Say):
                parts.extend(node.parts)
                continue
            for line in _lines(parts):
                slot = next((part for part in line if isinstance(part, Ref)), None)
                if slot is None:
                    result.append(Say(line))
                else:
                    name = unique(legible(slot.parameter.name), place.taken, 0)
                    result.append(ModuleNode(name, _ALWAYS, tuple(self._one_each([Say(line)], name))))
                    self.choices.written[name] = ()
            parts = []
            if node is not None:
                result.append(node)
        return result


def _refs(body: list[Node]) -> Iterator[Ref]:
    """The parameters directly in a body."""
    for node in body:
        if isinstance(node, Say):
            yield from (part for part in node.parts if isinstance(part, Ref))


def _seam(call: nodes.Call) -> Iterator[Seam]:
    """The separator that a macro call adds; nothing for other calls."""
    match call:
        case nodes.Call(node=nodes.Name(name=name), args=[nodes.Const(value=str(text)), *_]) if name == SEAM:
            yield Seam(text)


def _lines(parts: list[Expr]) -> Iterator[tuple[Expr, ...]]:
    """The parts cut at line breaks; adjacent lines are joined unless just one has a parameter."""
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


def _named(tests: Iterable[nodes.Expr]) -> str:
    """Conditions in a few words, for the name of a module."""
    return "-and-".join(map(words, tests))
