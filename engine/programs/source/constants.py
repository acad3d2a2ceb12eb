"""Computes pure functions of plain values during compilation, within limits.

Plain values are texts, numbers, True, False, None, and lists, tuples, dicts and sets of them. Methods of user
classes are never called.
"""

from __future__ import annotations

import ast
import operator
import re
import string
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import Any, Final

from engine.files.text_files import MAX_BYTES

MAX_SIZE: Final = MAX_BYTES  # characters and items in one value
MAX_ITEMS: Final = 100_000  # items of a loop
MAX_NODES: Final = 1_000_000  # items in one value, including nested ones
MAX_BITS: Final = 10_000  # bits of a whole number

_TOO_LARGE: Final = "this is longer than 5 MB, the limit of a document; shorten it"
_TOO_LONG: Final = (
    "compiling this takes too many steps; shorten the loops, or build the schema with SchemaBuilder"
)
_CALLED: Final = (type, types.FunctionType, types.BuiltinFunctionType)
_SETS: Final = (set, frozenset)
_SHOWN: Final[dict[str, Callable[[Any], str]]] = {"s": str, "r": repr, "a": ascii}
_LISTS: Final = (list, tuple, *_SETS)
_WIDE: Final = re.compile(r"[0-9]{5}")
# a field of `%` with literal width and precision
_PERCENT: Final = re.compile(r"%(?:%|(?:\([\w .-]{1,100}\))?[-#0 +]*([0-9]{0,4})(?:\.([0-9]{0,4}))?[a-zA-Z])")


class UncomputableError(Exception):
    """A value cannot be computed; the message gives the reason and the fix."""


class Stream(list[Any]):
    """A value that a program can iterate only once, such as the result of `zip`."""


_COUNTED: Final = (str, *_LISTS, dict, Stream)
_COPIED: Final = 32  # characters per unit of cost; a sum of many texts copies each of them again
_READ: Final = 512  # characters per unit of cost if they are only read
_WALKED: Final = 10  # cost of an iterated item


@dataclass
class Budget:
    """The remaining cost of compiling one program.

    Attributes:
        steps: expressions and loop statements.
        size: computed characters and items.
    """

    steps: int = 200_000
    size: int = 2 * MAX_SIZE

    @classmethod
    def of(cls, source: ast.AST) -> Budget:
        """Returns the budget for a syntax tree: the default, plus two steps for each node."""
        return cls(steps=cls.steps + 2 * sum(1 for _ in ast.walk(source)))

    def step(self) -> None:
        """Counts a step.

        Raises:
            UncomputableError: no steps are left.
        """
        self.steps -= 1
        if self.steps < 0:
            raise UncomputableError(_TOO_LONG)

    def spend(self, *values: Any) -> None:
        """Counts values that are iterated.

        Raises:
            UncomputableError: the budget is spent.
        """
        pending = [item for item in values if type(item) in _COUNTED]
        while pending and self.size >= 0:
            item = pending.pop()
            self.size -= len(item) // _READ + 1 if type(item) is str else len(item) * _WALKED + 1
            inner = item if type(item) in (*_LISTS, Stream) else item.values() if type(item) is dict else ()
            pending.extend(part for part in inner if type(part) in _COUNTED)
        if self.size < 0:
            raise UncomputableError(_TOO_LONG)

    def computed(self, value: Any) -> Any:
        """Counts a computed value and returns it.

        Raises:
            UncomputableError: the value is too large, or the budget is spent.
        """
        if isinstance(value, str):
            _check_size(len(value))
            self.size -= len(value) // _COPIED
        elif isinstance(value, (int, float)):
            measure(value)
        elif type(value) in (*_LISTS, dict, Stream):
            _check_size(len(value))
            self.size -= len(value)
        if self.size < 0:
            raise UncomputableError(_TOO_LONG)
        return value


