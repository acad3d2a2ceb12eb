"""Compares the first run with others, word by word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from typing_extensions import TypedDict

from app.studio.history.record import Record, RunSummary
from app.studio.runs.differences import blocks, word_difference
from app.studio.runs.run_frame import SIDES, RunFrame

MOST_WORDS = 3000  # longer passages are compared as a whole

Pieces = list[tuple[str, bool]]
"""A text in pieces, each with whether it differs."""


class RunBeside(TypedDict):
    """One run of a comparison: its frame, and its texts compared with the first run's.

    The schema includes the files that the run read.
    """

    summary: RunSummary
    told: RunFrame
    schema: Pieces
    prompt: Pieces
    cached: Pieces
    uncached: Pieces


def beside(records: Sequence[Record]) -> list[RunBeside]:
    """Returns the compared runs; the first marks what differs in any other run."""
    frames = [with_difference(record.told) for record in records]

    def compared(text_of: Callable[[int], str]) -> list[Pieces]:
        return against_first([text_of(number) for number in range(len(records))])

    schemas = compared(lambda number: records[number].whole)
    prompts = compared(lambda number: records[number].prompt)
    cached = compared(lambda number: frames[number]["sides"]["cached"]["text"])
    uncached = compared(lambda number: frames[number]["sides"]["uncached"]["text"])
    return [
        {
            "summary": record.summary(),
            "told": frames[number],
            "schema": schemas[number],
            "prompt": prompts[number],
            "cached": cached[number],
            "uncached": uncached[number],
        }
        for number, record in enumerate(records)
    ]


def with_difference(frame: RunFrame) -> RunFrame:
    """Returns a stored run's frame with the difference between its answers, which is not stored."""
    cached, uncached = (frame["sides"][side]["text"] for side in SIDES)
    return {**frame, "difference": word_difference(cached, uncached) if cached and uncached else None}


def against_first(texts: Sequence[str]) -> list[Pieces]:
    """Compares each text with the first; an empty one, of a side that was not run, has no differences."""
    first = texts[0]
    differing = bytearray(len(first))
    compared: list[Pieces] = []
    for text in texts[1:]:
        left, right = difference(first, text) if first and text else ([], [(text, False)])
        compared.append(right)
        at = 0
        for piece, differs in left:
            if differs:
                differing[at : at + len(piece)] = b"\1" * len(piece)
            at += len(piece)
    runs = ((bool(differs), len(list(run))) for differs, run in groupby(differing))
    own: Pieces = []
    at = 0
    for differs, length in runs:
        own.append((first[at : at + length], differs))
        at += length
    return [own, *compared]


def difference(left: str, right: str) -> tuple[Pieces, Pieces]:
    """Compares two texts by lines, then by words in lines that differ."""
    if left == right:
        return [(left, False)], [(right, False)]
    left_lines, right_lines = left.splitlines(keepends=True), right.splitlines(keepends=True)
    pieces: Pieces = []
    other: Pieces = []
    for equal, a, b, c, d in blocks(left_lines, right_lines)[0]:
        mine, its = "".join(left_lines[a:b]), "".join(right_lines[c:d])
        if not equal and mine and its and max(len(mine.split()), len(its.split())) <= MOST_WORDS:
            words = word_difference(mine, its)
            pieces += words["cached"]
            other += words["uncached"]
        else:
            pieces.append((mine, not equal))
            other.append((its, not equal))
    return _joined(pieces), _joined(other)


def _joined(pieces: Pieces) -> Pieces:
    """Merges adjacent pieces with the same mark."""
    grouped = groupby((piece for piece in pieces if piece[0]), key=lambda piece: piece[1])
    return [("".join(text for text, _ in run), differs) for differs, run in grouped]
