"""The frame of a statement, and the decomposition of statements."""

from __future__ import annotations

import ast
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from engine.pml import ROLES, RoleName
from engine.programs.source.expression_reader import ExpressionReader
from engine.programs.source.expressions import Const, Expr, Fault, Not, describe
from engine.programs.source.functions import Function, Work
from engine.programs.source.objects import Unset, assigned_names
from engine.programs.source.scopes import Definition
from engine.programs.source.signature import SignatureReader


def statements_of(node: ast.FunctionDef) -> list[ast.stmt]:
    """Returns the body without its docstring."""
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else list(node.body)


def turn_of(node: ast.AST, recorder: str) -> RoleName | None:
    """Returns the role of `with p.user():`; an empty recorder means any name."""
    match node:
        case ast.With(items=[ast.withitem(context_expr=ast.Call(func=ast.Attribute(ast.Name(name), role)))]):
            if role in ROLES and name == (recorder or name):
                return cast(RoleName, role)
    return None


def unset_names(node: ast.FunctionDef, recorder: str) -> dict[str, Any]:
    """Returns the names that a function sets, still without values, and its recorder."""
    unset: dict[str, Any] = {
        name: Unset(f"has no value here, because line {line} sets it later; set it before")
        for name, line in assigned_names(list(node.body)).items()
    }
    return unset | {recorder: Unset(f"writes the text and is not a value; write {recorder}.text(…)")}


@dataclass(frozen=True, eq=False)
class LocalFunction(Function):
    """A function defined in a program, with its frame."""

    frame: Frame = field(kw_only=True)


@dataclass(frozen=True)
class Frame:
    """The context of a statement.

    Attributes:
        names: parameters, names set so far, inner functions, and names without a value yet.
        own: the names that the function sets.
        taken: names of modules in this container, with their lines.
        place: the enclosing container.
        role: the enclosing turn.
        calls: the places of the functions under compilation, outermost first.
        within: whether a `with` of this function encloses it; a conditional `return` cannot leave it.
        left: the line of a conditional `return` that affects this statement; 0 for none.
        outermost: whether it is in a top-level module outside of turns, which may contain whole turns.
    """

    definition: Definition
    recorder: str
    names: dict[str, Any]
    reader: ExpressionReader
    signature: SignatureReader
    place: Literal["schema", "turn", "module"]
    role: RoleName | None
    own: tuple[str, ...] = ()
    taken: dict[str, int] = field(default_factory=dict)
    calls: tuple[tuple[str, int, int], ...] = ()
    depth: int = 0
    within: bool = False
    left: int = 0
    outermost: bool = False

    @classmethod
    def of(cls, definition: Definition, place: Any, role: RoleName | None, work: Work) -> Frame:
        """Returns the frame of a function's body."""
        reader = ExpressionReader(definition.look_up, definition.fault, work)
        signature = SignatureReader(definition.look_up, definition.fault, reader)
        return cls(definition, "", {}, reader, signature, place, role, calls=(definition.place,))

    @property
    def fault(self) -> Fault:
        """Makes the error for a place in the file."""
        return self.definition.fault

    def inside(self) -> Frame:
        """Returns the frame of a module's body; names are shared with the enclosing frame."""
        outermost = self.place == "schema"
        return replace(self, place="module", taken={}, depth=self.depth + 1, outermost=outermost)

    def branch(self) -> Frame:
        """Returns the frame of a conditional module; it copies the names."""
        names = dict(self.names)
        inner = replace(self.inside(), names=names)
        for name in self.own:
            value = names[name]
            if isinstance(value, LocalFunction) and value.frame.names is self.names:
                names[name] = replace(value, names=names, frame=replace(value.frame, names=names))
        return inner

    def merge(self, inner: Frame, line: int) -> None:
        """Unsets names that a branch has changed, because their values depend on the condition in `line`."""
        reason = f"depends on the condition of line {line}; write its text there, or use another name"
        for name in self.own:
            old, value = self.names[name], inner.names[name]
            same = (
                isinstance(old, LocalFunction) and isinstance(value, LocalFunction) and old.node is value.node
            )
            if old is not value and not same:
                self.names[name] = Unset(reason)


@dataclass(frozen=True)
class Bind:
    """A step of an unrolled loop: its target gets a value."""

    target: ast.expr
    value: Const


@dataclass(frozen=True)
class LoopEnd:
    """The end of an unrolled loop, or of one round."""

    of: Literal["loop", "round"]


@dataclass(frozen=True)
class Rounds:
    """The rest of an unrolled loop: the remaining values of its target."""

    node: ast.For
    items: list[Any]
    place: int = 0

    def steps(self) -> list[Step]:
        """Returns the steps of the next round and the rest; after the last round, those of `else`."""
        if self.place >= len(self.items):
            return list(self.node.orelse)
        value = Const(self.items[self.place])
        rest = replace(self, place=self.place + 1)
        return [Bind(self.node.target, value), *self.node.body, LoopEnd("round"), rest]


Step = ast.stmt | Bind | LoopEnd | Rounds  # compiled one after another


