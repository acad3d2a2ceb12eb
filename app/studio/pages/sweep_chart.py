"""Charts of a sweep: times along its axis with the lower bound, and their stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import plotly.graph_objects as go

from app.studio.web.chart import CACHED, MID_GREY, NEW, STAGES, UNCACHED, framed
from engine.base.choices import TIMELINE_PARTS

View = Literal["times", "stages"]
Report = Mapping[str, Any]
LOADING: Final = "loading"
WAYS: Final[Mapping[str, tuple[str, str, str]]] = {
    "uncached": ("without the cache", UNCACHED, "solid"),
    "cached": ("from the cache, in memory", CACHED, "solid"),
    "files": ("from the cache, read from files", CACHED, "dash"),
    "floor": ("lower bound: new tokens only", NEW, "dot"),
    LOADING: ("lower bound: reading files only", STAGES["load"], "dot"),
    "one_by_one": ("one after the other", UNCACHED, "solid"),
    "together": ("together", CACHED, "solid"),
}
TITLES: Final = {
    "cached": "cached tokens",
    "new": "new tokens",
    "modules": "modules",
    "scope": "scope",
    "repair": "repair",
    "prompts": "prompts at once",
}
_SYMBOLS = {"uncached": "square", "cached": "circle", "files": "diamond", "one_by_one": "square"}


def sweep_chart(report: Report | None, view: View = "times") -> go.Figure:
    """Returns the chart of a report; empty without one."""
    figure = go.Figure()
    if report is None or not report["results"]:
        figure.update_layout(xaxis={"visible": False}, yaxis={"visible": False})
    elif report["sweep"]["axis"] == "prompts":
        _rates(figure, report)
    elif view == "stages":
        _stages(figure, report)
    elif report["sweep"]["axis"] in ("scope", "repair"):
        _bars(figure, report)
    else:
        _lines(figure, report)
    _style(figure, report, view)
    return figure


def _lines(figure: go.Figure, report: Report) -> None:
    """Draws a line per way with the range of its samples, and loading times."""
    for name in ("uncached", "files", "cached", "floor"):
        rows = [row for row in report["results"] if row["name"] == name]
        if rows:
            samples = [row["samples_ms"] for row in rows]
            _line(figure, name, [row["value"] for row in rows], [row["median_ms"] for row in rows], samples)
    files = [row for row in report["results"] if row["name"] == "files"]
    loads = [row["timeline_ms"].get("load", 0.0) for row in files]
    if any(loads):
        _line(figure, LOADING, [row["value"] for row in files], loads, None)


def _line(
    figure: go.Figure, name: str, x: list[Any], y: list[float], samples: list[list[float]] | None
) -> None:
    label, colour, dash = WAYS[name]
    ranges = {}
    if samples is not None:
        above = [max(each) - middle for each, middle in zip(samples, y, strict=True)]
        below = [middle - min(each) for each, middle in zip(samples, y, strict=True)]
        ranges = {"error_y": {"array": above, "arrayminus": below, "color": colour, "thickness": 1.2}}
    figure.add_scatter(
        name=label,
        x=x,
        y=y,
        mode="lines+markers",
        line={"color": colour, "dash": dash, "width": 2},
        marker={"color": colour, "size": 7, "symbol": _SYMBOLS.get(name, "circle")},
        hovertemplate="%{y:.1f} ms",
        **ranges,
    )


def _bars(figure: go.Figure, report: Report) -> None:
    """Draws a pair of bars per name."""
    for name in ("uncached", "cached"):
        label, colour, _ = WAYS[name]
        rows = [row for row in report["results"] if row["name"] == name]
        middles = [row["median_ms"] for row in rows]
        figure.add_bar(
            name=label,
            x=[row["value"] for row in rows],
            y=middles,
            error_y={
                "array": [max(row["samples_ms"]) - row["median_ms"] for row in rows],
                "arrayminus": [row["median_ms"] - min(row["samples_ms"]) for row in rows],
                "color": MID_GREY,
                "thickness": 1.2,
            },
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate="%{y:.1f} ms",
        )


def _stages(figure: go.Figure, report: Report) -> None:
    """Draws a stacked bar per way and point: the stages of the median sample."""
    bars = [row for row in report["results"] if "timeline_ms" in row]
    axis = [[str(row["value"]) for row in bars], [row["name"] for row in bars]]
    for part in TIMELINE_PARTS:
        heights = [row["timeline_ms"].get(part, 0.0) for row in bars]
        if any(heights):
            figure.add_bar(
                name=part,
                x=axis,
                y=heights,
                marker={"color": STAGES[part], "line": {"width": 0}},
                hovertemplate=f"%{{x}}<br>{part}: %{{y:.1f}} ms<extra></extra>",
            )


def _rates(figure: go.Figure, report: Report) -> None:
    """Draws tokens per second by concurrent prompts."""
    for name in ("one_by_one", "together"):
        label, colour, dash = WAYS[name]
        rows = [row for row in report["results"] if row["name"] == name]
        figure.add_scatter(
            name=label,
            x=[row["value"] for row in rows],
            y=[row["tokens_per_s"] for row in rows],
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"color": colour, "size": 7, "symbol": _SYMBOLS.get(name, "circle")},
            hovertemplate="%{y:.1f} tokens a second",
        )


def _style(figure: go.Figure, report: Report | None, view: View) -> None:
    axis = report["sweep"]["axis"] if report is not None else ""
    named = axis in ("scope", "repair")
    stacked = view == "stages" and axis != "prompts"
    rate = axis == "prompts"
    framed(
        figure,
        barmode="stack" if stacked else "group",
        bargap=0.35,
        height=360,
        margin={"l": 64, "r": 16, "t": 44, "b": 52},
        hovermode="closest" if stacked or named else "x unified",
    )
    figure.update_yaxes(
        title={"text": "tokens a second" if rate else "time to first token (ms)"}, rangemode="tozero"
    )
    figure.update_xaxes(title={"text": TITLES.get(axis, "")}, gridcolor="rgba(127,127,127,.12)")
    if stacked:
        figure.update_xaxes(type="multicategory", showdividers=False, ticks="")
    elif named:
        figure.update_xaxes(type="category")
    elif axis and report is not None:
        figure.update_xaxes(tickvals=report["sweep"]["values"], rangemode="tozero")
