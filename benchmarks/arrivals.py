"""Prompts that arrive by themselves: the time of a token by how many of them arrive in a second.

The same arrivals are answered one prompt after the other, many at once that share nothing, many at once that
share half of their modules, and many at once over the same modules; the latter two with the modules in one
order in all prompts, and in another in each.
The time of a token is that from when a prompt was due until its answer is whole, by the answer's tokens, so
that waiting counts. Who reads modules of its own shares them with a later prompt where more are under way
than there are such modules for.
The arrivals at a rate are one draw, and what a system keeps up with lies between two of few rates.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from queue import SimpleQueue
from typing import Any

from benchmarks.crowd import Crowd
from benchmarks.turns import orders
from engine.batch.ticket import Ticket

KINDS = ("one_by_one", "private", "half", "half_reordered", "batch", "batch_reordered")
RATES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # arrivals in the time that one answer takes by itself
FIRST = {
    "one_by_one": 1.0,
    "private": 1.0,
}  # rate that a kind is asked for first; lower ones if that is too high
_FIRST = 2.0  # of the others
COUNT = 64  # prompts that arrive at each rate
KEPT = 2.0  # times as long as by itself that a token may take for a system to keep up
_ALONE = 3  # prompts by themselves


def by_rate(
    crowd: Crowd,
    seed: int,
    say: Callable[[str], None],
    *,
    rates: Sequence[float] = RATES,
    count: int = COUNT,
) -> dict[str, Any]:
    """Times tokens of all systems, which take turns at every rate.

    Args:
        crowd: the prompts, some of which have modules of their own.
        seed: the seed of the arrivals, which are the same for all systems, and of the turns.
        say: is told what goes on.
        rates: how many prompts arrive in the time of one answer, ascending.
        count: how many arrive at each rate.

    Returns:
        `alone_ms` (of a token, one by one, of a prompt that meets no other), `per_second` (the rates, in
        prompts), `ms_per_token` (by kind, the mean at each rate; None at the rates above the first that is
        too high, and at low ones of a kind that keeps up with a higher one), `keeps_up` (by kind, the highest
        rate up to which a token takes at most `KEPT` times as long, on a straight line between those
        measured; 0 where there is none, and the greatest of the rates where it may be higher still),
        `between` (by kind, the two rates measured that it lies between: 0 for the first where there is none,
        None for the other where it may be higher still).
    """
    for kind in KINDS:
        say(f"arrivals: {kind}")
        arriving(crowd, kind, [0.0])
    alone = statistics.median(arriving(crowd, "one_by_one", [0.0]) for _ in range(_ALONE))
    per_second = [rate * 1000 / (alone * crowd.size.new) for rate in rates]
    found: dict[str, list[float | None]] = {kind: [None] * len(rates) for kind in KINDS}
    bound = KEPT * alone

    def asked(place: int, kinds: Sequence[str]) -> None:
        """Takes turns at a rate, in an order of its own."""
        times = due(per_second[place], count, seed + place)
        (order,) = orders(len(kinds), 1, seed + place)
        for kind in (kinds[number] for number in order):
            say(f"arrivals: {per_second[place]:.3g} a second, {kind}")
            found[kind][place] = arriving(crowd, kind, times)

    places = range(len(rates))
    for place in places:
        begun = [kind for kind in KINDS if place >= first(kind, rates)]
        asked(place, [kind for kind in begun if all(ms is None or ms <= bound for ms in found[kind])])
    for place in reversed(places):
        late = [kind for kind in KINDS if all(ms is None or ms > bound for ms in found[kind])]
        asked(place, [kind for kind in late if found[kind][place] is None and place < first(kind, rates)])
    return {
        "alone_ms": alone,
        "per_second": per_second,
        "ms_per_token": found,
        "keeps_up": {kind: kept(per_second, took, bound) for kind, took in found.items()},
        "between": {kind: between(per_second, took, bound) for kind, took in found.items()},
    }


def first(kind: str, rates: Sequence[float]) -> int:
    """The place among the rates at which a kind is asked first."""
    wanted = FIRST.get(kind, _FIRST)
    return next((place for place, rate in enumerate(rates) if rate >= wanted), len(rates) - 1)


def due(rate: float, count: int, seed: int) -> list[float]:
    """When prompts arrive, in seconds since the first of them (a Poisson process).

    Args:
        rate: how many arrive in a second, in the mean.
        count: how many arrive.
        seed: the seed of the draw.
    """
    draw = random.Random(seed)
    return list(accumulate((draw.expovariate(rate) for _ in range(count - 1)), initial=0.0))


def arriving(crowd: Crowd, kind: str, times: Sequence[float]) -> float:
    """Milliseconds of a token of prompts that arrive at these times, waiting included; the mean."""
    prompts, tickets = crowd.prompts(kind, len(times)), list[Ticket]()
    ended: SimpleQueue[tuple[int, float]] = SimpleQueue()
    began = time.perf_counter()
    for number, (prompt, after) in enumerate(zip(prompts, times, strict=True)):
        time.sleep(max(0.0, began + after - time.perf_counter()))
        tickets.append(crowd.submit(kind, prompt, crowd.size.new))
        tickets[-1].when_done(partial(_note, ended, number))
    waits = [at - began - times[number] for number, at in (ended.get() for _ in tickets)]
    for ticket in tickets:
        crowd.require_whole(kind, ticket.result())
    return statistics.fmean(waits) * 1000 / crowd.size.new


def _note(ended: SimpleQueue[tuple[int, float]], number: int) -> None:
    ended.put((number, time.perf_counter()))


def between(
    rates: Sequence[float], times: Sequence[float | None], bound: float
) -> tuple[float, float | None]:
    """The highest rate measured up to which no time is over the bound, or 0, and the next one, if any."""
    low = 0.0
    for rate, ms in zip(rates, times, strict=True):
        if ms is not None and ms > bound:
            return low, rate
        low = low if ms is None else rate
    return low, None


def kept(rates: Sequence[float], times: Sequence[float | None], bound: float) -> float:
    """The highest rate up to which no time is over the bound, on a straight line between two measured."""
    low, high = between(rates, times, bound)
    if not low or high is None:
        return low
    took = dict(zip(rates, times, strict=True))
    before, after = took[low], took[high]
    assert before is not None
    assert after is not None
    return low + (high - low) * (bound - before) / (after - before)
