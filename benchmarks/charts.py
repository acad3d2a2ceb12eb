"""Charts of the suite's figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from benchmarks.goals import Reports
from benchmarks.suite.sampling import OF_A_PEER, PER_SECOND

# Readable on white and on near black. The software decides colour and mark, its task the dash.
OURS, GREY = "ours", "#7a8794"
COLOURS = {
    OURS: "#2f81d6",
    "llama.cpp": "#d9662b",
    "transformers": "#2c9c6c",
    "paper's prototype": "#a561cc",
    "the new tokens alone": GREY,
    "limit of arithmetic": GREY,
}
OTHERS = ("#2f81d6", "#d9662b", "#2c9c6c", "#a561cc", "#b8892b", "#d1527f", "#3aa3ab")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
DASHES = {
    "nothing cached": "dash",
    "state from a file": "dot",
    "limit of arithmetic": "dot",
    "reordered": "dash",
}
INK, LINES, PAPER = "#24292f", "#d0d7de", "#ffffff"  # `benchmarks.drawing` turns them on a dark page
WIDTH, HEIGHT = 840, 420
NAMES = {
    "uncached": "ours, nothing cached",
    "cached": "ours, cached",
    "files_later": "ours, state from a file",
    "tokens_floor": "the new tokens alone",
    "limit": "limit of arithmetic",
    "full": "nothing cached",
    "prefix": "cached",
    "state_file": "state from a file",
    "one_by_one": "one by one",
    "batch": "together",
    "batch_reordered": "together, reordered",
    "batch_plain": "together, as plain text",
}


@dataclass(frozen=True)
class Chart:
    """A chart of a part of the suite.

    Attributes:
        name: the name of its file.
        part: the name of the part.
        title: the heading of the chart.
        words: the alternative text.
    """

    name: str
    part: str
    title: str
    words: str


def _length(name: str, label: str) -> Chart:
    title = f"Time to first token by length of what is cached, {label}"
    return Chart(name, "lengths", title, f"TTFT by cached tokens, {label}")


CHARTS = (
    Chart(
        "batch",
        "T11",
        "Tokens per second of prompts that are answered at once, 1.1B bf16",
        "Tokens per second by prompts at once",
    ),
    _length("length-fp32", "0.1B fp32"),
    _length("length-large", "1.1B bf16"),
)
_LENGTHS = {"length-fp32": "0.1B fp32", "length-large": "1.1B bf16"}


def figures(reports: Reports) -> dict[str, go.Figure]:
    """The charts of the measured parts, by file name."""
    found: dict[str, go.Figure] = {}
    for chart in CHARTS:
        groups = reports.get(chart.part, {}).get("groups") or []
        figure = _figure(chart, groups, reports) if groups else None
        if figure is not None and figure.data:
            found[chart.name] = figure
    return found


def _figure(chart: Chart, groups: Sequence[dict[str, Any]], reports: Reports) -> go.Figure:
    figure = go.Figure()
    if chart.name not in _LENGTHS:
        _at_once(figure, groups)
        style(figure, chart, "prompts at once", "tokens per second", log="x")
        return figure
    label = _LENGTHS[chart.name]
    chosen = [group for group in groups if group["name"].startswith(label)]
    whole = [group for part in ("T1", "T2") for group in reports.get(part, {}).get("groups", ())]
    chosen += [group for group in whole if group["name"] == label]
    for way in dict.fromkeys(way for group in chosen for way in group["median_ms"]):
        having = [group for group in chosen if way in group["median_ms"]]
        _line(figure, named(way), [(group["params"]["cached"], group["median_ms"][way]) for group in having])
    limits = [
        (group["params"]["cached"], group["values"]["limit_ms"])
        for group in chosen
        if "limit_ms" in group["values"]
    ]
    _line(figure, NAMES["limit"], limits)
    style(figure, chart, "cached tokens", "ms to the first token", log="xy")
    return figure


def named(way: str) -> str:
    """The legend of a way."""
    peer, found, kind = way.partition(OF_A_PEER)
    if not found:
        return NAMES.get(way, way)
    return f"{peer}, {NAMES.get(kind, kind)}"


def _line(figure: go.Figure, name: str, points: Iterable[tuple[float, float]]) -> None:
    ordered = sorted(points)
    if not ordered:
        return
    colour, symbol, dash = _look(figure, name)
    figure.add_scatter(
        name=name,
        x=[x for x, _ in ordered],
        y=[y for _, y in ordered],
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": dash},
        marker={"symbol": symbol, "size": 8},
    )


def _look(figure: go.Figure, name: str) -> tuple[str, str, str]:
    """Colour, mark and dash of a line. Lines without a software name all differ."""
    whose, _, what = name.partition(", ")
    number = list(COLOURS).index(whose) if whose in COLOURS else len(figure.data)
    colour = COLOURS.get(whose) or OTHERS[number % len(OTHERS)]
    return colour, SYMBOLS[number % len(SYMBOLS)], DASHES.get(what) or DASHES.get(name, "solid")


def _at_once(figure: go.Figure, groups: Sequence[dict[str, Any]]) -> None:
    """A line for every way over the number of prompts."""
    points: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        for name, value in group["values"].items():
            if name.startswith(PER_SECOND) and (kind := name.removeprefix(PER_SECOND)) != "private":
                points.setdefault(kind, []).append((group["params"]["prompts"], value))
    for kind, known in points.items():
        _line(figure, NAMES.get(kind, kind), known)


def style(figure: go.Figure, chart: Chart, x: str, y: str, *, log: str = "") -> None:
    """Gives a chart its title, axes and colours.

    Args:
        figure: the chart, with its data.
        chart: its description.
        x: title of the x axis.
        y: title of the y axis.
        log: the logarithmic axes: "", "x", "y" or "xy".
    """
    axis = {"gridcolor": LINES, "linecolor": LINES, "zerolinecolor": LINES, "automargin": True}
    figure.update_layout(
        template="none",
        title={"text": chart.title, "x": 0.02, "font": {"size": 16}},
        font={"color": INK, "size": 13, "family": "system-ui, sans-serif"},
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        width=WIDTH,
        height=HEIGHT,
        margin={"l": 70, "r": 20, "t": 50, "b": 60},
        legend={"x": 1.02, "y": 1},
        showlegend=True,
    )
    figure.update_xaxes(**axis, title=x)
    figure.update_yaxes(**axis, title=y)
    if "x" in log:
        ticks = sorted({x for trace in figure.data for x in trace.x})
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:,}" for tick in ticks])
    if "y" in log:
        ticks = _marks([y for trace in figure.data for y in trace.y if y > 0])
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:,.10g}" for tick in ticks])
    else:
        figure.update_yaxes(rangemode="tozero")


def _marks(values: Sequence[float]) -> list[float]:
    """Round numbers for a logarithmic axis: powers of ten, and 2 and 5 times these if they are few."""
    if not values:
        return []
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if high - low < 4 else (1,)
    found = [round(step * 10.0**power, 12) for power in range(low, high + 1) for step in steps]
    return [mark for mark in found if min(values) / 2.5 <= mark <= max(values) * 2.5]
