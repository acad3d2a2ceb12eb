"""Events and outcome of a submitted prompt, for threads and asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator

from engine.base.errors import CancelledError, DeadlockError
from engine.base.events import Answer, Event, Side

log = logging.getLogger(__name__)

Outcome = Answer | Exception


def _elsewhere() -> bool:
    return False


class Reply:
    """The events so far of an answer. A Ticket reads it, on any thread.

    `cancelled` is checked before each step.
    """

    def __init__(
        self,
        side: Side,
        dropped: Callable[[Reply], None],
        answers_here: Callable[[], bool] = _elsewhere,
    ) -> None:
        """Begins an empty reply.

        `dropped` is called on cancellation and takes no lock, as garbage collection may call it.
        `answers_here` returns whether the current thread computes the answer.
        """
        self.side, self.cancelled = side, False
        self._dropped, self._answers_here = dropped, answers_here
        self._events: list[Event] = []
        self._outcome: Outcome | None = None
        self._changed = threading.Condition()
        self._watchers: list[Callable[[], None]] = []

    @property
    def outcome(self) -> Outcome | None:
        """The answer or the error that ended it; None while it is in progress."""
        return self._outcome

    def say(self, event: Event) -> None:
        """Adds an event."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()
            watchers = tuple(self._watchers)
        _tell(watchers)

    def end(self, outcome: Outcome) -> None:
        """Sets the outcome; only the first call counts."""
        with self._changed:
            if self._outcome is not None:
                return
            self._outcome, self._answers_here = outcome, _elsewhere  # else a ticket would retain its engine
            self._changed.notify_all()
            watchers = tuple(self._watchers)
        _tell(watchers)

    def cancel(self) -> None:
        """Asks for a stop before the next step; takes no lock."""
        if not self.cancelled and self._outcome is None:
            self.cancelled = True
            self._dropped(self)

    def event(self, at: int) -> Event | None:
        """The event with this number, from 0; None if it does not exist yet or at all."""
        return self._events[at] if at < len(self._events) else None

    def wait(self, at: int | None = None, timeout: float | None = None) -> bool:
        """Waits for the end, or for the event with this number; returns whether it came in time.

        Raises:
            DeadlockError: it is not there, and only this thread could compute it.
        """
        if not self.has(at) and self._answers_here():
            raise DeadlockError(
                "The thread that computes an answer cannot wait for it. Wait on another thread, and return "
                "from the function that when_done calls."
            )
        with self._changed:
            return self._changed.wait_for(lambda: self.has(at), timeout)

    def has(self, at: int | None = None) -> bool:
        """Whether it has ended, or the event with this number exists."""
        return self._outcome is not None or (at is not None and at < len(self._events))

    @contextlib.contextmanager
    def watched(self, call: Callable[[], None]) -> Iterator[None]:
        """Calls a function after every change, on the thread that makes it."""
        with self._changed:
            self._watchers.append(call)
        try:
            yield
        finally:
            with self._changed:
                self._watchers.remove(call)

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls a function once when the answer has ended, or at once if it has."""
        lock = threading.Lock()

        def look() -> None:
            if self._outcome is not None and lock.acquire(blocking=False):
                call()

        with self._changed:
            self._watchers.append(look)
        _tell((look,))


class Ticket:
    """The caller's side of a submitted prompt. Deleting it cancels the prompt.

    `Engine.submit` creates it. In asyncio `await ticket` returns the answer, and `async for event in ticket`
    its events. Cancelling the awaiting task cancels the prompt.
    """

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    @property
    def side(self) -> Side:
        """The answered side."""
        return self._reply.side

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._reply.outcome is not None

    def events(self) -> Iterator[Event]:
        """Yields the events from the first on as they arrive; repeatable, on any thread.

        Yields:
            Events, Finished last.

        Raises:
            CancelledError: it was cancelled.
            ClosedError: the engine was closed.
            DeadlockError: as for `result`.
            Exception: any other error that ended it.
        """
        at = 0
        while True:
            self._reply.wait(at)
            event = self._reply.event(at)
            if event is None:
                self.result()
                return
            yield event
            at += 1

    def result(self, timeout: float | None = None) -> Answer:
        """Waits for the answer, at most `timeout` seconds.

        Raises:
            CancelledError: it was cancelled.
            ClosedError: the engine was closed.
            DeadlockError: it has not ended, and this thread computes it, as in `when_done`.
            TimeoutError: it has not ended in time; it goes on.
            Exception: any other error that ended it.
        """
        if not self._reply.wait(timeout=timeout):
            raise TimeoutError(f"There is no answer after {timeout} s; the prompt is still being answered.")
        outcome = self._reply.outcome
        if isinstance(outcome, Exception):
            raise outcome
        assert outcome is not None
        return outcome

    def cancel(self) -> None:
        """Stops it before its next step; its readers get CancelledError. Does nothing once it has ended."""
        self._reply.cancel()

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls a function when it has ended, or at once if it has.

        The answering thread calls it, so it must be quick, and must not wait for another answer.
        """
        self._reply.when_done(call)

    def __await__(self) -> Generator[None, None, Answer]:
        """Returns the answer."""
        return self._awaited().__await__()

    def peek(self, at: int) -> Event | None:
        """Returns the event with this number, from 0, if it exists already."""
        return self._reply.event(at)

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yields the events like `events`."""
        at = 0
        with self._watched() as news:
            while True:
                await self._until(at, news)
                event = self._reply.event(at)
                if event is None:
                    self.result()
                    return
                yield event
                at += 1

    def __del__(self) -> None:
        """Cancels it. Takes no lock, as garbage collection may run under any."""
        self._reply.cancel()

    def __repr__(self) -> str:
        match self._reply.outcome:
            case None:
                state = "under way"
            case CancelledError():
                state = "cancelled"
            case Exception():
                state = "failed"
            case _:
                state = "answered"
        return f"<Ticket, {self.side}, {state}>"

    async def _awaited(self) -> Answer:
        with self._watched() as news:
            await self._until(None, news)
        return self.result()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[_News]:
        """Notifies the running event loop of every change."""
        news = _News()
        with self._reply.watched(news.tell):
            yield news

    async def _until(self, at: int | None, news: _News) -> None:
        """Waits for the event with this number, or for the end."""
        try:
            while not self._reply.has(at):
                await news.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise


class _News:
    """Notifies a task of this event loop of changes, from any thread; several at once count as one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_its_way = threading.Lock()
        self._some = False
        self._waiting: asyncio.Future[None] | None = None

    def tell(self) -> None:
        """Notifies the task, from any thread."""
        if self._on_its_way.acquire(blocking=False):
            with contextlib.suppress(RuntimeError):  # the loop was closed: no task waits any more
                self._loop.call_soon_threadsafe(self._come)

    def _come(self) -> None:
        self._on_its_way.release()  # first, so that later changes notify again
        self._some = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self) -> None:
        """Waits for a change since the last call."""
        if not self._some:
            self._waiting = self._loop.create_future()
            await self._waiting
        self._some = False


def cancelled() -> CancelledError:
    """Returns the error of a cancelled prompt."""
    return CancelledError("The prompt was cancelled before its answer was complete. Submit it again.")


def _tell(watchers: tuple[Callable[[], None], ...]) -> None:
    for call in watchers:
        try:
            call()
        except (Exception, SystemExit, asyncio.CancelledError):  # it must not end another answer
            log.exception("a callback of an answer failed")
