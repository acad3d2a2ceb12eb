"""The rows and checks that the Batch page asks for, as they are read."""

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
    """What varies in a grid, as `engine.rows.grid.Axis` has it."""

    kind: Varied
    name: Words = ""
    values: tuple[Words, ...] = ()


@request
class WantedCheck:
    """What is expected of every answer."""

    kind: Words
    value: Words


@request
class RowsWanted(Texts):
    """Rows over both documents.

    Attributes:
        source: whether the rows are those of the table or of the grid.
        table: a CSV, or lines of JSON.
        grid: what varies.
        alone: whether each row is a prompt of its own, and changes not the open one.
        settings: settings of each row that has none of its own.
    """

    source: Literal["table", "grid"]
    table: Words = ""
    grid: tuple[WantedAxis, ...] = ()
    alone: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


@request
class BatchWanted(RowsWanted):
    """A batch to be answered.

    Attributes:
        key: key of the work that begins.
        mode: the sides.
        checks: what is expected of every answer.
        combine: whether all checks are to hold, or one of them is enough.
    """

    key: Words
    mode: BatchMode = "both"
    checks: tuple[WantedCheck, ...] = ()
    combine: Combine = "all"


def rows_of(request: RowsWanted) -> tuple[Row, ...]:
    """The rows that are asked for.

    Raises:
        PromptCacheError: there are none, or too many, or what they are read from is none.
    """
    if request.source == "grid":
        axes = [Axis(one.kind, one.name, one.values) for one in request.grid]
        size = grid_size(axes)
        if size > MOST_ROWS:
            raise ExchangeError(
                f"This grid has {size:,} rows, and a batch has at most {MOST_ROWS:,} here. Take "
                "some values out."
            )
        return tuple(grid_rows(axes))
    found: Iterator[Row] = read_rows(io.BytesIO(request.table.encode("utf-8", "surrogatepass")), NAMED)
    rows = tuple(itertools.islice(found, MOST_ROWS + 1))
    if not rows:
        raise ExchangeError("The table has no rows. Write one a line, below a line of columns.")
    if len(rows) > MOST_ROWS:
        raise ExchangeError(
            f"The table has more than {MOST_ROWS:,} rows, the most of a batch here. Take fewer, or answer it "
            "with pml run --batch, which takes any number."
        )
    return _named_once(rows)


def _named_once(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The rows; one whose id another has already is faulty."""
    first: dict[str, int] = {}
    named: list[Row] = []
    for row in rows:
        before = first.setdefault(str(row.id), row.line)
        if before != row.line and row.named and not row.fault:
            message = f"The id {row.id!r} stands in line {before} already. Give each row its own."
            row = replace(row, fault=message, column="id")
        named.append(row)
    return tuple(named)


def run_settings(sent: Mapping[str, Any]) -> RunSettings:
    """The settings of a run as the page sends them."""
    read = PageSettings.read(sent)
    return RunSettings(**{name: getattr(read, name) for name in RunSettings.__dataclass_fields__})


def check_of(number: int, wanted: WantedCheck) -> Expectation:
    """What is expected of every answer; a refusal names the check by its number.

    Raises:
        ExchangeError: it is none.
    """
    try:
        return expected(wanted.kind, wanted.value)
    except ExchangeError as error:
        raise ExchangeError(f"Check {number}: {error}") from None
