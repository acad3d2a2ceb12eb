"""What a program may compute: texts and conditions over its parameters, read from the source and never run.

An expression without a parameter is a constant and is computed while the program is compiled; one with a
parameter is computed when a prompt is asked for.
"""

from __future__ import annotations

import ast
import inspect
import operator
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.pml.text_files import MAX_BYTES
from engine.programs.errors import ProgramArgumentError, ProgramError
from engine.programs.parameters import Arg, NewWords, Parameter


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


Expr = Const | Ref | Join | Not | Logic | Comparison

Fault = Callable[[ast.AST, str], ProgramError]
"""Makes the error for a place in the source."""

_COMPARE: Final[dict[type[ast.cmpop], str]] = {
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
_METHODS: Final = frozenset(
    ("strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize", "removeprefix", "removesuffix")
)
_FUNCTIONS: Final[tuple[Callable[[str], str], ...]] = (textwrap.dedent, inspect.cleandoc)
_SIMPLE: Final = (str, int, float, bool, type(None))
_TURNED: Final = str.maketrans("<>", "><")
_WIDE: Final = re.compile(r"[0-9]{5}")


def evaluate(expression: Expr, values: Mapping[str, Any]) -> Any:
    """The value of an expression.

    Args:
        expression: the expression.
        values: the value of every parameter of the program, by its name in Python.

    Raises:
        ProgramArgumentError: values are compared that have no order.
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
        case Not(item):
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
            return str(value)
        case Ref(parameter):
            return parameter.name
        case Join(parts):
            return "-".join(describe(part) for part in parts)
        case Not(item):
            return f"not-{describe(item)}"
        case Logic(word, items):
            return f"-{word}-".join(describe(item) for item in items)
        case Comparison(word, left, right):
            return _describe_comparison(word, left, right)


def _describe_comparison(word: str, left: Expr, right: Expr) -> str:
    if isinstance(left, Const):
        left, right, word = right, left, word.translate(_TURNED)
    value = right.value if isinstance(right, Const) else right
    if value is None:
        return f"no-{describe(left)}" if word in ("==", "is") else describe(left)
    if isinstance(value, tuple):
        words = "-or-".join("none" if one is None else str(one) for one in value)
    else:
        words = str(value) if isinstance(right, Const) else describe(right)
    if word in ("==", "in", "is"):
        return words if not words[:1].isdigit() else f"{describe(left)}-{words}"
    if word in ("!=", "not in", "is not"):
        return f"not-{words}"
    return f"{describe(left)}-{'below' if '<' in word else 'above'}-{words}"


class ExpressionReader:
    """Reads expressions from the source.

    Args:
        look_up: the value of a name outside of the function; raises KeyError.
        fault: makes the error for a place.
    """

    def __init__(self, look_up: Callable[[str], Any], fault: Fault) -> None:
        self._look_up = look_up
        self._fault = fault

    def read(self, node: ast.expr, names: Mapping[str, Expr]) -> Expr:
        """The expression that a piece of source stands for.

        Args:
            node: the piece.
            names: what the parameters and the names that are set in the function stand for.

        Raises:
            ProgramError: it is none that can be compiled.
        """
        match node:
            case ast.Constant(value=value):
                return self._constant(node, value)
            case ast.Name(id=name):
                return names[name] if name in names else self._constant(node, self.name(node))
            case ast.JoinedStr(values=pieces):
                return self._join(node, tuple(self._piece(piece, names) for piece in pieces))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                item = self.read(operand, names)
                return Const(not item.value) if isinstance(item, Const) else Not(item)
            case ast.BoolOp(op=word, values=operands):
                return self._logic("and" if isinstance(word, ast.And) else "or", operands, names)
            case ast.Compare():
                return self._comparison(node, names)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._sum(node, self.read(left, names), self.read(right, names))
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = self.read(test, names)
                if isinstance(condition, Const):
                    return self.read(body if condition.value else other, names)
                raise self._fault(node, "a text that depends on a condition is a module; write if and else")
        return self._computed(node, names)

    def name(self, node: ast.Name) -> Any:
        """The value of a name outside of the function."""
        try:
            return self._look_up(node.id)
        except KeyError:
            message = (
                f"{node.id} is not a parameter, nor a constant known where the function stands; "
                "define it above the function"
            )
            raise self._fault(node, message) from None

    def constant(self, node: ast.expr, what: str, names: Mapping[str, Expr] | None = None) -> Any:
        """The value of an expression without parameters; `what` begins the sentence of the error."""
        expression = self.read(node, names or {})
        if not isinstance(expression, Const):
            raise self._fault(node, f"{what} must be known without running the program; write a constant")
        return expression.value

    def _constant(self, node: ast.expr, value: Any) -> Const:
        if isinstance(value, (list, set, frozenset)):
            value = tuple(value)
        if isinstance(value, str) and len(value) > MAX_BYTES:
            raise self._fault(node, "this text is longer than 5 MB, the most a document may have; shorten it")
        plain = isinstance(value, _SIMPLE) or (
            isinstance(value, tuple) and all(isinstance(one, _SIMPLE) for one in value)
        )
        if not plain and not isinstance(value, dict):
            kind = type(value).__name__
            message = f"a value of type {kind} has no place in a prompt; use text, numbers, True, False, None"
            raise self._fault(node, message)
        return Const(value)

    def _piece(self, node: ast.expr, names: Mapping[str, Expr]) -> Expr:
        """A piece of an f-string."""
        if not isinstance(node, ast.FormattedValue):
            return self.read(node, names)
        value = self.read(node.value, names)
        if isinstance(value, Const):
            shown = {-1: value.value, 115: str(value.value), 114: repr(value.value), 97: ascii(value.value)}
            form = self.constant(node.format_spec, "the format", names) if node.format_spec else ""
            if _WIDE.search(form):
                raise self._fault(node, "this format is wider than 9,999 characters; write less")
            try:
                return Const(format(shown[node.conversion], form))
            except (TypeError, ValueError) as error:
                raise self._fault(node, f"the format fits no such value: {error}") from None
        if node.conversion not in (-1, 115) or node.format_spec is not None:
            message = "a parameter has no format, as its text is known only in the prompt; write it plainly"
            raise self._fault(node, message)
        self._check_text(node, value)
        return value

    def _check_text(self, node: ast.expr, value: Expr) -> None:
        """Whether an expression with parameters is text that a prompt can bring."""
        if isinstance(value, (Not, Logic, Comparison)):
            raise self._fault(node, "a condition is no text; write if and else")
        for reference in references(value):
            if reference.slot is None and not isinstance(reference.parameter.kind, (Arg, NewWords)):
                name = reference.parameter.name
                message = f"{name} is a choice, which picks modules and is no text; write match {name}: …"
                raise self._fault(node, message)

    def read_text(self, node: ast.expr, names: Mapping[str, Expr]) -> Expr:
        """The text that a piece of source stands for; numbers become text.

        Raises:
            ProgramError: it is no text, or cannot be compiled.
        """
        value = self.read(node, names)
        if not isinstance(value, Const):
            self._check_text(node, value)
        elif isinstance(value.value, bool) or not isinstance(value.value, (str, int, float, type(None))):
            raise self._fault(node, f"{value.value!r} is no text; write it in quotes")
        return value

    def _join(self, node: ast.expr, parts: tuple[Expr, ...]) -> Expr:
        flat: list[Expr] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Join) else (part,))
        if all(isinstance(part, Const) for part in flat):
            return self._constant(node, "".join(part.value for part in flat if isinstance(part, Const)))
        return Join(tuple(flat))

    def _logic(self, word: str, operands: list[ast.expr], names: Mapping[str, Expr]) -> Expr:
        kept: list[Expr] = []
        for operand in operands:
            item = self.read(operand, names)
            if isinstance(item, Const):
                if bool(item.value) == (word == "or"):
                    kept.append(item)
                    break
                if operand is not operands[-1]:
                    continue
            kept.append(item)
        return kept[0] if len(kept) == 1 else Logic(word, tuple(kept))

    def _comparison(self, node: ast.Compare, names: Mapping[str, Expr]) -> Expr:
        sides = [self.read(side, names) for side in (node.left, *node.comparators)]
        parts: list[Expr] = []
        for place, op in enumerate(node.ops):
            comparison = Comparison(_COMPARE[type(op)], sides[place], sides[place + 1])
            if not any(True for _ in references(comparison)):
                try:
                    parts.append(Const(evaluate(comparison, {})))
                except ProgramArgumentError as error:
                    raise self._fault(node, error.reason) from None
            else:
                self._check_membership(node, comparison)
                parts.append(comparison)
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(part, Const) for part in parts):
            return Const(all(part.value for part in parts if isinstance(part, Const)))
        return Logic("and", tuple(parts))

    def _check_membership(self, node: ast.Compare, comparison: Comparison) -> None:
        identity = comparison.word in ("is", "is not")
        if identity and not (
            isinstance(comparison.right, Const) and comparison.right.value in (None, True, False)
        ):
            raise self._fault(node, "'is' compares with None, True, or False here; write == for other values")

    def _sum(self, node: ast.expr, left: Expr, right: Expr) -> Expr:
        known = [side.value for side in (left, right) if isinstance(side, Const)]
        if len(known) == 2 and not all(isinstance(value, str) for value in known):
            try:
                return self._constant(node, known[0] + known[1])
            except TypeError as error:
                raise self._fault(node, f"these cannot be added: {error}") from None
        for side in (left, right):
            text = isinstance(side, (Ref, Join)) or (isinstance(side, Const) and isinstance(side.value, str))
            if not text:
                raise self._fault(node, "only texts are added to a parameter; write an f-string")
            if not isinstance(side, Const):
                self._check_text(node, side)
        return self._join(node, (left, right))

    def _computed(self, node: ast.expr, names: Mapping[str, Expr]) -> Const:
        """What can be computed from constants only."""
        match node:
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                return self._constant(
                    node, tuple(self.constant(item, "a listed value", names) for item in items)
                )
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.constant(operand, "a number", names)
                if isinstance(value, (int, float)):
                    return Const(-value)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self._product(node, left, right, names)
            case ast.Attribute(value=ast.Name() as owner, attr=attribute) if owner.id not in names:
                module = self.name(owner)
                if isinstance(module, types.ModuleType) and attribute in vars(module):
                    return self._constant(node, vars(module)[attribute])
            case ast.Subscript(value=owner, slice=index):
                holder, key = self._holder(owner, names), self.constant(index, "an index", names)
                try:
                    return self._constant(node, holder[key])
                except (LookupError, TypeError) as error:
                    raise self._fault(node, f"nothing is at {key!r}: {error}") from None
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self._call(node, function, arguments, names)
        message = (
            "this cannot be compiled; a program holds texts, parameters, constants, f-strings, +, "
            "comparisons, and, or, not"
        )
        raise self._fault(node, message)

    def _holder(self, node: ast.expr, names: Mapping[str, Expr]) -> Any:
        """A list or dict outside of the function, whose items may be of any kind."""
        if isinstance(node, ast.Name) and node.id not in names:
            return self.name(node)
        return self.constant(node, "what is indexed", names)

    def _product(self, node: ast.expr, left: ast.expr, right: ast.expr, names: Mapping[str, Expr]) -> Const:
        first, second = (self.constant(side, "a factor", names) for side in (left, right))
        sizes = [len(one) if isinstance(one, (str, tuple)) else one for one in (first, second)]
        if not all(isinstance(size, (int, float)) and abs(size) <= MAX_BYTES for size in sizes):
            raise self._fault(node, "these cannot be multiplied here; write the value")
        if any(isinstance(one, (str, tuple)) for one in (first, second)) and sizes[0] * sizes[1] > MAX_BYTES:
            raise self._fault(node, "this is longer than 5 MB; write less")
        try:
            return self._constant(node, first * second)
        except TypeError as error:
            raise self._fault(node, f"these cannot be multiplied: {error}") from None

    def _call(
        self, node: ast.Call, function: ast.expr, arguments: list[ast.expr], names: Mapping[str, Expr]
    ) -> Const:
        values = [self.constant(argument, "what a call is given", names) for argument in arguments]
        known: Any = None
        if isinstance(function, ast.Attribute) and function.attr in _METHODS:
            text = self.constant(function.value, "the text", names)
            known = getattr(text, function.attr) if isinstance(text, str) else None
        else:
            known = next((one for one in _FUNCTIONS if one is self._function(function, names)), None)
        if known is None:
            message = (
                f"{ast.unparse(function)}(…) would have to be run, and a program is compiled without "
                "running; compute it above the function and use the name"
            )
            raise self._fault(node, message)
        try:
            return self._constant(node, known(*values))
        except (TypeError, AttributeError) as error:
            raise self._fault(node, str(error)) from None

    def _function(self, node: ast.expr, names: Mapping[str, Expr]) -> Any:
        match node:
            case ast.Name(id=name) if name not in names:
                return self.name(node)
            case ast.Attribute(value=ast.Name() as owner, attr=attribute) if owner.id not in names:
                return vars(self.name(owner)).get(attribute) if inspect.ismodule(self.name(owner)) else None
        return None
