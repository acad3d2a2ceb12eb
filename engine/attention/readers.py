"""Which tokens of segments are read by which rows of a pass, and what of them each row sees.

Several prompts may place the same segment, whole or in pieces, each at a place of its own. Its tokens are cut
at every border, so that what several rows read is there once, with all its readers.
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
    """What the readers of a slice see of it in one pass.

    Attributes:
        first: the first token that one of them sees, counted in the segment.
        end: behind the last.
        hidden: what each reader does not see of these.
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
        hi: behind its last.
        rows: which rows read it, ascending.
        starts: where its first token stands for each of them.
        hidden: the local positions that each of them does not see, within `lo..hi`.
    """

    segment: Segment
    lo: int
    hi: int
    rows: tuple[int, ...]
    starts: tuple[int, ...]
    hidden: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        """How many tokens it has."""
        return self.hi - self.lo

    @property
    def shifts(self) -> list[int]:
        """By how much the query of each reader turns back."""
        return [start - self.lo for start in self.starts]

    def borders(self, at: Sequence[int], window: int | None) -> tuple[tuple[int, int], ...]:
        """Of each reader the first token that it sees, and behind the last, counted from `lo`.

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
        """Tokens that the same readers see, each all of them, counted from `lo`; readers by their number.

        Args:
            borders: what each reader sees, but for what is hidden from it.
        """
        gone = [frozenset(one - self.lo for one in own) for own in self.hidden]
        cuts = {cut for border in borders for cut in border}
        cuts |= {cut for own in gone for one in own for cut in (one, one + 1)}
        found: list[Span] = []
        for first, end in pairwise(sorted(cuts)):
            readers = tuple(
                number
                for number, ((low, high), own) in enumerate(zip(borders, gone, strict=True))
                if low <= first and end <= high and first not in own
            )
            if found and found[-1].end == first and found[-1].queries == readers:
                found[-1] = replace(found[-1], end=end)
            elif readers:
                found.append(Span(readers, first, end))
        return found

    def seen(self, at: Sequence[int], window: int | None, device: torch.device) -> Sight | None:
        """What its readers see of it; None where none of them sees any.

        Args:
            at: positions of all rows of the pass.
            window: a query at p sees keys at p - window + 1 and later; None for all.
            device: of the masks.
        """
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
                row[[one - self.lo - low for one in replaced if low <= one - self.lo < high]] = True
            if bool(mask.all()):
                return None
            hidden = Hidden(0, mask, kept=Kept())
        return Sight(self.lo + low, self.lo + high, hidden)


class Readers:
    """Who of the rows of a pass reads what.

    Args:
        placements: what each row reads.

    Attributes:
        slices: all that is read, each token of a segment once but for a row that reads it in several places.
    """

    def __init__(self, placements: Sequence[Sequence[Placement]]) -> None:
        self.placements = tuple(placements)
        self.slices = tuple(_slices(self.placements))

    def same(self, placements: Sequence[Sequence[Placement]]) -> bool:
        """Whether rows read the very same."""
        return len(placements) == len(self.placements) and all(
            one is other for one, other in zip(placements, self.placements, strict=True)
        )

    def alone(self, row: int, short: int) -> list[Placement]:
        """Placements of a row of which no other row reads a token, and those of fewer than `short` tokens."""
        shared = [piece for piece in self.slices if len(piece.rows) > 1 and row in piece.rows]
        return [
            placement
            for placement in self.placements[row]
            if placement.tokens < short or not any(_holds(placement, row, piece) for piece in shared)
        ]


def _holds(placement: Placement, row: int, piece: Slice) -> bool:
    """Whether a slice that a row reads stands where this placement does."""
    start = piece.starts[piece.rows.index(row)]
    return start < placement.start + placement.tokens and placement.start < start + piece.tokens


@dataclass
class _Reading:
    """A placement as one row reads it."""

    row: int
    placement: Placement

    @property
    def lo(self) -> int:
        """Its first token."""
        return self.placement.lo

    @property
    def hi(self) -> int:
        """Behind its last token."""
        return self.placement.hi


@dataclass
class _Pile:
    """Readings of the same segment, of which no two of a row have a token in common."""

    readings: list[_Reading] = field(default_factory=list)

    def takes(self, new: _Reading) -> bool:
        """Whether a reading has no token in common with another of its row."""
        return not any(one.row == new.row and one.lo < new.hi and new.lo < one.hi for one in self.readings)


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
    """Placements of which those that go on where the one before ends, in the segment as well, are one."""
    found: list[Placement] = []
    for one in placements:
        last = found[-1] if found else None
        if last is not None and last.segment is one.segment and (last.hi, last.shift) == (one.lo, one.shift):
            found[-1] = replace(last, hi=one.hi, hidden=(*last.hidden, *one.hidden))
        else:
            found.append(one)
    return found


def _cut(pile: _Pile) -> list[Slice]:
    """The slices of a pile; what lies between two borders that no reader crosses differently is in one."""
    borders = sorted({border for one in pile.readings for border in (one.lo, one.hi)})
    found: list[tuple[int, int, list[_Reading]]] = []
    for lo, hi in pairwise(borders):
        readings = [one for one in pile.readings if one.lo <= lo and hi <= one.hi]
        if not readings:
            continue
        if found and found[-1][1] == lo and found[-1][2] == readings:
            found[-1] = (found[-1][0], hi, readings)
        else:
            found.append((lo, hi, readings))
    return [_slice(lo, hi, readings) for lo, hi, readings in found]


def _slice(lo: int, hi: int, readings: list[_Reading]) -> Slice:
    placements = [one.placement for one in readings]
    return Slice(
        placements[0].segment,
        lo,
        hi,
        tuple(one.row for one in readings),
        tuple(lo + one.shift for one in placements),
        tuple(tuple(at for at in one.hidden if lo <= at < hi) for one in placements),
    )
