"""A batch of prompts: its rows run in the background, and the page shows finished rows."""

from __future__ import annotations

import contextlib
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NotRequired

from typing_extensions import TypedDict

from app.batch.batch_table import arguments_of
from app.batch.row_answers import RowFault, held_by, row_fault, row_settings, time_left
from app.studio.batches.deciding import Decided, Deciding
from app.studio.documents.drafts import Workspace
from app.studio.documents.samples import gist
from app.studio.web.jobs import Job, StoppedError
from engine.base.errors import ClosedError, PromptCacheError
from engine.base.events import Listener
from engine.base.tiers import Outcome
from engine.inference.run_settings import RunSettings
from engine.pml import Schema
from engine.rows.expectations import Combine, Expectation, Judged, judge
from engine.rows.row_prompts import prompt_text
from engine.rows.rows import Row
from engine.rows.validity import format_fault

if TYPE_CHECKING:
    from engine import Engine, PreparedPrompt, PreparedSchema

logger = logging.getLogger(__name__)

BatchMode = Literal["both", "cached"]
RowState = Literal["waiting", "done", "failed"]
SEGMENTS = "encoded_segments"  # of a side's tokens: the encoded ones, with those that a repair recomputes
PREVIEW = 160  # characters of an answer in the table


class Grade(TypedDict):
    """A judge's grade from 0 to 1, and its reply; without a grade, the reply has none or is an error."""

    score: float | None
    reply: str


class SideShown(TypedDict):
    """One side of a row in the table.

    `passed` is None if the row has no expectations, and `score` is None before the user gives one.
    """

    text: str
    ttft_ms: float
    tokens: dict[str, int]
    passed: bool | None
    score: float | None
    grade: NotRequired[Grade]


class RowShown(TypedDict):
    """One row in the table: both sides, what caching changed, and the ratio of their times.

    `over_limit` is true if a check found a mean KL above the row's limit.
    `text` is the row's own; `question` is the open prompt's text if the row has none.
    """

    number: int
    line: int
    id: str
    picks: str
    arguments: dict[str, str]
    settings: dict[str, str]
    text: str
    question: str
    state: RowState
    fault: NotRequired[RowFault]
    cached: NotRequired[SideShown]
    uncached: NotRequired[SideShown]
    speedup: NotRequired[float | None]
    first_token_agrees: NotRequired[bool]
    kl_first_token: NotRequired[float | None]
    over_limit: NotRequired[bool]
    same_text: NotRequired[bool]


class BatchSummary(TypedDict):
    """Results of a batch so far: median times in milliseconds, and token sums over rows.

    Scores and grades are means of `scored` and `graded` rows; the judge gave no grade to `ungraded` answers.
    `kl_checked` rows have a KL limit and were checked; `over_limit` of them exceed it.
    `unread` rows read nothing from the cache. Medians use the `timed` rows, whose segments were all cached.
    If there are none, medians use the rows that encoded segments, or else all rows, and `cold` is true.
    """

    rows: int
    answered: int
    failed: int
    scored: int
    score_cached: float | None
    score_uncached: float | None
    graded: int
    ungraded: int
    grade_cached: float | None
    grade_uncached: float | None
    checked: int
    passed_cached: int
    passed_uncached: int
    verdicts_changed: int
    compared: int
    same_first_token: int
    same_text: int
    kl_mean: float | None
    kl_checked: int
    over_limit: int
    ttft_cached_ms: float | None
    ttft_uncached_ms: float | None
    timed: int
    cold: bool
    unread: int
    encoded: int
    reused: int
    computed: int


