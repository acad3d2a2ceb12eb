"""A prompt as it is handed to whoever answers it: planned for one side, with its settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from engine.base.errors import CancelledError, SettingsError
from engine.base.events import Answer, Event, Finished, Listener, ReuseTaken, Side
from engine.base.stopwatch import Stopwatch
from engine.batch.ticket import Ticket
from engine.cache.segment_cache import SegmentCache
from engine.inference.generate import answering
from engine.inference.run_settings import RunSettings
from engine.inference.step_lock import Computing
from engine.model.interruption import InterruptedPassError
from engine.model.network import Network
from engine.prompt.tokenized import Planned, TokenizedPrompt

UNMARKED = (
    "Nothing was written for the marks: this prompt was answered without the tree of what prompts have "
    "computed. Marks hold for the cached side of an engine that is not deterministic, without repair."
)
NO_ROOM = "Not all that is marked is written"
FAILED = "Not all that is marked could be written; the log says why."
STOPPED = "The work was stopped before it was complete."
Told = TypeVar("Told")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Mark:
    """A prefix of a conversation that is to be on disk.

    Attributes:
        position: where it ends: at the border of a block.
        seconds: how long it is kept there at least; None for as long as anything else.
    """

    position: int
    seconds: float | None = None


@dataclass(frozen=True)
class Submission:
    """One side of a prompt, to be answered.

    Attributes:
        prompt: the prompt.
        planned: its plan for this side; faults of the prompt were told when it was made.
        settings: how to run it.
        side: the side.
        parse_ms: what reading its text took, in milliseconds, which counts in its time to first token.
        marks: what of it is to be on disk.
        warm: whether the prompt is computed only, for those to come, and nothing is answered.
        taken: the remedy that was chosen for it under a promise.
        ended: told of its answer; must be quick and never fails.
    """

    prompt: TokenizedPrompt
    planned: Planned
    settings: RunSettings
    side: Side
    parse_ms: float
    marks: tuple[Mark, ...] = ()
    warm: bool = False
    taken: ReuseTaken | None = None
    ended: Callable[[Answer], None] = field(default=lambda _: None, compare=False)

    @property
    def marked(self) -> int:
        """The position up to which it is to be on disk."""
        return max((mark.position for mark in self.marks), default=0)

    def marked_at(self, marks: Sequence[Mark], *, warm: bool = False) -> Submission:
        """Returns it with marks.

        Args:
            marks: what of it is to be on disk.
            warm: whether the prompt is computed only.

        Raises:
            SettingsError: a mark ends at no border, or its time is no number above 0.
        """
        borders = self.planned.plan.borders
        for mark in marks:
            if not isinstance(mark, Mark):
                raise SettingsError(f"marks hold {mark!r}; each must be a Mark(position, seconds).")
            if mark.position not in borders:
                ends = ", ".join(map(str, borders)) or "none, as only conversations have them"
                raise SettingsError(
                    f"A mark ends at position {mark.position}, where no block ends. The borders of this "
                    f"prompt are {ends}: ask for them with borders()."
                )
            if mark.seconds is not None and not 0 < mark.seconds < float("inf"):
                raise SettingsError(
                    f"A mark is kept for {mark.seconds!r} seconds; it must be a number above 0, or None."
                )
        return replace(self, marks=tuple(marks), warm=warm)

    def steps(
        self, cache: SegmentCache, computing: Computing, listener: Listener | None = None
    ) -> Generator[Event, None, Answer]:
        """Answers it by itself, each step in its turn among those of other answers. Closing it stops it.

        Yields:
            Events of the side, Finished at last.

        Raises:
            ClosedError: the engine was closed.
            CancelledError: the listener wants no more of it.
        """
        clock = Stopwatch()
        clock.parts["parse"] = self.parse_ms
        work = answering(
            cache,
            self.prompt,
            self.planned,
            self.settings,
            clock,
            side=self.side,
            taken=self.taken,
            warm=self.warm,
            notes=(UNMARKED,) if self.marked else (),
        )
        if listener is not None:
            work = while_wanted(work, cache.model.network, listener)
        with contextlib.closing(computing.steps(work, self.side, clock, listener)) as steps:
            while True:
                event = next(steps)
                yield event
                if isinstance(event, Finished):  # its last turn brings nothing and may be long in coming
                    self.ended(event.answer)
                    return event.answer


def while_wanted(
    work: Generator[Told, None, Made], network: Network, listener: Listener
) -> Generator[Told, None, Made]:
    """Runs a generator to its end, step by step, and no further than it is wanted.

    Raises:
        CancelledError: the listener wants no more of it.
    """
    with contextlib.closing(work):
        while True:
            if listener.stopped():
                raise CancelledError(STOPPED)
            try:
                with network.interruptible(listener.stopped):
                    event = next(work)
            except StopIteration as end:
                made: Made = end.value
                return made
            except InterruptedPassError:
                raise CancelledError(STOPPED) from None
            yield event


class Answerer(Protocol):
    """Who answers what is submitted: one prompt after the other, or many at once.

    Attributes:
        appetite: how many prompts it takes to keep it busy; more are welcome and wait.
        alone: why it answers one prompt after the other, in words; empty where it does not.
    """

    appetite: int
    alone: str

    def submit(self, submission: Submission) -> Ticket:
        """Takes a prompt in, from any thread, and returns at once.

        Raises:
            ClosedError: the engine was closed.
        """

    def close(self) -> None:
        """Ends what is under way or waits, each with ClosedError; returns when nothing runs any more."""