def measure(value: Any, *, members: bool = True, printed: bool = False) -> int:
    """Returns the size of a plain value, in characters and items.

    Args:
        value: the value.
        members: whether it may contain members of an Enum.
        printed: whether it becomes text, in which sets have no order.

    Raises:
        UncomputableError: the value is not plain, or too large.
    """
    total = nodes = 0
    pending = [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        total += 1
        nodes += 1
        if kind is str:
            total += len(item)
        elif kind is int:
            total += item.bit_length() // 8
        elif kind in _LISTS or kind is Stream:
            if printed and (kind in _SETS or kind is Stream):
                raise UncomputableError(_unordered(kind))
            total += len(item)
            pending.extend(item if total <= MAX_SIZE else ())
        elif kind is dict:
            total += len(item)
            pending.extend((*item, *item.values()) if total <= MAX_SIZE else ())
        elif isinstance(item, Enum) and members:
            continue
        elif isinstance(item, tuple) and hasattr(kind, "_fields") and not printed:
            pending.extend(tuple.__iter__(item))
        elif kind not in (float, bool, NoneType, range):
            raise UncomputableError(not_plain(item))
        if total > MAX_SIZE or nodes > MAX_NODES:
            raise UncomputableError(_TOO_LARGE)
    return total


def not_plain(value: Any) -> str:
    """Explains why a value cannot be used in a text or computation."""
    if isinstance(value, Enum):
        name = f"{type(value).__name__}.{value._name_}"
        return f"{name} is a member of an Enum, not text; write {name}.value"
    if callable(value):
        own = getattr(value, "__name__", None) if isinstance(value, _CALLED) else None
        name = own if isinstance(own, str) else type(value).__name__
        return f"{name} is a function, not text; write {name}(…), or a text"
    kind = type(value).__name__
    return f"a value of type {kind} is not allowed; use text, numbers, True, False, None"


def _unordered(kind: type) -> str:
    if kind is Stream:
        return "this is an iterator, not text; wrap it in list(…)"
    return "a set has no order, so the text would vary; write sorted(…), or a list"


def settled(value: Any) -> Any:
    """Converts a member of a text Enum to its text if Python prints it so; returns other values unchanged."""
    if isinstance(value, Enum) and isinstance(value, str):
        plain = all(_inherits(value, name) for name in ("__str__", "__format__"))
        return str.__str__(value) if plain else value
    return value


def _inherits(value: Any, name: str) -> bool:
    return getattr(type(value), name, None) is getattr(str, name)


def items_of(value: Any) -> list[Any]:
    """Returns the items of a loop, in order.

    Raises:
        UncomputableError: the value has no order, is too long, or is not iterable.
    """
    kind = type(value)
    if kind in _SETS:
        raise UncomputableError(_unordered(kind))
    if isinstance(value, type) and issubclass(value, Enum):
        return list(dict.fromkeys(value.__members__.values()))
    named = isinstance(value, tuple) and hasattr(kind, "_fields")
    if not named and kind not in (list, tuple, dict, str, range, Stream):
        raise UncomputableError(f"a value of type {kind.__name__} is not iterable here; write a list")
    try:
        length = len(value)
    except OverflowError:
        length = MAX_ITEMS + 1
    if length > MAX_ITEMS:
        raise UncomputableError(f"this has more than {MAX_ITEMS:,} items; shorten it")
    return list(tuple.__iter__(value)) if named else list(value)


def item_at(holder: Any, key: Any) -> Any:
    """Returns `holder[key]`.

    Raises:
        UncomputableError: there is no such item, or the holder's class would have to run.
    """
    kind = type(holder)
    if isinstance(holder, type) and issubclass(holder, Enum) and isinstance(key, str):
        holder, kind = dict(holder.__members__), dict
    if isinstance(holder, tuple) and hasattr(kind, "_fields"):
        holder, kind = tuple(tuple.__iter__(holder)), tuple
    if kind not in (list, tuple, dict, str, range):
        message = f"items of a value of type {kind.__name__} cannot be read here; use a list or dict"
        raise UncomputableError(message)
    if not isinstance(key, slice):
        measure(key)
    try:
        return holder[key]
    except (LookupError, TypeError, ValueError) as error:
        raise UncomputableError(f"there is no item {key!r}: {error}") from None


# Operators

_BINARY: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
_UNARY: Final[dict[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.inv,
}


def unary(op: ast.unaryop, value: Any) -> Any:
    """Computes `-value` and other unary operators.

    Raises:
        UncomputableError: the value has no such operator.
    """
    measure(value, members=False)
    return _try(_UNARY[type(op)], value)


def binary(op: ast.operator, left: Any, right: Any) -> Any:
    """Computes `left + right` and other binary operators.

    Raises:
        UncomputableError: the types do not match, or the result is too large.
    """
    left, right = settled(left), settled(right)
    both_lists = type(left) in (list, tuple) and type(right) in (list, tuple)
    for side in () if isinstance(op, ast.Add) and both_lists else (left, right):
        measure(side, members=False, printed=isinstance(op, ast.Mod) and isinstance(left, str))
    match op:
        case ast.Mult():
            _check_product(left, right)
        case ast.Pow() if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * max(right, 0))
        case ast.LShift() if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + max(right, 0))
        case ast.Mod() if isinstance(left, str):
            _check_percent(left, right)
        case ast.MatMult():
            raise UncomputableError("@ needs matrices; write the value")
    return _try(_BINARY[type(op)], left, right)


def _check_percent(text: str, values: Any) -> None:
    if "%" in _PERCENT.sub("", text):
        raise UncomputableError(
            "this format is wider than 9,999 characters or not supported; write an f-string"
        )
    fields = _PERCENT.findall(text)
    times = len(fields) if isinstance(values, dict) else 1
    widths = sum(int(number or 0) for field in fields for number in field)
    _check_size(len(text) + widths + times * measure(values))


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    for value, times in ((left, right), (right, left)):
        if isinstance(value, (str, list, tuple)) and isinstance(times, int):
            _check_size(len(value) * max(times, 0))


def _check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise UncomputableError("this number is longer than 3,000 digits; write a smaller one")


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise UncomputableError(_TOO_LARGE)


