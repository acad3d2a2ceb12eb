"""What a submitted prompt brings: its events, its answer or what ended it, for threads and asyncio."""

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
    """What whoever answers has said so far. A Ticket reads it, on any thread.

    Attributes:
        side: the side that is answered.
        cancelled: nobody wants it any more; to be looked at before each step.
    """

    def __init__(
        self,
        side: Side,
        dropped: Callable[[Reply], None],
        answers_here: Callable[[], bool] = _elsewhere,
    ) -> None:
        """Begins an empty one.

        Args:
            side: the side that is answered.
            dropped: told of it when it is cancelled; takes no lock, as a collection of garbage may call it.
            answers_here: whether the thread that asks is the one that answers.
        """
        self.side, self.cancelled = side, False
        self._dropped, self._answers_here = dropped, answers_here
        self._events: list[Event] = []
        self._outcome: Outcome | None = None
        self._changed = threading.Condition()
        self._watchers: list[Callable[[], None]] = []

    @property
    def outcome(self) -> Outcome | None:
        """The answer, or what ended it; None while it is under way."""
        return self._outcome

    def say(self, event: Event) -> None:
        """Adds an event."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()
            watchers = tuple(self._watchers)
        _tell(watchers)

    def end(self, outcome: Outcome) -> None:
        """Says how it ended; only the first time counts."""
        with self._changed:
            if self._outcome is not None:
                return
            self._outcome, self._answers_here = outcome, _elsewhere  # else a ticket would hold its engine
            self._changed.notify_all()
            watchers = tuple(self._watchers)
        _tell(watchers)

    def cancel(self) -> None:
        """Has whoever answers stop before the next step; takes no lock."""
        if not self.cancelled and self._outcome is None:
            self.cancelled = True
            self._dropped(self)

    def event(self, at: int) -> Event | None:
        """The event of this number, from 0; None where there is none yet, or no more."""
        return self._events[at] if at < len(self._events) else None

    def wait(self, at: int | None = None, timeout: float | None = None) -> bool:
        """Waits until it has ended, or until there is the event of this number; says whether that came.

        Raises:
            DeadlockError: it is not there, and only this thread could bring it.
        """
        if not self.has(at) and self._answers_here():
            raise DeadlockError(
                "An answer is waited for on the thread that computes it, so it would never come. Wait on "
                "another thread, and let what when_done calls return."
            )
        with self._changed:
            return self._changed.wait_for(lambda: self.has(at), timeout)

    def has(self, at: int | None = None) -> bool:
        """Whether it has ended, or the event of this number is there."""
        return self._outcome is not None or (at is not None and at < len(self._events))

    @contextlib.contextmanager
    def watched(self, call: Callable[[], None]) -> Iterator[None]:
        """Has a function called after every change, on the thread that makes it."""
        with self._changed:
            self._watchers.append(call)
        try:
            yield
        finally:
            with self._changed:
                self._watchers.remove(call)

    def when_done(self, call: Callable[[], None]) -> None:
        """Has a function called once, when it has ended: at once where it has."""
        told = threading.Lock()

        def look() -> None:
            if self._outcome is not None and told.acquire(blocking=False):
                call()

        with self._changed:
            self._watchers.append(look)
        _tell((look,))


class Ticket:
    """The caller's side of a prompt that was submitted. Dropping it cancels the prompt.

    Made by `Engine.submit`. In asyncio `await ticket` gives the answer and `async for event in ticket` its
    events; where the task that awaits it is cancelled, so is the prompt.

    Args:
        reply: what whoever answers says.
    """

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    @property
    def side(self) -> Side:
        """The side that is answered."""
        return self._reply.side

    @property
    def done(self) -> bool:
        """Whether it has ended, in one way or another."""
        return self._reply.outcome is not None

    def events(self) -> Iterator[Event]:
        """The events from the first on, each as soon as it is there; may be asked for again, on any thread.

        Yields:
            Events, Finished at last.

        Raises:
            CancelledError: it was cancelled.
            ClosedError: the engine was closed.
            DeadlockError: as for `result`.
            Exception: what else ended it.
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
        """Waits for the answer.

        Args:
            timeout: the most seconds to wait; None for as long as it takes.

        Raises:
            CancelledError: it was cancelled.
            ClosedError: the engine was closed.
            DeadlockError: it has not ended, and this is the thread that answers it, as in `when_done`.
            TimeoutError: it has not ended by then, and goes on.
            Exception: what else ended it.
        """
        if not self._reply.wait(timeout=timeout):
            raise TimeoutError(f"There is no answer after {timeout} s; the prompt is still being answered.")
        outcome = self._reply.outcome
        if isinstance(outcome, Exception):
            raise outcome
        assert outcome is not None
        return outcome

    def cancel(self) -> None:
        """Stops it before its next step; its readers get CancelledError. Once it has ended, does nothing."""
        self._reply.cancel()

    def when_done(self, call: Callable[[], None]) -> None:
        """Has a function called when it has ended, at once where it has.

        Args:
            call: called on the thread that answers, so it must be quick, and waits for no other answer.
        """
        self._reply.when_done(call)

    def __await__(self) -> Generator[None, None, Answer]:
        """Gives the answer."""
        return self._awaited().__await__()

    def peek(self, at: int) -> Event | None:
        """Gives the event of this number, from 0, where it is there already."""
        return self._reply.event(at)

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Gives the events like `events`."""
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
        """Nobody can read it any more. Takes no lock, as any may be held while garbage is collected."""
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
        """Has the loop that runs told of every change."""
        news = _News()
        with self._reply.watched(news.tell):
            yield news

    async def _until(self, at: int | None, news: _News) -> None:
        """Waits for the event of this number, or for the end."""
        try:
            while not self._reply.has(at):
                await news.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise


class _News:
    """That something has changed, told from any thread to a task of this loop; several at once are one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_its_way = threading.Lock()
        self._some = False
        self._waiting: asyncio.Future[None] | None = None

    def tell(self) -> None:
        """Tells it, on any thread."""
        if self._on_its_way.acquire(blocking=False):
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits there any more
                self._loop.call_soon_threadsafe(self._come)

    def _come(self) -> None:
        self._on_its_way.release()  # first: what changes from now on is told anew
        self._some = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self) -> None:
        """Waits for news since the last time."""
        if not self._some:
            self._waiting = self._loop.create_future()
            await self._waiting
        self._some = False


def cancelled() -> CancelledError:
    """What ends a prompt that nobody wants any more."""
    return CancelledError("The prompt was cancelled before its answer was complete. Submit it again.")


def _tell(watchers: tuple[Callable[[], None], ...]) -> None:
    for call in watchers:
        try:
            call()
        except (Exception, SystemExit, asyncio.CancelledError):  # it must end nobody else's answer
            log.exception("what was to be told of an answer failed")
