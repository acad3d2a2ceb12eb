"""The chart of times to first token: one pair of bars per run, stacked by what the time went into."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from app.studio.runs import SIDES, Run, Side
from engine.choices import TIMELINE_PARTS, TimelinePart
from engine.stopwatch import milliseconds

COLOURS: dict[TimelinePart, str] = {
    "parse": "#64748b",
    "plan": "#a78bfa",
    "encode": "#f59e0b",
    "load": "#38bdf8",
    "repair": "#e1675a",
    "prefill": "#14a394",
    "sample": "#f472b6",
}
RUNS_SHOWN = 10
MID_GREY = "#76808f"  # readable on white and on the dark page until the page's own style sheet colours it
FONT = "IBM Plex Sans, system-ui, sans-serif"


def ttft_chart(runs: Sequence[Run]) -> go.Figure:
    """The figure for the latest runs.

    Every bar carries its run's number as `customdata`, so that a click can show that run again.
    """
    shown = runs[-RUNS_SHOWN:]
    bars = [(run, side) for run in shown for side in SIDES if run.sides[side].ttft_ms is not None]
    figure = go.Figure()
    axis = [[f"Run {run.number}" for run, _ in bars], [str(side) for _, side in bars]]
    for part in TIMELINE_PARTS:
        heights = [run.sides[side].timeline_ms.get(part, 0.0) for run, side in bars]
        if any(heights):
            figure.add_bar(
                name=part,
                x=axis,
                y=heights,
                customdata=[run.number for run, _ in bars],
                marker={"color": COLOURS[part], "line": {"width": 0}},
                hovertemplate=f"%{{x}}<br>{part}: %{{y:.1f}} ms<extra></extra>",
            )
    _add_totals(figure, bars, axis)
    _style(figure)
    if not bars:
        figure.update_layout(xaxis={"visible": False}, yaxis={"visible": False})
        figure.add_annotation(
            text="Run the prompt: its times to first token appear here.", showarrow=False, font={"size": 14}
        )
    return figure


def _add_totals(figure: go.Figure, bars: Sequence[tuple[Run, Side]], axis: list[list[str]]) -> None:
    """Writes over each bar how long it is."""
    totals = [run.sides[side].ttft_ms or 0.0 for run, side in bars]
    figure.add_scatter(
        x=axis,
        y=totals,
        mode="text",
        text=[milliseconds(total) for total in totals],
        textposition="top center",
        customdata=[run.number for run, _ in bars],
        hoverinfo="skip",
        showlegend=False,
        cliponaxis=False,
    )


def _style(figure: go.Figure) -> None:
    """Fits the figure to the page: its colours are set there."""
    figure.update_layout(
        template="none",
        barmode="stack",
        bargap=0.35,
        height=300,
        margin={"l": 56, "r": 12, "t": 34, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": MID_GREY, "family": FONT, "size": 12},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        dragmode=False,
        hoverlabel={"font": {"family": FONT}},
    )
    figure.update_yaxes(
        title={"text": "time to first token (ms)"},
        gridcolor="rgba(127,127,127,.22)",
        zeroline=False,
        rangemode="tozero",
    )
    figure.update_xaxes(type="multicategory", showdividers=False, ticks="")
