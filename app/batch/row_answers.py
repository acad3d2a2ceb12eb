"""What a row of a batch comes to: its prompt, its settings, and what went wrong with it, in words.

The command line and the studio answer rows alike.
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
    """Why a row has no answer: a sentence, its line in the file, the column, the code of a diagnostic."""

    message: str
    line: int
    column: NotRequired[str]
    code: NotRequired[str]


def row_settings(row: Row, settings: RunSettings) -> RunSettings:
    """Returns the settings of a row: those of the batch, and its own over them.

    Raises:
        CellError: one of its own is unknown or out of its range.
    """
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
    """Says what went wrong with a row."""
    fault: RowFault = {"message": str(error), "line": row.line}
    if isinstance(error, PromptError):
        found = error.diagnostics[0]
        fault["code"] = found.code
        if row.prompt is None:  # nobody sees the document that was made of its picks
            message = _LINES.sub("", found.message)
        else:
            message = f"line {found.line}, column {found.column} of the prompt: {found.message}"
        end = "" if message.endswith((".", "?", "!")) else "."
        fault["message"] = f"{message[:1].upper()}{message[1:]}{end}"
    elif not isinstance(error, PromptCacheError):
        fault["message"] = f"unexpected {type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, CellError) and error.column:
        fault["column"] = error.column
    return fault
