"""`pml run --batch`: many prompts from a file, a line of JSON for each."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from app.batch.batch_table import verdicts
from app.batch.row_answers import row_fault, row_settings
from app.cli.base.batch_results import Results, line_of
from app.cli.base.documents import STDIN, Document
from app.cli.base.files import FileWriteError, require_place, same_file
from app.cli.base.options import ModelOptions
from app.cli.base.output import Progress, a_line_a_minute, counted, emit, inline, progress_bar, say
from app.cli.base.row_table import RowTable
from engine.base.errors import PromptCacheError
from engine.exchange.base.errors import ExchangeError
from engine.files.text_files import open_file
from engine.inference.run_settings import RunSettings
from engine.pml import Schema
from engine.pml.edit.writer import self_contained, write_schema
from engine.rows.expectations import Combine, Expectation, judge
from engine.rows.row_prompts import prompt_text
from engine.rows.rows import Row, read_rows

if TYPE_CHECKING:
    from engine import Answer, BothAnswers, Engine, PreparedPrompt
    from engine.prepared import PreparedSchema

_NAMED = 3  # rows that failed, on the terminal
SOME_FAILED = 3
"""The status of a batch of which some rows failed and the others were answered."""
NOT_AS_EXPECTED = 4
"""The status of a batch whose rows were all answered, some of them not as its file expects."""


@dataclass(frozen=True)
class Batch:
    """What is to be answered, and how.

    Attributes:
        path: the file of rows, or `-`.
        schema: the schema of all rows.
        settings: the settings of every run.
        mode: the sides.
        output: where lines go; None for standard output.
        as_they_end: lines in the order in which rows end; else in that of the rows.
        force: replace an output that is there.
        over: a prompt that rows change; None where each stands alone.
        expect: what is expected of every answer, besides what its row expects.
        combine: whether all of that is to hold, or any of it is enough.
        table: where a table of all rows goes, as CSV; None for nowhere.
    """

    path: str
    schema: Document[Schema]
    settings: RunSettings
    mode: Literal["cached", "uncached", "both"]
    output: Path | None
    as_they_end: bool
    force: bool
    over: str | None = None
    expect: tuple[Expectation, ...] = ()
    combine: Combine = "all"
    table: Path | None = None

    @property
    def can_be_read_twice(self) -> bool:
        """Whether the rows lie in a plain file."""
        return self.path != STDIN and not self.path.startswith(("/dev/", "/proc/"))

    @contextlib.contextmanager
    def rows(self) -> Iterator[Iterator[Row]]:
        """Opens the file and reads rows as they are asked for.

        Raises:
            ExchangeError: it is no batch.
            TextFileError: it cannot be read.
        """
        name = "standard input" if self.path == STDIN else self.path
        with _opened(self.path) as file:
            yield read_rows(file, name)


@dataclass
class Tally:
    """How far a batch is.

    Attributes:
        total: rows in all; None where that is not known.
        kept: rows that an earlier run has answered.
        answered: rows that this run has answered.
        failed: rows that failed.
        judged: rows of which this run has answered and something was expected.
        passed: those of them whose every answer is as expected.
        faults: of the first of these, each with its line in the file.
    """

    total: int | None
    kept: int = 0
    answered: int = 0
    failed: int = 0
    judged: int = 0
    passed: int = 0
    faults: list[str] = field(default_factory=list)
    started: float = field(default_factory=lambda: time.monotonic())

    @property
    def done(self) -> int:
        """Rows that are dealt with."""
        return self.kept + self.answered + self.failed

    def answer(self, told: Mapping[str, Any]) -> None:
        """Counts a row that was answered.

        Args:
            told: as its line in the output has it.
        """
        self.answered += 1
        if "passed" in told:
            self.judged += 1
            self.passed += all(told["passed"].values())

    def fail(self, error: Mapping[str, Any]) -> None:
        """Counts a row that failed.

        Args:
            error: as its line in the output has it.
        """
        self.failed += 1
        if len(self.faults) < _NAMED:
            self.faults.append(f"line {error['line']}: {error['message']}")

    def told(self, progress: Progress) -> None:
        """Draws how far it is, how fast it goes, and what is left of it."""
        own, took = self.answered, time.monotonic() - self.started  # what fails takes next to no time
        words = [f"{self.failed} failed"] if self.failed else []
        if own:
            words.append(_rate(own / max(took, 1e-3)))
        if own and self.total is not None:
            words.append(f"{_time((self.total - self.done) * took / own)} left")
        progress(self.done, self.total or self.done + 1, ", ".join(words) or "answering")

    def summary(self, where: str) -> str:
        """What came of it, in words."""
        words = [f"{counted(self.answered, 'row')} answered"]
        words += [f"{self.failed} failed"] if self.failed else []
        words += [f"{self.kept} answered before"] if self.kept else []
        words += [f"{self.passed} of {self.judged} as expected"] if self.judged else []
        own, took = self.answered, time.monotonic() - self.started
        pace = f", {_rate(own / max(took, 1e-3))}" if own else ""
        return f"{', '.join(words)}{where}; {_time(took)}{pace}."


def answer_batch(batch: Batch, options: ModelOptions, *, advice: str = "") -> tuple[int, str]:
    """Answers the rows of a batch.

    Args:
        batch: the rows, and how they are answered.
        options: the model.
        advice: what is said before a model is loaded for them.

    Returns:
        The exit status, and the placement that the model allows.

    Raises:
        ExchangeError: the file is no batch, or has no rows.
        FileWriteError: the output cannot be written.
        OtherResultsError: the output holds something else.
        TextFileError: the file cannot be read.
    """
    _require_output(batch)
    rows_told = RowTable(batch.table, force=batch.force) if batch.table is not None else None
    digests, total = _looked_over(batch)
    if advice:
        say(f"pml: {advice}", err=True)
    # Times of two sides are compared, so no row may be computed beside another.
    with options.open(deterministic=batch.mode == "both") as engine:
        results = None
        run = _run_digest(batch, engine, options)
        tally = Tally(total)
        try:
            if batch.output is not None:
                results = Results(batch.output, run)
                results.open(force=batch.force)
                if digests is not None:
                    results.require_same(digests)
            _answer(batch, engine, run, results, tally, rows_told)
            if results is not None:
                results.finish(in_order=not batch.as_they_end)
        except KeyboardInterrupt:
            say(f"pml: {_interrupted(batch, tally)}", err=True)
            raise
        finally:
            if results is not None:
                results.close()
        placement = engine.placement(batch.settings.placement)
    if not tally.done:
        raise ExchangeError(f"{batch.path} holds no rows. Write one a line.")
    if rows_told is not None:
        rows_told.write(batch.output)
    where = f", in {batch.output}" if batch.output else ""
    say(f"pml: {tally.summary(where)}", err=True)
    for fault in tally.faults:
        say(f"pml: {inline(fault)}", err=True)
    if more := tally.failed - len(tally.faults):
        lines = f"the lines of {batch.output}" if batch.output else "the lines"
        find = f": grep '\"error\": {{' {shlex.quote(str(batch.output))}" if batch.output else "."
        say(f'pml: and {more} more; all are {lines} with an "error"{find}', err=True)
    unexpected = NOT_AS_EXPECTED if tally.passed < tally.judged else 0
    return (SOME_FAILED if tally.failed else unexpected), placement


def _answer(
    batch: Batch,
    engine: Engine,
    run: str,
    results: Results | None,
    tally: Tally,
    rows_told: RowTable | None,
) -> None:
    prepared = engine.schema(batch.schema.tree)
    bar: contextlib.AbstractContextManager[Progress]
    if not sys.stderr.isatty():
        bar = contextlib.nullcontext(a_line_a_minute(of_total=tally.total is not None))
    elif results is not None or not sys.stdout.isatty():
        bar = progress_bar()
    else:  # on one terminal a bar and the lines would be written over each other
        bar = contextlib.nullcontext(_silent)
    with batch.rows() as rows, bar as progress:
        tally.told(progress)
        waiting: dict[int, Row] = {}
        given = _given(batch, rows, prepared, results, waiting, tally, rows_told)
        # Into a file as they end, so that an interruption loses none; it is put into order at the end.
        at_once = batch.as_they_end or results is not None
        answers = engine.answer_all(given, batch.settings, mode=batch.mode, as_they_end=at_once)
        with contextlib.closing(answers):
            for number, outcome in answers:
                row = waiting.pop(number)
                told = _told(outcome, row, batch)
                if isinstance(outcome, Exception):
                    tally.fail(told["error"])
                else:
                    tally.answer(told)
                if rows_told is not None:
                    rows_told.add(row, told)
                if results is not None:
                    results.write(row, told)
                else:
                    emit(line_of(row, run, told), nl=True)
                tally.told(progress)


def _given(
    batch: Batch,
    rows: Iterator[Row],
    schema: PreparedSchema,
    results: Results | None,
    waiting: dict[int, Row],
    tally: Tally,
    rows_told: RowTable | None,
) -> Iterator[tuple[PreparedPrompt, RunSettings] | Exception]:
    """The rows that are still to be answered, as prompts, each with its number noted."""
    first: dict[str, tuple[int, bool]] = {}  # by id the line of who has it, and whether it was given one
    number = 0
    for row in rows:
        own = row.line, row.named
        before = first.setdefault(str(row.id), own) if row.takes_id else own
        if before == own and results is not None and not row.fault and results.keeps(row):
            tally.kept += 1
            if rows_told is not None:
                rows_told.keep(row)
            continue
        waiting[number] = row
        number += 1
        if before != own:
            yield ExchangeError(_taken(row, *before))
            continue
        try:
            settings = row_settings(row, batch.settings)
            yield schema.prompt(prompt_text(row, schema.tree, batch.over)), settings
        except PromptCacheError as error:
            yield error


def _taken(row: Row, before: int, named: bool) -> str:
    """Why a row cannot have its id, or the number of its line for one."""
    if not row.named:
        what = f"The row has no id and is called by its line's number, which is the id of line {before}."
        return f"{what} Give each its own."
    if not named:
        what = f"The id {row.id!r} is taken: line {before} has no id and is called by its number."
        return f"{what} Give each its own."
    return f"The id {row.id!r} stands in line {before} already. Give each row its own."


def _told(outcome: Answer | BothAnswers | Exception, row: Row, batch: Batch) -> dict[str, Any]:
    """What the line of a row says beside its id."""
    if isinstance(outcome, Exception):
        return {"error": row_fault(outcome, row)}
    told = outcome.to_json()
    if batch.mode != "both":
        told = {batch.mode: told}
    expect = (*batch.expect, *row.expect)
    sides = ("cached", "uncached") if batch.mode == "both" else (batch.mode,)
    judged = {side: judge(told[side]["text"], expect, batch.combine) for side in sides}
    return {**told, **verdicts(expect, judged)}


def _looked_over(batch: Batch) -> tuple[dict[str, str] | None, int | None]:
    """Reads all rows once, where that can be done again.

    Returns:
        The digest of each row by its id, where there is an output to go on with, and how many rows there are.
    """
    resumes = batch.output is not None and not batch.force and batch.output.exists()
    if not batch.can_be_read_twice:
        if resumes:
            raise FileWriteError(
                f"{batch.output} is there already, and {batch.path} can be read only once. Save the rows as "
                "a file, or give --force to begin anew."
            )
        return None, None
    digests: dict[str, str] = {}
    total = 0
    with batch.rows() as rows:
        for row in rows:
            total += 1
            if resumes and row.takes_id:
                digests.setdefault(str(row.id), row.digest)
    if not total:
        raise ExchangeError(f"{batch.path} holds no rows. Write one a line.")
    return (digests if resumes else None), total


def _require_output(batch: Batch) -> None:
    """Refuses an output that could not be written, or that would replace what is read."""
    for target in (batch.output, batch.table):
        for path, what in ((batch.path, "the batch"), (batch.schema.name, "the schema")):
            if target is not None and path != STDIN and same_file(target, Path(path)):
                raise FileWriteError(f"{target} is {what} itself. Name another file for the output.")
    if batch.output is None:
        return
    require_place(batch.output, force=True)
    if batch.table is not None and same_file(batch.output, batch.table):
        raise FileWriteError(f"{batch.table} is the file of --output too. Name another for --csv.")
    if batch.path == STDIN and is_standard_input(batch.output):
        raise FileWriteError(f"{batch.output} is the batch itself. Name another file for the output.")


def is_standard_input(path: Path) -> bool:
    """Whether a path leads to the file that standard input is read from."""
    try:
        return os.path.samestat(os.fstat(sys.stdin.fileno()), path.stat())
    except OSError:  # it is not there, or standard input is none of the system's
        return False


def _run_digest(batch: Batch, engine: Engine, options: ModelOptions) -> str:
    """A digest of what all answers have in common."""
    settings = asdict(batch.settings)
    for name in (
        "hold_conversation",
        "store_conversation",
        "sync",
    ):  # where things are kept; no answer's matter
        del settings[name]
    content = [
        write_schema(self_contained(batch.schema.tree)),
        asdict(engine.segment_cache.identity),
        str(options.date),
        settings,
        batch.mode,
        *([batch.over] if batch.over is not None else []),
        *([[str(one.kind), one.value] for one in batch.expect] + [batch.combine] if batch.expect else []),
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with open_file(path) as file:
        yield file


def _silent(_done: int, _total: int, _what: str) -> None:
    """The progress of a batch whose lines are read as they come."""


def _interrupted(batch: Batch, tally: Tally) -> str:
    of = f" of {tally.total}" if tally.total is not None else ""
    if batch.output is None:
        return f"{tally.done}{of} rows were answered. Use --output FILE to make the command resumable."
    if not batch.can_be_read_twice:
        return f"{tally.done}{of} rows are in {batch.output}."
    command = "The same command without --force" if batch.force else "The same command"
    return f"{tally.done}{of} rows are in {batch.output}. {command} goes on from there."


def _rate(per_second: float) -> str:
    if per_second >= 1:
        return f"{per_second:.1f} rows/s"
    if per_second * 60 >= 1:
        return f"{per_second * 60:.1f} rows/min"
    return f"{per_second * 3600:.1f} rows/h"


def _time(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
