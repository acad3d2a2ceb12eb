"""Times several ways to do a thing. The ways take turns in orders that favour none.

The orders are a Williams design over the ways in a random sequence. In as many rounds as there are ways
(twice as many for an odd number), each way has every place and follows every other way equally often.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Samples = dict[str, list[float | None]]
"""Milliseconds by way and round; None for a round without the way."""
SECONDS_MS = 2_000.0  # a way that takes longer is warmed up once, and is in some of the rounds
LONG_MS = 20_000.0  # a way that takes longer is in few rounds, and its first run counts


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Way:
    """One way to do it.

    Attributes:
        name: in the results.
        run: does it once and returns milliseconds.
        prepare: is called before each run.
    """

    name: str
    run: Callable[[], float]
    prepare: Callable[[], object] = _nothing

    def sample(self) -> float:
        """Prepares and runs once."""
        self.prepare()
        return self.run()


def orders(count: int, rounds: int, seed: int) -> list[list[int]]:
    """Returns the order of the ways in each round.

    Args:
        count: number of ways.
        rounds: number of orders.
        seed: of the sequence that the design begins with.
    """
    if not count:
        return [[] for _ in range(rounds)]
    first = list(range(count))
    random.Random(seed).shuffle(first)
    zigzag = [(place + 1) // 2 if place % 2 else -place // 2 for place in range(count)]
    rows = [[first[(step + shift) % count] for step in zigzag] for shift in range(count)]
    if count % 2:
        rows = [row for pair in zip(rows, (row[::-1] for row in rows), strict=True) for row in pair]
    return [rows[number % len(rows)] for number in range(rounds)]


def in_turns(
    ways: Sequence[Way],
    rounds: int,
    seed: int,
    say: Callable[[str], None] = _nothing,
    *,
    fewer: tuple[int, int] | None = None,
    failed: Callable[[Way, Exception], None] | None = None,
) -> Samples:
    """Runs every way once in every round, each time after an uncounted run of the same way.

    Args:
        ways: with different names.
        rounds: samples of each.
        seed: of the orders.
        say: reports each round.
        fewer: rounds of ways whose first run takes `SECONDS_MS` and `LONG_MS`; None for all rounds.
        failed: is called if a way fails, and may raise; afterwards the way has no samples.
    """
    samples: Samples = {way.name: [] for way in ways}
    took: dict[str, float] = {}  # by the first run of a way
    within: dict[str, frozenset[int]] = {}  # the rounds of a way; empty after a failure
    for number, order in enumerate(orders(len(ways), rounds, seed)):
        for way in (ways[index] for index in order):
            taken = samples[way.name]
            if number not in within.get(way.name, {number}):
                taken.append(None)
                continue
            try:
                if way.name not in within:
                    took[way.name] = first = way.sample()
                    within[way.name] = _rounds_of(first, rounds, fewer or (rounds, rounds))
                    taken.append(first if fewer and first >= LONG_MS else way.sample())
                    continue
                if not fewer or took[way.name] < SECONDS_MS:
                    way.sample()
                taken.append(way.sample())
            except Exception as error:
                if failed is None:
                    raise
                failed(way, error)
                within[way.name] = frozenset()
                samples[way.name] = [None] * (number + 1)  # half a set of samples is none
        say(f"round {number + 1} of {rounds}")
    return {name: taken for name, taken in samples.items() if known(taken)}


def timed(
    ways: Sequence[Way], rounds: int, seed: int, say: Callable[[str], None] = _nothing
) -> dict[str, list[float]]:
    """Returns milliseconds by name, in the order of the rounds: `in_turns` with every way in every round."""
    return {name: known(taken) for name, taken in in_turns(ways, rounds, seed, say).items()}


def known(samples: Sequence[float | None]) -> list[float]:
    """The samples of the rounds with the way."""
    return [sample for sample in samples if sample is not None]


def ratio(samples: Mapping[str, Sequence[float | None]], over: str, under: str) -> dict[str, Any] | None:
    """One time by another: of the medians, with the lowest and highest of a round with both.

    Without a common round, the lowest and highest are of any two samples. None if one way has no samples.
    """
    upper, lower = known(samples.get(over, ())), known(samples.get(under, ()))
    if not upper or not lower:
        return None
    pairs = zip(samples[over], samples[under], strict=False)
    each = [one / other for one, other in pairs if one is not None and other is not None]
    each = each or [min(upper) / max(lower), max(upper) / min(lower)]
    whole = statistics.median(upper) / statistics.median(lower)
    return {"ratio": whole, "low": min(whole, *each), "high": max(whole, *each)}


def _rounds_of(first_ms: float, rounds: int, fewer: tuple[int, int]) -> frozenset[int]:
    """The rounds of a way by its first run, as far apart as possible."""
    many = fewer[1] if first_ms >= LONG_MS else fewer[0] if first_ms >= SECONDS_MS else rounds
    many = min(many, rounds)
    return frozenset(round(number * (rounds - 1) / max(many - 1, 1)) for number in range(many))
