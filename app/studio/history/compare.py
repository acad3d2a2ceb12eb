"""Runs side by side: what differs between the first and each of the others, word by word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from typing_extensions import TypedDict

from app.studio.history.record import Record, RunSummary
from app.studio.runs.differences import blocks, word_difference
from app.studio.runs.run_frame import RunFrame

MOST_WORDS = 3000  # of a place whose words are compared; what is longer differs as a whole

Pieces = list[tuple[str, bool]]
"""A text cut into pieces that join to it, each with whether it differs."""


class RunBeside(TypedDict):
    """One of the runs: what it told, and its texts beside those of the first.

    The schema is the one that was run, with what its files said then.
    """

    summary: RunSummary
    told: RunFrame
    schema: Pieces
    prompt: Pieces
    cached: Pieces
    uncached: Pieces


def beside(records: Sequence[Record]) -> list[RunBeside]:
    """The runs as they are shown together; in the first is marked what is another in any of them."""
    told = [record.told for record in records]

    def compared(text_of: Callable[[int], str]) -> list[Pieces]:
        return against_first([text_of(number) for number in range(len(records))])

    schemas = compared(lambda number: records[number].whole)
    prompts = compared(lambda number: records[number].prompt)
    cached = compared(lambda number: told[number]["sides"]["cached"]["text"])
    uncached = compared(lambda number: told[number]["sides"]["uncached"]["text"])
    return [
        {
            "summary": record.summary(),
            "told": told[number],
            "schema": schemas[number],
            "prompt": prompts[number],
            "cached": cached[number],
            "uncached": uncached[number],
        }
        for number, record in enumerate(records)
    ]


def against_first(texts: Sequence[str]) -> list[Pieces]:
    """Each text beside the first; an empty one, of a side that was not run, differs from nothing."""
    first = texts[0]
    differing = bytearray(len(first))
    found: list[Pieces] = []
    for text in texts[1:]:
        ours, theirs = difference(first, text) if first and text else ([], [(text, False)])
        found.append(theirs)
        at = 0
        for piece, differs in ours:
            if differs:
                differing[at : at + len(piece)] = b"\1" * len(piece)
            at += len(piece)
    runs = ((bool(differs), len(list(run))) for differs, run in groupby(differing))
    own: Pieces = []
    at = 0
    for differs, length in runs:
        own.append((first[at : at + length], differs))
        at += length
    return [own, *found]


def difference(left: str, right: str) -> tuple[Pieces, Pieces]:
    """Two texts cut where they differ: lines first, then the words of lines that are not the same."""
    if left == right:
        return [(left, False)], [(right, False)]
    ours, theirs = left.splitlines(keepends=True), right.splitlines(keepends=True)
    one: Pieces = []
    other: Pieces = []
    for equal, a, b, c, d in blocks(ours, theirs)[0]:
        mine, its = "".join(ours[a:b]), "".join(theirs[c:d])
        if not equal and mine and its and max(len(mine.split()), len(its.split())) <= MOST_WORDS:
            words = word_difference(mine, its)
            one += words["cached"]
            other += words["uncached"]
        else:
            one.append((mine, not equal))
            other.append((its, not equal))
    return _joined(one), _joined(other)


def _joined(pieces: Pieces) -> Pieces:
    """The same text in as few pieces as can be."""
    grouped = groupby((piece for piece in pieces if piece[0]), key=lambda piece: piece[1])
    return [("".join(text for text, _ in run), differs) for differs, run in grouped]
