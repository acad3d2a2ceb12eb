"""The figures of the suite as charts: what stands on which axis, in which unit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from benchmarks.goals import Reports
from benchmarks.suite.sampling import OF_A_PEER, PER_SECOND

# Readable on white and on near black. Whose it is decides colour and mark, what it does the dash.
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
    "with guesses": "dash",
    "state from a file": "dot",
    "limit of arithmetic": "dot",
    "reordered": "dash",
}
INK, LINES, PAPER = "#24292f", "#d0d7de", "#ffffff"  # `benchmarks.drawing` turns them on a dark page
WIDTH, HEIGHT = 840, 420
PART_OF_TIME = "part "
_AT_RATE = re.compile(r", a token at ([0-9.]+) prompts a second, ms$")
NAMES = {
    "uncached": "ours, nothing cached",
    "cached": "ours, cached",
    "files_later": "ours, state from a file",
    "tokens_floor": "the new tokens alone",
    "limit": "limit of arithmetic",
    "token": "ours",
    "step": "ours, the median step",
    "step with guesses": "ours, with guesses",
    "step without guesses": "ours, without guesses",
    "full": "nothing cached",
    "prefix": "cached",
    "state_file": "state from a file",
    "decode": "",
    "answer": "cached",
    "one_by_one": "one by one",
    "one_by_one_reordered": "one by one, reordered",
    "batch": "together",
    "batch_reordered": "together, reordered",
    "batch_plain": "together, as plain text",
    "private": "nothing shared",
    "private_reordered": "nothing shared, reordered",
    "half": "half shared",
    "half_reordered": "half shared, reordered",
}


@dataclass(frozen=True)
class Chart:
    """A chart of a part.

    Attributes:
        name: of its file.
        part: the part that it belongs to.
        title: above it.
        words: what it shows, for who cannot see it.
    """

    name: str
    part: str
    title: str
    words: str


def _length(name: str, label: str) -> Chart:
    title = f"Time to first token by length of what is cached, {label}"
    return Chart(
        name, "lengths", title, f"{title}: uncached, cached, the floor and others, on two logarithmic axes"
    )


CHARTS = (
    Chart(
        "parts",
        "T2",
        "What the time to first token goes into, cached",
        "Bars: the parts of the cached time to first token of each model",
    ),
    Chart(
        "modules",
        "T6",
        "The same tokens in more modules",
        "Time to first token and time per token by the number of modules",
    ),
    Chart("decode", "T13", "Time of a token", "Bars: the time of a token of ours and of other software"),
    Chart(
        "batch",
        "T11",
        "Tokens per second of prompts that are answered at once, 1.1B bf16",
        "Tokens per second by the number of prompts, one by one, together, reordered, and as plain text",
    ),
    Chart(
        "growing",
        "T11",
        "Steps of 8 prompts by what each has of its own, 1.1B bf16",
        "Tokens per second by the tokens of each prompt's own, with and without sharing, and one by one",
    ),
    Chart(
        "arrivals",
        "arrivals",
        "A token of prompts that arrive by themselves, 0.1B",
        "Time of a token, waiting included, by how many prompts arrive in a second",
    ),
    Chart(
        "memory",
        "M1",
        "Keys and values of a token, 16 bits",
        "Bars: megabytes per token of known models, with keys and values for every head and as they are",
    ),
    _length("length-fp32", "0.1B fp32"),
    _length("length-bf16", "0.1B bf16"),
    _length("length-large", "1.1B bf16"),
    Chart(
        "answers",
        "answers",
        "A whole answer by its length",
        "Seconds of whole answers by their length in tokens",
    ),
    Chart(
        "store", "store", "Finding a segment among many", "Milliseconds of a look-up by segments in the store"
    ),
)
_LENGTHS = {"length-fp32": "0.1B fp32", "length-bf16": "0.1B bf16", "length-large": "1.1B bf16"}


def figures(reports: Reports) -> dict[str, go.Figure]:
    """The charts whose parts were measured, by the names of their files."""
    found: dict[str, go.Figure] = {}
    for chart in CHARTS:
        groups = reports.get(chart.part, {}).get("groups") or []
        figure = _figure(chart, groups, reports) if groups else None
        if figure is not None and figure.data:
            found[chart.name] = figure
    return found


def _figure(chart: Chart, groups: Sequence[dict[str, Any]], reports: Reports) -> go.Figure:
    figure = go.Figure()
    match chart.name:
        case "parts":
            _parts(figure, [*reports.get("T1", {"groups": []})["groups"], *groups])
            style(figure, chart, "", "milliseconds")
            figure.update_layout(barmode="group")
        case "modules":
            for group in groups:
                _line(figure, group["name"], [(int(n), ms) for n, ms in group["median_ms"].items()])
            style(figure, chart, "modules, of the same tokens in all", "milliseconds", log="x")
        case "decode":
            _decode(figure, groups)
            style(figure, chart, "", "milliseconds per token")
            figure.update_layout(barmode="group")
        case "batch":
            _at_once(figure, groups)
            style(figure, chart, "prompts at once", "tokens per second", log="x")
        case "growing":
            _growing(figure, groups)
            style(figure, chart, "tokens of each prompt's own", "tokens per second")
        case "arrivals":
            _arriving(figure, groups)
            style(figure, chart, "prompts that arrive in a second", "milliseconds per token", log="y")
        case "memory":
            _memory(figure, groups[-1]["values"])
            style(figure, chart, "", "MiB per token")
            figure.update_layout(barmode="group")
        case "answers":
            _lines(figure, groups, "answer", 1000)
            style(figure, chart, "tokens of the answer", "seconds", log="x")
        case "store":
            _lines(figure, groups, "segments", 1)
            style(figure, chart, "segments in the store", "milliseconds of a look-up", log="xy")
        case _:
            label = _LENGTHS[chart.name]
            chosen = [group for group in groups if group["name"].startswith(label)]
            whole = [group for part in ("T1", "T2") for group in reports.get(part, {}).get("groups", ())]
            chosen += [group for group in whole if group["name"] == label]
            _lines(figure, chosen, "cached", 1)
            limits = [
                (group["params"]["cached"], group["values"]["limit_ms"])
                for group in chosen
                if "limit_ms" in group["values"]
            ]
            _line(figure, NAMES["limit"], limits)
            style(figure, chart, "cached tokens", "ms to the first token", log="xy")
    return figure


def named(way: str) -> str:
    """A way in words."""
    peer, found, kind = way.partition(OF_A_PEER)
    if not found:
        return NAMES.get(way, way)
    return f"{peer}, {NAMES.get(kind, kind)}".removesuffix(", ")


def _lines(figure: go.Figure, groups: Sequence[dict[str, Any]], x: str, unit: float) -> None:
    """A line for every way through the groups, over one of their params."""
    ways = dict.fromkeys(way for group in groups for way in group["median_ms"])
    for way in ways:
        points = [
            (group["params"][x], group["median_ms"][way] / unit)
            for group in groups
            if way in group["median_ms"]
        ]
        _line(figure, named(way), points)


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


def _bars(figure: go.Figure, name: str, x: Sequence[str], y: Sequence[float]) -> None:
    colour, _, dash = _look(figure, name)
    figure.add_bar(
        name=name,
        x=x,
        y=y,
        text=[f"{value:.3g}" for value in y],
        textposition="outside",
        textangle=0,
        textfont={"size": 11, "color": INK},
        cliponaxis=False,
        marker={"color": colour, "pattern": {"shape": "/" if dash == "dash" else ""}},
    )


def _look(figure: go.Figure, name: str) -> tuple[str, str, str]:
    """Colour, mark and dash of a line or bar; those of no software differ from those before them."""
    whose, _, what = name.partition(", ")
    number = list(COLOURS).index(whose) if whose in COLOURS else len(figure.data)
    colour = COLOURS.get(whose) or OTHERS[number % len(OTHERS)]
    return colour, SYMBOLS[number % len(SYMBOLS)], DASHES.get(what) or DASHES.get(name, "solid")


def _parts(figure: go.Figure, groups: Sequence[dict[str, Any]]) -> None:
    names = dict.fromkeys(
        name for group in groups for name in group["values"] if name.startswith(PART_OF_TIME)
    )
    for name in names:
        heights = [float(group["values"].get(name, 0.0)) for group in groups]
        _bars(figure, name.removeprefix(PART_OF_TIME), [group["name"] for group in groups], heights)


def _decode(figure: go.Figure, groups: Sequence[dict[str, Any]]) -> None:
    ways = dict.fromkeys(way for group in groups for way in group["median_ms"])
    for way in ways:
        having = [group for group in groups if way in group["median_ms"]]
        _bars(
            figure,
            named(way),
            [_after(group) for group in having],
            [group["median_ms"][way] for group in having],
        )


def _after(group: dict[str, Any]) -> str:
    """The name of a group of decoding on two lines."""
    name, _, quoting = group["name"].partition(", ")
    return f"{name}{', quoting' if quoting else ''}<br>after {group['params']['cached']:,} tokens"


def _at_once(figure: go.Figure, groups: Sequence[dict[str, Any]]) -> None:
    """A line for every kind over the number of prompts."""
    points: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        for name, value in group["values"].items():
            if name.startswith(PER_SECOND) and (kind := name.removeprefix(PER_SECOND)) != "private":
                points.setdefault(kind, []).append((group["params"]["prompts"], value))
    for kind, known in points.items():
        _line(figure, NAMES.get(kind, kind), known)


def _growing(figure: go.Figure, groups: Sequence[dict[str, Any]]) -> None:
    """The same over what each has of its own, of steps."""
    chosen = [group for group in groups if "tail" in group["params"]]
    for kind in dict.fromkeys(kind for group in chosen for kind in group["median_ms"]):
        points = [
            (group["params"]["tail"], 1000 * group["params"]["prompts"] / group["median_ms"][kind])
            for group in chosen
            if kind in group["median_ms"]
        ]
        _line(figure, NAMES.get(kind, kind), points)


def _arriving(figure: go.Figure, groups: Sequence[dict[str, Any]]) -> None:
    """A line for every kind over the rate at which prompts arrive."""
    points: dict[str, list[tuple[float, float]]] = {}
    for name, value in ((name, value) for group in groups for name, value in group["values"].items()):
        if at := _AT_RATE.search(name):
            points.setdefault(name[: at.start()], []).append((float(at[1]), value))
    for kind, known in points.items():
        _line(figure, NAMES.get(kind, kind), known)


def _memory(figure: go.Figure, values: dict[str, float]) -> None:
    for words, name in (("every head", "keys and values for every head"), ("as it is", "as it is")):
        chosen = {key.rpartition(", ")[0]: value for key, value in values.items() if key.endswith(words)}
        _bars(figure, name, list(chosen), list(chosen.values()))


def style(figure: go.Figure, chart: Chart, x: str, y: str, *, log: str = "") -> None:
    """Gives a chart its title, axes and colours.

    Args:
        figure: the chart, with its data.
        chart: what it is.
        x: title of that axis.
        y: title of that axis.
        log: the axes that are logarithmic: "", "x", "y" or "xy".
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
    """Round numbers for a logarithmic axis: powers of ten, and 2 and 5 times these where they are few."""
    if not values:
        return []
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if high - low < 4 else (1,)
    found = [round(step * 10.0**power, 12) for power in range(low, high + 1) for step in steps]
    return [mark for mark in found if min(values) / 2.5 <= mark <= max(values) * 2.5]