def _try(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return function(*arguments, **options)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise UncomputableError(f"this cannot be computed: {error}") from None


# Texts

_METHODS: Final[dict[type, frozenset[str]]] = {
    str: frozenset(
        (
            *("strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize", "casefold", "swapcase"),
            *(
                "removeprefix",
                "removesuffix",
                "replace",
                "join",
                "format",
                "center",
                "ljust",
                "rjust",
                "zfill",
            ),
            *("split", "rsplit", "splitlines", "partition", "rpartition", "expandtabs"),
            *("startswith", "endswith", "find", "rfind", "index", "rindex", "count"),
            *("isalpha", "isdigit", "isdecimal", "isalnum", "isspace", "isupper", "islower", "istitle"),
            *("isidentifier", "isnumeric", "isascii", "isprintable"),
        )
    ),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("index", "count")),
    tuple: frozenset(("index", "count")),
    set: frozenset(("union", "intersection", "difference", "issubset", "issuperset", "isdisjoint")),
    frozenset: frozenset(("union", "intersection", "difference", "issubset", "issuperset", "isdisjoint")),
}
_CHANGES: Final = frozenset(
    ("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update", "add", "discard")
)


def has_methods(value: Any) -> bool:
    """Whether a value has methods of Python's own classes."""
    return type(settled(value)) in _METHODS


def call_method(value: Any, name: str, arguments: list[Any], options: Mapping[str, Any]) -> Any:
    """Computes `value.name(…)` of a text, list, tuple, dict or set.

    Raises:
        UncomputableError: the method is unknown or not pure, or the arguments do not match.
    """
    value = settled(value)
    kind = type(value)
    if name not in _METHODS[kind]:
        if name in _CHANGES and kind is not str:
            message = f".{name}(…) would change a {kind.__name__}, and values are constant; "
            raise UncomputableError(f"{message}write the whole value, or each text with p.text(…)")
        raise UncomputableError(f".{name}(…) of a {kind.__name__} would have to run; write the value")
    values = [settled(item) for item in arguments]
    chosen = {key: settled(item) for key, item in options.items()}
    if kind is not str:
        result = _try(getattr(kind, name), value, *values, **chosen)
        return Stream(result) if name in ("items", "keys", "values") else result
    if name == "format":
        return _format(value, values, chosen)
    if name == "join" and len(values) == 1:
        values = [[settled(item) for item in items_of(values[0])]]
        _check_size(len(value) * len(values[0]))
    for item in (*values, *chosen.values()):
        measure(item, members=False)
    _check_growth(value, name, values)
    return _try(getattr(str, name), value, *values, **chosen)


def _check_growth(value: str, name: str, given: list[Any]) -> None:
    if name in ("center", "ljust", "rjust", "zfill") and given and isinstance(given[0], int):
        _check_size(given[0])
    if name == "expandtabs" and given and isinstance(given[0], int):
        _check_size(value.count("\t") * given[0])
    if name == "replace" and len(given) > 1 and all(isinstance(item, str) for item in given[:2]):
        _check_size(len(value) + value.count(given[0]) * len(given[1]))


def formatted(value: Any, conversion: str, form: str) -> str:
    """Returns the text of a value in an f-string, with its conversion (`s`, `r`, `a` or "") and format.

    Raises:
        UncomputableError: the format is too wide, or does not match the value.
    """
    value = value if conversion in ("r", "a") else settled(value)
    measure(value, members=False, printed=True)
    if _WIDE.search(form):
        raise UncomputableError("this format is wider than 9,999 characters; use less")
    shown = _SHOWN[conversion](value) if conversion else value
    try:
        return format(shown, form)
    except (TypeError, ValueError, OverflowError) as error:
        raise UncomputableError(f"the format does not match the value: {error}") from None


def _format(text: str, arguments: list[Any], options: Mapping[str, Any]) -> str:
    """Computes `text.format(…)` with fields that are names or numbers."""
    pieces: list[str] = []
    size = counted = 0
    numbered = False
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError as error:
        raise UncomputableError(f"this cannot be formatted: {error}") from None
    for literal, field, form, conversion in fields:
        pieces.append(literal)
        size += len(literal)
        if field is None:
            continue
        if form and "{" in form:
            raise UncomputableError("a format in a format cannot be compiled; write an f-string")
        if not (field == "" or field.isidentifier() or (field.isascii() and field.isdecimal())):
            raise UncomputableError(f"{{{field}}} is more than a name or a number; write an f-string")
        numbered = numbered or field.isdecimal()
        counted += field == ""
        key: Any = counted - 1 if field == "" else int(field) if field.isdecimal() else field
        holder: Any = options if isinstance(key, str) else dict(enumerate(arguments))
        if key not in holder or (numbered and counted):
            raise UncomputableError(f"format has no argument for {{{field}}}; add it")
        pieces.append(formatted(holder[key], conversion or "", form or ""))
        size += len(pieces[-1])
        _check_size(size)
    return "".join(pieces)
