"""Charts of results as they are drawn: plain SVG, the same in every drawing, for a light and a dark page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import plotly.graph_objects as go
import pytest
from lxml import etree

from benchmarks.base import charts
from benchmarks.base.charts import INK, LINES, PAPER


def figure(height: float) -> go.Figure:
    made = go.Figure(go.Scatter(x=[1, 2], y=[height, 4], name="line"))
    font = {"color": INK}
    made.update_layout(
        template="none", font=font, paper_bgcolor=PAPER, title="A chart", xaxis_gridcolor=LINES
    )
    return made


def drawn(figures: dict[str, go.Figure], folder: Path) -> list[str]:
    """The names of what is drawn, in a thread of its own: this one may have a browser's event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(charts.draw, figures, folder).result()


@pytest.mark.long
def test_a_chart_is_drawn_for_both_pages(tmp_path: Path) -> None:
    (tmp_path / "before.svg").write_text("<svg/>")
    assert drawn({"one": figure(3), "two": figure(5)}, tmp_path) == ["one", "two"]
    first = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"one.svg", "two.svg"}
    root = etree.fromstring(first.encode())
    assert etree.QName(root).localname == "svg"
    assert "A chart" in "".join(root.itertext())
    assert "prefers-color-scheme: dark" in first
    for colour in ("rgb(36, 41, 47)", "rgb(208, 215, 222)", "rgb(255, 255, 255)"):
        assert first.count(colour) > 3, f"{colour} is drawn, and turned in the dark"
    assert "<script" not in first
    drawn({"one": figure(3)}, tmp_path)
    assert (tmp_path / "one.svg").read_text(encoding="utf-8") == first
    assert not (tmp_path / "two.svg").exists()


def test_without_a_browser_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(charts, "chromium", lambda: None)
    (tmp_path / "before.svg").write_text("<svg/>")
    assert charts.draw({"one": figure(3)}, tmp_path) == []
    assert "no chart was drawn: it takes the packages" in capsys.readouterr().out
    assert (tmp_path / "before.svg").exists()