@dataclass(frozen=True)
class BatchPlan:
    """The rows and settings of a batch.

    Attributes:
        schema: the schema of all rows.
        over: the prompt that rows modify; None if each row is a prompt of its own.
        settings: the settings of rows without their own.
        mode: run both sides of each row in turn, or only the cached side with many rows at once.
        expect: checks of every answer, in addition to the row's checks.
        combine: whether an answer must pass all checks or any of them.
        deciding: the questions about each row; None to generate answers.
    """

    rows: tuple[Row, ...]
    schema: Schema
    over: str | None
    settings: RunSettings
    mode: BatchMode
    expect: tuple[Expectation, ...] = ()
    combine: Combine = "all"
    deciding: Deciding | None = None

    def prompts(
        self, schema: PreparedSchema, numbers: Sequence[int] | None = None
    ) -> Iterator[tuple[PreparedPrompt, RunSettings] | Exception]:
        """Yields each row's prompt and settings, or the row's error.

        Args:
            schema: the schema as prepared by the engine.
            numbers: the numbers of the rows; None for all rows.
        """
        for row in self.rows if numbers is None else [self.rows[number] for number in numbers]:
            try:
                settings = row_settings(row, self.settings)
                yield schema.prompt(self.source(row)), settings
            except PromptCacheError as error:
                yield error

    @cached_property
    def question(self) -> str:
        """The text of the prompt that rows modify."""
        return gist(self.over)["words"] if self.over is not None else ""

    def held_by(self, row: Row) -> dict[str, Any]:
        """Returns the prompt, modules and settings of a row."""
        return held_by(row, self.schema, self.over, self.settings)

    def source(self, row: Row) -> str:
        """Returns the prompt document of a row.

        Raises:
            PromptCacheError: the document cannot be built.
        """
        return prompt_text(row, self.schema, self.over)


@dataclass(frozen=True)
class SideResult:
    """The result of one side of a row."""

    text: str
    ttft_ms: float
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    ended: str
    warnings: tuple[str, ...]
    judged: Judged | None
    format_fault: str | None = None

    @property
    def encoded(self) -> int:
        """The tokens of the segments that it encoded; of an older batch, only those that it read."""
        return self.tokens.get(SEGMENTS, self.tokens.get("encoded", 0))

    @property
    def passed(self) -> bool | None:
        """Whether the answer passes its checks; None without checks."""
        return None if self.judged is None else self.judged.passed

    def shown(self, score: float | None) -> SideShown:
        """Returns this side as the table shows it."""
        text = self.text if len(self.text) <= PREVIEW else f"{self.text[: PREVIEW - 1]}…"
        shown: SideShown = {
            "text": text,
            "ttft_ms": self.ttft_ms,
            "tokens": self.tokens,
            "passed": self.passed,
            "score": score,
        }
        return shown


@dataclass(frozen=True)
class RowResult:
    """The result of a row: its sides, or the error.

    Attributes:
        comparison: the comparison of the sides; empty unless both ran.
        fault: the error.
        reuse: the level of reuse and its reason, as in `pml run --json`; empty unless the engine chose it.
        scores: the user's score of each side, from 0 to 1.
        grades: the judge's grade of each side.
        decided: the decisions of each side.
    """

    sides: dict[str, SideResult] = field(default_factory=dict)
    comparison: dict[str, Any] = field(default_factory=dict)
    fault: RowFault | None = None
    reuse: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    grades: dict[str, Grade] = field(default_factory=dict)
    decided: Decided = field(default_factory=dict)

    @property
    def over_limit(self) -> bool:
        """Whether a check found a mean KL above the limit."""
        return bool(self.reuse.get("checked")) and self.reuse["kl"] > self.reuse["promise"]

    def grade(self, side: str) -> float | None:
        """Returns the judge's grade of a side; None without one."""
        grade = self.grades.get(side)
        return None if grade is None else grade["score"]


