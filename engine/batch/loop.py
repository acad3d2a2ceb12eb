"""Answers many prompts at once: one thread runs steps, and each step is one pass over rows of all of them.

A step takes in new prompts, removes cancelled ones, prepares one more prompt if there is room, and makes a
pass. The pass has a row of each answer in progress and as many rows of new prompts as fit. So a new prompt
does not wait for whole answers, and no answer waits for the whole of a long prompt. A prompt without company
gives the same bits as without a loop: its prefill is one piece, and its guesses share the pass.

A segment that several prompts lack is encoded once, since they are prepared one after the other.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from torch import Tensor

from engine.base.errors import ClosedError
from engine.base.events import Barred, Waiting
from engine.batch import scheduler
from engine.batch.passes import Pass, Passes, held_bytes
from engine.batch.run import Run
from engine.batch.ticket import Outcome, Reply, Ticket, cancelled
from engine.batch.worker_queue import Inbox
from engine.cache.segment_cache import SegmentCache
from engine.inference.step_lock import Computing
from engine.inference.submission import Submission
from engine.kv_cache.protocol import Rows
from engine.model.interruption import InterruptedPassError
from engine.prefix_tree.tree import PrefixTree

log = logging.getLogger(__name__)

_LEAST_PART = 8  # this fraction of a pass is encoded at once, even if fewer rows are left
_BARRED = Barred("cached", "", 0, 1)
_SAME_BITS = "each answer must have the same bits as alone"


class BatchLoop:
    """Answers submitted prompts. Its steps take turns with the engine's other answers.

    Args:
        cache: the segments of the model.
        computing: schedules the steps.
        most: the most prompts in progress at once.
        deterministic: answer one prompt at a time, in order, from segments only: to the bit as if alone.

    Attributes:
        appetite: the number of prompts that keeps it busy; more wait in its queue.
        alone: the reason if it answers one prompt at a time, else "".
        tree: computed prefixes; None if it is deterministic.
        watcher: receives each pass on the thread that makes it, so it must be quick; None for no watcher.
    """

    def __init__(
        self,
        cache: SegmentCache,
        computing: Computing,
        most: int = scheduler.MOST,
        *,
        deterministic: bool = False,
    ) -> None:
        self._cache, self._computing = cache, computing
        self._passes = Passes(cache.model, _SAME_BITS if deterministic else "")
        self.tree = None if deterministic else PrefixTree(cache)
        self.alone = self._passes.alone
        self._most = 1 if self.alone else most
        self.appetite = 1 if deterministic else 2 * self._most
        self._in_order = deterministic
        self.watcher: Callable[[Pass], None] | None = None
        self._rows = scheduler.rows_of(cache.model.network.device.type)
        self._came: Inbox[Run] = Inbox(self._work)
        self._dropped: deque[Reply] = deque()  # appended to without a lock
        # The thread alone uses these:
        self._waiting: list[Run] = []
        self._preparing: Run | None = None
        self._barred: list[Run] = []  # another process encodes segments that they lack
        self._under_way: list[Run] = []
        self._full = False  # no waiting prompt can be admitted before an answer ends

    def submit(self, submission: Submission) -> Ticket:
        """Queues a prompt from any thread, and returns at once.

        Raises:
            ClosedError: the engine was closed.
        """
        self._computing.require_open()
        reply = Reply(submission.side, self._dropped.append, lambda: self._came.here)
        self._came.put(Run(submission, reply, self._cache, self.tree, self._rows_left))
        return Ticket(reply)

    @property
    def busy(self) -> bool:
        """Whether any prompt is unfinished."""
        return bool(self._came) or bool(self._everyone())

    def close(self) -> None:
        """Waits until all prompts have ended; call it after `Computing.close`."""
        self._came.close()

    def _work(self) -> None:
        while self._came.take(self._waiting):
            try:
                for event in self._computing.steps(self._steps(), "cached"):
                    if isinstance(event, Waiting):
                        self._take_in()
                        for run in self._everyone():
                            run.reply.say(replace(event, side=run.reply.side))
            except ClosedError as error:
                self._end_all(error)
            except Exception as error:
                # An internal error must not leave callers waiting for ever.
                log.exception("a step of many prompts failed")
                self._end_all(error)

    def _steps(self) -> Generator[Barred | None, None, None]:
        """Makes steps while any prompt is unfinished; Barred if only another process can go on."""
        while True:
            self._take_in()
            if not self._everyone():
                return
            barred = self._step()
            yield _BARRED if barred and not self._under_way else None

    def _take_in(self) -> None:
        """Takes in new prompts and ends cancelled ones."""
        self._came.take(self._waiting, wait=False)
        self._dropped.clear()
        for run in self._everyone():
            if run.reply.cancelled:
                self._end(run, cancelled())

    def _everyone(self) -> list[Run]:
        # In the order of progress, so that `busy` on another thread misses no prompt that advances meanwhile.
        waiting, barred, preparing, under_way = (
            [*self._waiting],
            [*self._barred],
            self._preparing,
            [*self._under_way],
        )
        return [*under_way, *([preparing] if preparing is not None else []), *barred, *waiting]

    def _end(self, run: Run, outcome: Outcome) -> None:
        """Ends a prompt early, in whichever state it is; its reply always gets the outcome."""
        try:
            run.end(outcome)
        except Exception:
            log.exception("the resources of an answer were not released")
        self._leave(run)

    def _leave(self, run: Run) -> None:
        if run is self._preparing:
            self._preparing = None
        for runs in (self._waiting, self._barred, self._under_way):
            with contextlib.suppress(ValueError):
                runs.remove(run)
        if run.sequence is not None and run.sequence.kv is not None:
            self._passes.forget(run.sequence.kv)

    def _end_all(self, error: Exception) -> None:
        for run in self._everyone():
            self._end(run, error)

    def _step(self) -> bool:
        """Prepares prompts and makes a pass; returns whether another process encodes the next segments."""
        barred = self._prepare()
        self._set_aside()
        if self._under_way:
            self._pass()
        return barred

    def _prepare(self) -> bool:
        """Admits and prepares prompts until one has computed something or there are enough rows to read.

        Each step checks one of the barred prompts; others overtake them.
        """
        if self._preparing is None and self._barred:
            self._preparing = self._barred.pop(0)
        if self._preparing is not None and self._rows_left() == 0:
            return False  # earlier prompts must be read first
        while self._preparing is not None or self._admit():
            run = self._preparing
            assert run is not None
            try:
                with self._interruptible([run]):
                    event = run.prepare() if run.sequence is None else None
            except InterruptedPassError:
                self._end(run, cancelled())
                continue
            except Exception as error:
                self._end(run, error)
                continue
            if event is None:
                self._under_way.append(run)
                self._preparing = None
                continue
            if not isinstance(event, Barred):
                return False
            self._barred.append(run)
            self._preparing = None
        return bool(self._barred)

    def _set_aside(self) -> None:
        """Reserves memory for the next tokens of answers; if there is none, sets back the newest answer."""
        for run in [*self._under_way]:
            while run in self._under_way and (more := run.more) is not None:
                others = [other.need for other in self._under_way if other is not run]
                if scheduler.room(self._cache.memory_tier.budget, others, more):
                    run.reserve()
                else:
                    self._set_back(self._under_way[-1])

    def _set_back(self, run: Run) -> None:
        """Puts a run back at the head of the queue."""
        log.info("an answer waits until memory is free")
        if run.sequence is not None and run.sequence.kv is not None:
            self._passes.forget(run.sequence.kv)
        run.set_back()
        self._under_way.remove(run)
        self._waiting.insert(0, run)

    def _rows_left(self) -> int | None:
        """How many tokens can be encoded before the pass, so that no answer waits for more than its rows.

        None if no answer is in progress; 0 if unread prompts already fill the pass.
        """
        if not self._under_way:
            return None
        unread = scheduler.filling(self._rows, [run.unread for run in self._under_way])
        if unread >= self._rows:
            return 0
        return max(self._rows - unread - len(self._under_way), self._rows // _LEAST_PART)

    def _admit(self) -> bool:
        """Starts preparing the next waiting prompt, if there is one and it has room."""
        self._full = len(self._under_way) + len(self._barred) >= self._most
        if not self._waiting or self._full or self._rows_left() == 0:
            return False
        tier = self._cache.memory_tier
        candidates = self._waiting[:1] if self._in_order else self._waiting
        place = scheduler.choose(candidates, lambda need: all(key in tier for key in need.segments))
        run = self._waiting[place]
        others = [other.need for other in (*self._under_way, *self._barred)]
        if not scheduler.room(tier.budget, others, run.need):
            self._full = True
            return False
        for other in self._waiting[:place]:
            other.passed += 1
        run.reserve()
        self._preparing = run
        del self._waiting[place]
        return True

    def _pass(self) -> None:
        started = time.perf_counter()
        coming = self._came or self._preparing or (self._waiting and not self._full)
        alone = len(self._under_way) == 1 and (self._most == 1 or not coming)
        for run in [*self._under_way]:
            try:
                run.begin_pass(alone=alone)
            except Exception as error:
                self._end(run, error)
        decoding = [run for run in self._under_way if run.decodes]
        reading = [run for run in self._under_way if not run.decodes]
        rows = {run: run.wants() for run in decoding}
        taken = sum(len(own.real.token_ids) for own in rows.values())
        wanted = [len(run.wants().token_ids) for run in reading]
        budget = sum(wanted) if alone else self._rows
        for run, count in zip(reading, scheduler.shares(budget, taken, wanted), strict=True):
            if count:
                whole = run.wants()
                rows[run] = whole if count == len(whole.token_ids) else whole.cut(count)[0]
        if rows:
            self._compute(rows, started)

    def _interruptible(self, runs: Sequence[Run]) -> AbstractContextManager[None]:
        """Interrupts a long pass between two layers once all its prompts are cancelled."""
        return self._cache.model.network.interruptible(lambda: all(run.reply.cancelled for run in runs))

    def _compute(self, rows: dict[Run, Rows], started: float) -> None:
        """Makes the pass. If it fails, makes one pass for each prompt, so that only the failing one ends."""
        runs = list(rows)
        others = [run.placements for run in self._under_way if run not in rows]
        try:
            with self._interruptible(runs):
                logits = self._passes.run([run.member(own) for run, own in rows.items()], others)
        except InterruptedPassError:
            for run in runs:
                self._end(run, cancelled())
            return
        except Exception as error:
            if len(runs) == 1:
                self._end(runs[0], error)
                return
            log.info("a pass of %d prompts failed, so each gets its own pass: %s", len(runs), error)
        else:
            self._take(rows, logits, started)
            return
        for run in runs:
            self._compute({run: rows[run]}, time.perf_counter())

    def _take(self, rows: dict[Run, Rows], logits: Sequence[Tensor], started: float) -> None:
        """Gives each run its results of the pass."""
        if self.watcher is not None:
            self.watcher(self._made([own.real for own in rows.values()]))
        for (run, own), scores in zip(rows.items(), logits, strict=True):
            try:
                ended = run.take(len(own.token_ids), scores, started)
            except Exception as error:
                self._end(run, error)
                continue
            if ended:
                self._leave(run)

    def _made(self, rows: list[Rows]) -> Pass:
        caches = [run.sequence.kv for run in self._under_way if run.sequence is not None]
        return Pass(
            sum(own.rowwise is not None for own in rows),
            sum(len(own.token_ids) for own in rows),
            held_bytes(
                (placement for run in self._under_way for placement in run.placements),
                (kv for kv in caches if kv is not None),
            ),
            time.perf_counter(),
        )
