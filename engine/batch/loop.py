"""Answers many prompts at once: one thread runs steps, and a step is one pass over rows of all of them.

A step takes in who came and lets go who left, prepares one more prompt where there is room, and makes a
pass: a row of each answer under way, and as much of the prompts to be read as a pass has room for. So whoever
came last waits for no whole answer of another, and no answer waits for the whole of a long prompt. A prompt
that has no company is computed as without a loop, to the last bit: its prefill in one piece, its guesses in
the same pass.

What several prompts lack is encoded once: they are prepared one after the other, and the second one finds it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from torch import Tensor

from engine.base.errors import ClosedError
from engine.base.events import Barred, Waiting
from engine.batch import scheduler
from engine.batch.passes import Pass, Passes, held_bytes
from engine.batch.run import Run
from engine.batch.submission import Submission
from engine.batch.ticket import Outcome, Reply, Ticket, cancelled
from engine.batch.worker_queue import Inbox
from engine.cache.segment_cache import SegmentCache
from engine.inference.step_lock import LONGEST_SECONDS, WAITING, Computing
from engine.kv_cache.protocol import Rows
from engine.model.interruption import InterruptedPassError
from engine.model.thread_pool import release_thread_pool
from engine.prefix_tree.tree import PrefixTree

log = logging.getLogger(__name__)

_LEAST_PART = 8  # of a pass: so much is encoded at once, though a row or two are left
_LOOK_SECONDS = 0.02  # between two looks at what another program is at


class BatchLoop:
    """An `Answerer` of many prompts at once, each step in turn with the engine's other answers.

    Args:
        cache: segments of one model, and the model.
        computing: decides whose step is computed; when it is closed, everything here ends.
        most: prompts that are under way at once; 1 where the model takes no more.

    Attributes:
        appetite: how many prompts keep it busy.
        alone: why it answers one prompt after the other, in words; empty where it does not.
        tree: what prompts have computed.
        watcher: is told of each pass, on the thread that makes it, so it must be quick; None for nobody.
    """

    def __init__(self, cache: SegmentCache, computing: Computing, most: int = scheduler.MOST) -> None:
        self._cache, self._computing = cache, computing
        self._passes, self.tree = Passes(cache.model), PrefixTree(cache)
        self.alone = self._passes.alone
        self._most = 1 if self.alone else most
        self.appetite = 2 * self._most
        self.watcher: Callable[[Pass], None] | None = None
        self._rows = scheduler.rows_of(cache.model.network.device.type)
        self._came: Inbox[Run] = Inbox(self._work)
        self._dropped: deque[Reply] = deque()  # appended to without a lock
        # Of the thread alone:
        self._waiting: list[Run] = []
        self._preparing: Run | None = None
        self._barred: list[Run] = []  # another program is at what they lack
        self._under_way: list[Run] = []
        self._full = False  # nobody who waits can be admitted before somebody ends

    def submit(self, submission: Submission) -> Ticket:
        """Takes a prompt in and returns at once.

        Raises:
            ClosedError: the engine was closed.
        """
        self._computing.require_open()
        reply = Reply(submission.side, self._dropped.append, lambda: self._came.here)
        self._came.put(Run(submission, reply, self._cache, self.tree, self._rows_left))
        return Ticket(reply)

    @property
    def busy(self) -> bool:
        """Whether there is a prompt that has not ended."""
        return bool(self._came) or bool(self._everyone())

    def close(self) -> None:
        """Waits until all has ended; for after `Computing.close`, which lets no further step begin."""
        self._came.close()

    # What the thread does

    def _work(self) -> None:
        patience = self._computing.patience
        while self._took_in():
            barred, came = False, True
            try:
                self._let_go()
                if self._everyone():
                    with self._computing.step(patience) as came:
                        if came:
                            self._computing.require_open()
                            barred = self._step()
            except ClosedError as error:
                self._end_all(error)
            except Exception as error:
                # Nobody is to wait for ever because of a fault that is none of theirs.
                log.exception("a step of many prompts failed")
                self._end_all(error)
            if came:
                patience = self._computing.patience
            else:
                patience = min(2 * patience, LONGEST_SECONDS)
                self._say_waiting()
            if barred and not self._under_way:
                time.sleep(_LOOK_SECONDS)

    def _took_in(self) -> bool:
        """Takes in who came; says whether there is anybody. Where nobody comes for a while, it is over."""
        some = bool(self._everyone())
        if not some and not self._came:
            release_thread_pool()
        return self._came.take(self._waiting, wait=not some) or some

    def _say_waiting(self) -> None:
        for run in self._everyone():
            run.reply.say(Waiting(run.reply.side, WAITING, 0, 1))

    def _let_go(self) -> None:
        """Ends what nobody wants any more."""
        self._dropped.clear()
        for run in self._everyone():
            if run.reply.cancelled:
                self._end(run, cancelled())

    def _everyone(self) -> list[Run]:
        # In the order in which they go on, so that `busy` on another thread misses none that does meanwhile.
        waiting, barred, preparing, under_way = (
            [*self._waiting],
            [*self._barred],
            self._preparing,
            [*self._under_way],
        )
        return [*under_way, *([preparing] if preparing is not None else []), *barred, *waiting]

    def _end(self, run: Run, outcome: Outcome) -> None:
        """Ends one before its time, wherever it is; it is told in any case."""
        try:
            run.end(outcome)
        except Exception:
            log.exception("what an answer held was not let go of")
        self._leave(run)

    def _leave(self, run: Run) -> None:
        """Takes out one that has ended."""
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
        """Prepares, and makes a pass; returns whether what is next is another program's to compute."""
        barred = self._prepare()
        self._set_aside()
        if self._under_way:
            self._pass()
        return barred

    def _prepare(self) -> bool:
        """Admits and prepares prompts: until one has computed something, or there are enough to read.

        One of those that are barred is looked at in each step, and others pass it.
        """
        if self._preparing is None and self._barred:
            self._preparing = self._barred.pop(0)
        if self._preparing is not None and self._rows_left() == 0:
            return False  # those who came before it are to be read first
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
        """Sets memory aside for what comes next of answers; where there is none, the newest is set back."""
        for run in [*self._under_way]:
            while run in self._under_way and (more := run.more) is not None:
                others = [one.need for one in self._under_way if one is not run]
                if scheduler.room(self._cache.memory_tier.budget, others, more):
                    run.reserve()
                else:
                    self._set_back(self._under_way[-1])

    def _set_back(self, run: Run) -> None:
        """Has one wait again, before all others."""
        log.info("an answer is set back until there is memory for it")
        if run.sequence is not None and run.sequence.kv is not None:
            self._passes.forget(run.sequence.kv)
        run.set_back()
        self._under_way.remove(run)
        self._waiting.insert(0, run)

    def _rows_left(self) -> int | None:
        """How many tokens can be encoded before the pass, so that nobody waits for more than its rows.

        None where nobody is under way; 0 where what is to be read already fills the pass.
        """
        if not self._under_way:
            return None
        unread = scheduler.filling(self._rows, [run.unread for run in self._under_way])
        if unread >= self._rows:
            return 0
        return max(self._rows - unread - len(self._under_way), self._rows // _LEAST_PART)

    def _admit(self) -> bool:
        """Has the next of the waiting prepared, where there is one and there is room for it."""
        self._full = len(self._under_way) + len(self._barred) >= self._most
        if not self._waiting or self._full or self._rows_left() == 0:
            return False
        tier = self._cache.memory_tier
        place = scheduler.choose(self._waiting, lambda need: all(key in tier for key in need.segments))
        run = self._waiting[place]
        others = [one.need for one in (*self._under_way, *self._barred)]
        if not scheduler.room(tier.budget, others, run.need):
            self._full = True
            return False
        for one in self._waiting[:place]:
            one.passed += 1
        run.reserve()
        self._preparing = run
        del self._waiting[place]
        return True

    def _pass(self) -> None:
        """One pass over rows of those under way."""
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
        taken = sum(len(one.real.token_ids) for one in rows.values())
        wanted = [len(run.wants().token_ids) for run in reading]
        budget = sum(wanted) if alone else self._rows
        for run, count in zip(reading, scheduler.shares(budget, taken, wanted), strict=True):
            if count:
                whole = run.wants()
                rows[run] = whole if count == len(whole.token_ids) else whole.cut(count)[0]
        if rows:
            self._compute(rows, started)

    def _interruptible(self, runs: Sequence[Run]) -> AbstractContextManager[None]:
        """Has a long pass left between two layers once nobody wants anything of it."""
        return self._cache.model.network.interruptible(lambda: all(run.reply.cancelled for run in runs))

    def _compute(self, rows: dict[Run, Rows], started: float) -> None:
        """Makes the pass; where that fails, each by itself, so that only who is at fault ends."""
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
            log.info("a pass of %d prompts failed, and is made one by one: %s", len(runs), error)
        else:
            self._take(rows, logits, started)
            return
        for run in runs:
            self._compute({run: rows[run]}, time.perf_counter())

    def _take(self, rows: dict[Run, Rows], logits: Sequence[Tensor], started: float) -> None:
        """Has each take what the pass has computed of it."""
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
        """What is told of the pass that these rows went through."""
        caches = [run.sequence.kv for run in self._under_way if run.sequence is not None]
        return Pass(
            sum(one.rowwise is not None for one in rows),
            sum(len(one.token_ids) for one in rows),
            held_bytes(
                (one for run in self._under_way for one in run.placements),
                (kv for kv in caches if kv is not None),
            ),
            time.perf_counter(),
        )
