"""Finds the text that a chat template writes around the turns of a conversation.

The end of a turn comes from a rendering of the turns up to it. Only the first turns of a long conversation
need such renderings; later turns are cut like an earlier turn of the same kind.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Protocol

from engine.prompt.conversation.tools import Header
from engine.prompt.template.recent import Recent
from engine.prompt.template.tokenizer import Tokenizer
from engine.prompt.template.turns import ChatError, ChatLimitError, Content, Told, Turns

_PAD = " \n\t\n "
_QUOTED_PAD = json.dumps(_PAD)[1:-1]
_MOST_KEPT: Final = 8_000_000  # characters of cached turn ends
_RENDERED: Final = 32  # turns whose ends come from separate renderings


class Render(Protocol):
    """Renders turns with a marker for each content, with white space around it if wanted."""

    def __call__(self, headers: tuple[Header, ...], told: Told, *, invite: bool = True, pad: str = "") -> str:
        """Returns the text, or raises a ChatError."""


class Cutter:
    """Finds the text that a chat template writes around each turn; `begin` may begin a text."""

    def __init__(self, render: Render, tokens: Tokenizer, begin: str) -> None:
        self._render, self._tokens, self._begin = render, tokens, begin
        self._ends: Recent[str] = Recent(_MOST_KEPT)

    def cut(self, headers: tuple[Header, ...], told: Told) -> Turns:
        """Returns the text around the turns of a conversation.

        Raises:
            ChatError: the template refuses the turns, or changes contents so that they cannot be located.
        """
        text, count = self._render(headers, told), len(headers)
        shown = [i for i, h in enumerate(headers) if not (h.blank or h.calls) or told.marker(i) in text]
        gaps = _between(headers, shown, told, text)
        begin = self._begin if self._begin and gaps[0].startswith(self._begin) else ""
        gaps[0] = gaps[0].removeprefix(begin)
        opens, closes = [""] * count, [""] * count
        seen: dict[object, tuple[str, str | None]] = {}  # by kinds of two turns: the close and the open
        visible = set(shown)
        kinds = [(h.role, place in visible) for place, h in enumerate(headers)]
        for gap, first, behind in zip(gaps, [-1, *shown], [*shown, count], strict=True):
            done = 0
            for i in range(max(first, 0), behind):
                pair = (*kinds[i : i + 2],)
                end = _as_seen(gap, seen.get(pair), i == first, i + 1 == behind) if i >= _RENDERED else None
                if end is None or i + 1 == count:
                    end = self._end_of(gap, first, headers, i, begin, told)
                closes[i], done = gap[done : max(end, done)], max(end, done)
                if i < _RENDERED:
                    seen.setdefault(pair, (closes[i], gap[done:] if i + 1 == behind else None))
            if behind < count:
                opens[behind] = gap[done:]
        generation = gap[done:]
        for i in set(range(count)).difference(shown):  # begins like the invitation
            if headers[i].role == "assistant" and generation and closes[i].startswith(generation):
                opens[i], closes[i] = generation, closes[i].removeprefix(generation)
        trims, contents = self._trims(headers, shown, told)
        invites = text != self._render(headers, told, invite=False)
        return Turns(
            begin, tuple(opens), tuple(closes), generation, trims, invites=invites, contents=contents
        )

    def _end_of(
        self, gap: str, first: int, headers: tuple[Header, ...], turn: int, begin: str, told: Told
    ) -> int:
        """Where the end of a turn lies in a gap, if it equals the turn's end without later turns."""
        end = self._end_alone(headers[: turn + 1], first, begin, told)
        if gap.startswith(end):
            return len(end)
        together = [header.role for header in headers[turn : turn + 2]] == ["tool", "tool"]
        if not together:
            return 0
        alike = next((i for i, (a, b) in enumerate(zip(gap, end, strict=False)) if a != b), 0)
        return min(self._tokens.border(gap, alike), self._tokens.border(end, alike))

    def _trims(
        self, headers: tuple[Header, ...], shown: Sequence[int], told: Told
    ) -> tuple[tuple[tuple[bool, bool], ...], tuple[Content, ...]]:
        """Whether the template strips white space around each content, and how it writes the content."""
        padded = self._render(headers, told, pad=_PAD)
        trims = [(False, False)] * len(headers)
        contents: list[Content] = ["kept" if header.blank else "dropped" for header in headers]
        for i in shown:
            before, _, padded = padded.partition(told.marker(i))
            quoted = headers[i].role == "tool" and before.endswith(_QUOTED_PAD)
            contents[i] = "quoted" if quoted else "kept"
            if not quoted:
                trims[i] = (not before.endswith(_PAD), not padded.startswith(_PAD))
        return tuple(trims), tuple(contents)

    def _end_alone(self, headers: tuple[Header, ...], first: int, begin: str, told: Told) -> str:
        """The text after one content if no other turns follow."""
        key = (headers, first, begin, told)
        known = self._ends.get(key)
        if known is None:
            try:
                text = self._render(headers, told, invite=False)
            except ChatLimitError:
                return ""
            except ChatError:
                text = ""
            known = text.rpartition(told.marker(first))[2] if first >= 0 else text.removeprefix(begin)
            self._ends.keep(key, known, 1000 + len(known) + 100 * len(headers))
        return known


def _as_seen(gap: str, seen: tuple[str, str | None] | None, starts: bool, ends: bool) -> int | None:
    """Where a turn ends if the gap is written as in earlier turns of the same kinds; None if unknown."""
    if seen is None:
        return None
    close, opening = seen
    if starts and gap.startswith(close):
        return len(close)
    return len(gap) - len(opening) if ends and opening is not None and gap.endswith(opening) else None


def _between(headers: Sequence[Header], shown: Sequence[int], told: Told, text: str) -> list[str]:
    """Splits a rendering into the texts around its visible contents."""
    gaps = []
    for i in shown:
        before, marker, text = text.partition(told.marker(i))
        if not marker:
            raise ChatError(
                f"the model's chat template drops or moves turn {i + 1} of "
                f"{' → '.join(header.role for header in headers)}. Use another order of roles."
            )
        gaps.append(before)
    return [*gaps, text]
