"""Answers a series of prompts, a few at a time, and yields the answers in order or as they end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from engine.base.events import SIDES, Answer, Comparison, Side
from engine.batch.ticket import Ticket
from engine.fidelity.comparison import compare

P = TypeVar("P")
_LOOK_SECONDS = 0.1  # between two checks whether to stop


@dataclass(frozen=True)
class BothAnswers:
    """Both answers to one prompt, with their comparison."""

    cached: Answer
    uncached: Answer
    comparison: Comparison

    def to_json(self) -> dict[str, Any]:
        """Returns an answer of both sides as `pml run --json` prints it."""
        sides = {"cached": self.cached.to_json(), "uncached": self.uncached.to_json()}
        return {**sides, **self.comparison.to_json()}


Outcome = Answer | BothAnswers | Exception


def answered(
    prompts: Iterable[P | Exception],
    submit: Callable[[P], Sequence[Ticket]],
    *,
    ahead: int,
    as_they_end: bool,
    stopped: Callable[[], bool] | None = None,
) -> Generator[tuple[int, Outcome], None, None]:
    """Answers prompts, and yields each one's number and outcome.

    Closing the generator cancels unfinished prompts. It takes prompts one by one, as there is room.

    Args:
        prompts: the prompts; an error instead of a prompt is returned in its turn.
        submit: submits one side of a prompt, or the cached and the uncached one; an exception is that
            prompt's outcome.
        ahead: the most prompts that are submitted and not yet returned.
        as_they_end: yield outcomes as they end; else in the order of the prompts.
        stopped: checked during answers; True ends the series.

    Yields:
        The number of a prompt, from 0, and its answer or error.
    """
    source = enumerate(prompts)
    rows: dict[int, Sequence[Ticket] | Exception] = {}  # in order, not yet returned
    left: dict[int, int] = {}  # unfinished tickets of each
    ended: SimpleQueue[int] = SimpleQueue()
    try:
        while True:
            while len(rows) < ahead and (item := next(source, None)) is not None:
                number, prompt = item
                rows[number] = tickets = _submitted(prompt, submit)
                left[number] = 0 if isinstance(tickets, Exception) else len(tickets)
                if not isinstance(tickets, Exception):
                    for ticket in tickets:
                        ticket.when_done(lambda number=number: ended.put(number))  # type: ignore[misc]
            if not rows:
                return
            while (ready := _ready(rows, left, as_they_end)) is None:
                ended_number = _next_end(ended, stopped)
                if ended_number is None:
                    return
                left[ended_number] -= 1
            outcome = _outcome(rows[ready])
            del rows[ready], left[ready]
            yield ready, outcome
    finally:
        for tickets in rows.values():
            for ticket in tickets if not isinstance(tickets, Exception) else ():
                ticket.cancel()


def answered_apart(
    prompts: Iterable[P | Exception],
    submit: Callable[[P, Side], Ticket],
    orders: Sequence[Sequence[Side]],
    *,
    stopped: Callable[[], bool] | None = None,
) -> Generator[tuple[int, Outcome], None, None]:
    """Answers prompts, one side of one prompt at a time, so that their times can be compared.

    Args:
        prompts: the prompts; an error instead of a prompt is returned in its turn.
        submit: submits one side of a prompt; an exception is that prompt's outcome.
        orders: the sides in order of execution, for each prompt in turn.
        stopped: checked during answers; True ends the series.

    Yields:
        The number of a prompt, from 0, and its answer or error.
    """
    for number, prompt in enumerate(prompts):
        order = orders[number % len(orders)]
        sides = [prompt] if isinstance(prompt, Exception) else [(prompt, side) for side in order]
        series = answered(sides, lambda one: [submit(*one)], ahead=1, as_they_end=False, stopped=stopped)
        outcomes = [outcome for _, outcome in series]
        if len(outcomes) < len(sides):
            return
        yield number, _joined(outcomes if order[0] == SIDES[0] else outcomes[::-1])


def _next_end(ended: SimpleQueue[int], stopped: Callable[[], bool] | None) -> int | None:
    """The number of the next prompt with an ended side; None if stopped."""
    while True:
        if stopped is not None and stopped():
            return None
        try:
            return ended.get(timeout=None if stopped is None else _LOOK_SECONDS)
        except Empty:
            continue


def _joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a prompt from those of its sides, cached first: an error, one answer, or both."""
    match outcomes:
        case [Answer() as cached, Answer() as uncached]:
            return BothAnswers(cached, uncached, compare(cached, uncached))
        case _:
            return next((one for one in outcomes if isinstance(one, Exception)), outcomes[0])


def _ready(rows: Iterable[int], left: Mapping[int, int], as_they_end: bool) -> int | None:
    """The number of a finished prompt: the first, or any."""
    candidates = list(rows) if as_they_end else list(rows)[:1]
    return next((number for number in candidates if not left[number]), None)


def _submitted(
    prompt: P | Exception, submit: Callable[[P], Sequence[Ticket]]
) -> Sequence[Ticket] | Exception:
    if isinstance(prompt, Exception):
        return prompt
    try:
        return submit(prompt)
    except Exception as error:  # the other prompts go on
        return error


def _outcome(tickets: Sequence[Ticket] | Exception) -> Outcome:
    try:
        return _joined([tickets] if isinstance(tickets, Exception) else [one.result() for one in tickets])
    except Exception as error:
        return error
