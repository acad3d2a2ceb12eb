"""Validates the rows and checks that the Batch page sends."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Literal

from app.studio.batches.batch import BatchMode
from app.studio.documents.requests import Texts, Words, request
from app.studio.runs.settings import PageSettings
from engine.exchange.base.errors import ExchangeError
from engine.inference.run_settings import RunSettings
from engine.rows.expectations import Combine, Expectation, expected
from engine.rows.grid import Axis, Varied, grid_rows, grid_size
from engine.rows.rows import Row, read_rows

MOST_ROWS = 10_000
NAMED = "the table"


@request
class WantedAxis:
    """One axis of a grid; see `engine.rows.grid.Axis`."""

    kind: Varied
    name: Words = ""
    values: tuple[Words, ...] = ()


@request
class WantedCheck:
    """A check of every answer."""

    kind: Words
    value: Words


@request
class RowsWanted(Texts):
    """The rows to read.

    Attributes:
        source: whether the rows come from the table or the grid.
        table: CSV, or lines of JSON.
        grid: the axes.
        alone: whether each row is a prompt of its own instead of a change to the open prompt.
        settings: the settings of rows without their own.
    """

    source: Literal["table", "grid"]
    table: Words = ""
    grid: tuple[WantedAxis, ...] = ()
    alone: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


@request
class BatchWanted(RowsWanted):
    """A batch to run.

    Attributes:
        key: the key of the new job.
        mode: the sides to run.
        checks: checks of every answer.
        combine: whether an answer must pass all checks or any of them.
    """

    key: Words
    mode: BatchMode = "both"
    checks: tuple[WantedCheck, ...] = ()
    combine: Combine = "all"


def rows_of(request: RowsWanted) -> tuple[Row, ...]:
    """Returns the requested rows.

    Raises:
        PromptCacheError: there are no rows, too many rows, or the source cannot be parsed.
    """
    if request.source == "grid":
        axes = [Axis(axis.kind, axis.name, axis.values) for axis in request.grid]
        size = grid_size(axes)
        if size > MOST_ROWS:
            raise ExchangeError(
                f"This grid has {size:,} rows, but a batch has at most {MOST_ROWS:,}. Remove some values."
            )
        return tuple(grid_rows(axes))
    parsed: Iterator[Row] = read_rows(io.BytesIO(request.table.encode("utf-8", "surrogatepass")), NAMED)
    rows = tuple(itertools.islice(parsed, MOST_ROWS + 1))
    if not rows:
        raise ExchangeError("The table has no rows. Write one row per line, below a line of column names.")
    if len(rows) > MOST_ROWS:
        raise ExchangeError(
            f"The table has more than {MOST_ROWS:,} rows, the maximum here. Use fewer, or use pml run "
            "--batch, which has no limit."
        )
    return _named_once(rows)


def _named_once(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Replaces rows with a repeated id by errors."""
    first: dict[str, int] = {}
    named: list[Row] = []
    for row in rows:
        before = first.setdefault(str(row.id), row.line)
        if before != row.line and row.named and not row.fault:
            message = f"The id {row.id!r} is already used in line {before}. Give each row its own id."
            row = replace(row, fault=message, column="id")
        named.append(row)
    return tuple(named)


def run_settings(sent: Mapping[str, Any]) -> RunSettings:
    """Returns the run settings that the page sent."""
    read = PageSettings.read(sent)
    return RunSettings(**{name: getattr(read, name) for name in RunSettings.__dataclass_fields__})


def check_of(number: int, wanted: WantedCheck) -> Expectation:
    """Returns a check; errors name it by its number.

    Raises:
        ExchangeError: the check is not valid.
    """
    try:
        return expected(wanted.kind, wanted.value)
    except ExchangeError as error:
        raise ExchangeError(f"Check {number}: {error}") from None
