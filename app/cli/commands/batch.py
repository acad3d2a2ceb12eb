"""`pml run --batch`: answers many prompts from a file, one JSON line each."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from app.batch.batch_table import verdicts
from app.batch.row_answers import held_by, row_fault, row_settings, time_left
from app.cli.base.batch_results import Results, line_of
from app.cli.base.documents import STDIN, Document, folder_of
from app.cli.base.files import FileWriteError, require_place, same_file
from app.cli.base.judging import Judging
from app.cli.base.options import ModelOptions
from app.cli.base.output import Progress, a_line_a_minute, counted, emit, inline, progress_bar, say
from app.cli.base.row_files import RowFiles
from engine.base.errors import MapsError, PromptCacheError
from engine.exchange.base.errors import ExchangeError
from engine.files.text_files import open_file
from engine.inference.run_settings import RunSettings
from engine.pml import Schema
from engine.pml.edit.question_text import question_of
from engine.pml.edit.writer import self_contained, write_schema
from engine.rows.evaluations import Evaluated, Evaluation, Tool
from engine.rows.expectations import Combine, Expectation, judge
from engine.rows.row_prompts import prompt_text
from engine.rows.rows import Row, read_rows
from engine.rows.validity import format_fault

if TYPE_CHECKING:
    from engine import Answer, BothAnswers, Engine, PreparedPrompt
    from engine.prepared import PreparedSchema

_NAMED = 3  # failed rows shown on the terminal
SOME_FAILED = 3  # exit status if some rows failed
NOT_AS_EXPECTED = 4  # exit status if all rows were answered, but some not as expected


@dataclass(frozen=True)
class Deciding:
    """Answers rows with probabilities instead of text."""

    decide: Callable[[Engine, PreparedPrompt, RunSettings], dict[str, Any]]  # returns the line of a row
    finish: Callable[[list[tuple[Row, Mapping[str, Any]]]], None]  # takes all rows with their lines
    digest: str  # of the questions and of how they are read


@dataclass(frozen=True)
class Batch:
    """The rows of a batch and their settings."""

    path: str  # the file of rows, or `-`
    schema: Document[Schema]
    settings: RunSettings
    mode: Literal["cached", "uncached", "both"]  # the sides to compute
    output: Path | None  # the output file; None for standard output
    as_they_end: bool  # whether lines are in order of completion; else in order of rows
    force: bool  # replace an existing output
    over: str | None = None  # a prompt that rows modify; None for independent rows
    expect: tuple[Expectation, ...] = ()  # expectations for every answer, in addition to the row's own
    combine: Combine = "all"  # whether all or any of them must be met
    table: Path | None = None  # a CSV file for all rows; None for none
    exports: tuple[tuple[Tool, Path], ...] = ()  # tools for evaluation, each with its folder
    judging: Judging | None = None  # grades the answers; None for no grades
    deciding: Deciding | None = None  # answers the rows instead of a generated text

    def held_by(self, row: Row) -> dict[str, Any]:
        """Returns the prompt, modules and settings of a row."""
        return held_by(row, self.schema.tree, self.over, self.settings)

    @property
    def can_be_read_twice(self) -> bool:
        """Returns whether the rows are in a plain file."""
        return self.path != STDIN and not self.path.startswith(("/dev/", "/proc/"))

    @contextlib.contextmanager
    def rows(self) -> Iterator[Iterator[Row]]:
        """Opens the file and yields rows lazily.

        Raises:
            ExchangeError: it is not a batch.
            TextFileError: it cannot be read.
        """
        name = "standard input" if self.path == STDIN else self.path
        with opened(self.path) as file:
            yield read_rows(file, name)


@dataclass
class Tally:
    """Progress of a batch."""

    total: int | None  # number of rows; None if unknown
    kept: int = 0  # rows that an earlier run answered
    answered: int = 0  # rows that this run answered
    failed: int = 0
    judged: int = 0  # rows with expectations that this run answered
    passed: int = 0  # those of them with all answers as expected
    grades: list[float | None] = field(default_factory=list)  # of all answers of this run; None without one
    faults: list[str] = field(default_factory=list)  # the first failures, each with its line in the file
    started: float = field(default_factory=lambda: time.monotonic())
    left: float | None = None  # estimated seconds left, which never increase

    @property
    def done(self) -> int:
        """Returns the number of finished rows."""
        return self.kept + self.answered + self.failed

    def answer(self, told: Mapping[str, Any]) -> None:
        """Counts an answered row by its output line."""
        self.answered += 1
        if "passed" in told:
            self.judged += 1
            self.passed += all(told["passed"].values())
        self.grades += [grade["score"] for grade in told.get("grades", {}).values()]

    def fail(self, error: Mapping[str, Any]) -> None:
        """Counts a failed row by the error in its output line."""
        self.failed += 1
        if len(self.faults) < _NAMED:
            self.faults.append(f"line {error['line']}: {error['message']}")

    def told(self, progress: Progress) -> None:
        """Updates the progress bar."""
        answered, took = self.answered, time.monotonic() - self.started
        words = [f"{self.failed} failed"] if self.failed else []
        if answered:
            words.append(_rate(answered / max(took, 1e-3)))
        if self.total is not None:
            self.left = time_left(self.left, took, answered, self.total - self.done)
        if self.left is not None:
            words.append(f"{time_words(self.left)} left")
        progress(self.done, self.total or self.done + 1, ", ".join(words) or "answering")

    def summary(self, where: str) -> str:
        """Returns a summary."""
        words = [f"{counted(self.answered, 'row')} answered"]
        words += [f"{self.failed} failed"] if self.failed else []
        words += [f"{self.kept} answered before"] if self.kept else []
        words += [f"{self.passed} of {self.judged} as expected"] if self.judged else []
        if self.grades:
            known = [grade for grade in self.grades if grade is not None]
            mean = f", mean {sum(known) / len(known):.2f}" if known else ""
            words.append(f"{len(known)} of {counted(len(self.grades), 'answer')} graded{mean}")
        answered, took = self.answered, time.monotonic() - self.started
        pace = f", {_rate(answered / max(took, 1e-3))}" if answered else ""
        return f"{', '.join(words)}{where}; {time_words(took)}{pace}."


def answer_batch(batch: Batch, options: ModelOptions, *, advice: str = "") -> tuple[int, str]:
    """Answers the rows of a batch; prints `advice` before the model is loaded.

    Returns:
        The exit status and the placement of the model.

    Raises:
        ExchangeError: the file is not a batch, or has no rows.
        FileWriteError: the output is not writable.
        OtherResultsError: the output belongs to another batch.
        TextFileError: the file cannot be read.
    """
    files = RowFiles(batch.table, batch.exports, whole=batch.deciding is not None)
    _require_output(batch, files)
    files.require_places(force=batch.force)
    if batch.judging is not None:
        batch.judging.require()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    digests, total = _looked_over(batch)
    if advice:
        say(f"pml: {advice}", err=True)
    # Concurrent rows would distort the times of a comparison.
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
            _answer(batch, engine, run, results, tally, files)
            if results is not None:
                results.finish(in_order=not batch.as_they_end)
        except KeyboardInterrupt:
            say(f"pml: {_interrupted(batch, tally)}", err=True)
            raise
        finally:
            if results is not None:
                results.close()
        placement, name = engine.placement(batch.settings.placement), engine.model.stored.name
    if not tally.done:
        raise ExchangeError(f"{batch.path} has no rows. Write one per line.")
    if files.wanted:
        _write_files(batch, files, name, started)
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
    files: RowFiles,
) -> None:
    tree = batch.schema.tree
    prepared = engine.schema(tree)
    bar: contextlib.AbstractContextManager[Progress]
    if not sys.stderr.isatty():
        bar = contextlib.nullcontext(a_line_a_minute(of_total=tally.total is not None))
    elif results is not None or not sys.stdout.isatty():
        bar = progress_bar()
    else:  # on one terminal, bar and lines would overwrite each other
        bar = contextlib.nullcontext(_silent)
    with batch.rows() as rows, bar as progress:
        tally.told(progress)
        waiting: dict[int, Row] = {}
        prompts = _given(batch, rows, prepared, results, waiting, tally, files)
        # A file gets lines immediately, so an interruption loses none; it is sorted at the end.
        at_once = batch.as_they_end or results is not None
        answers: Generator[tuple[int, Any], None, None] = (
            engine.answer_all(prompts, batch.settings, mode=batch.mode, as_they_end=at_once)
            if batch.deciding is None
            else _decided(engine, batch.deciding, prompts)
        )
        with contextlib.closing(answers):
            for number, outcome in answers:
                row = waiting.pop(number)
                line = _told(outcome, row, batch)
                if batch.judging is not None and "error" not in line:
                    over = "" if batch.over is None else question_of(batch.over, tree)
                    asked, source = row.text or row.prompt or over, batch.held_by(row)["prompt"]
                    line["grades"] = batch.judging.grades(engine, tree, asked, source, line)
                if isinstance(outcome, Exception):
                    tally.fail(line["error"])
                else:
                    tally.answer(line)
                files.add(row, line)
                if results is not None:
                    results.write(row, line)
                else:
                    emit(line_of(row, run, line), nl=True)
                tally.told(progress)


def _decided(
    engine: Engine,
    deciding: Deciding,
    prompts: Iterator[tuple[PreparedPrompt, RunSettings] | Exception],
) -> Generator[tuple[int, Any], None, None]:
    """Answers prompts in order."""
    for number, given in enumerate(prompts):
        outcome: Any = given
        if not isinstance(given, Exception):
            try:
                outcome = deciding.decide(engine, *given)
            except MapsError:
                raise
            except PromptCacheError as error:
                outcome = error
        yield number, outcome


def _given(
    batch: Batch,
    rows: Iterator[Row],
    schema: PreparedSchema,
    results: Results | None,
    waiting: dict[int, Row],
    tally: Tally,
    files: RowFiles,
) -> Iterator[tuple[PreparedPrompt, RunSettings] | Exception]:
    """The rows still to answer, as prompts; stores each row in `waiting`."""
    first: dict[str, tuple[int, bool]] = {}  # by id, the row's line and whether the id is explicit
    number = 0
    for row in rows:
        place = row.line, row.named
        before = first.setdefault(str(row.id), place) if row.takes_id else place
        if before == place and results is not None and not row.fault and results.keeps(row):
            tally.kept += 1
            files.keep(row)
            continue
        waiting[number] = row
        number += 1
        if before != place:
            yield ExchangeError(_taken(row, *before))
            continue
        try:
            settings = row_settings(row, batch.settings)
            source = prompt_text(row, schema.tree, batch.over)
            yield schema.prompt(source, base=folder_of(batch.schema.name)), settings
        except PromptCacheError as error:
            yield error


def _taken(row: Row, before: int, named: bool) -> str:
    """Why a row's id, or its line number as an id, is a duplicate."""
    if not row.named:
        problem = f"The row has no id, and its line number is the id of line {before}."
        return f"{problem} Give each row its own id."
    if not named:
        problem = f"The id {row.id!r} is taken: line {before} has no id, so its line number is its id."
        return f"{problem} Give each row its own id."
    return f"The id {row.id!r} is already in line {before}. Give each row its own id."


