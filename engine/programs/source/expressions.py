"""Texts and conditions over the parameters of a program.

An expression without parameters is a constant, computed during compilation. An expression with parameters is
computed for each prompt.
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
    """A value known during compilation."""

    value: Any


@dataclass(frozen=True)
class Ref:
    """The value of a parameter of the program.

    Attributes:
        parameter: the parameter of the caller.
        slot: the declaration in a called program that gets the parameter; else None.
        name: its name there.
    """

    parameter: Parameter
    slot: Arg | None = None
    name: str = ""

    @property
    def arg(self) -> Arg | None:
        """The resulting parameter of the schema, or None."""
        kind = self.parameter.kind
        return self.slot or (kind if isinstance(kind, Arg) else None)


@dataclass(frozen=True)
class Join:
    """A sequence of texts."""

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
    """A comparison such as `left == right`."""

    word: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Member:
    """The `name` or `value` of an Enum parameter."""

    item: Expr
    attribute: str


Expr = Const | Ref | Join | Not | Logic | Comparison | Member

Fault = Callable[[ast.AST, str], ProgramError]  # makes the error for a place in the source

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
    """Returns the value of an expression, with parameter values by Python name.

    Raises:
        ProgramArgumentError: a comparison has no order, or a member is None.
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
    """Returns the text of a value; None becomes ""."""
    return "" if value is None else str(value)


def references(expression: Expr) -> Iterator[Ref]:
    """Yields the parameters in an expression, from left to right."""
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
    """Returns a condition in a few words, for the name of its module."""
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
    """Returns a value as a word: an Enum member by its value if that is text, else by its name."""
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
        words = "-or-".join(word_of(item) for item in value)
    elif isinstance(value, (set, frozenset)):
        words = "-or-".join(sorted(word_of(item) for item in value))
    else:
        words = word_of(value) if isinstance(right, Const) else describe(right)
    if word in ("==", "in", "is"):
        return words if not words[:1].isdigit() else f"{describe(left)}-{words}"
    if word in ("!=", "not in", "is not"):
        return f"not-{words}"
    return f"{describe(left)}-{'below' if '<' in word else 'above'}-{words}"


def first_parameter(expression: Expr) -> str:
    """Returns the name of the first parameter in an expression, for a message."""
    return next((reference.parameter.name for reference in references(expression)), "this")
