"""Which rows of a pass read which tokens of segments.

Several prompts may place the same segment, whole or in pieces, at different positions. Its tokens are cut at
every boundary, so that each shared slice occurs once, with all its readers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch

from engine.attention.masks import Hidden, Kept
from engine.attention.spans import Span
from engine.base.segment import Placement, Segment


@dataclass(frozen=True)
class Sight:
    """The part of a slice that its readers see in one pass.

    Attributes:
        first: the first token that a reader sees, as an index in the segment.
        end: the index after the last.
        hidden: the tokens of these that each reader does not see.
    """

    first: int
    end: int
    hidden: Hidden


@dataclass(frozen=True, eq=False)
class Slice:
    """Tokens `lo..hi` of a segment that the same rows read.

    Attributes:
        segment: the segment.
        lo: its first token.
        hi: the index after its last token.
        rows: the rows that read it, ascending.
        starts: the position of its first token for each row.
        hidden: the local positions in `lo..hi` that each row does not see.
    """

    segment: Segment
    lo: int
    hi: int
    rows: tuple[int, ...]
    starts: tuple[int, ...]
    hidden: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.hi - self.lo

    @property
    def shifts(self) -> list[int]:
        """The backward rotation of each reader's query, in positions."""
        return [start - self.lo for start in self.starts]

    def borders(self, at: Sequence[int], window: int | None) -> tuple[tuple[int, int], ...]:
        """Returns the first token that each reader sees, and the end, relative to `lo`.

        Args:
            at: positions of all rows of the pass.
            window: a query at p sees keys at p - window + 1 and later; None for all.
        """
        return tuple(
            (
                0 if window is None else max(0, at[row] - window + 1 - start),
                min(self.tokens, at[row] + 1 - start),
            )
            for row, start in zip(self.rows, self.starts, strict=True)
        )

    def runs(self, borders: Sequence[tuple[int, int]]) -> list[Span]:
        """Returns runs of tokens that the same readers see whole, relative to `lo`, with reader numbers.

        `borders` has the visible range of each reader, before hidden tokens are removed.
        """
        gone = [frozenset(place - self.lo for place in own) for own in self.hidden]
        cuts = {cut for border in borders for cut in border}
        cuts |= {cut for own in gone for place in own for cut in (place, place + 1)}
        runs: list[Span] = []
        for first, end in pairwise(sorted(cuts)):
            readers = tuple(
                number
                for number, ((low, high), own) in enumerate(zip(borders, gone, strict=True))
                if low <= first and end <= high and first not in own
            )
            if runs and runs[-1].end == first and runs[-1].queries == readers:
                runs[-1] = replace(runs[-1], end=end)
            elif readers:
                runs.append(Span(readers, first, end))
        return runs

    def seen(self, at: Sequence[int], window: int | None, device: torch.device) -> Sight | None:
        """Returns the visible part of the slice; None if no reader sees any. Arguments as in `borders`."""
        borders = self.borders(at, window)
        sighted = [(first, end) for first, end in borders if first < end]
        if not sighted:
            return None
        low, high = min(first for first, _ in sighted), max(end for _, end in sighted)
        hidden = Hidden()
        if any(self.hidden) or any(border != (low, high) for border in borders):
            places = torch.arange(low, high, device=device)
            firsts, ends = torch.tensor(borders, device=device).unbind(1)
            mask = places < firsts[:, None]
            mask |= places >= ends[:, None]
            for row, replaced in zip(mask, self.hidden, strict=True):
                row[[place - self.lo - low for place in replaced if low <= place - self.lo < high]] = True
            if bool(mask.all()):
                return None
            hidden = Hidden(0, mask, kept=Kept())
        return Sight(self.lo + low, self.lo + high, hidden)


class Readers:
    """Which rows of a pass read which segments.

    In `slices` each token of a segment occurs once, unless a row reads it in several places.
    """

    def __init__(self, placements: Sequence[Sequence[Placement]]) -> None:
        self.placements = tuple(placements)
        self.slices = tuple(_slices(self.placements))

    def same(self, placements: Sequence[Sequence[Placement]]) -> bool:
        """Whether the rows have identical placements."""
        return len(placements) == len(self.placements) and all(
            own is other for own, other in zip(placements, self.placements, strict=True)
        )

    def alone(self, row: int, short: int) -> list[Placement]:
        """Placements of a row without shared tokens, and placements of fewer than `short` tokens."""
        shared = [piece for piece in self.slices if len(piece.rows) > 1 and row in piece.rows]
        return [
            placement
            for placement in self.placements[row]
            if placement.tokens < short or not any(_holds(placement, row, piece) for piece in shared)
        ]


def _holds(placement: Placement, row: int, piece: Slice) -> bool:
    """Whether a row reads a slice at this placement."""
    start = piece.starts[piece.rows.index(row)]
    return start < placement.start + placement.tokens and placement.start < start + piece.tokens


@dataclass
class _Reading:
    """A placement as one row reads it."""

    row: int
    placement: Placement

    @property
    def lo(self) -> int:
        return self.placement.lo

    @property
    def hi(self) -> int:
        return self.placement.hi


@dataclass
class _Pile:
    """Readings of the same segment. No two of the same row overlap."""

    readings: list[_Reading] = field(default_factory=list)

    def takes(self, new: _Reading) -> bool:
        """Whether a reading overlaps no other of its row."""
        return not any(
            reading.row == new.row and reading.lo < new.hi and new.lo < reading.hi
            for reading in self.readings
        )


def _slices(placements: Sequence[Sequence[Placement]]) -> list[Slice]:
    piles: dict[int, list[_Pile]] = defaultdict(list)
    for row, own in enumerate(placements):
        for placement in _joined(own):
            same = piles[id(placement.segment)]
            reading = _Reading(row, placement)
            pile = next((pile for pile in same if pile.takes(reading)), None)
            if pile is None:
                same.append(pile := _Pile())
            pile.readings.append(reading)
    return [piece for many in piles.values() for pile in many for piece in _cut(pile)]


def _joined(placements: Sequence[Placement]) -> list[Placement]:
    """Joins placements that continue each other, both in the segment and in position."""
    joined: list[Placement] = []
    for placement in placements:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.segment is placement.segment
            and (last.hi, last.shift) == (placement.lo, placement.shift)
        ):
            joined[-1] = replace(last, hi=placement.hi, hidden=(*last.hidden, *placement.hidden))
        else:
            joined.append(placement)
    return joined


def _cut(pile: _Pile) -> list[Slice]:
    """The slices of a pile. Ranges with the same readers form one slice."""
    borders = sorted({border for reading in pile.readings for border in (reading.lo, reading.hi)})
    slices: list[tuple[int, int, list[_Reading]]] = []
    for lo, hi in pairwise(borders):
        readings = [reading for reading in pile.readings if reading.lo <= lo and hi <= reading.hi]
        if not readings:
            continue
        if slices and slices[-1][1] == lo and slices[-1][2] == readings:
            slices[-1] = (slices[-1][0], hi, readings)
        else:
            slices.append((lo, hi, readings))
    return [_slice(lo, hi, readings) for lo, hi, readings in slices]


def _slice(lo: int, hi: int, readings: list[_Reading]) -> Slice:
    placements = [reading.placement for reading in readings]
    return Slice(
        placements[0].segment,
        lo,
        hi,
        tuple(reading.row for reading in readings),
        tuple(lo + placement.shift for placement in placements),
        tuple(tuple(at for at in placement.hidden if lo <= at < hi) for placement in placements),
    )
