"""One side of a prompt, planned and with its settings, ready to be answered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from engine.base.errors import CancelledError, SettingsError
from engine.base.events import Answer, Event, Finished, Listener, ReuseTaken, Side
from engine.base.stopwatch import Stopwatch
from engine.cache.segment_cache import SegmentCache
from engine.inference.generate import answering
from engine.inference.run_settings import RunSettings
from engine.inference.step_lock import Computing
from engine.model.interruption import InterruptedPassError
from engine.model.network import Network
from engine.prompt.tokenized import Planned, TokenizedPrompt

UNMARKED = (
    "No marked prefix was written. Marks need the cached side of a non-deterministic engine, without repair."
)
NO_ROOM = "The marked prefix is not fully stored"
FAILED = "The marked prefix could not be fully stored; the log has the error."
STOPPED = "The work was stopped before it was complete."
Told = TypeVar("Told")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Mark:
    """A prefix of a conversation, up to a block's end, to store on disk for at least `seconds`."""

    position: int
    seconds: float | None = None


@dataclass(frozen=True)
class Submission:
    """One side of a prompt to answer.

    Attributes:
        prompt: the prompt.
        planned: its plan for this side; errors of the prompt were reported when it was made.
        settings: its settings.
        side: the side.
        parse_ms: milliseconds to read its text, which count in its time to first token.
        marks: the prefixes to store on disk.
        warm: compute the prompt only, for later prompts, without an answer.
        taken: the fix that reuse "auto" chose for it.
        ended: receives its answer; must be quick and never fail.
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
        """The position up to which it must be on disk."""
        return max((mark.position for mark in self.marks), default=0)

    def marked_at(self, marks: Sequence[Mark], *, warm: bool = False) -> Submission:
        """Returns it with marks; `warm` computes the prompt only.

        Raises:
            SettingsError: a mark is not at a boundary, or its time is not a number above 0.
        """
        borders = self.planned.plan.borders
        for mark in marks:
            if not isinstance(mark, Mark):
                raise SettingsError(f"marks contains {mark!r}; each item must be a Mark(position, seconds).")
            if mark.position not in borders:
                ends = ", ".join(map(str, borders)) or "none, since only conversations have them"
                raise SettingsError(
                    f"A mark is at position {mark.position}, which is not a block boundary. The boundaries "
                    f"of this prompt are {ends}; borders() returns them."
                )
            if mark.seconds is not None and not 0 < mark.seconds < float("inf"):
                raise SettingsError(
                    f"A mark has {mark.seconds!r} seconds; it must be a number above 0, or None."
                )
        return replace(self, marks=tuple(marks), warm=warm)

    def steps(
        self, cache: SegmentCache, computing: Computing, listener: Listener | None = None
    ) -> Generator[Event, None, Answer]:
        """Answers it by itself, in turns with the steps of other answers. Closing the generator stops it.

        Yields:
            Events of the side, Finished last.

        Raises:
            ClosedError: the engine was closed.
            CancelledError: the listener stopped it.
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
                if isinstance(event, Finished):  # its last turn brings nothing and may take long
                    self.ended(event.answer)
                    return event.answer


def while_wanted(
    work: Generator[Told, None, Made], network: Network, listener: Listener
) -> Generator[Told, None, Made]:
    """Runs a generator step by step until it ends or the listener stops it.

    Raises:
        CancelledError: the listener stopped it.
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
