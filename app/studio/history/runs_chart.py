"""The chart of stored runs: times to first token cached, uncached, and on the first run.

A line joins runs of one model, one schema text and one scope only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final

import plotly.graph_objects as go

from app.studio.history import RunSummary
from app.studio.web.chart import CACHED, ENCODED, UNCACHED, framed
from engine.base.stopwatch import milliseconds

FIRST = "first time"
FEW = 40  # runs with large marks, lines, and the first-run time
TICKS = ((20, (1, 2, 5)), (300, (1, 3)), (float("inf"), (1,)))  # digits, by the ratio of the extreme times

Time = Callable[[RunSummary], float | None]
Stages = Callable[[RunSummary], Mapping[str, float]]
_WAYS: Final[tuple[tuple[str, str, str, Time, Stages], ...]] = (
    (
        "without the cache",
        UNCACHED,
        "square",
        lambda run: run["uncached_ms"],
        lambda run: run["stages"]["uncached"],
    ),
    ("from the cache", CACHED, "circle", lambda run: run["cached_ms"], lambda run: run["stages"]["cached"]),
    (
        FIRST,
        ENCODED,
        "diamond",
        lambda run: run["first_ms"],
        lambda run: _first(run),
    ),
)


def runs_chart(runs: Sequence[RunSummary]) -> go.Figure:
    """Returns the chart of these runs, oldest first; each mark has its run's id as `customdata`."""
    figure = go.Figure()
    few = len(runs) <= FEW
    for name, colour, symbol, time, stages in _WAYS:
        joined = few and name != FIRST
        lines: dict[object, list[tuple[int, RunSummary, float]]] = {}
        for number, run in enumerate(runs, 1):
            if ms := time(run):
                of = (run["model"], run["schema"], run["digest"], run["scope"]) if joined else ()
                lines.setdefault(of, []).append((number, run, ms))
        for line, places in enumerate(lines.values()):
            figure.add_scatter(
                name=name,
                legendgroup=name,
                showlegend=line == 0,
                x=[number for number, _, _ in places],
                y=[ms for _, _, ms in places],
                mode="lines+markers" if joined else "markers",
                line={"color": colour, "width": 1},
                opacity=1 if few else 0.7,
                visible=True if few or name != FIRST else "legendonly",
                marker={
                    "color": colour,
                    "symbol": symbol,
                    "size": 9 if few else 5,
                    "line": {"color": CACHED, "width": 2 if name == FIRST and few else 0},
                },
                customdata=[run["id"] for _, run, _ in places],
                text=[_hover(run, name, ms, stages(run)) for _, run, ms in places],
                hovertemplate="%{text}<extra></extra>",
            )
    _style(figure, len(runs), [ms for line in figure.data for ms in line.y])
    return figure


def _first(run: RunSummary) -> Mapping[str, float]:
    """Returns the stages of the first run: encoding, and the rest."""
    encoded, first = run["encode_ms"], run["first_ms"]
    return {"encoded ahead": encoded, "the rest": first - encoded} if encoded and first else {}


def _hover(run: RunSummary, name: str, ms: float, stages: Mapping[str, float]) -> str:
    """Returns a mark's hover text, escaped because plotly reads markup."""
    started = run["started"].replace("T", " ")[:16]
    lines = [
        f"<b>{_safe(run['name'] or run['schema'])}</b>, {_safe(started)}",
        _safe(run["model"]),
        f"{name}{', with encoding' * (name == FIRST)}: {milliseconds(ms)}",
    ]
    lines += [f"{_safe(stage)} {milliseconds(value)}" for stage, value in stages.items() if value > 0]
    return "<br>".join(lines)


def _style(figure: go.Figure, runs: int, times: Sequence[float]) -> None:
    ratio = max(times) / min(times) if times else 1
    digits = next(digits for most, digits in TICKS if ratio <= most)
    ticks = [digit * 10.0**power for power in range(-2, 7) for digit in digits]
    framed(figure, height=230, margin={"l": 76, "r": 12, "t": 30, "b": 40}, hovermode="closest")
    figure.update_yaxes(
        type="log",
        title={"text": "time to first token", "font": {"size": 12}, "standoff": 8},
        automargin=True,
        tickvals=ticks,
        ticktext=[f"{tick / 1000:g} s" if tick >= 1000 else f"{tick:g} ms" for tick in ticks],
    )
    figure.update_xaxes(
        title={"text": "runs, oldest first", "font": {"size": 12}},
        range=[0.5, max(runs, 1) + 0.5],
        dtick=1 if runs <= 20 else None,
        showgrid=False,
    )


def _safe(words: str) -> str:
    """Escapes text for plotly, which reads tags and the entities of `<`, `>` and `&` only."""
    return escape(words, quote=False)
