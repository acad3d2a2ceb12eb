"""The reliability plot: how often answers of a confidence are right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import plotly.graph_objects as go

from app.studio.web.chart import CACHED, MID_GREY, UNCACHED, framed
from engine.base.events import Side
from engine.decisions.report import Report

_SIDES: Final = {"cached": (CACHED, "circle"), "uncached": (UNCACHED, "square")}
_SMALLEST, _LARGEST = 7, 20  # pixels of a point


def reliability_chart(reports: Mapping[Side, Report]) -> go.Figure:
    """Returns the plot of each side. A point is a bin; a larger one has more rows."""
    figure = go.Figure()
    figure.add_scatter(
        name="perfectly calibrated",
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        line={"color": MID_GREY, "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )
    for side, found in reports.items():
        colour, symbol = _SIDES[side]
        share = [one.count / found.count for one in found.bins]
        figure.add_scatter(
            name=side,
            x=[one.confidence for one in found.bins],
            y=[one.accuracy for one in found.bins],
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={
                "color": colour,
                "symbol": symbol,
                "size": [_SMALLEST + (_LARGEST - _SMALLEST) * part for part in share],
                "opacity": 0.85,
            },
            customdata=[one.count for one in found.bins],
            hovertemplate="confidence %{x:.0%}, right %{y:.0%}, rows %{customdata}",
        )
    framed(figure, height=300, margin={"l": 52, "r": 12, "t": 40, "b": 44}, hovermode="closest")
    figure.update_layout(legend_itemsizing="constant")
    ticks = {"range": [-0.02, 1.02], "tickformat": ".0%", "dtick": 0.25}
    figure.update_xaxes(title="confidence", showgrid=False, **ticks)
    figure.update_yaxes(title="right answers", **ticks)
    return figure
