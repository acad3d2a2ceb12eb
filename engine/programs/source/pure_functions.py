"""Pure Python functions, which a program may call on constants."""

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
}  # importable modules of a file that is not run

BUILTINS: Final[Mapping[str, Any]] = {
    name: one for name, one in vars(builtins).items() if not name.startswith("_")
}  # names without an import

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
    """Whether a function is known to be pure."""
    known = (*_ONE_VALUE, *_PRINTED, *_TEXTS, *_IN_ORDER, *_SERIES, *_IN_ANY_ORDER, range, dict)
    return any(function is pure for pure in known)


def call_function(function: Any, arguments: list[Any], options: Mapping[str, Any]) -> Any:
    """Calls a function with `is_pure`.

    Raises:
        UncomputableError: the arguments do not match, or the result is too large.
    """
    name = getattr(function, "__name__", "")
    for key in options:
        if key not in _OPTIONS and function is not dict:
            raise UncomputableError(f"{name}(…, {key}=…) would have to run; compute it above the function")
    values = _gone_through(function, [settled(value) for value in arguments])
    _check_plain(function, values, options)
    _check_growth(function, values, options)
    try:
        result = function(*values, **options)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise UncomputableError(f"{name}(…) cannot be computed: {error}") from None
    return Stream(result) if function in _SERIES else result


def _gone_through(function: Any, given: list[Any]) -> list[Any]:
    """Returns the arguments, with iterables as lists of limited length."""
    if function is len and given and isinstance(given[0], type):
        return [items_of(given[0])]
    if function is zip:
        return [items_of(value) for value in given]
    if function is dict:
        return [value if type(value) is dict else items_of(value) for value in given]
    if not given or (function in (min, max) and len(given) > 1):
        return given
    unordered = function in _IN_ANY_ORDER and type(given[0]) in (set, frozenset)
    if unordered or function not in (*_SERIES, *_IN_ORDER, *_IN_ANY_ORDER):
        return given
    return [items_of(given[0]), *given[1:]]


def _check_plain(function: Any, given: list[Any], options: Mapping[str, Any]) -> None:
    """Checks that the call runs only Python's own code."""
    any_items = function in (*_SERIES, list, tuple, dict)
    if function is len and given:
        any_items = type(given[0]) in (list, tuple, dict)
    for value in (*(() if any_items else given), *options.values()):
        measure(value, members=function not in _PRINTED, printed=function in _PRINTED)


def _check_growth(function: Any, given: list[Any], options: Mapping[str, Any]) -> None:
    if function is sum and not all(isinstance(value, (int, float)) for value in (*given[0], *given[1:])):
        raise UncomputableError('sum adds numbers; write a list of all items, or "".join(…) for texts')
    digits = options.get("ndigits", given[1] if len(given) > 1 else 0)
    if function is round and isinstance(digits, int) and abs(digits) > _MAX_DIGITS:
        raise UncomputableError(f"this rounds to more than {_MAX_DIGITS} digits; use fewer")
    if function is textwrap.indent and isinstance(given[0], str):
        prefix = options.get("prefix", given[1] if len(given) > 1 else "")
        if isinstance(prefix, str) and len(prefix) * (given[0].count("\n") + 1) > MAX_SIZE:
            raise UncomputableError("this is longer than 5 MB, the limit of a document; shorten it")
    wide = options.get("indent")
    if function is json.dumps and wide is not None:
        size = len(wide) if isinstance(wide, str) else wide
        if size > _MAX_INDENT or measure(given) > _MAX_INDENTED:
            raise UncomputableError("this is too large to indent; remove indent")
