"""Two ways of answering the same prompts, compared prompt by prompt.

What both do alike cancels out, so a difference shows that intervals of the two means would hide.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.base.errors import PromptCacheError

DRAWS = 2000
SEED = 0


@dataclass(frozen=True)
class Paired:
    """Scores of one side beside those of the other on the same prompts.

    Attributes:
        prompts: how many both answered.
        wins: prompts on which the side scores higher than the other.
        losses: how many are scored lower.
        ties: how many are scored the same.
        difference: the difference of the mean scores, in points (hundredths).
        difference_low: lower end of its 95% interval, by bootstrap over the prompts.
        difference_high: upper end of that interval.
        ratio: the ratio of the mean scores; None where the other side scores nothing.
        ratio_low: lower end of its 95% interval, by the same draws; None where there is no ratio.
        ratio_high: upper end of that interval; None where there is no ratio.
        p: of the exact two-sided sign test over wins and losses (McNemar's, where scores are 0 or 1).
    """

    prompts: int
    wins: int
    losses: int
    ties: int
    difference: float
    difference_low: float
    difference_high: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p: float

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return asdict(self)


def paired(side: Sequence[float], other: Sequence[float], seed: int = SEED) -> Paired:
    """Compares the scores of two sides, prompt by prompt.

    Args:
        side: one score per prompt, 0 to 1; at least one.
        other: the scores of the other side, of the same prompts in the same order.
        seed: the seed of the draws.

    Raises:
        PromptCacheError: the sides have not the same prompts, or none.
    """
    if len(side) != len(other) or not side:
        raise PromptCacheError(
            f"{len(side)} scores cannot be paired with {len(other)}; each prompt needs both."
        )
    count = len(side)
    wins = sum(a > b for a, b in zip(side, other, strict=True))
    losses = sum(a < b for a, b in zip(side, other, strict=True))
    draw, apart, ratios = random.Random(seed), [], []
    for _ in range(DRAWS):
        which = draw.choices(range(count), k=count)
        one, two = sum(side[i] for i in which), sum(other[i] for i in which)
        apart.append(100 * (one - two) / count)
        if two:
            ratios.append(one / two)
    low, high = _middle(apart)
    ratio = statistics.fmean(side) / statistics.fmean(other) if any(other) else None
    ratio_low, ratio_high = _middle(ratios) if ratio is not None else (None, None)
    difference = 100 * (statistics.fmean(side) - statistics.fmean(other))
    ties = count - wins - losses
    p = sign_test(wins, losses)
    return Paired(count, wins, losses, ties, difference, low, high, ratio, ratio_low, ratio_high, p)


def sign_test(wins: int, losses: int) -> float:
    """The exact two-sided p of so uneven wins and losses, were either as likely."""
    trials = wins + losses
    tail = sum(math.comb(trials, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2**trials)


def interval(values: Sequence[float], seed: int = SEED) -> tuple[float, float]:
    """The 95% interval of a mean, by bootstrap."""
    draw = random.Random(seed)
    return _middle([statistics.fmean(draw.choices(values, k=len(values))) for _ in range(DRAWS)])


def mean_interval(sums: Sequence[float], counts: Sequence[float], seed: int = SEED) -> tuple[float, float]:
    """The 95% interval of sum ÷ count over all prompts, by bootstrap over the prompts."""
    draw, found = random.Random(seed), []
    for _ in range(DRAWS):
        which = draw.choices(range(len(sums)), k=len(sums))
        found.append(sum(sums[i] for i in which) / sum(counts[i] for i in which))
    return _middle(found)


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """The middle 95% of drawn values."""
    ordered = sorted(values)
    return ordered[int(0.025 * len(ordered))], ordered[max(0, int(0.975 * len(ordered)) - 1)]
