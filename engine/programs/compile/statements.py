"""Where a statement of a program stands, and how statements are taken apart."""

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
    """The body without its docstring."""
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else list(node.body)


def turn_of(node: ast.AST, recorder: str) -> RoleName | None:
    """The role of `with p.user():`; an empty recorder means any name."""
    match node:
        case ast.With(items=[ast.withitem(context_expr=ast.Call(func=ast.Attribute(ast.Name(name), role)))]):
            if role in ROLES and name == (recorder or name):
                return cast(RoleName, role)
    return None


def unset_names(node: ast.FunctionDef, recorder: str) -> dict[str, Any]:
    """The names that a function sets, before it has set any, and its recorder, which is no value."""
    unset: dict[str, Any] = {
        name: Unset(f"has no value here, as line {line} sets it later; set it before")
        for name, line in assigned_names(list(node.body)).items()
    }
    return unset | {recorder: Unset(f"writes the text and is no value; write {recorder}.text(…)")}


@dataclass(frozen=True, eq=False)
class LocalFunction(Function):
    """A function defined inside of a program, and where it stands."""

    frame: Frame = field(kw_only=True)


@dataclass(frozen=True)
class Frame:
    """Where a statement stands.

    Attributes:
        names: parameters, names set so far, functions defined inside, and names that have no value yet.
        own: the names that the function sets.
        taken: names of modules in this container, with their lines.
        place: what is round it.
        role: the turn that it is in.
        calls: the places of the functions that are being compiled, outermost first.
        within: whether a `with` of the same function is round it, which `return` cannot leave on a condition.
        left: the line of a `return` on whose condition this statement depends; 0 for none.
        outermost: whether it stands in a module that no other holds and no turn, which may hold whole turns.
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
        """The frame of a function's own statements."""
        reader = ExpressionReader(definition.look_up, definition.fault, work)
        signature = SignatureReader(definition.look_up, definition.fault, reader)
        return cls(definition, "", {}, reader, signature, place, role, calls=(definition.place,))

    @property
    def fault(self) -> Fault:
        """Makes the error for a place in the file."""
        return self.definition.fault

    def inside(self) -> Frame:
        """The frame of a module's own statements, which set names as those round it do."""
        outermost = self.place == "schema"
        return replace(self, place="module", taken={}, depth=self.depth + 1, outermost=outermost)

    def branch(self) -> Frame:
        """The frame of a module that not every prompt imports: it has names of its own."""
        names = dict(self.names)
        inner = replace(self.inside(), names=names)
        for name in self.own:
            one = names[name]
            if isinstance(one, LocalFunction) and one.frame.names is self.names:
                names[name] = replace(one, names=names, frame=replace(one.frame, names=names))
        return inner

    def merge(self, inner: Frame, line: int) -> None:
        """Forgets what a branch has set, as it depends on the branch's condition.

        Args:
            inner: the frame of the branch.
            line: the line of the condition.
        """
        reason = f"depends on the condition of line {line}; write its text there, or take another name"
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
    """The end of a loop that was unrolled, or of one round of it."""

    of: Literal["loop", "round"]


@dataclass(frozen=True)
class Rounds:
    """What is left of a loop that is being unrolled: the values that its target still gets."""

    node: ast.For
    items: list[Any]
    place: int = 0

    def steps(self) -> list[Step]:
        """The next round, and what is left then; after the last, what stands under `else`."""
        if self.place >= len(self.items):
            return list(self.node.orelse)
        value = Const(self.items[self.place])
        left = replace(self, place=self.place + 1)
        return [Bind(self.node.target, value), *self.node.body, LoopEnd("round"), left]


Step = ast.stmt | Bind | LoopEnd | Rounds
"""What is compiled one after another."""


@dataclass(frozen=True)
class Branch:
    """A branch of an `if` or a `match`, before it is compiled."""

    node: ast.AST
    test: ast.expr | None
    body: list[Step]
    condition: Expr | None = None
    case: str = ""

    def name(self) -> str:
        """The words its module is named by."""
        return self.case or (describe(self.condition) if self.condition else "")


