"""Functions of Python that only compute, so that a program may call them on constants."""

from __future__ import annotations

import builtins
import dataclasses
import enum
import inspect
import json
import textwrap
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.programs.source.constants import MAX_SIZE, Stream, UncomputableError, items_of, measure, settled

KNOWN_MODULES: Final[Mapping[str, Any]] = {
    "typing": typing,
    "textwrap": textwrap,
    "inspect": inspect,
    "enum": enum,
    "dataclasses": dataclasses,
    "json": json,
}
"""Modules that a file may import which is read and not run."""

BUILTINS: Final[Mapping[str, Any]] = {
    name: one for name, one in vars(builtins).items() if not name.startswith("_")
}
"""What Python knows without an import."""

_ONE_VALUE: Final[tuple[Callable[..., Any], ...]] = (len, abs, round, ord, chr, divmod, int, float, bool)
_PRINTED: Final[tuple[Callable[..., Any], ...]] = (str, repr, ascii, json.dumps)
_TEXTS: Final[tuple[Callable[..., Any], ...]] = (textwrap.dedent, textwrap.indent, inspect.cleandoc)
_IN_ORDER: Final[tuple[Callable[..., Any], ...]] = (sum, list, tuple)
_SERIES: Final[tuple[Callable[..., Any], ...]] = (enumerate, zip, reversed)
_IN_ANY_ORDER: Final[tuple[Callable[..., Any], ...]] = (sorted, min, max, any, all, set, frozenset)
_OPTIONS: Final = frozenset(
    ("start", "strict", "reverse", "default", "ndigits", "indent", "ensure_ascii", "sort_keys", "prefix")
)
_MAX_INDENT: Final = 16
_MAX_INDENTED: Final = 10_000
_MAX_DIGITS: Final = 1000


def is_pure(function: Any) -> bool:
    """Whether a function only computes."""
    known = (*_ONE_VALUE, *_PRINTED, *_TEXTS, *_IN_ORDER, *_SERIES, *_IN_ANY_ORDER, range, dict)
    return any(function is one for one in known)


def call_function(function: Any, arguments: list[Any], options: Mapping[str, Any]) -> Any:
    """What one of these functions gives.

    Args:
        function: one for which `is_pure` holds.
        arguments: what it is given by place.
        options: what it is given by name.

    Raises:
        UncomputableError: it does not take this, or the result would be too large.
    """
    name = getattr(function, "__name__", "")
    for key in options:
        if key not in _OPTIONS and function is not dict:
            raise UncomputableError(f"{name}(…, {key}=…) would have to be run; compute it above the function")
    given = _gone_through(function, [settled(one) for one in arguments])
    _check_plain(function, given, options)
    _check_growth(function, given, options)
    try:
        result = function(*given, **options)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise UncomputableError(f"{name}(…) cannot be computed: {error}") from None
    return Stream(result) if function in _SERIES else result


def _gone_through(function: Any, given: list[Any]) -> list[Any]:
    """The arguments, with what is gone through as lists of bounded length."""
    if function is len and given and isinstance(given[0], type):
        return [items_of(given[0])]
    if function is zip:
        return [items_of(one) for one in given]
    if function is dict:
        return [one if type(one) is dict else items_of(one) for one in given]
    if not given or (function in (min, max) and len(given) > 1):
        return given
    unordered = function in _IN_ANY_ORDER and type(given[0]) in (set, frozenset)
    if unordered or function not in (*_SERIES, *_IN_ORDER, *_IN_ANY_ORDER):
        return given
    return [items_of(given[0]), *given[1:]]


def _check_plain(function: Any, given: list[Any], options: Mapping[str, Any]) -> None:
    """Whether computing runs nothing but Python's own code."""
    held = function in (*_SERIES, list, tuple, dict)
    if function is len and given:
        held = type(given[0]) in (list, tuple, dict)
    for one in (*(() if held else given), *options.values()):
        measure(one, members=function not in _PRINTED, printed=function in _PRINTED)


def _check_growth(function: Any, given: list[Any], options: Mapping[str, Any]) -> None:
    """Whether the result can be computed in no time."""
    if function is sum and not all(isinstance(one, (int, float)) for one in (*given[0], *given[1:])):
        raise UncomputableError('sum adds numbers; write a list of all items, or "".join(…) for texts')
    digits = options.get("ndigits", given[1] if len(given) > 1 else 0)
    if function is round and isinstance(digits, int) and abs(digits) > _MAX_DIGITS:
        raise UncomputableError(f"this rounds to more than {_MAX_DIGITS} digits; write less")
    if function is textwrap.indent and isinstance(given[0], str):
        prefix = options.get("prefix", given[1] if len(given) > 1 else "")
        if isinstance(prefix, str) and len(prefix) * (given[0].count("\n") + 1) > MAX_SIZE:
            raise UncomputableError("this is longer than 5 MB, the most that a document may have; write less")
    wide = options.get("indent")
    if function is json.dumps and wide is not None:
        size = len(wide) if isinstance(wide, str) else wide
        if size > _MAX_INDENT or measure(given) > _MAX_INDENTED:
            raise UncomputableError("this is too large to be indented while compiling; leave indent out")
