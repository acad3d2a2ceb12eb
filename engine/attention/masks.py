"""Masks of the rows of one forward pass, shared by all layers with the same window.

The keys of a pass are those of the placed segments and a tail: tokens of earlier passes, then its own rows. A
row sees keys at its own position and before, within the window, except hidden tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.attention.banded import Band, bands
from engine.base.segment import Placement

SCATTERED_ROWS = 64  # rows of a block with gaps, as in a repair
KEPT_BYTES = 48 << 20  # limit of the biases that stay in memory during one pass


class Kept:
    """The remaining budget in bytes for biases that layers share."""

    def __init__(self) -> None:
        self.left = KEPT_BYTES


@dataclass(frozen=True)
class Hidden:
    """The keys that a block of rows does not see.

    Attributes:
        before: the number of first rows, which see none of the keys.
        mask: bool [rows or 1, keys], true if a row does not see a key. It covers the last keys before
            `beyond`. None if all rows see all keys.
        gone: the number of first keys, which no row sees; outside the mask.
        beyond: the number of last keys, which no row sees; outside the mask.
        kept: the budget of the pass, shared by all its masks.
    """

    before: int = 0
    mask: Tensor | None = None
    gone: int = 0
    beyond: int = 0
    kept: Kept = field(default_factory=Kept, repr=False, compare=False)
    _biases: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def bias(self, group: int, like: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Returns the mask as a bias for scores, built once for all layers while the budget lasts.

        `group` is the number of packed rows per row.

        Returns:
            The bias [packed rows after `before`, or 1; keys of the mask], 0 or minus infinity. Also a bool
            per row that marks rows without any visible key. Either may be None if it has no effect.
        """
        if self.mask is None:
            return None, None
        result = self._biases.get((group, like.dtype))
        if result is None:
            mask = self.mask if len(self.mask) == 1 else self.mask[self.before :].repeat_interleave(group, 0)
            bias = torch.zeros(mask.shape, dtype=like.dtype, device=like.device)
            blind = mask.all(1)
            result = bias.masked_fill_(mask, -torch.inf), blind if bool(blind.any()) else None
            if bias.nbytes <= self.kept.left:
                self.kept.left -= bias.nbytes
                self._biases[group, like.dtype] = result
        return result


@dataclass(frozen=True)
class Block:
    """Some rows of a pass.

    Attributes:
        first: the index of its first row.
        end: the index after its last row.
        placed: the hidden keys of each placement.
        tail: the tail keys that some row may see.
        own: the hidden keys of those.
        gathered: the hidden gathered keys.
    """

    first: int
    end: int
    placed: tuple[Hidden, ...]
    tail: slice
    own: Hidden
    gathered: Hidden

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.end - self.first


