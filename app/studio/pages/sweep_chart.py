"""Charts of a sweep: times along its axis with the floor drawn in, and what they went into."""

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
    "floor": ("floor: the new tokens alone", NEW, "dot"),
    LOADING: ("floor: reading the files alone", STAGES["load"], "dot"),
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
    """The figure of a report; without one it is empty."""
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
    """A line to each way, with the range of its samples; what loading takes beside them."""
    for name in ("uncached", "files", "cached", "floor"):
        found = [one for one in report["results"] if one["name"] == name]
        if found:
            samples = [one["samples_ms"] for one in found]
            _line(figure, name, [one["value"] for one in found], [one["median_ms"] for one in found], samples)
    files = [one for one in report["results"] if one["name"] == "files"]
    loads = [one["timeline_ms"].get("load", 0.0) for one in files]
    if any(loads):
        _line(figure, LOADING, [one["value"] for one in files], loads, None)


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
    """A pair of bars to each name."""
    for name in ("uncached", "cached"):
        label, colour, _ = WAYS[name]
        found = [one for one in report["results"] if one["name"] == name]
        middles = [one["median_ms"] for one in found]
        figure.add_bar(
            name=label,
            x=[one["value"] for one in found],
            y=middles,
            error_y={
                "array": [max(one["samples_ms"]) - one["median_ms"] for one in found],
                "arrayminus": [one["median_ms"] - min(one["samples_ms"]) for one in found],
                "color": MID_GREY,
                "thickness": 1.2,
            },
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate="%{y:.1f} ms",
        )


def _stages(figure: go.Figure, report: Report) -> None:
    """A stacked bar to each way at each point: what the median sample went into."""
    bars = [one for one in report["results"] if "timeline_ms" in one]
    axis = [[str(one["value"]) for one in bars], [one["name"] for one in bars]]
    for part in TIMELINE_PARTS:
        heights = [one["timeline_ms"].get(part, 0.0) for one in bars]
        if any(heights):
            figure.add_bar(
                name=part,
                x=axis,
                y=heights,
                marker={"color": STAGES[part], "line": {"width": 0}},
                hovertemplate=f"%{{x}}<br>{part}: %{{y:.1f}} ms<extra></extra>",
            )


def _rates(figure: go.Figure, report: Report) -> None:
    """Tokens a second by prompts at once."""
    for name in ("one_by_one", "together"):
        label, colour, dash = WAYS[name]
        found = [one for one in report["results"] if one["name"] == name]
        figure.add_scatter(
            name=label,
            x=[one["value"] for one in found],
            y=[one["tokens_per_s"] for one in found],
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"color": colour, "size": 7, "symbol": _SYMBOLS.get(name, "circle")},
            hovertemplate="%{y:.1f} tokens a second",
        )


def _style(figure: go.Figure, report: Report | None, view: View) -> None:
    """Fits the figure to the page."""
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
