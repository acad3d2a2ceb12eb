"""Reads JSON documents and JSON lines as plain values; numbers retain their spelling."""

from __future__ import annotations

import re
from typing import Any, Final

from engine.base.strict_json import JsonError, read_json
from engine.exchange.base.errors import ExchangeError

_END: Final = re.compile(r"\r\n|\n|\r")


def parsed_json(source: str) -> Any:
    """Parses JSON, or JSON lines as a list.

    Raises:
        ExchangeError: it is neither, a key repeats, or a number is invalid or too large.
    """
    try:
        return read_json(source, spelled=True)
    except JsonError as error:
        lines = [(place, line) for place, line in enumerate(_END.split(source), 1) if line.strip()]
        if error.what == "Extra data" and len(lines) > 1:
            return [_line(line, place) for place, line in lines]
        where = f"line {error.line}, column {error.column}: " if error.line else ""
        raise ExchangeError(f"this is not valid JSON: {where}{_named(error)}") from None


def _line(line: str, place: int) -> Any:
    try:
        return read_json(line, spelled=True)
    except JsonError as error:
        raise ExchangeError(f"line {place} is not valid JSON: {_named(error)}") from None


def _named(error: JsonError) -> str:
    return f"{error.what} ({error.path})" if error.path else error.what
