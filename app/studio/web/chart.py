"""What the studio's charts have in common: their colours, their frame, and how the page gets them."""

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
MID_GREY = "#76808f"  # readable on white and on the dark page until the page's own style sheet colours it
GRID = "rgba(127,127,127,.22)"
FONT = "IBM Plex Sans, system-ui, sans-serif"


class Figure(TypedDict):
    """What plotly draws."""

    data: Annotated[list[Json], JsonOf(list[Any])]
    layout: Annotated[Json, JsonOf(dict[str, Any])]


class Drawn(TypedDict):
    """A chart."""

    figure: Figure


def framed(figure: go.Figure, **layout: Any) -> None:
    """Fits a figure to a light and a dark page, whose style sheet colours its words."""
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
    """A figure as the page gets it."""
    plain = json.loads(figure.to_json())
    return {"data": plain["data"], "layout": plain["layout"]}
