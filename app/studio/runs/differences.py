"""Compares two texts in bounded time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from app.studio.runs.run_frame import Difference, FirstDifference

MOST_PAIRS = 200_000  # maximum pairs of equal pieces, the cost of a comparison


class Block(NamedTuple):
    """A part of two sequences, with its start and end in each, that is equal or differs."""

    equal: bool
    i1: int
    i2: int
    j1: int
    j2: int


def blocks(before: Sequence[str], after: Sequence[str]) -> tuple[list[Block], bool]:
    """Returns alternating equal and different blocks of two sequences.

    Returns:
        The blocks, and whether the comparison was too expensive, so that everything between the equal ends is
            one different block.
    """
    shorter = min(len(before), len(after))
    head = next((k for k in range(shorter) if before[k] != after[k]), shorter)
    most = shorter - head
    tail = next((k for k in range(most) if before[-1 - k] != after[-1 - k]), most)
    ends = (len(before) - tail, len(after) - tail)
    result = [Block(True, 0, head, 0, head)] if head else []
    old, new = before[head : ends[0]], after[head : ends[1]]
    counts = Counter(new)
    coarse = sum(counts[piece] for piece in old) > MOST_PAIRS
    if coarse:
        result.append(Block(False, head, ends[0], head, ends[1]))
    elif old or new:
        result += [
            Block(tag == "equal", head + i1, head + i2, head + j1, head + j2)
            for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        ]
    if tail:
        result.append(Block(True, ends[0], len(before), ends[1], len(after)))
    return result, coarse


def word_difference(cached: str, uncached: str) -> Difference:
    """Splits two texts into runs of words that agree or differ.

    Returns:
        ``cached`` and ``uncached``: lists of ``(text, differs)`` that join to the texts. ``differing``: the
            number of differing words, on the side with more of them. ``first``: the first of them.
    """
    left, right = _words(cached), _words(uncached)
    left_pieces: list[tuple[str, bool]] = []
    right_pieces: list[tuple[str, bool]] = []
    differing = 0
    first: FirstDifference | None = None
    parts, _ = blocks([w.strip() for w in left], [w.strip() for w in right])
    for equal, a, b, c, d in parts:
        differs = not equal
        if differs and first is None:
            first = {"word": a + 1, "cached": _word(left, a), "uncached": _word(right, c)}
        differing += max(b - a, d - c) if differs else 0
        if b > a:
            left_pieces.append(("".join(left[a:b]), differs))
        if d > c:
            right_pieces.append(("".join(right[c:d]), differs))
    return {"cached": left_pieces, "uncached": right_pieces, "differing": differing, "first": first}


def _word(words: Sequence[str], place: int) -> str:
    return words[place].strip() if place < len(words) else ""


def _words(text: str) -> list[str]:
    words: list[str] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or (text[end].isspace() and not text[end - 1].isspace()):
            words.append(text[start:end])
            start = end
    return words
