"""The Batch page: rows of a table or grid over the open workspace, with checks."""

from __future__ import annotations

import contextlib
import functools
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NotRequired

from typing_extensions import TypedDict

from app.batch.row_answers import RowFault, row_fault, row_settings
from app.studio.batches import BatchesHeld, BatchKept, BatchStore
from app.studio.batches.batch import Batch, BatchMode, BatchPlan, BatchSummary, RowShown
from app.studio.batches.batch_history import BatchBook
from app.studio.batches.deciding import Deciding
from app.studio.batches.held import Encoded, Held, encoded, held
from app.studio.batches.judge import TEMPLATE, model_judge, require_template, server_judge
from app.studio.batches.requests import (
    BatchFile,
    BatchForm,
    BatchSince,
    GradeBatch,
    NameBatch,
    OneBatch,
    OneRow,
    OpenRow,
    ScoreRow,
    SomeBatches,
)
from app.studio.batches.result_files import batch_csv, batch_for, batch_json
from app.studio.batches.row_whole import RowWhole, whole_row
from app.studio.batches.rows import (
    MOST_ROWS,
    BatchWanted,
    RowsWanted,
    check_of,
    rows_of,
    run_settings,
)
from app.studio.decisions.prompt_decisions import read_questions
from app.studio.decisions.row_decisions import (
    BegunRows,
    DecideRows,
    FittedTemperature,
    FitTemperature,
    LatestDecisions,
    OneDecidedBatch,
    decided_batch,
    fitted_temperature,
)
from app.studio.documents.documents import Exported, first_error
from app.studio.documents.drafts import Workspace
from app.studio.documents.requests import Nothing
from app.studio.documents.workspace_opener import Opened, workspace_json
from app.studio.pages.author import DigestsOfBoth
from app.studio.pages.page import Page
from app.studio.runs.settings import PageSettings
from app.studio.web.digests import digest, digest_of_schema
from app.studio.web.endpoints import endpoint
from app.studio.web.json_answers import JobState, Json
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError
from engine.pml import PromptError
from engine.rows.duplicates import Chosen, distinct_rows
from engine.rows.expectations import KINDS
from engine.rows.rows import Row

if TYPE_CHECKING:
    from engine import Engine, PreparedSchema

FAULTS_SHOWN = 50
LOOKED_SECONDS = 3.0  # time limit for checking rows in advance; later rows report errors when they run


class CheckKind(TypedDict):
    """A kind of check, and its meaning."""

    name: str
    meaning: str


class BatchFormKept(TypedDict):
    """The page's last form values, and its options."""

    form: Json
    kinds: list[CheckKind]
    most: int
    template: str


class FaultOfRows(RowFault):
    """The first of `rows` rows with the same error in the same column."""

    rows: int


class RowsRead(TypedDict):
    """Parsed rows; the first `looked` of them were fully checked.

    `repeated` duplicate rows of a grid were removed. `faults` lists each error once.
    """

    rows: int
    repeated: int
    looked: int
    faults: list[FaultOfRows]
    faulty: int
    encoded: Encoded


class BatchState(TypedDict):
    """A batch so far, and the rows that are new to the page.

    Attributes:
        state: the progress; `left` if its studio ended first, `elsewhere` if another studio runs it.
        unkept: why some rows could not be stored; "" if all are stored.
        working: the key of the running batch, possibly another one.
    """

    key: str
    name: str
    state: Literal["working", "done", "stopped", "failed", "left", "elsewhere"]
    fault: str
    unkept: str
    working: str | None
    mode: BatchMode
    texts: DigestsOfBoth
    alone: bool
    settings: Json
    held: Held
    model: str
    schema: str
    started: str
    left_s: float | None
    ended: int
    rows: list[RowShown]
    summary: BatchSummary


class LatestBatch(TypedDict):
    """The latest batch, or None."""

    batch: NotRequired[BatchState]


class ExportedFiles(TypedDict):
    """The files of an export."""

    files: list[Exported]


class RowScored(TypedDict):
    """A row with its scores, and the summary with them."""

    row: RowShown
    summary: BatchSummary


class Kept(TypedDict):
    """Confirms that the values were saved."""


class KeptBatches(TypedDict):
    """Every stored batch, newest first; the database's size; the key of the running batch."""

    batches: list[BatchKept]
    held: BatchesHeld
    working: str | None


class DeletedBatches(TypedDict):
    """The number of deleted batches."""

    deleted: int


