"""Prompt, settings and errors of a batch row.

The command line and the studio share them.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import Any, NotRequired

from typing_extensions import TypedDict

from engine.base.errors import PromptCacheError, SettingsError
from engine.inference.run_settings import RunSettings
from engine.inference.setting import settings_of
from engine.pml import PromptError, Schema
from engine.rows.row_extras import SET, CellError
from engine.rows.row_prompts import modules_of, prompt_text
from engine.rows.rows import Row

_ALWAYS = ("max_new_tokens", "temperature")
_WHEN_DRAWN = ("top_p", "top_k", "seed")  # matter only with sampling
_NO_MATTER = ("sync", "hold_conversation", "store_conversation")  # do not affect an answer
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


def held_by(row: Row, schema: Schema, over: str | None, settings: RunSettings) -> dict[str, Any]:
    """Returns the `prompt` of a row, all of its `modules`, and the `settings` in force.

    The prompt of an invalid row is "". If a row's settings are invalid, those of the batch are returned.
    """
    prompt = ""
    with contextlib.suppress(PromptCacheError):
        prompt = prompt_text(row, schema, over)
    with contextlib.suppress(PromptCacheError):
        settings = row_settings(row, settings)
    return {"prompt": prompt, "modules": modules_of(prompt), "settings": in_force(settings)}


def in_force(settings: RunSettings) -> dict[str, Any]:
    """Returns the settings that decide an answer: the usual ones, and others with changed values."""
    by_engine = settings.reuse == "auto"
    shown = ["reuse", *(("max_kl",) if by_engine else ("scope", "repair")), *_ALWAYS]
    shown += _WHEN_DRAWN if settings.temperature > 0 else ()
    left_out = {*shown, *_NO_MATTER, *_WHEN_DRAWN, "max_kl", "scope", "repair"}
    known = settings_of(RunSettings)
    shown += [
        name for name in known if name not in left_out and getattr(settings, name) != known[name].default
    ]
    return {name: getattr(settings, name) for name in shown}


def time_left(before: float | None, took: float, answered: int, rest: int) -> float | None:
    """Estimates the seconds left; an estimate never exceeds the one before it.

    Args:
        before: the estimate before; None for none.
        took: seconds so far.
        answered: answered rows. Failed rows take almost no time, so they do not count.
        rest: rows that have not ended.
    """
    if not answered:
        return before
    left = took / answered * rest
    return left if before is None else min(before, left)


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
