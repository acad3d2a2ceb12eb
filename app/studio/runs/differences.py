"""What differs between two texts, in a time that is bounded whatever the texts are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from app.studio.runs.run_frame import Difference

MOST_PAIRS = 200_000  # of equal pieces in both texts: what comparing them costs


class Block(NamedTuple):
    """A part of two sequences, from and to where in each, that is equal in both or differs."""

    equal: bool
    i1: int
    i2: int
    j1: int
    j2: int


def blocks(before: Sequence[str], after: Sequence[str]) -> tuple[list[Block], bool]:
    """Equal and different blocks of two sequences in turns.

    Returns:
        The blocks, and whether all between the equal ends is one block that differs, as comparing it would
        take too long.
    """
    shorter = min(len(before), len(after))
    head = next((k for k in range(shorter) if before[k] != after[k]), shorter)
    most = shorter - head
    tail = next((k for k in range(most) if before[-1 - k] != after[-1 - k]), most)
    ends = (len(before) - tail, len(after) - tail)
    found = [Block(True, 0, head, 0, head)] if head else []
    old, new = before[head : ends[0]], after[head : ends[1]]
    counts = Counter(new)
    coarse = sum(counts[piece] for piece in old) > MOST_PAIRS
    if coarse:
        found.append(Block(False, head, ends[0], head, ends[1]))
    elif old or new:
        found += [
            Block(tag == "equal", head + i1, head + i2, head + j1, head + j2)
            for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        ]
    if tail:
        found.append(Block(True, ends[0], len(before), ends[1], len(after)))
    return found, coarse


def word_difference(cached: str, uncached: str) -> Difference:
    """The two texts cut into runs of words that agree and runs that do not.

    Returns:
        ``cached`` and ``uncached``: lists of ``(text, differs)`` that join to the texts; ``differing``: the
        number of words, on the side with more of them, that stand in runs that differ.
    """
    left, right = _words(cached), _words(uncached)
    ours: list[tuple[str, bool]] = []
    theirs: list[tuple[str, bool]] = []
    differing = 0
    found, _ = blocks([w.strip() for w in left], [w.strip() for w in right])
    for equal, a, b, c, d in found:
        differs = not equal
        differing += max(b - a, d - c) if differs else 0
        if b > a:
            ours.append(("".join(left[a:b]), differs))
        if d > c:
            theirs.append(("".join(right[c:d]), differs))
    return {"cached": ours, "uncached": theirs, "differing": differing}


def _words(text: str) -> list[str]:
    words: list[str] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or (text[end].isspace() and not text[end - 1].isspace()):
            words.append(text[start:end])
            start = end
    return words
