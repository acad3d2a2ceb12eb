"""Figures over prompts: what single answers gave, as means with intervals and as comparisons in pairs.

Works on samples, one object per prompt, as the JSON of `pml bench quality` has them, so that a part of them
or several files together can be summed up again without answering anything.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.paired import interval, mean_interval, paired

Sample = dict[str, Any]
_CHOICE = {None: "", True: "weights chosen on these", False: "the others"}
GROUPS: dict[str, Callable[[Sample], str]] = {
    "by_documents": lambda sample: str(sample["documents"] or ""),
    "by_kind": lambda sample: str(sample["kind"]),
    "by_position": lambda sample: third(sample["position"]),
    "by_choice": lambda sample: _CHOICE[sample["chosen_on"]],
}


def figures(samples: Sequence[Sample], plain: Sequence[Sample]) -> dict[str, Any]:
    """Sums samples up.

    Args:
        samples: the samples of one way to answer, at least one.
        plain: the uncached ones of the same prompts in the same order.

    Returns:
        `prompts`, and where all have scores `score` with its interval and `paired` against the uncached side;
        `kl_answer` with its interval and `kl_worst` in nats (mean and worst of all answer tokens),
        `answer_agreement` (share of answer tokens), `flipped` (share of prompts with a token that flips),
        `same_answer`, `first_token_agreement`, `kl_first_token`, `ttft_ms` (median), `computed_share` (with
        what choosing a repair costs) and `repaired_share` (of cached tokens; None on the uncached side).
    """
    counts = [sample["answer_tokens"] for sample in samples]
    apart = [sample["kl_answer"] * sample["answer_tokens"] for sample in samples]
    low, high = mean_interval(apart, counts)
    repaired = [s["repaired_share"] for s in samples if s["repaired_share"] is not None]
    found: dict[str, Any] = {"prompts": len(samples)}
    scores = [sample["score"] for sample in samples]
    if None not in scores:
        found["score"] = statistics.fmean(scores)
        found["score_low"], found["score_high"] = interval(scores)
        found["paired"] = paired(scores, [sample["score"] for sample in plain]).to_json()
    return found | {
        "kl_answer": sum(apart) / sum(counts),
        "kl_low": low,
        "kl_high": high,
        "kl_worst": max(sample["kl_worst"] for sample in samples),
        "answer_agreement": 1 - sum(sample["flips"] for sample in samples) / sum(counts),
        "flipped": statistics.fmean(sample["flips"] > 0 for sample in samples),
        "same_answer": statistics.fmean(sample["same_answer"] for sample in samples),
        "first_token_agreement": statistics.fmean(sample["first_token_agrees"] for sample in samples),
        "kl_first_token": statistics.fmean(sample["kl_first_token"] for sample in samples),
        "ttft_ms": statistics.median(sample["ttft_ms"] for sample in samples),
        "computed_share": statistics.fmean(sample["computed_share"] for sample in samples),
        "repaired_share": statistics.fmean(repaired) if repaired else None,
    }


def grouped(samples: Sequence[Sample], plain: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    """The figures apart by what is known of the prompts; prompts of which it is not known are left out."""
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
    """Every way to answer over the prompts of several reports together: `name` and its figures."""
    names = [result["name"] for result in reports[0]["results"]]
    samples = {
        name: [s for report in reports for r in report["results"] if r["name"] == name for s in r["samples"]]
        for name in names
    }
    return [{"name": name, **figures(samples[name], samples[names[0]])} for name in names]


def third(position: float | None) -> str:
    """In which third of the modules an answer stands; "" where it is not known."""
    return "" if position is None else ("first", "middle", "last")[min(2, int(position * 3))]