@dataclass
class Batch:
    """A batch and its results so far.

    Attributes:
        key: the key of its job.
        texts: digests of schema and prompt.
        model: the model's name.
        started: the start time as ISO 8601.
        results: the results of finished rows by row number from 0, in the order of completion.
        workspace: the schema and the page's settings, to open a row later.
        name: the user's name for it.
        seconds_left: estimated seconds left, which never increase; None before the first answer.
    """

    key: str
    plan: BatchPlan
    texts: tuple[str, str] = ("", "")
    model: str = ""
    started: str = field(default_factory=lambda: datetime.now().astimezone().isoformat(timespec="seconds"))
    results: dict[int, RowResult] = field(default_factory=dict)
    workspace: Workspace = field(default_factory=lambda: Workspace("", "", ""))
    name: str = ""
    seconds_left: float | None = None

    def answer(
        self, engine: Engine, schema: PreparedSchema, job: Job, keep: Callable[[int, RowResult], object]
    ) -> Batch:
        """Runs the rows that have no result. Finished rows remain if the job is stopped.

        Args:
            engine: the engine that runs the rows.
            schema: the schema as prepared by that engine.
            job: reports progress and stops the work.
            keep: called with each finished row's number and result before the page shows it.

        Raises:
            ClosedError: the engine was closed meanwhile.
            StoppedError: the job was stopped.
        """
        plan, both, what = self.plan, self.plan.mode == "both", "deciding" if self.plan.deciding else ""
        numbers = [number for number in range(len(plan.rows)) if number not in self.results]
        latest: list[tuple[PreparedPrompt, RunSettings]] = []

        def prompts() -> Iterator[tuple[PreparedPrompt, RunSettings] | Exception]:
            for prompt in plan.prompts(schema, numbers):
                latest[:] = [] if isinstance(prompt, Exception) else [prompt]
                yield prompt

        answers: Any
        if plan.deciding is not None:
            answers = plan.deciding.answers(prompts(), Listener(stopped=lambda: job.stopping), both=both)
        else:
            answers = engine.answer_all(
                prompts(),
                plan.settings,
                mode=plan.mode,
                as_they_end=True,
                apart=both,
                stopped=lambda: job.stopping,
                check=not both,
            )
        begun, ended = time.monotonic(), 0
        self.seconds_left = None
        job.progress(len(self.results), len(plan.rows), what)
        with contextlib.closing(answers):
            for place, outcome in answers:
                number = numbers[place]
                if isinstance(outcome, ClosedError):
                    raise outcome
                result = self._result(plan.rows[number], outcome)
                if both and result.reuse:  # the next row benefits from the check
                    result = replace(result, reuse=self._checked(*latest[0], outcome, job))
                keep(number, result)
                ended += result.fault is None
                took, rest = time.monotonic() - begun, len(plan.rows) - len(self.results) - 1
                with job.changing():
                    self.results[number] = result
                    self.seconds_left = time_left(self.seconds_left, took, ended, rest)
                job.progress(len(self.results), len(plan.rows), what)
        if len(self.results) < len(plan.rows):
            job.progress(len(self.results), len(plan.rows), what)  # raises if the job was stopped
        return self

    @property
    def decides(self) -> bool:
        """Whether its rows have decisions instead of answers."""
        return self.plan.deciding is not None

    def to_json(self) -> dict[str, Any]:
        """Returns the job's state without rows."""
        return {"answered": sum(result.fault is None for result in self.results.values())}

    def shown(self, number: int) -> RowShown:
        """Returns a row as the table shows it."""
        row, result = self.plan.rows[number], self.results.get(number)
        shown: RowShown = {
            "number": number,
            "line": row.line,
            "id": str(row.id),
            "picks": " ".join(row.picks),
            "arguments": arguments_of(row),
            "settings": {name: str(value) for name, value in row.settings.items()},
            "text": row.text or row.prompt or "",
            "question": row.text or row.prompt or self.plan.question,
            "state": "waiting",
        }
        if result is None:
            return shown
        if result.fault is not None:
            return {**shown, "state": "failed", "fault": result.fault}
        shown["state"] = "done"
        for side in ("cached", "uncached"):
            if side in result.sides:
                of_side = result.sides[side].shown(result.scores.get(side))
                shown[side] = of_side | ({"grade": grade} if (grade := result.grades.get(side)) else {})
        if result.comparison:
            change = result.comparison
            shown["speedup"], shown["same_text"] = _finite(change["ttft_speedup"]), change["same_text"]
            shown["first_token_agrees"] = change["first_token_agrees"]
            shown["kl_first_token"] = _finite(change["kl_first_token"])
            shown["over_limit"] = result.over_limit
        return shown

    def summary(self) -> BatchSummary:
        """Returns the results so far."""
        results = list(self.results.values())
        ended = [row for row in results if row.fault is None]
        done = [row for row in ended if not row.decided]
        both = [row for row in done if row.comparison]
        checked = [row for row in done if row.sides["cached"].judged is not None]
        judged = [row.sides for row in checked if row.comparison]
        verdicts = [(sides["cached"].passed, sides["uncached"].passed) for sides in judged]
        read = [row for row in done if row.sides["cached"].tokens.get("from_cache")]
        warm = [row for row in read if not row.sides["cached"].encoded]
        timed = warm or read or done
        tokens = [row.sides["cached"].tokens for row in done]
        reused = sum(row.get("from_cache", 0) - row.get("encoded", 0) for row in tokens)
        return {
            "rows": len(self.plan.rows),
            "answered": len(ended),
            "failed": len(results) - len(ended),
            "scored": sum(bool(row.scores) for row in done),
            "score_cached": _mean(row.scores.get("cached") for row in done),
            "score_uncached": _mean(row.scores.get("uncached") for row in done),
            "graded": sum(bool(row.grades) for row in done),
            "ungraded": sum(grade["score"] is None for row in done for grade in row.grades.values()),
            "grade_cached": _mean(row.grade("cached") for row in done),
            "grade_uncached": _mean(row.grade("uncached") for row in done),
            "checked": len(checked),
            "passed_cached": sum(row.sides["cached"].passed is True for row in checked),
            "passed_uncached": sum(uncached is True for _, uncached in verdicts),
            "verdicts_changed": sum(cached != uncached for cached, uncached in verdicts),
            "compared": len(both),
            "same_first_token": sum(row.comparison["first_token_agrees"] for row in both),
            "same_text": sum(row.comparison["same_text"] for row in both),
            "kl_mean": _mean(_finite(row.comparison["kl_first_token"]) for row in both),
            "kl_checked": sum(bool(row.reuse.get("checked")) for row in done),
            "over_limit": sum(row.over_limit for row in done),
            "ttft_cached_ms": _median(row.sides["cached"].ttft_ms for row in timed),
            "ttft_uncached_ms": _median(row.sides["uncached"].ttft_ms for row in timed if row.comparison),
            "timed": len(timed),
            "cold": bool(done) and not warm,
            "unread": len(done) - len(read),
            "encoded": sum(row.sides["cached"].encoded for row in done),
            "reused": reused,
            "computed": sum(row.get("computed", 0) for row in tokens),
        }

    def expectations(self, row: Row) -> tuple[Expectation, ...]:
        """Returns all checks of a row's answer."""
        return (*self.plan.expect, *row.expect)

    def _result(self, row: Row, outcome: Any) -> RowResult:
        if isinstance(outcome, Exception):
            return RowResult(fault=row_fault(outcome, row))
        if self.plan.deciding is not None:
            return RowResult(decided=outcome)
        expect = self.expectations(row)
        if self.plan.mode == "cached":
            return RowResult({"cached": self._side(outcome, expect)}, reuse=_reuse(outcome))
        sides = {side: self._side(getattr(outcome, side), expect) for side in ("cached", "uncached")}
        comparison = getattr(outcome, "comparison").to_json()  # noqa: B009
        return RowResult(sides, comparison, reuse=_reuse(getattr(outcome, "cached")))  # noqa: B009

    def _checked(
        self, prompt: PreparedPrompt, settings: RunSettings, outcome: Any, job: Job
    ) -> dict[str, Any]:
        """Checks a row's answer against its KL limit, and returns its reuse; a stop skips the check."""

        def progress(*_: object) -> None:
            job.progress(len(self.results), len(self.plan.rows), "")

        taken = outcome.cached.reuse
        try:
            taken = prompt.check_answer(outcome.uncached.token_ids, taken, settings, progress, every=True)
        except StoppedError:
            pass
        except Exception:  # the answers are complete
            logger.warning("The check of a row failed", exc_info=True)
        return dict(taken.to_json())

    def _side(self, answer: Any, expect: Sequence[Expectation]) -> SideResult:
        new = {use.key: use.tokens for use in answer.segments if use.outcome == Outcome.MISS}
        return SideResult(
            answer.text,
            answer.ttft_ms,
            dict(answer.timeline_ms),
            {**answer.tokens, SEGMENTS: sum(new.values())},
            str(answer.stopped),
            answer.warnings,
            judge(answer.text, expect, self.plan.combine),
            format_fault(answer.grammar, answer.text, answer.stopped),
        )


def _reuse(answer: Any) -> dict[str, Any]:
    return {} if answer.reuse is None else answer.reuse.to_json()


def _finite(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None


def _mean(values: Iterator[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None


def _median(values: Iterator[float]) -> float | None:
    numbers = list(values)
    return statistics.median(numbers) if numbers else None
