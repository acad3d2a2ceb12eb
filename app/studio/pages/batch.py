"""The Batch page: rows of a table or a grid over the open workspace, answered and held against checks."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NotRequired

from typing_extensions import TypedDict

from app.batch.row_answers import RowFault, row_fault, row_settings
from app.studio.batches import BatchesHeld, BatchKept, BatchStore
from app.studio.batches.batch import Batch, BatchMode, BatchPlan, BatchSummary, RowShown
from app.studio.batches.batch_history import BatchBook
from app.studio.batches.result_files import batch_csv, batch_json
from app.studio.batches.rows import (
    MOST_ROWS,
    BatchWanted,
    RowsWanted,
    check_of,
    rows_of,
    run_settings,
)
from app.studio.documents.documents import Exported, first_error
from app.studio.documents.drafts import Workspace
from app.studio.documents.requests import Count, Flag, Nothing, Shelve, Whole, Words, request
from app.studio.documents.workspace_opener import Opened, workspace_json
from app.studio.pages.author import DigestsOfBoth
from app.studio.pages.page import Page
from app.studio.runs.differences import word_difference
from app.studio.runs.run_frame import Difference
from app.studio.web.digests import digest, digest_of_schema
from app.studio.web.endpoints import endpoint
from app.studio.web.json_answers import JobState, Json
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError
from engine.inference.run_settings import RunSettings
from engine.pml import PromptError
from engine.rows.duplicates import Chosen, distinct_rows
from engine.rows.expectations import KINDS
from engine.rows.rows import Row

if TYPE_CHECKING:
    from engine import Engine, PreparedSchema

FAULTS_SHOWN = 50
LOOKED_SECONDS = 3.0  # for which rows are looked at before a run; the others say at their turn what is wrong


@request
class BatchSince:
    """What a page knows of a batch.

    Attributes:
        key: the batch's key; "" for the latest.
        known: how many of its ended rows it knows; -1 where it knows none of its rows.
        only: whether that batch is wanted, also where another was begun since.
    """

    key: Words = ""
    known: Whole = -1
    only: Flag = False


@request
class SomeBatches:
    """Batches by their keys."""

    keys: tuple[Words, ...]


@request
class NameBatch:
    """What the user calls a batch; "" for nothing."""

    key: Words
    name: Words


@request
class OneRow:
    """A row of a batch, by its number from 0."""

    key: Words
    number: Count


@request
class OpenRow(Shelve):
    """A row of a batch, to be opened as the workspace."""

    key: Words
    number: Count


@request
class BatchFile:
    """A batch's results as a file."""

    key: Words
    form: Literal["csv", "json"]


@request
class BatchForm:
    """What is filled in on the page."""

    form: Mapping[str, Any]


class CheckKind(TypedDict):
    """What can be expected of an answer, and what that means."""

    name: str
    meaning: str


class BatchFormKept(TypedDict):
    """What was filled in on the page the last time, and what can be."""

    form: Json
    kinds: list[CheckKind]
    most: int


class RowsRead(TypedDict):
    """Rows as they were read; of the first `looked` of them every fault was looked for.

    `repeated` more of a grid ask for what another one asks, and are left out.
    """

    rows: int
    repeated: int
    looked: int
    faults: list[RowFault]
    faulty: int