@dataclass(frozen=True)
class Branch:
    """A branch of an `if` or a `match`, before compilation."""

    node: ast.AST
    test: ast.expr | None
    body: list[Step]
    condition: Expr | None = None
    case: str = ""

    def name(self) -> str:
        """Returns the words for its module's name."""
        return self.case or (describe(self.condition) if self.condition else "")


def chain(node: ast.If) -> tuple[Branch, ...]:
    """Returns an `if` with its `elif` and `else`."""
    branches: list[Branch] = []
    current: ast.If | None = node
    while current is not None:
        branches.append(Branch(current, current.test, list(current.body)))
        match current.orelse:
            case [ast.If() as following]:
                current = following
            case []:
                current = None
            case rest:
                branches.append(Branch(rest[0], None, list(rest)))
                current = None
    return tuple(branches)


def exits_of(steps: list[Step]) -> set[str]:
    """Returns the statements that leave the enclosing block: `return`, `break`, `continue`."""
    exits: set[str] = set()
    pending: list[tuple[Any, bool]] = [(step, False) for step in steps]
    while pending:
        node, looped = pending.pop()
        match node:
            case ast.Return():
                exits.add("return")
            case ast.Break() if not looped:
                exits.add("break")
            case ast.Continue() if not looped:
                exits.add("continue")
            case ast.For(body=body, orelse=orelse) | Rounds(ast.For(body=body, orelse=orelse)):
                pending.extend((inner, True) for inner in body)
                pending.extend((inner, looped) for inner in orelse)
            case ast.If(body=body, orelse=orelse):
                pending.extend((inner, looped) for inner in (*body, *orelse))
            case ast.With(body=body):
                pending.extend((inner, looped) for inner in body)
            case ast.Match(cases=cases):
                pending.extend((inner, looped) for case in cases for inner in case.body)
    return exits


def callee_frame(callee: LocalFunction | Definition, frame: Frame) -> Frame:
    """Returns the frame of a called program."""
    if isinstance(callee, LocalFunction):
        definition = replace(callee.frame.definition, node=callee.node, kind="function")
        names = dict(callee.frame.names)
        inner = replace(callee.frame.inside(), names=names, definition=definition, calls=frame.calls)
    else:
        inner = Frame.of(callee, "module", None, frame.reader.work)
        inner = replace(inner, calls=frame.calls)
    return replace(inner, depth=frame.depth + 1, within=False, left=0)


def method_of(node: ast.With, recorder: str) -> str:
    """Returns the method in `with p.method(…):`."""
    match node:
        case ast.With(
            items=[ast.withitem(context_expr=ast.Call(func=ast.Attribute(ast.Name(name), method)))]
        ):
            return method if name == recorder else ""
    return ""


def line_of(node: ast.AST) -> int:
    """Returns the line of a node, or 0."""
    return getattr(node, "lineno", 0)


def entered(frame: Frame, recorder: str, values: dict[str, Expr]) -> Frame:
    """Returns the frame of a function's body, with the values of its parameters.

    Raises:
        ProgramError: the function sets its recorder.
    """
    definition = frame.definition
    node = definition.node
    unset = unset_names(node, recorder)
    receiver: dict[str, Any] = {}
    if definition.takes_receiver:
        receiver = {node.args.args[0].arg: Const(definition.receiver)}
    line = assigned_names(list(node.body)).get(recorder)
    if line is not None:
        raise frame.fault(
            node, f"{recorder} writes the text, but line {line} sets it; use another name there"
        )
    frame.names.update(unset | receiver | values)
    return replace(frame, recorder=recorder, own=tuple(name for name in unset if name != recorder))


def leave(pending: deque[Step], what: str) -> bool:
    """Drops the steps up to the end of the loop or round; False if there is no such end."""
    if not any(isinstance(item, LoopEnd) and item.of == what for item in pending):
        return False
    while True:
        step = pending.popleft()
        if isinstance(step, LoopEnd) and step.of == what:
            return True


def opposite(condition: Expr, plain: bool) -> str:
    """Returns the words for a branch with the opposite condition."""
    return describe(condition.item) if plain and isinstance(condition, Not) else f"not-{describe(condition)}"


def reach(exits: set[str], steps: list[Step]) -> int | None:
    """Counts the steps after a choice that depend on early exits of its branches.

    None if an exit leaves a loop whose end is not among the steps.
    """
    ends = {step.of: place for place, step in reversed(list(enumerate(steps))) if isinstance(step, LoopEnd)}
    if exits == {"continue"}:
        if "round" not in ends:
            return None
        inner = exits_of(steps[: ends["round"]])
        if inner <= exits:
            return ends["round"] + 1
        exits = exits | inner
    if "return" in exits:
        return len(steps)
    if "loop" not in ends:
        return None
    loop = steps[: ends["loop"]]
    after = any(exits_of(list(step.node.orelse)) for step in loop if isinstance(step, Rounds))
    return len(steps) if after or "return" in exits_of(loop) else ends["loop"] + 1