def _write_files(batch: Batch, files: RowFiles, model: str, started: str) -> None:
    files.read_kept(batch.output)
    rows = files.rows()
    if batch.deciding is not None:
        batch.deciding.finish(rows)
        return
    held = [batch.held_by(row) for row, _ in rows]
    files.write_table(held)
    evaluated = [
        Evaluated(row, of["prompt"], (*batch.expect, *row.expect), told, of["settings"])
        for (row, told), of in zip(rows, held, strict=True)
    ]
    name = f"{batch.schema.tree.name or 'schema'} {started}"
    files.write_exports(Evaluation(name, model, started, batch.schema.tree, evaluated, batch.combine))


def _told(
    outcome: Answer | BothAnswers | dict[str, Any] | Exception, row: Row, batch: Batch
) -> dict[str, Any]:
    """The output line of a row, without its id."""
    if isinstance(outcome, Exception):
        return {"error": row_fault(outcome, row)}
    if isinstance(outcome, dict):
        return outcome
    line = outcome.to_json()
    if batch.mode != "both":
        line = {batch.mode: line}
    cached: Any = getattr(outcome, "cached", outcome)
    if cached.reuse is not None:
        line["reuse"] = cached.reuse.to_json()
    expect = (*batch.expect, *row.expect)
    sides = ("cached", "uncached") if batch.mode == "both" else (batch.mode,)
    judged = {side: judge(line[side]["text"], expect, batch.combine) for side in sides}
    for side in sides:
        one: Any = outcome if batch.mode != "both" else getattr(outcome, side)
        fault = format_fault(one.grammar, one.text, one.stopped)
        line[side] |= {} if fault is None else {"valid": not fault}
    return {**line, **verdicts(expect, judged)}


