"""A batch of prompts in the studio: rows that are answered in the background, and what came of each.

The engine works in a job's own thread; who looks at a batch sees the rows that have ended.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NotRequired

from typing_extensions import TypedDict

from app.batch.batch_table import arguments_of
from app.batch.row_answers import RowFault, row_fault, row_settings
from app.studio.documents.drafts import Workspace
from app.studio.documents.samples import gist
from app.studio.web.jobs import Job
from engine.base.errors import ClosedError, PromptCacheError
from engine.inference.run_settings import RunSettings
from engine.pml import Schema
from engine.rows.expectations import Combine, Expectation, Judged, judge
from engine.rows.row_prompts import prompt_text
from engine.rows.rows import Row

if TYPE_CHECKING:
    from engine import Answer, BothAnswers, Engine, PreparedPrompt, PreparedSchema

BatchMode = Literal["both", "cached"]
RowState = Literal["waiting", "done", "failed"]
PREVIEW = 160  # characters of an answer in the table


class SideShown(TypedDict):
    """One side of a row in the table. `passed` is None where nothing was expected of it."""

    text: str
    ttft_ms: float
    tokens: dict[str, int]
    passed: bool | None


class RowShown(TypedDict):
    """One row in the table. Between two sides stand what caching changed, and the ratio of their times.

    `text` is the row's own; `question` is that of the open prompt where the row has none.
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
    same_text: NotRequired[bool]


class BatchSummary(TypedDict):
    """What came of a batch so far; times are medians in milliseconds, tokens sums over rows.

    `timed` rows found everything in the cache, and their times are the medians'; where there is none, all
    rows are taken and `cold` says so.
    """

    rows: int
    answered: int
    failed: int
    checked: int
    passed_cached: int
    passed_uncached: int
    verdicts_changed: int
    compared: int
    same_first_token: int
    same_text: int
    kl_mean: float | None
    ttft_cached_ms: float | None
    ttft_uncached_ms: float | None
    timed: int
    cold: bool
    encoded: int
    reused: int
    computed: int


@dataclass(frozen=True)
class BatchPlan:
    """What is to be answered, and how.

    Attributes:
        rows: the rows.
        schema: the schema of all rows.
        over: the prompt that rows change; None where each stands alone.
        settings: the settings of each row that has none of its own.
        mode: both sides of each row, one after the other; or the cached side only, many rows at once.
        expect: what is expected of every answer, besides what its row expects.
        combine: whether all of that is to hold, or any of it is enough.
    """

    rows: tuple[Row, ...]
    schema: Schema
    over: str | None
    settings: RunSettings
    mode: BatchMode
    expect: tuple[Expectation, ...] = ()
    combine: Combine = "all"

    def prompts(self, schema: PreparedSchema) -> Iterator[tuple[PreparedPrompt, RunSettings] | Exception]:
        """Yields the prompt of each row with its settings, or what is wrong with it.

        Args:
            schema: its schema, as the model that answers has it.
        """
        for row in self.rows:
            try:
                settings = row_settings(row, self.settings)
                yield schema.prompt(self.source(row)), settings
            except PromptCacheError as error:
                yield error

    @cached_property
    def question(self) -> str:
        """The text of the prompt that rows change, for people to read: what a row without its own asks."""
        return gist(self.over)["words"] if self.over is not None else ""

    def source(self, row: Row) -> str:
        """The document of a row.

        Raises:
            PromptCacheError: it cannot be made.
        """
        return prompt_text(row, self.schema, self.over)


@dataclass(frozen=True)
class SideResult:
    """What one side made of a row."""

    text: str
    ttft_ms: float
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    ended: str
    warnings: tuple[str, ...]
    judged: Judged | None

    @property
    def passed(self) -> bool | None:
        """Whether it is as expected; None where nothing was."""
        return None if self.judged is None else self.judged.passed

    def shown(self) -> SideShown:
        """What the table shows of it."""
        text = self.text if len(self.text) <= PREVIEW else f"{self.text[: PREVIEW - 1]}…"
        return {"text": text, "ttft_ms": self.ttft_ms, "tokens": self.tokens, "passed": self.passed}


@dataclass(frozen=True)
class RowResult:
    """What came of a row: its sides, or why there is no answer."""

    sides: dict[str, SideResult] = field(default_factory=dict)
    comparison: dict[str, Any] = field(default_factory=dict)
    fault: RowFault | None = None


