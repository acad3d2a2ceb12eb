"""Where a statement of a program stands, and how statements are taken apart."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from engine.pml import ROLES, RoleName
from engine.programs.expressions import Expr, ExpressionReader, Fault, describe
from engine.programs.scopes import Definition
from engine.programs.signature import SignatureReader


def statements_of(node: ast.FunctionDef) -> list[ast.stmt]:
    """The body without its docstring, nor a bare return at its end."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else list(node.body)
    if body and isinstance(body[-1], ast.Return) and body[-1].value is None:
        body.pop()
    return body


def turn_of(node: ast.AST, recorder: str) -> RoleName | None:
    """The role of `with p.user():`; an empty recorder means any name."""
    match node:
        case ast.With(items=[ast.withitem(context_expr=ast.Call(func=ast.Attribute(ast.Name(name), role)))]):
            if role in ROLES and name == (recorder or name):
                return cast(RoleName, role)
    return None


@dataclass(frozen=True)
class LocalFunction:
    """A function defined inside of a program, with the names it sees."""

    node: ast.FunctionDef
    frame: Frame


@dataclass(frozen=True)
class Frame:
    """Where a statement stands.

    Attributes:
        names: parameters and names set so far, and the functions defined inside.
        taken: names of modules in this container, with their lines.
        place: what is round it.
        role: the turn that it is in.
        calls: the functions that are being compiled, outermost first.
    """

    definition: Definition
    recorder: str
    names: dict[str, Any]
    reader: ExpressionReader
    signature: SignatureReader
    place: Literal["schema", "turn", "module"]
    role: RoleName | None
    taken: dict[str, int] = field(default_factory=dict)
    calls: tuple[ast.FunctionDef, ...] = ()
    depth: int = 0

    @classmethod
    def of(cls, definition: Definition, place: Any, role: RoleName | None) -> Frame:
        """The frame of a function's own statements."""
        reader = ExpressionReader(definition.look_up, definition.fault)
        signature = SignatureReader(definition.look_up, definition.fault)
        return cls(definition, "", {}, reader, signature, place, role, calls=(definition.node,))

    @property
    def fault(self) -> Fault:
        """Makes the error for a place in the file."""
        return self.definition.fault

    @property
    def values(self) -> Mapping[str, Expr]:
        """The names that stand for expressions."""
        return {name: one for name, one in self.names.items() if not isinstance(one, LocalFunction)}

    def inside(self) -> Frame:
        """The frame of a module's own statements."""
        return replace(self, place="module", taken={}, names=dict(self.names), depth=self.depth + 1)


@dataclass(frozen=True)
class Branch:
    """A branch of an `if` or a `match`, before it is compiled."""

    node: ast.AST
    test: ast.expr | None
    body: list[ast.stmt]
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
        found.append(Branch(current, current.test, current.body))
        match current.orelse:
            case [ast.If() as following]:
                current = following
            case []:
                current = None
            case rest:
                found.append(Branch(rest[0], None, rest))
                current = None
    return tuple(found)


def callee_frame(callee: LocalFunction | Definition, frame: Frame) -> Frame:
    """The frame of a program that is called in another."""
    if isinstance(callee, LocalFunction):
        definition = replace(callee.frame.definition, node=callee.node)
        inner = replace(callee.frame.inside(), definition=definition)
    else:
        inner = Frame.of(callee, "module", None)
    return replace(inner, depth=frame.depth + 1)


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