def _looked_over(batch: Batch) -> tuple[dict[str, str] | None, int | None]:
    """Reads all rows once, if the file can be read twice.

    Returns:
        The digests of rows by id, if there is an output to resume, and the number of rows.
    """
    resumes = batch.output is not None and not batch.force and batch.output.exists()
    if not batch.can_be_read_twice:
        if resumes:
            raise FileWriteError(
                f"{batch.output} already exists, and {batch.path} can be read only once. Save the rows as "
                "a file, or use --force to start over."
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
        raise ExchangeError(f"{batch.path} has no rows. Write one per line.")
    return (digests if resumes else None), total


def _require_output(batch: Batch, files: RowFiles) -> None:
    """Rejects an output that is not writable or would overwrite an input."""
    for target in (batch.output, *files.paths()):
        for path, role in ((batch.path, "the batch"), (batch.schema.name, "the schema")):
            if target is not None and path != STDIN and same_file(target, Path(path)):
                raise FileWriteError(f"{target} is {role} itself. Name another file for the output.")
    if batch.output is None:
        return
    require_place(batch.output, force=True)
    if batch.table is not None and same_file(batch.output, batch.table):
        raise FileWriteError(f"{batch.table} is also the file of --output. Name another for --csv.")
    if batch.path == STDIN and is_standard_input(batch.output):
        raise FileWriteError(f"{batch.output} is the batch itself. Name another file for the output.")


def is_standard_input(path: Path) -> bool:
    """Returns whether a path is the file of standard input."""
    try:
        return os.path.samestat(os.fstat(sys.stdin.fileno()), path.stat())
    except OSError:  # a missing file, or an unusual standard input
        return False


def _run_digest(batch: Batch, engine: Engine, options: ModelOptions) -> str:
    """A digest of the common inputs of all answers."""
    settings = asdict(batch.settings)
    for name in ("hold_conversation", "store_conversation", "sync"):  # do not affect answers
        del settings[name]
    content = [
        write_schema(self_contained(batch.schema.tree)),
        asdict(engine.segment_cache.identity),
        str(options.date),
        settings,
        batch.mode,
        *([batch.over] if batch.over is not None else []),
        *([[str(item.kind), item.value] for item in batch.expect] + [batch.combine] if batch.expect else []),
        *([list(astuple(batch.judging))] if batch.judging is not None else []),
        *([batch.deciding.digest] if batch.deciding is not None else []),
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


@contextlib.contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Opens a file, or standard input for `-`."""
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with open_file(path) as file:
        yield file


def _silent(_done: int, _total: int, _what: str) -> None:
    pass


def _interrupted(batch: Batch, tally: Tally) -> str:
    of = f" of {tally.total}" if tally.total is not None else ""
    rows = f"{tally.kept + tally.answered}{of} rows"
    failed = f"; {tally.failed} failed" if tally.failed else ""
    if batch.output is None:
        return f"{rows} were answered{failed}. Use --output FILE to make the command resumable."
    if not batch.can_be_read_twice:
        return f"{rows} are in {batch.output}{failed}."
    command = "The same command without --force" if batch.force else "The same command"
    return f"{rows} are in {batch.output}{failed}. {command} resumes there."


def _rate(per_second: float) -> str:
    if per_second >= 1:
        return f"{per_second:.1f} rows/s"
    if per_second * 60 >= 1:
        return f"{per_second * 60:.1f} rows/min"
    return f"{per_second * 3600:.1f} rows/h"


def time_words(seconds: float) -> str:
    """Formats a time: `5 s`, `2 min 5 s`, `3 h 2 min`."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"
