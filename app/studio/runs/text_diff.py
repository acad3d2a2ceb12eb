"""Compares two texts by lines, and changed lines by words. Bounded in time and size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from typing_extensions import TypedDict

from app.studio.runs.differences import blocks

AROUND = 3  # equal lines shown around differences
MOST_ROWS = 600
MOST_WORDS = 400
LONGEST_LINE = 1000
_ALIKE = 0.3  # lines with a smaller share of common words are unrelated
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


class LinePart(TypedDict):
    """A piece of a line, and whether it differs from the other side."""

    text: str
    changed: bool


class Line(TypedDict):
    """A line with its number, from 1."""

    number: int
    parts: list[LinePart]


class DifferenceRow(TypedDict):
    """Two lines side by side; None if a side has none. `skipped` equal lines precede it."""

    left: Line | None
    right: Line | None
    changed: bool
    skipped: int


class TextDifference(TypedDict):
    """The difference between two texts.

    `removed` and `added` count lines; `omitted` counts hidden rows. `coarse` means that a comparison by lines
    would have taken too long.
    """

    rows: list[DifferenceRow]
    removed: int
    added: int
    omitted: int
    coarse: bool


def difference(left: str, right: str) -> TextDifference:
    r"""Compares two texts with `\n` line endings."""
    before, after = left.split("\n"), right.split("\n")
    parts_found, coarse = blocks(before, after)
    rows: list[DifferenceRow] = []
    removed = added = omitted = 0
    for place, (equal, i1, i2, j1, j2) in enumerate(parts_found):
        if equal:
            head = AROUND if place else 0
            tail = AROUND if place < len(parts_found) - 1 else 0
            following = 0
            for k in (k for k in range(i2 - i1) if k < head or k >= i2 - i1 - tail):
                if len(rows) < MOST_ROWS:
                    parts = _whole(before[i1 + k], changed=False)
                    line: Line = {"number": i1 + k + 1, "parts": parts}
                    other: Line = {"number": j1 + k + 1, "parts": parts}
                    skipped = k - following
                    rows.append({"left": line, "right": other, "changed": False, "skipped": skipped})
                following = k + 1
            continue
        removed, added = removed + i2 - i1, added + j2 - j1
        for row in _changed(before, after, (i1, i2, j1, j2)):
            if len(rows) < MOST_ROWS:
                rows.append(row)
            else:
                omitted += 1
    return {"rows": rows, "removed": removed, "added": added, "omitted": omitted, "coarse": coarse}


def _changed(
    before: Sequence[str], after: Sequence[str], place: tuple[int, int, int, int]
) -> Iterator[DifferenceRow]:
    i1, i2, j1, j2 = place
    for k in range(max(i2 - i1, j2 - j1)):
        old = before[i1 + k] if i1 + k < i2 else None
        new = after[j1 + k] if j1 + k < j2 else None
        left, right = _words(old, new)
        yield {
            "left": None if old is None else {"number": i1 + k + 1, "parts": left},
            "right": None if new is None else {"number": j1 + k + 1, "parts": right},
            "changed": True,
            "skipped": 0,
        }


def _words(old: str | None, new: str | None) -> tuple[list[LinePart], list[LinePart]]:
    """Returns a row's lines with different words marked; unrelated lines are marked as a whole."""
    whole = (_whole(old or "", changed=True), _whole(new or "", changed=True))
    if old is None or new is None or max(len(old), len(new)) > LONGEST_LINE:
        return whole
    a, b = _WORDS.findall(old), _WORDS.findall(new)
    if max(len(a), len(b)) > MOST_WORDS:
        return whole
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return whole
    left: list[LinePart] = []
    right: list[LinePart] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        changed = tag != "equal"
        if i1 < i2:
            left.append({"text": "".join(a[i1:i2]), "changed": changed})
        if j1 < j2:
            right.append({"text": "".join(b[j1:j2]), "changed": changed})
    return left, right


def _whole(line: str, *, changed: bool) -> list[LinePart]:
    shown = line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
    return [{"text": shown, "changed": changed}] if shown else []


def common_ends(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """Returns how many items at the start and at the end of two sequences are equal."""
    most = min(len(old), len(new))
    head = next((at for at in range(most) if old[at] != new[at]), most)
    most -= head
    return head, next((at for at in range(most) if old[-1 - at] != new[-1 - at]), most)
