"""Charts, and their drawing as SVG by plotly's own script in a Chromium without a window."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path

import plotly.graph_objects as go

# Readable on white and on near black.
COLOURS = ("#2f81d6", "#d9662b", "#2c9c6c", "#a561cc", "#b8892b", "#d1527f", "#3aa3ab")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
DASHES = ("solid", "dash", "dot")
INK, LINES, PAPER = "#24292f", "#d0d7de", "#ffffff"  # replaced on a dark page
WIDTH, HEIGHT = 840, 420
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
_DARK = {INK: "#d1d7e0", LINES: "#3d444d", PAPER: "#0d1117"}
_DRAWN_NAME = re.compile(r"\b(clip|topdefs-|defs-|legend|trace|g)([0-9a-f]{6})(?![0-9])")
_TO_SVG = """
async ([figure, width, height]) => {
    const address = await Plotly.toImage(JSON.parse(figure), {format: "svg", width, height})
    return decodeURIComponent(address.slice(address.indexOf(",") + 1))
}
"""
Series = tuple[Sequence[float | str], Sequence[float], Sequence[tuple[float, float]]]
"""x, y, and the interval of each y, or none."""


def scatter(
    title: str, x: str, y: str, series: Mapping[str, Series], *, log: str = "", lines: bool = False
) -> go.Figure:
    """A chart of points or lines. Names with the same beginning, before a comma, have the same colour."""
    figure, whose = go.Figure(), list(dict.fromkeys(name.partition(", ")[0] for name in series))
    for name, (xs, ys, spans) in series.items():
        number = whose.index(name.partition(", ")[0])
        same = [one for one in series if one.partition(", ")[0] == whose[number]]
        colour, symbol = COLOURS[number % len(COLOURS)], SYMBOLS[number // len(COLOURS) % len(SYMBOLS)]
        error = {"type": "data", "symmetric": False, "thickness": 1}
        error["array"] = [high - one for one, (_, high) in zip(ys, spans, strict=False)]
        error["arrayminus"] = [one - low for one, (low, _) in zip(ys, spans, strict=False)]
        figure.add_scatter(
            name=name,
            x=list(xs),
            y=list(ys),
            error_y=error if spans else None,
            mode="lines+markers" if lines else "markers",
            line={"color": colour, "width": 2, "dash": DASHES[same.index(name) % len(DASHES)]},
            marker={"color": colour, "symbol": symbol, "size": 8},
        )
    axis = {"gridcolor": LINES, "linecolor": LINES, "zerolinecolor": LINES, "automargin": True}
    figure.update_layout(
        template="none",
        title={"text": title, "x": 0.02, "font": {"size": 16}},
        font={"color": INK, "size": 13, "family": "system-ui, sans-serif"},
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        width=WIDTH,
        height=HEIGHT,
        margin={"l": 70, "r": 20, "t": 50, "b": 60},
        legend={"x": 1.02, "y": 1},
        showlegend=len(series) > 1,
    )
    figure.update_xaxes(**axis, title=x)
    figure.update_yaxes(**axis, title=y)
    if "x" in log:
        ticks = sorted({one for trace in figure.data for one in trace.x})
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:,}" for tick in ticks])
    if "y" in log:
        ticks = _marks([one for trace in figure.data for one in trace.y if one > 0])
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:,.10g}" for tick in ticks])
    else:
        figure.update_yaxes(rangemode="tozero")
    return figure


def _marks(values: Sequence[float]) -> list[float]:
    """Round numbers for a logarithmic axis: powers of ten, and 2 and 5 times these if they are few."""
    if not values:
        return []
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if high - low < 4 else (1,)
    found = [round(step * 10.0**power, 12) for power in range(low, high + 1) for step in steps]
    return [mark for mark in found if min(values) / 2.5 <= mark <= max(values) * 2.5]


def chromium() -> str | None:
    """The installed browser; PML_CHROMIUM names another one."""
    names = (os.environ.get("PML_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def draw(charts: Mapping[str, go.Figure], folder: Path, say: Callable[[str], object] = print) -> list[str]:
    """Draws charts into a folder and deletes its other charts."""
    browser_path = chromium()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser_path = None
    if browser_path is None:
        say("no chart was drawn: it takes the packages of the extra dev, and a Chromium (PML_CHROMIUM)")
        return []
    script = resources.files("plotly").joinpath("package_data/plotly.min.js").read_text(encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        if old.stem not in charts:
            old.unlink()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(FLAGS))
        page = browser.new_page()
        page.add_script_tag(content=script)
        for name, figure in charts.items():
            drawn = page.evaluate(_TO_SVG, [figure.to_json(), WIDTH, HEIGHT])
            (folder / f"{name}.svg").write_text(_for_both(str(drawn)), encoding="utf-8")
        browser.close()
    return list(charts)


def _for_both(svg: str) -> str:
    """A picture for light and dark pages, the same in every drawing."""
    numbers: dict[str, str] = {}
    svg = _DRAWN_NAME.sub(lambda found: found[1] + numbers.setdefault(found[2], f"{len(numbers):06d}"), svg)
    dark = "".join(
        f'[style*="{kind}: {_rgb(light)}"]{{{kind}:{other} !important}}'
        for light, other in _DARK.items()
        for kind in ("fill", "stroke", "background")
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{dark}}}</style>"
    head_end = svg.index(">") + 1
    return f"{svg[:head_end]}{style}{svg[head_end:]}\n"


def _rgb(colour: str) -> str:
    """A colour as the browser writes it into a style."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"
