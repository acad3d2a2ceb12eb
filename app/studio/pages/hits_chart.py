"""The chart of requests: what of each prompt was read, written and computed, and what of all was read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from html import escape
from typing import Final

import plotly.graph_objects as go

from app.server.core.metrics import Request
from app.server.core.usage import Usage
from app.studio.web.chart import CACHED, MID_GREY, NEW, framed
from engine.base.stopwatch import milliseconds

ROOM = 12  # requests for which there is room at least: a single one is no wall
FEW = 40  # that have room for a border between them
TICKS = 5  # times at the axis at most, which fit on a telephone
COMPUTED: Final = "rgba(118,128,143,.38)"  # the grey of what is not cached, behind the line
RUNNING: Final = "read of all so far"
_PARTS: Final[tuple[tuple[str, str, Callable[[Usage], int]], ...]] = (
    ("read", CACHED, lambda usage: usage.read),
    ("written: computed and kept", NEW, lambda usage: usage.written),
    ("computed, not kept", COMPUTED, lambda usage: usage.rest),
)
"""What each colour says, as the legend of the page has it; told apart by who sees no red, green or blue."""


def hits_chart(requests: Sequence[Request]) -> go.Figure:
    """The figure of these requests, oldest first; those whose tokens are not known are left out."""
    figure = go.Figure()
    known = [(one, usage) for one in requests if (usage := one.usage) is not None and usage.prompt]
    if not known:
        return figure
    places = list(range(1, len(known) + 1))
    told = [_hover(one, usage) for one, usage in known]
    for name, colour, of in _PARTS:
        figure.add_bar(
            name=name,
            x=places,
            y=[100 * of(usage) / usage.prompt for _, usage in known],
            marker={"color": colour, "line": {"width": 0}},
            hovertext=told,
            hovertemplate="%{hovertext}<extra></extra>",
        )
    read = prompt = 0
    running: list[float] = []
    words: list[str] = []
    for _, usage in known:
        read, prompt = read + usage.read, prompt + usage.prompt
        running.append(100 * read / prompt)
        words.append(f"{RUNNING}: {read:,} of {prompt:,} tokens, {100 * read / prompt:.0f}%")
    figure.add_scatter(
        name=RUNNING,
        x=places,
        y=running,
        mode="lines+markers" if len(known) == 1 else "lines",
        line={"width": 2, "color": MID_GREY},
        marker={"size": 8, "color": MID_GREY},
        hovertext=words,
        hovertemplate="%{hovertext}<extra></extra>",
    )
    _style(figure, [one for one, _ in known])
    return figure


def _hover(one: Request, usage: Usage) -> str:
    """What a bar says; plotly reads markup in it, so words of others are escaped."""
    share = f"of {usage.prompt:,} tokens {usage.read:,} read ({100 * usage.read / usage.prompt:.0f}%)"
    parts = f"{share}, {usage.written:,} written, {usage.rest:,} computed"
    first = [] if one.ttft_ms is None else [f"first token {milliseconds(one.ttft_ms)}"]
    head = f"<b>{time.strftime('%H:%M:%S', time.localtime(one.at))}</b> {escape(one.path, quote=False)}"
    return "<br>".join([head, parts, *first])


def _style(figure: go.Figure, requests: Sequence[Request]) -> None:
    many = len(requests)
    framed(figure, height=150, margin={"l": 44, "r": 12, "t": 8, "b": 24}, hovermode="closest")
    figure.update_layout(barmode="stack", bargap=0.25 if many <= FEW else 0, showlegend=False)
    parts = (0, 25, 50, 75, 100)
    figure.update_yaxes(range=[0, 100], tickvals=parts, ticktext=[f"{part}%" for part in parts])
    room = max(many, ROOM)
    step = -(-room // TICKS)
    shown = range(min(step // 2, many - 1), many, step)
    figure.update_xaxes(
        range=[0.5, room + 0.5],
        tickvals=[number + 1 for number in shown],
        ticktext=[time.strftime("%H:%M:%S", time.localtime(requests[number].at)) for number in shown],
        tickangle=0,
        showgrid=False,
    )