class BatchState(TypedDict):
    """A batch so far, and the rows that the page does not know yet.

    Attributes:
        state: how far it is; `left` where its studio ended before it did, `elsewhere` where another one
            answers it.
        unkept: why not all of it is on disk, in words; "" where all is.
        working: the key of the batch that is being answered, which may be another.
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
    model: str
    schema: str
    started: str
    left_s: float | None
    ended: int
    rows: list[RowShown]
    summary: BatchSummary


class LatestBatch(TypedDict):
    """The latest batch; none where there was none."""

    batch: NotRequired[BatchState]


class CheckVerdict(TypedDict):
    """One check of a row: why a side does not meet it, "" where it does, None where it was not judged."""

    check: str
    cached: str | None
    uncached: str | None


class SideWhole(TypedDict):
    """A side of a row with its whole answer."""

    text: str
    ttft_ms: float
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    ended: str
    warnings: list[str]


class RowWhole(TypedDict):
    """A row with all that came of it."""

    row: RowShown
    prompt: str
    settings: Json
    cached: SideWhole | None
    uncached: SideWhole | None
    difference: Difference | None
    checks: list[CheckVerdict]


class Kept(TypedDict):
    """It was kept."""


class KeptBatches(TypedDict):
    """Every batch on disk, the newest first; how full their file is; which one is being answered."""

    batches: list[BatchKept]
    held: BatchesHeld
    working: str | None


class DeletedBatches(TypedDict):
    """How many batches went."""

    deleted: int


class BatchPage(Page):
    """The server side of the Batch page."""

    name, title = "batch", "Batch"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._choices: tuple[tuple[str | None, ...], dict[Chosen, str | None]] = (), {}
        self._book = BatchBook(parts.jobs, BatchStore(parts.drafts.folder))

    @endpoint
    def batch_form(self, _request: Nothing) -> BatchFormKept:
        """What was filled in on the page the last time, and what can be."""
        kinds: list[CheckKind] = [{"name": name, "meaning": meaning} for name, meaning in KINDS.items()]
        return {"form": self._parts.drafts.form("batch"), "kinds": kinds, "most": MOST_ROWS}

    @endpoint
    def batch_keep(self, request: BatchForm) -> Kept:
        """Keeps what is filled in on the page."""
        self._parts.drafts.keep_form("batch", dict(request.form))
        return {}

    @endpoint
    def batch_read(self, request: RowsWanted) -> RowsRead:
        """Reads rows, and looks for what is wrong with them; nothing is computed."""
        rows = rows_of(request)
        faults: list[RowFault] = []
        faulty = looked = 0
        with self._parts.taken() as engine:
            plan, schema = self._plan(request, rows, engine)
            repeated, rows = len(rows) - len(plan.rows), plan.rows
            until = time.monotonic() + LOOKED_SECONDS
            for row, outcome in zip(rows, plan.prompts(schema), strict=True):
                looked += 1
                if isinstance(outcome, Exception):
                    faulty += 1
                    faults += [row_fault(outcome, row)] if len(faults) < FAULTS_SHOWN else []
                if time.monotonic() > until:
                    break
        return {"rows": len(rows), "repeated": repeated, "looked": looked, "faults": faults, "faulty": faulty}

    @endpoint
    def batch_start(self, request: BatchWanted) -> JobState[Json]:
        """Begins to answer the rows in the background; each is on disk before it is shown."""
        checks = tuple(check_of(number, one) for number, one in enumerate(request.checks, 1))
        rows = rows_of(request)
        with self._parts.taken() as engine:
            plan, schema = self._plan(request, rows, engine)
            plan = replace(plan, mode=request.mode, expect=checks, combine=request.combine)
            batch = Batch(
                request.key,
                plan,
                (digest_of_schema(request.schema, plan.schema), digest(request.prompt)),
                engine.model.name,
                workspace=Workspace("", request.schema, "", request.origin, dict(request.settings)),
            )
            return self._book.start(batch, engine, schema).state()

    @endpoint
    def batch_state(self, request: BatchSince) -> LatestBatch:
        """How far the latest batch is, or what came of another, with the rows that the page does not know."""
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
        """Every batch on disk; where the file cannot be read, what there is to say of it."""
        held = self._book.store.held()
        try:
            found = self._book.listed()
        except PromptCacheError:  # `held` says it
            found = []
        return {"batches": found, "held": held, "working": self._book.working}

    @endpoint
    def name_batch(self, request: NameBatch) -> Kept:
        """Writes what the user calls a batch."""
        self._book.rename(request.key, request.name)
        return {}

    @endpoint
    def delete_batches(self, request: SomeBatches) -> DeletedBatches:
        """Deletes batches for good."""
        return {"deleted": self._book.delete(request.keys)}

    @endpoint
    def batch_row(self, request: OneRow) -> RowWhole:
        """A row with its whole answers, what differs between them, and the verdict of each check."""
        batch, row = self._row(request.key, request.number)
        result = batch.results.get(request.number)
        sides = result.sides if result is not None else {}
        whole: dict[str, SideWhole] = {
            name: {
                "text": side.text,
                "ttft_ms": side.ttft_ms,
                "timeline_ms": side.timeline_ms,
                "tokens": side.tokens,
                "ended": side.ended,
                "warnings": list(side.warnings),
            }
            for name, side in sides.items()
        }
        judged = {name: side.judged.faults for name, side in sides.items() if side.judged is not None}
        checks: list[CheckVerdict] = [
            {
                "check": str(one),
                "cached": judged["cached"][at] if "cached" in judged else None,
                "uncached": judged["uncached"][at] if "uncached" in judged else None,
            }
            for at, one in enumerate(batch.expectations(row))
        ]
        both = len(sides) > 1
        return {
            "row": batch.shown(request.number),
            "prompt": _source(batch, row),
            "settings": _settings(batch, row),
            "cached": whole.get("cached"),
            "uncached": whole.get("uncached"),
            "difference": word_difference(sides["cached"].text, sides["uncached"].text) if both else None,
            "checks": checks,
        }

    @endpoint
    def batch_open(self, request: OpenRow) -> Opened:
        """The prompt of a row instead of the open workspace, which goes to the shelf."""
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
    def batch_file(self, request: BatchFile) -> Exported:
        """The results of a batch as a file."""
        batch = self._book.find(request.key).batch
        return batch_csv(batch) if request.form == "csv" else batch_json(batch)

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
        """What is known of the choices over these texts; of others it is forgotten."""
        if self._choices[0] != of:
            self._choices = of, {}
        return self._choices[1]


def _source(batch: Batch, row: Row) -> str:
    try:
        return batch.plan.source(row)
    except PromptCacheError:
        return ""


def _settings(batch: Batch, row: Row) -> Json:
    try:
        settings = row_settings(row, batch.plan.settings)
    except PromptCacheError:
        settings = batch.plan.settings
    return {name: getattr(settings, name) for name in RunSettings.__dataclass_fields__}


def row_own_settings(batch: Batch, row: Row) -> Json:
    """The settings that a row has of its own."""
    settings = _settings(batch, row)
    found = {name: settings[name] for name in row.settings if name in settings}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
