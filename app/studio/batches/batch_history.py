"""The user's batches: the running batch, and stored batches."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from app.studio.batches import BatchKept, BatchStore, KeptState
from app.studio.batches.batch import Batch, Grade, RowResult
from app.studio.batches.judge import Judge, grade_batch
from app.studio.web.jobs import Job, Jobs
from engine.base.errors import PromptCacheError

if TYPE_CHECKING:
    from engine import Engine, PreparedSchema

State = Literal["working", "done", "stopped", "failed", "left", "elsewhere"]
OPENED = 2  # stored batches cached in memory
GOES_ON = "A batch is already running. Wait for its end, or stop it."


@dataclass(frozen=True)
class Shown:
    """A batch as the page shows it.

    Attributes:
        state: the progress; `left` if its studio ended first, `elsewhere` if another studio runs it.
        fault: the error that ended it.
        job: the work, if it was started in this studio.
        unkept: why some rows could not be stored; "" if all are stored.
    """

    batch: Batch
    state: State
    fault: str = ""
    job: Job | None = None
    unkept: str = ""


class _Live:
    """The latest batch of this studio of one kind, with its storage; `begun` if it is in the store."""

    def __init__(self, batch: Batch, store: BatchStore, *, begun: bool = False) -> None:
        self.batch, self.unkept = batch, ""
        self._store, self.begun = store, begun
        self._unwritten: list[tuple[int, int, RowResult]] = []
        self.job: Job | None = None

    def work(self, engine: Engine, schema: PreparedSchema, job: Job) -> Batch:
        """Runs the batch and stores each row; a failed write is retried with the next row."""
        state: KeptState = "failed"
        fault = ""
        with self._store.answering.held(self.batch.key):
            if self.begun:
                self._try(lambda: self._store.mark(self.batch.key, "working"))
            self._write()
            try:
                self.batch.answer(engine, schema, job, self._keep)
                state = "done"
            except Exception as error:
                state, fault = ("stopped", "") if job.stopping else ("failed", str(error) or repr(error))
                raise
            finally:
                self._write()
                if self.begun:
                    self._try(lambda: self._store.mark(self.batch.key, state, fault))
        return self.batch

    def _keep(self, number: int, result: RowResult) -> None:
        self._unwritten.append((number, len(self.batch.results), result))
        self._write()

    def _write(self) -> None:
        self.unkept = ""
        if not self.begun:
            self.begun = self._try(lambda: self._store.begin(self.batch))
        if self.begun and self._unwritten and self._try(self._add):
            self._unwritten = []

    def _add(self) -> None:
        self._store.add(self.batch.key, self._unwritten)

    def _try(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except PromptCacheError as error:
            self.unkept = str(error)
            return False
        return True


class BatchBook:
    """Starts, finds, names and deletes batches.

    Args:
        jobs: the register of background work.
        store: the stored batches.
    """

    def __init__(self, jobs: Jobs, store: BatchStore) -> None:
        self._jobs, self.store = jobs, store
        self._lives: dict[bool, _Live] = {}  # by whether it decides
        self._opened: OrderedDict[str, Shown] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, batch: Batch, engine: Engine, schema: PreparedSchema) -> Job:
        """Starts a batch in the background. Each row is stored before the page shows it.

        Raises:
            PromptCacheError: another batch is running, or a batch with this key exists.
        """
        with self._lock:
            if self.working is not None:
                raise PromptCacheError(GOES_ON)
            self.store.require_new(batch.key)
            return self._begin(_Live(batch, self.store), engine, schema)

    def resume(self, key: str, engine: Engine) -> Job:
        """Runs the rows of a batch that have no result, in the background.

        Raises:
            PromptCacheError: another batch is running, this one has no row left, or another model is loaded.
        """
        shown = self.find(key)
        batch = shown.batch
        if shown.state in ("working", "elsewhere"):
            raise PromptCacheError(GOES_ON)
        if len(batch.results) == len(batch.plan.rows):
            raise PromptCacheError("Every row of this batch has a result.")
        if batch.model != engine.model.name:
            raise PromptCacheError(f"The model of this batch is {batch.model}. Load it, then resume.")
        schema = engine.schema(batch.plan.schema)
        with self._lock:
            if self.working is not None:
                raise PromptCacheError(GOES_ON)
            self._opened.pop(key, None)
            live = self._lives.get(batch.decides)
            if live is None or live.batch is not batch:
                live = _Live(batch, self.store, begun=True)
            return self._begin(live, engine, schema)

    def _begin(self, live: _Live, engine: Engine, schema: PreparedSchema) -> Job:
        job = Job(live.batch.key, lambda job: live.work(engine, schema, job), "batch", result=live.batch)
        live.job = self._jobs.start(job)
        self._lives[live.batch.decides] = live
        return job

    @property
    def working(self) -> str | None:
        """The key of the running batch."""
        lives = tuple(self._lives.values())
        return next((live.batch.key for live in lives if live.job is not None and not live.job.over), None)

    def find(self, key: str) -> Shown:
        """Returns a batch by its key.

        Raises:
            PromptCacheError: no such batch, or the database cannot be read.
        """
        for decides in (False, True):
            live = self._here(decides=decides)
            if live is not None and live.batch.key == key:
                return self._of(live)
        name = self.store.name(key)
        with self._lock:
            if name is None:
                self._opened.pop(key, None)  # another studio deleted it
            elif key in self._opened:
                self._opened.move_to_end(key)
                self._opened[key].batch.name = name
                return self._opened[key]
        batch, state, fault = self.store.load(key)
        shown = Shown(batch, self._unended(key) if state == "working" else state, fault)
        if state != "working":  # a batch of another studio still grows
            with self._lock:
                self._opened[key] = shown
                while len(self._opened) > OPENED:
                    self._opened.popitem(last=False)
        return shown

    def latest(self, *, decides: bool = False) -> Shown | None:
        """Returns this studio's latest batch of a kind, else the newest stored one, else None."""
        live = self._here(decides=decides)
        if live is not None:
            return self._of(live)
        newest = next((batch for batch in self.store.listed() if batch["decides"] == decides), None)
        return None if newest is None else self.find(newest["key"])

    def listed(self) -> list[BatchKept]:
        """Returns all stored batches, newest first."""
        listed = self.store.listed()
        for batch in listed:
            if batch["state"] == "working" and batch["key"] != self.working:
                batch["state"] = "elsewhere" if batch["key"] in self.store.answering else "working"
        return listed

    def rename(self, key: str, name: str) -> None:
        """Renames a batch.

        Raises:
            PromptCacheError: the name is too long, or there is no such batch.
        """
        self.store.rename(key, name)

    def score(self, key: str, number: int, side: str, score: float | None) -> Batch:
        """Scores an answer; None removes its score. Equal answers of a row get the same score.

        Raises:
            PromptCacheError: there is no such answer, or the score cannot be written.
        """
        batch = self.find(key).batch
        with self._lock:
            result = batch.results.get(number)
            if result is None or side not in result.sides:
                raise PromptCacheError("This row has no such answer. Reload the page.")
            sides = result.sides if result.comparison.get("same_text") else (side,)
            scores = {name: value for name, value in result.scores.items() if name not in sides}
            scores |= {} if score is None else dict.fromkeys(sides, score)
            self._change(batch, number, scores=scores)
        return batch

    def grade(self, key: str, job_key: str, template: str, judge: Judge) -> Job:
        """Grades the answers of a batch in the background. Each grade is stored at once.

        Raises:
            PromptCacheError: the batch is running or does not exist.
        """
        shown = self.find(key)
        if shown.state in ("working", "elsewhere"):
            raise PromptCacheError("This batch is still running. Wait for its end, then grade its answers.")

        def keep(number: int, grades: Mapping[str, Grade]) -> None:
            batch = self.find(key).batch  # another one may have been opened meanwhile
            with self._lock:
                self._change(batch, number, grades={**batch.results[number].grades, **grades})

        def work(job: Job) -> Batch:
            return grade_batch(shown.batch, template, judge, keep, job)

        return self._jobs.start(Job(job_key, work, "grading", result=shown.batch))

    def _change(self, batch: Batch, number: int, **changes: Any) -> None:
        changed = replace(batch.results[number], **changes)
        self.store.change(batch.key, number, changed)
        batch.results[number] = changed

    def _unended(self, key: str) -> State:
        return "elsewhere" if key in self.store.answering else "left"

    def _here(self, *, decides: bool) -> _Live | None:
        """Returns this studio's latest batch of a kind with its stored name; None if it was deleted."""
        live = self._lives.get(decides)
        if live is None or not live.begun:
            return live
        try:
            name = self.store.name(live.batch.key)
        except PromptCacheError:  # the batch in memory can still be shown
            return live
        if name is not None:
            live.batch.name = name
        elif (
            self.working != live.batch.key and not self.store.held()["warnings"]
        ):  # the database was not set aside
            with self._lock:
                if self._lives.get(decides) is live:
                    del self._lives[decides]
            return None
        return live

    def delete(self, keys: Sequence[str]) -> int:
        """Deletes batches permanently; returns their number.

        Raises:
            PromptCacheError: one of them is running.
        """
        with self._lock:
            if self.working in keys:
                raise PromptCacheError("One of these batches is running. Stop it before you delete it.")
            count = self.store.delete(keys)
            for key in keys:
                self._opened.pop(key, None)
            self._lives = {kind: live for kind, live in self._lives.items() if live.batch.key not in keys}
        return count

    @staticmethod
    def _of(live: _Live) -> Shown:
        assert live.job is not None
        job = live.job.state()
        stopping, fault = live.job.stopping, job["fault"]
        state: State = (
            "working" if not job["over"] else "done" if not fault else "stopped" if stopping else "failed"
        )
        return Shown(live.batch, state, "" if stopping else fault, live.job, live.unkept)