class Masks:
    """The masks of one forward pass.

    Args:
        placements: segments that its rows may see.
        positions: int64 [tail], positions of the whole tail; the last `rows` ascend.
        rows: the number of rows of the pass.
        ascending: whether the positions of the whole tail ascend.
        gathered: int64 [tokens], ascending positions of keys that are read as one run; None for none.
        unseen: bool [rows, rows], true where a row does not see another; None if it sees all before it.
    """

    def __init__(
        self,
        placements: Sequence[Placement],
        positions: Tensor,
        rows: int,
        *,
        ascending: bool,
        gathered: Tensor | None = None,
        unseen: Tensor | None = None,
    ) -> None:
        self.rows, self._gathered, self._unseen = rows, gathered, unseen
        self._placements, self._positions, self._ascending = placements, positions, ascending
        self._earlier = len(positions) - rows
        self._at_rows = positions[self._earlier :]
        starts = torch.tensor([placement.start for placement in placements], dtype=torch.int64)
        self._first_rows: list[int] = torch.searchsorted(self._at_rows, starts).tolist()
        self._blocks: dict[tuple[int | None, int], tuple[Block, ...]] = {}
        self._bands: dict[int, tuple[Band, ...]] = {}
        self._kept = Kept()

    @property
    def block_rows(self) -> int:
        """Rows per block: fewer if the rows are far apart, because the first ones see less."""
        return SCATTERED_ROWS if self.extent >= 2 * self.rows else self.rows

    @property
    def extent(self) -> int:
        """Distance from the first row to the last, in positions."""
        return int(self._at_rows[-1] - self._at_rows[0])

    def blocks(self, window: int | None, most: int, device: torch.device) -> tuple[Block, ...]:
        """Returns the rows in blocks of at most `most`, for layers with this window."""
        if (window, most) not in self._blocks:
            places = self._positions.to(device)
            order = torch.arange(min(most, self.rows), device=device)
            later = Hidden(0, order > order[:, None], kept=self._kept)
            blocks = []
            for first in range(0, self.rows, most):
                end = min(first + most, self.rows)
                placed = tuple(
                    self._placed(i, first, end, window, places) for i in range(len(self._placements))
                )
                tail = slice(self._nearest(first, window), self._earlier + end)
                own = self._own(first, end, tail, window, places, later)
                blocks.append(
                    Block(first, end, placed, tail, own, self._together(first, end, window, device))
                )
            self._blocks[window, most] = tuple(blocks)
        return self._blocks[window, most]

    def bands(self, window: int, like: Tensor) -> tuple[Band, ...]:
        """Returns the bands of a pass without earlier keys."""
        if window not in self._bands:
            self._bands[window] = bands(self._at_rows.tolist(), window, like)
        return self._bands[window]

    def _placed(self, index: int, first: int, end: int, window: int | None, places: Tensor) -> Hidden:
        placement = self._placements[index]
        before = min(max(self._first_rows[index] - first, 0), end - first)
        stop = placement.start + placement.tokens
        if first + before == end:
            return Hidden(before)
        nearest, furthest = int(self._at_rows[first + before]), int(self._at_rows[end - 1])
        start = placement.start
        if window is not None:
            start = min(max(start, nearest - window + 1), stop)
        gone = start - placement.start
        inside = nearest < stop - 1
        left_behind = window is not None and furthest - start >= window
        end_of_keys = min(stop, furthest + 1)
        beyond = stop - end_of_keys
        keys = max(0, end_of_keys - start)
        replaced = [at for place in placement.hidden if 0 <= (at := place - placement.lo - gone) < keys]
        mask = None
        if start == stop:
            return Hidden(before, gone=gone)
        if inside or left_behind:
            at_rows = places[self._earlier + first : self._earlier + end, None]
            at_keys = torch.arange(start, end_of_keys, device=places.device)
            mask = at_keys > at_rows
            if window is not None:
                mask |= at_rows - at_keys >= window
        elif replaced:
            mask = torch.zeros(1, keys, dtype=torch.bool, device=places.device)
        if mask is not None:
            mask[:, replaced] = True
        return Hidden(before, mask, gone, beyond, self._kept)

    def _together(self, first: int, end: int, window: int | None, device: torch.device) -> Hidden:
        """The gathered keys that rows do not see."""
        if self._gathered is None:
            return Hidden()
        keys, at_rows = self._gathered, self._at_rows[first:end, None]
        nearest, furthest = int(at_rows[0]), int(at_rows[-1])
        before = int(torch.searchsorted(self._at_rows[first:end], keys[:1]))
        gone, seen = 0, int(torch.searchsorted(keys, nearest, right=True))
        if window is not None and furthest - int(keys[0]) >= window:
            gone = int(torch.searchsorted(keys, nearest - window + 1))
            seen = gone
        if before == end - first or seen == len(keys):
            return Hidden(before, gone=gone)
        stop = int(torch.searchsorted(keys, furthest, right=True))
        beyond, keys = len(keys) - stop, keys[seen:stop]
        if not len(keys):
            return Hidden(before, gone=gone, beyond=beyond)
        mask = keys > at_rows
        if window is not None:
            mask |= at_rows - keys >= window
        return Hidden(before, mask.to(device), gone, beyond, self._kept)

    def _nearest(self, first: int, window: int | None) -> int:
        """The first key of the tail that a row from `first` on may see."""
        if window is None or not self._ascending:
            return 0
        return int(torch.searchsorted(self._positions, int(self._at_rows[first]) - window + 1))

    def _own(
        self, first: int, end: int, tail: slice, window: int | None, places: Tensor, later: Hidden
    ) -> Hidden:
        rows, triangle = end - first, later.mask
        assert triangle is not None
        if self._unseen is not None:
            return self._chosen(first, end, tail, window, places)
        if window is not None:
            furthest = int(self._at_rows[end - 1]) - int(self._positions[tail].min())
            if furthest >= window:
                at_rows = places[self._earlier + first : self._earlier + end, None]
                mask = at_rows - places[tail] >= window
                mask[:, -rows:] |= triangle[:rows, :rows]
                return Hidden(0, mask, kept=self._kept)
        if rows == 1:
            return Hidden()
        return later if rows == len(triangle) else Hidden(0, triangle[:rows, :rows], kept=self._kept)

    def _chosen(self, first: int, end: int, tail: slice, window: int | None, places: Tensor) -> Hidden:
        """The hidden keys of the tail for rows that do not see all rows before them."""
        assert self._unseen is not None
        mask = self._unseen[first:end, max(0, tail.start - self._earlier) : end].to(places.device)
        at_rows = places[self._earlier + first : self._earlier + end, None]
        if window is not None and int(self._at_rows[end - 1]) - int(self._positions[tail].min()) >= window:
            far = at_rows - places[tail] >= window
            far[:, -mask.shape[1] :] |= mask
            mask = far
        return Hidden(0, mask, kept=self._kept)
