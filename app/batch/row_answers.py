"""Prompt, settings and errors of a batch row.

The command line and the studio share them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NotRequired

from typing_extensions import TypedDict

from engine.base.errors import PromptCacheError, SettingsError
from engine.inference.run_settings import RunSettings
from engine.inference.setting import settings_of
from engine.pml import PromptError
from engine.rows.row_extras import SET, CellError
from engine.rows.rows import Row

_LINES = re.compile(r" \(line \d+\)")


class RowFault(TypedDict):
    """The error of a row: message, line in the file, column, and diagnostic code."""

    message: str
    line: int
    column: NotRequired[str]
    code: NotRequired[str]


def row_settings(row: Row, settings: RunSettings) -> RunSettings:
    """Returns the batch's settings with the row's own on top; raises CellError if one is invalid."""
    known = settings_of(RunSettings)
    own: dict[str, Any] = {}
    for name, value in row.settings.items():
        column = f"{SET}{name}"
        if name not in known:
            raise CellError(column, f"There is no setting {name!r}; there are {', '.join(known)}.")
        try:
            own[name] = known[name].spelled(value) if isinstance(value, str) else known[name].checked(value)
        except SettingsError as error:
            raise CellError(column, str(error)) from None
    if own.keys() & {"scope", "repair"}:
        own.setdefault("reuse", "off")  # the row chooses
    return replace(settings, **own)


def row_fault(error: Exception, row: Row) -> RowFault:
    """Returns the error of a row."""
    fault: RowFault = {"message": str(error), "line": row.line}
    if isinstance(error, PromptError):
        first = error.diagnostics[0]
        fault["code"] = first.code
        if row.prompt is None:  # the generated document is not visible to the user
            message = _LINES.sub("", first.message)
        else:
            message = f"line {first.line}, column {first.column} of the prompt: {first.message}"
        end = "" if message.endswith((".", "?", "!")) else "."
        fault["message"] = f"{message[:1].upper()}{message[1:]}{end}"
    elif not isinstance(error, PromptCacheError):
        fault["message"] = f"unexpected {type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, CellError) and error.column:
        fault["column"] = error.column
    return fault
