"""What a program may compute: texts and conditions over its parameters.

An expression without a parameter is a constant and is computed while the program is compiled; one with a
parameter is computed when a prompt is asked for.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from engine.programs.source.errors import ProgramArgumentError, ProgramError
from engine.programs.source.parameters import Arg, Parameter


@dataclass(frozen=True)
class Const:
    """A value that is known while the program is compiled."""

    value: Any


@dataclass(frozen=True)
class Ref:
    """The value of a parameter of the program.

    Attributes:
        parameter: the parameter that a caller fills.
        slot: where the parameter was handed to another program, what that one declares; else None.
        name: its name there.
    """

    parameter: Parameter
    slot: Arg | None = None
    name: str = ""

    @property
    def arg(self) -> Arg | None:
        """The parameter of the schema that it becomes, or None where it becomes none."""
        kind = self.parameter.kind
        return self.slot or (kind if isinstance(kind, Arg) else None)


@dataclass(frozen=True)
class Join:
    """Texts one after another."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Not:
    """`not x`."""

    item: Expr


@dataclass(frozen=True)
class Logic:
    """`x and y`, or `x or y`."""

    word: str
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Comparison:
    """`left == right` and its like."""

    word: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Member:
    """The `name` or the `value` of the member of an Enum that a parameter is."""

    item: Expr
    attribute: str


Expr = Const | Ref | Join | Not | Logic | Comparison | Member

Fault = Callable[[ast.AST, str], ProgramError]
"""Makes the error for a place in the source."""

COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_COMPUTE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
    "is": operator.is_,
    "is not": operator.is_not,
}
_TURNED: Final = str.maketrans("<>", "><")


def evaluate(expression: Expr, values: Mapping[str, Any]) -> Any:
    """The value of an expression.

    Args:
        expression: the expression.
        values: the value of every parameter of the program, by its name in Python.

    Raises:
        ProgramArgumentError: values are compared that have no order, or None is asked for its value.
    """
    match expression:
        case Const(value):
            return value
        case Ref(parameter):
            return values[parameter.name]
        case Join(parts):
            return "".join(text_of(evaluate(part, values)) for part in parts)
        case Not(item):
            return not evaluate(item, values)
        case Logic(word, items):
            result: Any = None
            for item in items:
                result = evaluate(item, values)
                if bool(result) == (word == "or"):
                    break
            return result
        case Comparison(word, left, right):
            first, second = evaluate(left, values), evaluate(right, values)
            try:
                return _COMPUTE[word](first, second)
            except TypeError as error:
                raise ProgramArgumentError(f"{first!r} {word} {second!r}: {error}") from None
        case Member(item, attribute):
            member = evaluate(item, values)
            if not isinstance(member, Enum):
                message = f"{describe(item)} is {member!r}, which has no {attribute}; compare with None first"
                raise ProgramArgumentError(message)
            return member._name_ if attribute == "name" else member._value_


def text_of(value: Any) -> str:
    """How a value is written into a text: None as nothing."""
    return "" if value is None else str(value)


def references(expression: Expr) -> Iterator[Ref]:
    """The parameters in an expression, from left to right."""
    match expression:
        case Ref():
            yield expression
        case Join(parts):
            for part in parts:
                yield from references(part)
        case Not(item) | Member(item):
            yield from references(item)
        case Logic(items=items):
            for item in items:
                yield from references(item)
        case Comparison(left=left, right=right):
            yield from references(left)
            yield from references(right)


def describe(expression: Expr) -> str:
    """A condition in a few words, from which a module gets its name."""
    match expression:
        case Const(value):
            return word_of(value)
        case Ref(parameter):
            return parameter.name
        case Member(item):
            return describe(item)
        case Join(parts):
            return "-".join(describe(part) for part in parts)
        case Not(item):
            return f"not-{describe(item)}"
        case Logic(word, items):
            return f"-{word}-".join(describe(item) for item in items)
        case Comparison(word, left, right):
            return _describe_comparison(word, left, right)


def word_of(value: Any) -> str:
    """A value in a word: a member of an Enum by its value where that is text, else by its name."""
    if isinstance(value, Enum):
        return value._value_ if isinstance(value._value_, str) else value._name_.lower()
    return "none" if value is None else str(value)


def _describe_comparison(word: str, left: Expr, right: Expr) -> str:
    if isinstance(left, Const):
        left, right, word = right, left, word.translate(_TURNED)
    value = right.value if isinstance(right, Const) else right
    if value is None:
        return f"no-{describe(left)}" if word in ("==", "is") else describe(left)
    if isinstance(value, (tuple, list, dict)):
        words = "-or-".join(word_of(one) for one in value)
    elif isinstance(value, (set, frozenset)):
        words = "-or-".join(sorted(word_of(one) for one in value))
    else:
        words = word_of(value) if isinstance(right, Const) else describe(right)
    if word in ("==", "in", "is"):
        return words if not words[:1].isdigit() else f"{describe(left)}-{words}"
    if word in ("!=", "not in", "is not"):
        return f"not-{words}"
    return f"{describe(left)}-{'below' if '<' in word else 'above'}-{words}"


def first_parameter(expression: Expr) -> str:
    """The name of the first parameter that an expression depends on, for a message."""
    return next((one.parameter.name for one in references(expression)), "this")