class BatchPage(Page):
    """The server side of the Batch page."""

    name, title = "batch", "Batch"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._choices: tuple[tuple[str | None, ...], dict[Chosen, str | None]] = (), {}
        self._book = BatchBook(parts.jobs, BatchStore(parts.database))

    @endpoint
    def batch_form(self, _request: Nothing) -> BatchFormKept:
        """Returns the page's last form values, and its options."""
        kinds: list[CheckKind] = [{"name": name, "meaning": meaning} for name, meaning in KINDS.items()]
        return {
            "form": self._parts.drafts.form("batch"),
            "kinds": kinds,
            "most": MOST_ROWS,
            "template": TEMPLATE,
        }

    @endpoint
    def batch_keep(self, request: BatchForm) -> Kept:
        """Saves the page's form values."""
        self._parts.drafts.keep_form("batch", dict(request.form))
        return {}

    @endpoint
    def batch_held(self, request: RowsWanted) -> Held:
        """Returns the prompt and settings that the rows start from, whether or not there are rows."""
        over = None if request.alone else request.prompt
        return held(over, run_settings(request.settings))

    @endpoint
    def batch_read(self, request: RowsWanted) -> RowsRead:
        """Parses rows and checks them without computing."""
        rows = rows_of(request)
        faults: dict[tuple[str | None, str], FaultOfRows] = {}
        faulty = looked = 0
        with self._parts.taken() as engine:
            plan, schema = self._plan(request, rows, engine)
            repeated, rows = len(rows) - len(plan.rows), plan.rows
            until, valid = time.monotonic() + LOOKED_SECONDS, []
            for row, outcome in zip(rows, plan.prompts(schema), strict=True):
                looked += 1
                if isinstance(outcome, Exception):
                    faulty += 1
                    fault = row_fault(outcome, row)
                    same = fault.get("column"), fault["message"]
                    if same in faults:
                        faults[same]["rows"] += 1
                    elif len(faults) < FAULTS_SHOWN:
                        faults[same] = {**fault, "rows": 1}
                else:
                    valid.append(outcome)
                if time.monotonic() > until:
                    break
            costs = encoded(engine, valid)
        return {
            "rows": len(rows),
            "repeated": repeated,
            "looked": looked,
            "faults": list(faults.values()),
            "faulty": faulty,
            "encoded": costs,
        }

    @endpoint
    def batch_start(self, request: BatchWanted) -> JobState[Json]:
        """Starts a batch in the background. Each row is stored before the page shows it."""
        checks = tuple(check_of(number, check) for number, check in enumerate(request.checks, 1))
        rows = rows_of(request)
        with self._parts.taken() as engine:
            plan, schema = self._plan(request, rows, engine)
            plan = replace(plan, mode=request.mode, expect=checks, combine=request.combine)
            return self._book.start(_batch(request, plan, engine), engine, schema).state()

    @endpoint
    def batch_resume(self, request: OneBatch) -> JobState[Json]:
        """Runs the rows of a batch that have no result yet."""
        with self._parts.taken() as engine:
            return self._book.resume(request.key, engine).state()

    @endpoint
    def batch_decide(self, request: DecideRows) -> BegunRows:
        """Starts to answer the open prompt's questions, or else those of the form, about each row."""
        rows = rows_of(request)
        with self._parts.taken() as engine:
            plan, schema = self._plan(request, rows, engine)
            questions, faults = read_questions("" if request.alone else request.prompt, request.questions)
            if faults:
                return {"job": None, "faults": faults}
            deciding = Deciding(tuple(questions), PageSettings.read(request.settings).readout)
            plan = replace(plan, mode=request.mode, deciding=deciding)
            job = self._book.start(_batch(request, plan, engine), engine, schema)
        return {"job": job.state(), "faults": []}

    @endpoint
    def batch_decided(self, request: OneDecidedBatch) -> LatestDecisions:
        """Returns the latest or another batch of decisions, with its figures so far."""
        shown = self._book.find(request.key) if request.key else self._book.latest(decides=True)
        return {} if shown is None else {"batch": decided_batch(shown)}

    @endpoint
    def batch_fit(self, request: FitTemperature) -> FittedTemperature:
        """Returns a temperature that is fitted on every other labelled row."""
        return fitted_temperature(self._book.find(request.key).batch, request.question)

    @endpoint
    def batch_state(self, request: BatchSince) -> LatestBatch:
        """Returns the latest or another batch, with the rows that are new to the page."""
        shown = self._book.find(request.key) if request.only else self._book.latest()
        if shown is None:
            return {}
        batch, job = shown.batch, shown.job
        with job.changing() if job is not None else contextlib.nullcontext():
            ended = list(batch.results)
            known = request.known if request.key == batch.key else -1
            rows = range(len(batch.plan.rows)) if known < 0 else ended[known:]
            return {
                "batch": {
                    "key": batch.key,
                    "name": batch.name,
                    "state": shown.state,
                    "fault": shown.fault,
                    "unkept": shown.unkept,
                    "working": self._book.working,
                    "mode": batch.plan.mode,
                    "texts": {"schema": batch.texts[0], "prompt": batch.texts[1]},
                    "alone": batch.plan.over is None,
                    "settings": dict(batch.workspace.settings),
                    "held": held(batch.plan.over, batch.plan.settings),
                    "model": batch.model,
                    "schema": batch.plan.schema.name,
                    "started": batch.started,
                    "left_s": batch.seconds_left if shown.state == "working" else None,
                    "ended": len(ended),
                    "rows": [batch.shown(number) for number in rows],
                    "summary": batch.summary(),
                }
            }

    @endpoint
    def list_batches(self, _request: Nothing) -> KeptBatches:
        """Returns every stored batch, or the problem with the database."""
        usage = self._book.store.held()
        try:
            batches = self._book.listed()
        except PromptCacheError:  # `held` reports it
            batches = []
        return {"batches": batches, "held": usage, "working": self._book.working}

    @endpoint
    def name_batch(self, request: NameBatch) -> Kept:
        """Renames a batch."""
        self._book.rename(request.key, request.name)
        return {}

    @endpoint
    def delete_batches(self, request: SomeBatches) -> DeletedBatches:
        """Deletes batches permanently."""
        return {"deleted": self._book.delete(request.keys)}

    @endpoint
    def batch_row(self, request: OneRow) -> RowWhole:
        """Returns a row with whole answers, their differences, and the result of each check."""
        batch, _ = self._row(request.key, request.number)
        return whole_row(batch, request.number)

    @endpoint
    def batch_score(self, request: ScoreRow) -> RowScored:
        """Stores a score of an answer."""
        batch = self._book.score(request.key, request.number, request.side, request.score)
        return {"row": batch.shown(request.number), "summary": batch.summary()}

    @endpoint
    def batch_grade(self, request: GradeBatch) -> JobState[Json]:
        """Starts to grade the answers of a batch. Each grade is stored at once."""
        require_template(request.template)
        if request.url.strip():
            judge = server_judge(request.url, request.model.strip())
            return self._book.grade(request.key, request.job, request.template, judge).state()
        with self._parts.taken() as engine:
            return self._book.grade(request.key, request.job, request.template, model_judge(engine)).state()

    @endpoint
    def batch_open(self, request: OpenRow) -> Opened:
        """Opens a row's prompt; the open workspace becomes a version."""
        batch, row = self._row(request.key, request.number)
        workspace = batch.workspace
        prompt = batch.plan.source(row)
        settings = {**workspace.settings, **row_own_settings(batch, row)}
        drafts, page = self._parts.drafts, request.page
        drafts.save(page.workspace(), base=page.base, force=True)
        name = f"{batch.plan.schema.name or 'Batch'}, row {row.id}"
        opened = replace(workspace, name=name, prompt=prompt, settings=settings)
        return {"workspace": workspace_json(drafts.replace(opened))}

    @endpoint
    def batch_files(self, request: BatchFile) -> ExportedFiles:
        """Returns the results of a batch as files."""
        batch = self._book.find(request.key).batch
        if request.form == "csv":
            return {"files": [batch_csv(batch)]}
        return {"files": [batch_json(batch)] if request.form == "json" else batch_for(request.form, batch)}

    def _row(self, key: str, number: int) -> tuple[Batch, Row]:
        batch = self._book.find(key).batch
        if number >= len(batch.plan.rows):
            raise PromptCacheError("The batch has no such row. Reload the page.")
        return batch, batch.plan.rows[number]

    def _plan(
        self, request: RowsWanted, rows: tuple[Row, ...], engine: Engine
    ) -> tuple[BatchPlan, PreparedSchema]:
        base = self._parts.library.base_of(request.origin)
        checked = self._parts.documents.check(request.schema, request.prompt, base=base)
        fault = first_error(checked.schema.diagnostics)
        if fault is None and not request.alone:
            fault = first_error(checked.of_prompt)
        if fault is not None:
            raise PromptError((fault,))
        if checked.schema.tree is None:
            raise PromptCacheError("There is no schema yet. Write one, or open a sample from the gallery.")
        settings = run_settings(request.settings)
        schema = engine.schema(request.schema, base=base)
        over = None if request.alone else request.prompt
        if request.source == "grid":
            known = self._known_choices(request.schema, request.origin, over)
            own = functools.partial(row_settings, settings=settings)
            rows = tuple(distinct_rows(rows, schema.tree, over, own, known))
        return BatchPlan(rows, schema.tree, over, settings, "both"), schema

    def _known_choices(self, *of: str | None) -> dict[Chosen, str | None]:
        """Returns the known choices for these texts, and forgets all others."""
        if self._choices[0] != of:
            self._choices = of, {}
        return self._choices[1]


def _batch(request: BatchWanted | DecideRows, plan: BatchPlan, engine: Engine) -> Batch:
    return Batch(
        request.key,
        plan,
        (digest_of_schema(request.schema, plan.schema), digest(request.prompt)),
        engine.model.name,
        workspace=Workspace("", request.schema, "", request.origin, dict(request.settings)),
    )


def row_own_settings(batch: Batch, row: Row) -> Json:
    """Returns the settings of the row itself."""
    settings = batch.plan.settings
    with contextlib.suppress(PromptCacheError):
        settings = row_settings(row, settings)
    own = {name: getattr(settings, name) for name in row.settings if hasattr(settings, name)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
