"""The charts of `pml bench quality`: scores, the frontier of KL and computing, and times by length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go

from benchmarks.charts import INK, OTHERS, SYMBOLS, Chart, style
from benchmarks.figures import Sample

SCORE = Chart(
    "score", "quality", "Score by variant, with its 95% interval", "Dots: the score of each variant"
)
FRONTIER = Chart(
    "frontier",
    "quality",
    "KL from the uncached answer by share of tokens computed",
    "Dots: each variant by the share of tokens it computes and its KL from the uncached answer",
)
TIMES = Chart(
    "ttft",
    "quality",
    "Time to first token by length of the prompt",
    "Dots: each prompt by its tokens and its time to first token, uncached and cached without repair",
)


def charts(measured: dict[str, Any]) -> dict[str, go.Figure]:
    """The charts over all files together, by name; the first one only where there are scores."""
    found = {FRONTIER.name: _frontier(measured["all"]), TIMES.name: _times(measured)}
    if "score" in measured["all"][0]:
        found = {SCORE.name: _score(measured["all"]), **found}
    return found


def _score(results: list[dict[str, Any]]) -> go.Figure:
    figure = go.Figure()
    figure.add_scatter(
        x=[one["name"] for one in results],
        y=[one["score"] for one in results],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [one["score_high"] - one["score"] for one in results],
            "arrayminus": [one["score"] - one["score_low"] for one in results],
            "color": INK,
            "thickness": 1.5,
        },
        mode="markers",
        marker={"color": OTHERS[0], "size": 9},
    )
    style(figure, SCORE, "", "score")
    figure.update_layout(showlegend=False)
    return figure


def _frontier(results: list[dict[str, Any]]) -> go.Figure:
    """What costs least at a given KL lies below and to the left."""
    figure = go.Figure()
    for at, one in enumerate(results[1:]):  # the uncached side computes all, and is 0 from itself
        figure.add_scatter(
            name=one["name"],
            x=[100 * one["computed_share"]],
            y=[one["kl_answer"]],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [one["kl_high"] - one["kl_answer"]],
                "arrayminus": [one["kl_answer"] - one["kl_low"]],
                "thickness": 1,
            },
            mode="markers",
            marker={"color": OTHERS[at % len(OTHERS)], "symbol": SYMBOLS[at // len(OTHERS)], "size": 9},
        )
    style(figure, FRONTIER, "tokens computed, % of the prompt", "KL, nats per answer token")
    figure.update_xaxes(rangemode="tozero")
    return figure


def _times(measured: dict[str, Any]) -> go.Figure:
    figure = go.Figure()
    names = [one["name"] for one in measured["all"] if not one["repaired_share"]]  # few enough to tell apart
    for at, name in enumerate(names):
        samples = sorted(_samples(measured, name), key=lambda sample: sample["prompt_tokens"])
        figure.add_scatter(
            name=name,
            x=[sample["prompt_tokens"] for sample in samples],
            y=[sample["ttft_ms"] for sample in samples],
            mode="markers",
            marker={"color": OTHERS[at % len(OTHERS)], "symbol": SYMBOLS[at // len(OTHERS)], "size": 6},
        )
    style(figure, TIMES, "tokens of the prompt", "ms to the first token", log="y")
    return figure


def _samples(measured: dict[str, Any], name: str) -> Iterator[Sample]:
    for report in measured["files"].values():
        for result in report["results"]:
            if result["name"] == name:
                yield from result["samples"]
