"""A strict JSON reader: keys are unique, numbers are finite, and numbers can preserve their spelling.

Python's reader takes the last of several keys, accepts NaN and Infinity, and turns 12.50 into 12.5 and 1e400
into Infinity.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

MOST_DIGITS: Final = 1000
_SHOWN: Final = 80  # characters of a key or a number in messages
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


class JsonError(ValueError):
    """A text is not strict JSON.

    Attributes:
        what: the problem.
        line: its line, from 1; 0 if unknown.
        column: likewise.
        path: the path of the value, as `messages[0].content`; "" for the whole or if unknown.
    """

    def __init__(self, what: str, line: int = 0, column: int = 0, path: str = "") -> None:
        super().__init__(what)
        self.what, self.line, self.column, self.path = what, line, column, path

    def __str__(self) -> str:
        """Returns the problem, its value and its place."""
        of = f" ({self.path})" if self.path else ""
        return f"{self.what}{of} in line {self.line}, column {self.column}" if self.line else self.what


class JsonValueError(JsonError):
    """A duplicate key, or a number that is not finite or has too many digits."""


class SpelledInt(int):
    """A whole number that preserves its spelling in `source`."""

    source: str


class SpelledFloat(float):
    """Any other number that preserves its spelling in `source`."""

    source: str


class _FoundError(Exception):
    """There is an error whose place is not known yet."""


def read_json(text: str, *, spelled: bool = False) -> Any:
    """Reads a JSON text; if `spelled`, its numbers preserve their spelling.

    Raises:
        JsonValueError: a key is duplicate, or a number is not finite or has too many digits.
        JsonError: the text is not JSON.
    """
    numbers = (_spelled_int, _spelled_float) if spelled else (_int, _float)
    whole, real = numbers
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=whole, parse_float=real
        )
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.lineno, error.colno) from None
    except RecursionError:
        raise JsonError("it is nested too deeply") from None
    except _FoundError:
        raise _fault(text) from None


def text_of(value: object) -> str | None:
    """Returns a text, number or truth value as its author wrote it; None for other values."""
    match value:
        case str():
            return value
        case SpelledInt() | SpelledFloat():
            return value.source
        case bool() | int() | float():
            return json.dumps(value)
    return None


def written(value: Any, pad: str = "") -> str:
    """Returns a value of `read_json` as JSON, with two-space indents after `pad` and the spelled numbers."""
    inner, close = pad + "  ", f"\n{pad}"
    match value:
        case dict() if value:
            fields = (f"{inner}{_quoted(key)}: {written(item, inner)}" for key, item in value.items())
            return "{\n" + ",\n".join(fields) + close + "}"
        case list() if value:
            return "[\n" + ",\n".join(inner + written(item, inner) for item in value) + close + "]"
        case SpelledInt() | SpelledFloat():
            return value.source
    return _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _FoundError
    return fields


def _constant(_: str) -> NoReturn:
    raise _FoundError


def _int(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise _FoundError
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _FoundError
    return number


def _spelled_int(digits: str) -> SpelledInt:
    number = SpelledInt(_int(digits))
    number.source = digits
    return number


def _spelled_float(digits: str) -> SpelledFloat:
    number = SpelledFloat(_float(digits))
    number.source = digits
    return number


def _fault(text: str) -> JsonValueError:
    """Returns the first error of a text, with its place."""
    way: list[str | int | None] = []  # the key or index in each open object and list
    keys: list[set[str] | None] = []
    names = False  # whether the next string is a key
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "{[":
            names = word == "{"
            keys.append(set() if names else None)
            way.append(None if names else 0)
        elif word in "}]":
            way.pop()
            keys.pop()
            names = False
        elif word == ",":
            names = keys[-1] is not None
            if isinstance(place := way[-1], int):
                way[-1] = place + 1
        elif word == ":":
            names = False
        elif names and (seen := keys[-1]) is not None:
            way[-1] = key = json.loads(word)
            if key in seen:
                return _at(text, token.start(), f"the key {_short(repr(key))} occurs twice", way)
            seen.add(key)
        elif what := _number_fault(word):
            return _at(text, token.start(), what, way)
    return JsonValueError("it cannot be read")


def _number_fault(word: str) -> str:
    """Returns the problem of a number; "" for all else."""
    if word in ("NaN", "Infinity", "-Infinity"):
        return f"{word} is not a JSON number"
    if word[0] not in "-0123456789":
        return ""
    if word.lstrip("-").isdecimal():
        many = len(word) > MOST_DIGITS
        return f"a number has {len(word)} digits; the limit is {MOST_DIGITS}" if many else ""
    return f"the number {_short(word)} is too large" if math.isinf(float(word)) else ""


def _at(text: str, start: int, what: str, way: Sequence[str | int | None]) -> JsonValueError:
    line = text.count("\n", 0, start) + 1
    return JsonValueError(what, line, start - text.rfind("\n", 0, start), _path(way))


def _path(way: Sequence[str | int | None]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{_short(str(step))}" for step in way)
    return "".join(steps).lstrip(".")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
