"""Times of several ways to do a thing, which take turns in orders that favour none, each warmed up by itself.

The orders are a Williams design over the ways in a drawn sequence: in as many rounds as there are ways (twice
as many where their number is odd) each stands at every place, and follows every other, equally often.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Way:
    """One way to do it.

    Attributes:
        name: in the results.
        run: does it once and returns how long it took, in milliseconds.
        prepare: is called before each run.
    """

    name: str
    run: Callable[[], float]
    prepare: Callable[[], None] = _nothing


def orders(count: int, rounds: int, seed: int) -> list[list[int]]:
    """Returns the order of the ways in each round.

    Args:
        count: ways.
        rounds: how many orders.
        seed: the seed of the sequence that the design begins with.
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


def timed(ways: Sequence[Way], rounds: int, seed: int, say: Callable[[str], None]) -> dict[str, list[float]]:
    """Runs every way once in every round, each time after a run of the same way that does not count.

    Args:
        ways: with different names.
        rounds: samples of each.
        seed: the seed of the orders.
        say: is told of each round.

    Returns:
        Milliseconds by name, in the order of the rounds.
    """
    samples: dict[str, list[float]] = {way.name: [] for way in ways}
    for number, order in enumerate(orders(len(ways), rounds, seed), 1):
        for index in order:
            way = ways[index]
            way.prepare()
            way.run()
            way.prepare()
            samples[way.name].append(way.run())
        say(f"round {number} of {rounds}")
    return samples


def ratio(samples: dict[str, list[float]], over: str, under: str) -> dict[str, Any]:
    """One time by another: of the medians, and the least and the greatest of one round."""
    each = [one / other for one, other in zip(samples[over], samples[under], strict=True)]
    whole = statistics.median(samples[over]) / statistics.median(samples[under])
    return {"ratio": whole, "low": min(each), "high": max(each)}
