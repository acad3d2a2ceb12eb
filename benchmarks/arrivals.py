"""Prompts that arrive by themselves: the time of a token by how many of them arrive in a second.

The same arrivals are answered one prompt after the other, many at once that share nothing, many at once that
share half of their modules, and many at once over the same modules; each with the modules in one order in all
prompts, and in another in each.
The time of a token is that from when a prompt was due until its answer is whole, by the answer's tokens, so
that waiting counts. Who reads modules of its own shares them with a later prompt where more are under way
than there are such modules for.
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

SYSTEMS = ("one_by_one", "private", "half", "batch")
KINDS = tuple(f"{system}{order}" for system in SYSTEMS for order in ("", "_reordered"))
RATES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # arrivals in the time that one answer takes by itself
COUNT = 32  # prompts that arrive at each rate
KEPT = 2.0  # times as long as by itself that a token may take for a system to keep up
LATE = 4.0  # from here on higher rates are not tried: they only take longer
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
        prompts), `ms_per_token` (by kind, the mean at each rate; None where a lower rate took `LATE` times as
        long as alone), `keeps_up` (by kind, the highest rate up to which a token takes at most `KEPT` times
        as long, on straight lines between the rates; 0 where there is none, and the greatest of the rates
        where it may be higher still).
    """
    for kind in KINDS:
        say(f"arrivals: {kind}")
        arriving(crowd, kind, [0.0])
    alone = statistics.median(arriving(crowd, "one_by_one", [0.0]) for _ in range(_ALONE))
    per_second = [rate * 1000 / (alone * crowd.size.new) for rate in rates]
    found: dict[str, list[float | None]] = {kind: [] for kind in KINDS}
    for number, order in enumerate(orders(len(KINDS), len(rates), seed)):
        times = due(per_second[number], count, seed + number)
        for kind in (KINDS[place] for place in order):
            say(f"arrivals: {per_second[number]:.3g} a second, {kind}")
            late = any(ms is None or ms > LATE * alone for ms in found[kind])
            found[kind].append(None if late else arriving(crowd, kind, times))
    return {
        "alone_ms": alone,
        "per_second": per_second,
        "ms_per_token": found,
        "keeps_up": {kind: kept(per_second, took, KEPT * alone) for kind, took in found.items()},
    }


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


def kept(rates: Sequence[float], times: Sequence[float | None], bound: float) -> float:
    """The highest rate up to which no time is over the bound, on straight lines between those measured."""
    kept, before = 0.0, 0.0
    for rate, ms in zip(rates, times, strict=True):
        if ms is None:
            break
        if ms > bound:
            return kept + (rate - kept) * (bound - before) / (ms - before) if kept else 0.0
        kept, before = rate, ms
    return kept
