"""Shared parts of the charts: colours, frame and JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import plotly.graph_objects as go
from typing_extensions import TypedDict

from app.studio.web.json_answers import Json, JsonOf
from engine.base.choices import TimelinePart

STAGES: Final[dict[TimelinePart, str]] = {
    "parse": "#64748b",
    "plan": "#a78bfa",
    "encode": "#f59e0b",
    "load": "#38bdf8",
    "repair": "#e1675a",
    "prefill": "#14a394",
    "sample": "#f472b6",
}
CACHED, UNCACHED, NEW, ENCODED = "#14a394", "#76808f", "#d97706", "#d13f76"
MID_GREY = "#76808f"  # readable on light and dark pages until the style sheet loads
GRID = "rgba(127,127,127,.22)"
FONT = "IBM Plex Sans, system-ui, sans-serif"


class Figure(TypedDict):
    """A plotly figure."""

    data: Annotated[list[Json], JsonOf(list[Any])]
    layout: Annotated[Json, JsonOf(dict[str, Any])]


class Drawn(TypedDict):
    """A chart."""

    figure: Figure


def framed(figure: go.Figure, **layout: Any) -> None:
    """Adapts a figure to light and dark pages, whose style sheet colours its text."""
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": MID_GREY, "family": FONT, "size": 12},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        showlegend=True,
        dragmode=False,
        hoverlabel={"font": {"family": FONT, "color": "#fff"}, "bgcolor": "#1e293b", "align": "left"},
    )
    figure.update_layout(**layout)
    figure.update_yaxes(gridcolor=GRID, zeroline=False)
    figure.update_xaxes(zeroline=False)


def sent(figure: go.Figure) -> Figure:
    """Returns a figure as JSON for the page."""
    plain = json.loads(figure.to_json())
    return {"data": plain["data"], "layout": plain["layout"]}