@dataclass
class Batch:
    """A batch, so far.

    Attributes:
        key: the key of its job.
        texts: digests of schema and prompt.
        model: the model's name.
        started: when it was begun, as ISO 8601.
        results: what came of each row that has ended, by its number from 0, in the order of the ends.
        workspace: its schema, and the settings of the page, for whoever opens a row of it.
        name: the user's name for it.
    """

    key: str
    plan: BatchPlan
    texts: tuple[str, str] = ("", "")
    model: str = ""
    started: str = field(default_factory=lambda: datetime.now().astimezone().isoformat(timespec="seconds"))
    results: dict[int, RowResult] = field(default_factory=dict)
    workspace: Workspace = field(default_factory=lambda: Workspace("", "", ""))
    name: str = ""
    _begun: float = field(default_factory=time.monotonic)

    def answer(
        self, engine: Engine, schema: PreparedSchema, job: Job, keep: Callable[[int, RowResult], object]
    ) -> Batch:
        """Answers the rows; what has ended stays where the job is stopped.

        Args:
            engine: answers them.
            schema: the schema, as that engine has it. Neither is kept.
            job: is told how far this is, and says whether to stop.
            keep: is given the number of each row that has ended, and what came of it, before it is shown.

        Raises:
            ClosedError: the engine was closed meanwhile.
            StoppedError: the job was stopped.
        """
        plan = self.plan
        answers = engine.answer_all(
            plan.prompts(schema),
            plan.settings,
            mode=plan.mode,
            as_they_end=True,
            apart=plan.mode == "both",
            stopped=lambda: job.stopping,
        )
        self._begun = time.monotonic()
        job.progress(0, len(plan.rows), "")
        with contextlib.closing(answers):
            for number, outcome in answers:
                if isinstance(outcome, ClosedError):
                    raise outcome
                result = self._result(plan.rows[number], outcome)
                keep(number, result)
                with job.changing():
                    self.results[number] = result
                job.progress(len(self.results), len(plan.rows), "")
        if len(self.results) < len(plan.rows):
            job.progress(len(self.results), len(plan.rows), "")  # ends it as stopped
        return self

    def to_json(self) -> dict[str, Any]:
        """Returns what the job's state tells of it; rows are asked for by themselves."""
        return {"answered": len(self.results)}

    @property
    def seconds_left(self) -> float | None:
        """How long the rows to come will take, by those that were answered; None where none was."""
        answered = sum(one.fault is None for one in self.results.values())
        if not answered:
            return None
        rest = len(self.plan.rows) - len(self.results)
        return (time.monotonic() - self._begun) / answered * rest

    def shown(self, number: int) -> RowShown:
        """What the table shows of a row."""
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
                shown[side] = result.sides[side].shown()
        if result.comparison:
            found = result.comparison
            shown["speedup"], shown["same_text"] = _finite(found["ttft_speedup"]), found["same_text"]
            shown["first_token_agrees"] = found["first_token_agrees"]
            shown["kl_first_token"] = _finite(found["kl_first_token"])
        return shown

    def summary(self) -> BatchSummary:
        """What came of it so far."""
        results = list(self.results.values())
        done = [one for one in results if one.fault is None]
        both = [one for one in done if one.comparison]
        checked = [one for one in done if one.sides["cached"].judged is not None]
        judged = [one.sides for one in checked if one.comparison]
        verdicts = [(sides["cached"].passed, sides["uncached"].passed) for sides in judged]
        warm = [one for one in done if not one.sides["cached"].tokens.get("encoded")]
        timed = warm or done
        tokens = [one.sides["cached"].tokens for one in done]
        encoded = sum(one.get("encoded", 0) for one in tokens)
        divergences = [kl for one in both if (kl := _finite(one.comparison["kl_first_token"])) is not None]
        return {
            "rows": len(self.plan.rows),
            "answered": len(done),
            "failed": len(results) - len(done),
            "checked": len(checked),
            "passed_cached": sum(one.sides["cached"].passed is True for one in checked),
            "passed_uncached": sum(uncached is True for _, uncached in verdicts),
            "verdicts_changed": sum(cached != uncached for cached, uncached in verdicts),
            "compared": len(both),
            "same_first_token": sum(one.comparison["first_token_agrees"] for one in both),
            "same_text": sum(one.comparison["same_text"] for one in both),
            "kl_mean": statistics.fmean(divergences) if divergences else None,
            "ttft_cached_ms": _median(one.sides["cached"].ttft_ms for one in timed),
            "ttft_uncached_ms": _median(one.sides["uncached"].ttft_ms for one in timed if one.comparison),
            "timed": len(timed),
            "cold": bool(done) and not warm,
            "encoded": encoded,
            "reused": sum(one.get("from_cache", 0) for one in tokens) - encoded,
            "computed": sum(one.get("computed", 0) for one in tokens),
        }

    def expectations(self, row: Row) -> tuple[Expectation, ...]:
        """All that is expected of a row's answer."""
        return (*self.plan.expect, *row.expect)

    def _result(self, row: Row, outcome: Answer | BothAnswers | Exception) -> RowResult:
        if isinstance(outcome, Exception):
            return RowResult(fault=row_fault(outcome, row))
        expect = self.expectations(row)
        if self.plan.mode == "cached":
            return RowResult({"cached": self._side(outcome, expect)})
        sides = {side: self._side(getattr(outcome, side), expect) for side in ("cached", "uncached")}
        comparison = getattr(outcome, "comparison").to_json()  # noqa: B009
        return RowResult(sides, comparison)

    def _side(self, answer: Any, expect: Sequence[Expectation]) -> SideResult:
        return SideResult(
            answer.text,
            answer.ttft_ms,
            dict(answer.timeline_ms),
            dict(answer.tokens),
            str(answer.stopped),
            answer.warnings,
            judge(answer.text, expect, self.plan.combine),
        )


def _finite(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None


def _median(values: Iterator[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None
