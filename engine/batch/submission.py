"""A prompt as it is handed to whoever answers it: planned for one side, with its settings."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from engine.batch.ticket import Ticket
from engine.cache.segment_cache import SegmentCache
from engine.errors import CancelledError
from engine.events import Answer, Event, Finished, Listener, Side
from engine.inference.answering import answering
from engine.inference.computing import Computing
from engine.inference.params import RunSettings
from engine.model.interruption import InterruptedPassError
from engine.model.network import Network
from engine.prompt.tokenized import Planned, TokenizedPrompt
from engine.stopwatch import Stopwatch


@dataclass(frozen=True)
class Submission:
    """One side of a prompt, to be answered.

    Attributes:
        prompt: the prompt.
        planned: its plan for this side; faults of the prompt were told when it was made.
        settings: how to run it.
        side: the side.
        parse_ms: what reading its text took, in milliseconds, which counts in its time to first token.
    """

    prompt: TokenizedPrompt
    planned: Planned
    settings: RunSettings
    side: Side
    parse_ms: float

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
        work = answering(cache, self.prompt, self.planned, self.settings, clock)
        if listener is not None:
            work = _while_wanted(work, cache.model.network, listener)
        with contextlib.closing(computing.steps(work, self.side, clock, listener)) as steps:
            while True:
                event = next(steps)
                yield event
                if isinstance(event, Finished):  # its last turn brings nothing and may be long in coming
                    return event.answer


def _while_wanted(
    work: Generator[Event, None, Answer], network: Network, listener: Listener
) -> Generator[Event, None, Answer]:
    """Runs a generator to its end, step by step, and no further than it is wanted."""
    with contextlib.closing(work):
        while True:
            try:
                with network.interruptible(listener.stopped):
                    event = next(work)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            except InterruptedPassError:
                raise CancelledError("The answer was stopped before it was complete.") from None
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
