"""Charts as static SVG, by the library that draws the studio's chart, in a Chromium without a window.

kaleido does the same, with a Chromium too; plotly's own script and playwright are here already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

import plotly.graph_objects as go

from benchmarks import editor
from benchmarks.charts import HEIGHT, INK, LINES, PAPER, WIDTH

_DARK = {INK: "#d1d7e0", LINES: "#3d444d", PAPER: "#0d1117"}
_DRAWN_NAME = re.compile(r"\b(clip|topdefs-|defs-|legend|trace|g)([0-9a-f]{6})(?![0-9])")
_TO_SVG = """
async ([figure, width, height]) => {
    const address = await Plotly.toImage(JSON.parse(figure), {format: "svg", width, height})
    return decodeURIComponent(address.slice(address.indexOf(",") + 1))
}
"""


def draw(charts: Mapping[str, go.Figure], folder: Path, say: Callable[[str], object] = print) -> list[str]:
    """Draws charts into a folder and deletes its other charts.

    Args:
        charts: the charts by name.
        folder: the folder for the files.
        say: reports the missing program if nothing can be drawn.

    Returns:
        The names of the charts; without a Chromium none, and the folder stays unchanged.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return _none("the packages of the extra dev", say)
    browser_path = editor.chromium()
    if browser_path is None:
        return _none("a Chromium (PML_CHROMIUM names one)", say)
    script = resources.files("plotly").joinpath("package_data/plotly.min.js").read_text(encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        if old.stem not in charts:
            old.unlink()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(editor.FLAGS))
        page = browser.new_page()
        page.add_script_tag(content=script)
        for name, figure in charts.items():
            drawn = page.evaluate(_TO_SVG, [figure.to_json(), WIDTH, HEIGHT])
            (folder / f"{name}.svg").write_text(_for_both(str(drawn)), encoding="utf-8")
        browser.close()
    return list(charts)


def _none(needed: str, say: Callable[[str], object]) -> list[str]:
    say(f"no chart was drawn: it takes {needed}")
    return []


def _for_both(svg: str) -> str:
    """A picture that follows the reader's choice of a light or a dark page, the same in every drawing."""
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
