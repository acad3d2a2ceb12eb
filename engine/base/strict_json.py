"""JSON of others, read strictly: a key stands once, numbers are numbers, and each can be spelled as it was.

Python's own reader takes the last of several keys, NaN and Infinity, and makes 12.5 of 12.50 and Infinity of
1e400.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

MOST_DIGITS: Final = 1000
_SHOWN: Final = 80  # characters of a key or a number that messages show
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


class JsonError(ValueError):
    """A text is not JSON as it is read here.

    Attributes:
        what: is wrong.
        line: in which that stands, from 1; 0 where no place is known.
        column: likewise.
        path: of the value, as `messages[0].content`; "" for the whole and where it is not known.
    """

    def __init__(self, what: str, line: int = 0, column: int = 0, path: str = "") -> None:
        super().__init__(what)
        self.what, self.line, self.column, self.path = what, line, column, path

    def __str__(self) -> str:
        """Says what is wrong, of which value, and where."""
        of = f" ({self.path})" if self.path else ""
        return f"{self.what}{of} in line {self.line}, column {self.column}" if self.line else self.what


class JsonValueError(JsonError):
    """It has the form of JSON, and a key stands twice, or a number is none or too large."""


class SpelledInt(int):
    """A whole number.

    Attributes:
        source: how it is spelled.
    """

    source: str


class SpelledFloat(float):
    """Any other number.

    Attributes:
        source: how it is spelled.
    """

    source: str


class _FoundError(Exception):
    """Something is wrong; the place is not known yet."""


def read_json(text: str, *, spelled: bool = False) -> Any:
    """Reads a text.

    Args:
        text: the text.
        spelled: whether numbers remember how they are spelled.

    Raises:
        JsonValueError: a key stands twice, or a number is none or too large.
        JsonError: it is no JSON.
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
        raise JsonError("it nests too deep") from None
    except _FoundError:
        raise _fault(text) from None


def text_of(value: object) -> str | None:
    """Returns a text, number or truth value as its author has spelled it; None for all else."""
    match value:
        case str():
            return value
        case SpelledInt() | SpelledFloat():
            return value.source
        case bool() | int() | float():
            return json.dumps(value)
    return None


def written(value: Any, pad: str = "") -> str:
    """Returns a value as JSON with an indent of two, its numbers as their author has spelled them.

    Args:
        value: as `read_json` gives it.
        pad: white space before each line but the first.
    """
    inner, close = pad + "  ", f"\n{pad}"
    match value:
        case dict() if value:
            fields = (f"{inner}{_quoted(key)}: {written(one, inner)}" for key, one in value.items())
            return "{\n" + ",\n".join(fields) + close + "}"
        case list() if value:
            return "[\n" + ",\n".join(inner + written(one, inner) for one in value) + close + "]"
        case SpelledInt() | SpelledFloat():
            return value.source
    return _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _FoundError
    return found


def _constant(_: str) -> NoReturn:
    raise _FoundError


def _int(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise _FoundError
    return int(digits)


def _float(digits: str) -> float:
    found = float(digits)
    if math.isinf(found):
        raise _FoundError
    return found


def _spelled_int(digits: str) -> SpelledInt:
    found = SpelledInt(_int(digits))
    found.source = digits
    return found


def _spelled_float(digits: str) -> SpelledFloat:
    found = SpelledFloat(_float(digits))
    found.source = digits
    return found


def _fault(text: str) -> JsonValueError:
    """The first fault of a text that is sound up to it, with its place."""
    way: list[str | int | None] = []  # the key, or the place, in each object and list that is open
    keys: list[set[str] | None] = []
    names = False  # whether a text that comes now is a key
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
                return _at(text, token.start(), f"the key {_short(repr(key))} stands twice", way)
            seen.add(key)
        elif what := _number_fault(word):
            return _at(text, token.start(), what, way)
    return JsonValueError("it cannot be read")


def _number_fault(word: str) -> str:
    """What is wrong with a number; "" for all else."""
    if word in ("NaN", "Infinity", "-Infinity"):
        return f"{word} is no number of JSON"
    if word[0] not in "-0123456789":
        return ""
    if word.lstrip("-").isdecimal():
        many = len(word) > MOST_DIGITS
        return f"a number has {len(word)} digits; {MOST_DIGITS} are the most" if many else ""
    return f"the number {_short(word)} is too large" if math.isinf(float(word)) else ""


def _at(text: str, start: int, what: str, way: Sequence[str | int | None]) -> JsonValueError:
    line = text.count("\n", 0, start) + 1
    return JsonValueError(what, line, start - text.rfind("\n", 0, start), _path(way))


def _path(way: Sequence[str | int | None]) -> str:
    steps = (f"[{one}]" if isinstance(one, int) else f".{_short(str(one))}" for one in way)
    return "".join(steps).lstrip(".")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