def chain(node: ast.If) -> tuple[Branch, ...]:
    """An `if` with its `elif` and `else`."""
    found: list[Branch] = []
    current: ast.If | None = node
    while current is not None:
        found.append(Branch(current, current.test, list(current.body)))
        match current.orelse:
            case [ast.If() as following]:
                current = following
            case []:
                current = None
            case rest:
                found.append(Branch(rest[0], None, list(rest)))
                current = None
    return tuple(found)


def exits_of(steps: list[Step]) -> set[str]:
    """How statements leave what is round them: `return`, `break`, `continue`."""
    found: set[str] = set()
    pending: list[tuple[Any, bool]] = [(step, False) for step in steps]
    while pending:
        node, looped = pending.pop()
        match node:
            case ast.Return():
                found.add("return")
            case ast.Break() if not looped:
                found.add("break")
            case ast.Continue() if not looped:
                found.add("continue")
            case ast.For(body=body, orelse=orelse) | Rounds(ast.For(body=body, orelse=orelse)):
                pending.extend((inner, True) for inner in body)
                pending.extend((inner, looped) for inner in orelse)
            case ast.If(body=body, orelse=orelse):
                pending.extend((inner, looped) for inner in (*body, *orelse))
            case ast.With(body=body):
                pending.extend((inner, looped) for inner in body)
            case ast.Match(cases=cases):
                pending.extend((inner, looped) for case in cases for inner in case.body)
    return found


def callee_frame(callee: LocalFunction | Definition, frame: Frame) -> Frame:
    """The frame of a program that is called in another."""
    if isinstance(callee, LocalFunction):
        definition = replace(callee.frame.definition, node=callee.node, kind="function")
        names = dict(callee.frame.names)
        inner = replace(callee.frame.inside(), names=names, definition=definition, calls=frame.calls)
    else:
        inner = Frame.of(callee, "module", None, frame.reader.work)
        inner = replace(inner, calls=frame.calls)
    return replace(inner, depth=frame.depth + 1, within=False, left=0)


def method_of(node: ast.With, recorder: str) -> str:
    """The method in `with p.method(…):`."""
    match node:
        case ast.With(
            items=[ast.withitem(context_expr=ast.Call(func=ast.Attribute(ast.Name(name), method)))]
        ):
            return method if name == recorder else ""
    return ""


def line_of(node: ast.AST) -> int:
    """The line of a piece of source, or 0."""
    return getattr(node, "lineno", 0)


def entered(frame: Frame, recorder: str, values: dict[str, Expr]) -> Frame:
    """The frame of a function's own statements, with its parameters.

    Args:
        frame: the frame of the function.
        recorder: the parameter that it writes with.
        values: what its other parameters stand for.

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
            node, f"{recorder} writes the text, and line {line} sets it; take another name there"
        )
    frame.names.update(unset | receiver | values)
    return replace(frame, recorder=recorder, own=tuple(name for name in unset if name != recorder))


def leave(pending: deque[Step], what: str) -> bool:
    """Drops the steps up to the end of the loop, or of its round; False where neither is among them."""
    if not any(isinstance(one, LoopEnd) and one.of == what for one in pending):
        return False
    while True:
        step = pending.popleft()
        if isinstance(step, LoopEnd) and step.of == what:
            return True


def opposite(condition: Expr, plain: bool) -> str:
    """The words of the branch that is taken where a condition does not hold."""
    return describe(condition.item) if plain and isinstance(condition, Not) else f"not-{describe(condition)}"


def reach(exits: set[str], steps: list[Step]) -> int | None:
    """How many of the steps that follow a choice depend on whether one of its branches is left early.

    Args:
        exits: how the branches are left.
        steps: what follows.

    Returns:
        The number; None where a loop is left whose end is not among the steps.
    """
    ends = {one.of: place for place, one in reversed(list(enumerate(steps))) if isinstance(one, LoopEnd)}
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
    after = any(exits_of(list(one.node.orelse)) for one in loop if isinstance(one, Rounds))
    return len(steps) if after or "return" in exits_of(loop) else ends["loop"] + 1
