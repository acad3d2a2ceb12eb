"""Figures over prompts: means with intervals, and comparisons in pairs.

They work on samples, one object per prompt, from the JSON of `python -m benchmarks quality`.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from engine.base.errors import PromptCacheError

Sample = dict[str, Any]
DRAWS = 2000
SEED = 0
_CHOICE = {None: "", True: "weights chosen on these", False: "the others"}
GROUPS: dict[str, Callable[[Sample], str]] = {
    "by_documents": lambda sample: str(sample["documents"] or ""),
    "by_kind": lambda sample: str(sample["kind"]),
    "by_position": lambda sample: third(sample["position"]),
    "by_choice": lambda sample: _CHOICE[sample["chosen_on"]],
}


def figures(samples: Sequence[Sample], plain: Sequence[Sample]) -> dict[str, Any]:
    """Sums samples up.

    Scores have an interval, and `paired` compares them with the uncached side. KL is in nats per token.
    `flipped` is the share of prompts with another likeliest token. `computed_share` includes the choice of a
    repair. `repaired_share` is of cached tokens, and None on the uncached side.
    """
    counts = [sample["answer_tokens"] for sample in samples]
    apart = [sample["kl_answer"] * sample["answer_tokens"] for sample in samples]
    low, high = interval(apart, counts)
    repaired = [s["repaired_share"] for s in samples if s["repaired_share"] is not None]
    found: dict[str, Any] = {"prompts": len(samples)}
    scores = [sample["score"] for sample in samples]
    if None not in scores:
        found["score"] = statistics.fmean(scores)
        found["score_low"], found["score_high"] = interval(scores)
        found["paired"] = paired(scores, [sample["score"] for sample in plain])

    def mean(name: str) -> float:
        return statistics.fmean(sample[name] for sample in samples)

    return found | {
        "kl_answer": sum(apart) / sum(counts),
        "kl_low": low,
        "kl_high": high,
        "kl_worst": max(sample["kl_worst"] for sample in samples),
        "answer_agreement": 1 - sum(sample["flips"] for sample in samples) / sum(counts),
        "flipped": statistics.fmean(sample["flips"] > 0 for sample in samples),
        "same_answer": mean("same_answer"),
        "first_token_agreement": mean("first_token_agrees"),
        "kl_first_token": mean("kl_first_token"),
        "ttft_ms": statistics.median(sample["ttft_ms"] for sample in samples),
        "computed_share": mean("computed_share"),
        "repaired_share": statistics.fmean(repaired) if repaired else None,
    }


def grouped(samples: Sequence[Sample], plain: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    """The figures by properties of the prompts. Prompts without the property are left out."""
    found: dict[str, dict[str, Any]] = {}
    for group, key_of in GROUPS.items():
        keys = [key_of(sample) for sample in samples]
        order = sorted({k for k in keys if k}, key=lambda k: (int(k) if k.isdigit() else 0, keys.index(k)))
        found[group] = {
            key: figures(
                [one for one, k in zip(samples, keys, strict=True) if k == key],
                [one for one, k in zip(plain, keys, strict=True) if k == key],
            )
            for key in order
        }
    return found


def pooled(reports: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every way to answer over the prompts of several reports: `name` and its figures."""
    names = [result["name"] for result in reports[0]["results"]]
    samples = {
        name: [s for report in reports for r in report["results"] if r["name"] == name for s in r["samples"]]
        for name in names
    }
    return [{"name": name, **figures(samples[name], samples[names[0]])} for name in names]


def third(position: float | None) -> str:
    """The third of the modules with the answer, or ""."""
    return "" if position is None else ("first", "middle", "last")[min(2, int(position * 3))]


def paired(side: Sequence[float], other: Sequence[float], seed: int = SEED) -> dict[str, Any]:
    """Compares the scores of two sides prompt by prompt.

    Differences and ratios have the ends of their 95% interval, `_low` and `_high`. `p` is of the sign test.
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
    return {
        "prompts": count,
        "wins": wins,
        "losses": losses,
        "ties": count - wins - losses,
        "difference": 100 * (statistics.fmean(side) - statistics.fmean(other)),
        "difference_low": low,
        "difference_high": high,
        "ratio": ratio,
        "ratio_low": ratio_low,
        "ratio_high": ratio_high,
        "p": sign_test(wins, losses),
    }


def sign_test(wins: int, losses: int) -> float:
    """The exact two-sided p of these wins and losses, if both are equally likely."""
    trials = wins + losses
    tail = sum(math.comb(trials, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2**trials)


def interval(
    sums: Sequence[float], counts: Sequence[float] | None = None, seed: int = SEED
) -> tuple[float, float]:
    """The 95% interval of sum ÷ count over all prompts, by bootstrap; counts are 1 by default."""
    draw, found, many = random.Random(seed), [], len(sums)
    for _ in range(DRAWS):
        which = draw.choices(range(many), k=many)
        found.append(sum(sums[i] for i in which) / (sum(counts[i] for i in which) if counts else many))
    return _middle(found)


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """The middle 95% of values."""
    ordered = sorted(values)
    return ordered[int(0.025 * len(ordered))], ordered[max(0, int(0.975 * len(ordered)) - 1)]
