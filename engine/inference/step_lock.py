"""Runs one step at a time, in the order of requests.

A step is the work of a generator between two of its events. The lock is free while a reader handles an event,
so a slow or absent reader delays no other answer.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeVar

from engine.base.errors import CancelledError, ClosedError
from engine.base.events import Barred, Listener, Side, Waiting, Working
from engine.base.stopwatch import Stopwatch
from engine.model.interruption import InterruptedPassError
from engine.model.network import Network
from engine.model.thread_pool import release_thread_pool

log = logging.getLogger(__name__)

WAITING = "waiting for another answer's step to end"
STOPPED = "The work was stopped before it was complete."
PATIENCE_SECONDS = 1.0  # of waiting before the first report; each next report takes twice as long
_LONGEST_SECONDS = 30.0
_LOOK_SECONDS = 0.02  # between two checks for a segment of another process
_LAST_SECONDS = 60.0  # that the end of the program waits for a step
_END: Final = object()  # takes the last turn
Progress = Callable[[int, int, str], None]
E = TypeVar("E")
R = TypeVar("R")


def returned(steps: Generator[E, None, R], progress: Progress | None = None) -> R:
    """Runs a generator to its end and returns its result.

    `progress` is called with (done, total, what) at each Working.
    """
    with contextlib.closing(steps):
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: R = end.value
                return result
            if progress is not None and isinstance(step, Working):
                progress(step.done, step.total, step.what)


class Computing:
    """Lets one step run at a time, first come, first served.

    A generator reports waiting after `patience` seconds. A listener can interrupt passes of `network`.
    """

    def __init__(self, network: Network | None = None, patience: float = PATIENCE_SECONDS) -> None:
        self._network, self.patience = network, patience
        self._closed = False  # no further step begins
        self._changed = threading.Condition()
        self._line: deque[object] = deque()  # the first one's step is running
        self._thread: int | None = None  # the thread of the running step
        self._ended = time.monotonic()  # the latest step
        # A thread that ends with the interpreter while torch computes aborts the whole program.
        weakref.finalize(self, _take_last_turn, self._changed, self._line)

    def close(self) -> None:
        """Prevents further steps, and waits for the running one; a second call does nothing."""
        self._closed = True
        if self._thread == threading.get_ident():
            return
        with contextlib.suppress(ClosedError), self.step():  # if the program is ending already
            pass

    def require_open(self) -> None:
        """Rejects work after `close`.

        Raises:
            ClosedError: the engine was closed.
        """
        if self._closed:
            raise ClosedError("The engine is closed, so nothing is computed. Open one: Engine.open(…).")

    @property
    def awaited(self) -> bool:
        """Whether another step waits for the running one."""
        return len(self._line) > 1

    @property
    def quiet_for(self) -> float:
        """Seconds since the last step; 0 while one runs."""
        return 0.0 if self._line else time.monotonic() - self._ended

    @contextlib.contextmanager
    def step(self, patience: float | None = None) -> Iterator[bool]:
        """Takes a turn for one step outside of a generator, for up to `patience` seconds; None for no limit.

        Yields:
            Whether the turn came; if not, the caller must compute nothing.
        """
        came = self._begin(patience)
        try:
            yield came
        finally:
            if came:
                self._end()

    def steps(
        self,
        work: Generator[E, None, R],
        side: Side,
        clock: Stopwatch | None = None,
        listener: Listener | None = None,
    ) -> Generator[E | Working, None, R]:
        """Runs a generator to its end, step by step, each in its turn.

        Args:
            work: the generator; resumed only while no other step runs, and closed with this one.
            side: the side for Waiting events.
            clock: the stopwatch that counts the waiting; laps of `work` must not contain its pauses.
            listener: notified when a step that was reported as waiting gets its turn; asked before and during
                each step if the work is still wanted.

        Yields:
            The events of `work`, and Waiting if a step waits long. Of Barred only some, by time.

        Returns:
            The result of `work`.

        Raises:
            CancelledError: the listener stopped it.
            ClosedError: the engine was closed.
        """
        done, total, silent_until = 0, 1, 0.0
        try:
            while True:
                patience, reported = self.patience, False
                while not self._begin(patience, clock):
                    log.info("%s, %.0f s so far", WAITING, patience)
                    # The place in the line is given up, as the reader may never resume this.
                    yield Waiting(side, WAITING, done, total)
                    reported, patience = True, min(2 * patience, _LONGEST_SECONDS)
                try:
                    self.require_open()
                    if reported and listener is not None:
                        listener.turn(side)
                    with self._wanted(listener):
                        event = next(work)
                except StopIteration as end:
                    result: R = end.value
                    return result
                finally:
                    self._end()
                if isinstance(event, Working):
                    done, total = event.done, event.total
                if isinstance(event, Barred):
                    self._pause(clock)
                    if time.monotonic() < silent_until:
                        continue
                    silent_until = time.monotonic() + self.patience
                yield event
        finally:
            work.close()
            release_thread_pool()

    @contextlib.contextmanager
    def _wanted(self, listener: Listener | None) -> Iterator[None]:
        """Interrupts a step once the listener stops it."""
        if listener is None:
            yield
            return
        if listener.stopped():
            raise CancelledError(STOPPED)
        passes = self._network.interruptible(listener.stopped) if self._network else contextlib.nullcontext()
        try:
            with passes:
                yield
        except InterruptedPassError:
            raise CancelledError(STOPPED) from None

    def finish(
        self,
        work: Generator[E, None, R],
        side: Side,
        clock: Stopwatch | None = None,
        progress: Progress | None = None,
        listener: Listener | None = None,
    ) -> R:
        """Runs a generator to its end, each step in its turn, and returns its result.

        An exception of `progress`, which gets (done, total, what) at each Working, ends the work; so does the
        listener, as in `steps`.
        """
        return returned(self.steps(work, side, clock, listener), progress)

    def _begin(self, patience: float | None, clock: Stopwatch | None = None) -> bool:
        """Waits for the turn, up to `patience` seconds; returns whether it came."""
        assert self._thread != threading.get_ident(), "a step waits for a step of its own thread"
        ticket, started = object(), time.perf_counter()
        with self._changed:
            if _END in self._line and threading.current_thread() is threading.main_thread():
                raise ClosedError("The program is ending, so nothing is computed any more.")
            self._line.append(ticket)
            try:
                came = self._changed.wait_for(lambda: self._line[0] is ticket, patience)
            except BaseException:
                self._leave(ticket)
                raise
            if came:
                self._thread = threading.get_ident()
            else:
                self._leave(ticket)
        if clock is not None:
            clock.waited += (time.perf_counter() - started) * 1000
        return came

    @staticmethod
    def _pause(clock: Stopwatch | None) -> None:
        """Sleeps for a moment to let another process go on; no step of this engine waits for it."""
        started = time.perf_counter()
        time.sleep(_LOOK_SECONDS)
        if clock is not None:
            clock.waited += (time.perf_counter() - started) * 1000

    def _leave(self, ticket: object) -> None:
        self._line.remove(ticket)
        self._changed.notify_all()

    def _end(self) -> None:
        if len(self._line) > 1:
            release_thread_pool()  # the next step belongs to another thread
        with self._changed:
            self._thread, self._ended = None, time.monotonic()
            self._line.popleft()
            self._changed.notify_all()


def _take_last_turn(changed: threading.Condition, line: deque[object]) -> None:
    """Waits for the running step, and lets no other begin until the program has ended."""
    with contextlib.suppress(KeyboardInterrupt), changed:
        line.insert(min(1, len(line)), _END)
        changed.wait_for(lambda: line[0] is _END, _LAST_SECONDS)
