"""The chart of requests: cached, written and computed tokens of each prompt, and the cached share."""

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

ROOM = 12  # minimum slots, so that a single bar stays narrow
FEW = 40  # bars with a line between them
TICKS = 5  # maximum time labels; they fit on a phone
COMPUTED: Final = "rgba(118,128,143,.38)"  # grey for tokens that are not cached
RUNNING: Final = "cached share so far"
_PARTS: Final[tuple[tuple[str, str, Callable[[Usage], int]], ...]] = (
    ("read", CACHED, lambda usage: usage.read),
    ("written: computed and stored", NEW, lambda usage: usage.written),
    ("computed, not stored", COMPUTED, lambda usage: usage.rest),
)
"""The meaning of each colour as in the page's legend, distinct for colour-blind readers."""


def hits_chart(requests: Sequence[Request]) -> go.Figure:
    """Returns the chart of these requests, oldest first, without those of unknown tokens."""
    figure = go.Figure()
    known = [(bar, usage) for bar in requests if (usage := bar.usage) is not None and usage.prompt]
    if not known:
        return figure
    places = list(range(1, len(known) + 1))
    texts = [_hover(bar, usage) for bar, usage in known]
    for name, colour, of in _PARTS:
        figure.add_bar(
            name=name,
            x=places,
            y=[100 * of(usage) / usage.prompt for _, usage in known],
            marker={"color": colour, "line": {"width": 0}},
            hovertext=texts,
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
    _style(figure, [bar for bar, _ in known])
    return figure


def _hover(one: Request, usage: Usage) -> str:
    """Returns a bar's hover text, escaped because plotly reads markup."""
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
