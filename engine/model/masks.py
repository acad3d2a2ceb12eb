"""What the rows of one forward pass may see, built once and shared by all layers of the same window.

The keys of a pass are those of the placed segments, and a tail: tokens of earlier passes, then its own rows.
A row sees keys at its own position and before, no further back than the window, and no hidden tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.model.banded import Band, bands
from engine.segment import Placement


@dataclass(frozen=True)
class Hidden:
    """What a block of rows does not see of some keys.

    Attributes:
        before: the first rows of the block, which see none of the keys.
        mask: bool [rows or 1, keys], true where a row does not see one of the last keys; None where all do.
    """

    before: int = 0
    mask: Tensor | None = None
    _biases: dict[tuple[int, int, torch.dtype], tuple[Tensor | None, Tensor | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def bias(self, group: int, keys: int, like: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Returns the same as numbers to add to scores, built once for all layers of one number format.

        Args:
            group: packed rows for each of these.
            keys: how many there are.
            like: gives dtype and device.

        Returns:
            Numbers [packed rows behind the first that see nothing, or 1; keys], 0 or minus infinity; and
            which of these rows see nothing either, bool. None for either where there is nothing to say.
        """
        if self.mask is None:
            return None, None
        known = (group, keys, like.dtype)
        if known not in self._biases:
            mask = self.mask if len(self.mask) == 1 else self.mask[self.before :].repeat_interleave(group, 0)
            bias = torch.zeros(len(mask), keys, dtype=like.dtype, device=like.device)
            bias[:, keys - mask.shape[1] :].masked_fill_(mask, -torch.inf)
            blind = (bias == -torch.inf).all(1)
            self._biases[known] = bias, blind if bool(blind.any()) else None
        return self._biases[known]


@dataclass(frozen=True)
class Block:
    """Some rows of a pass.

    Attributes:
        first: the index of its first row.
        end: the index behind its last row.
        placed: what its rows do not see of each placement.
        tail: the keys of the tail that one of its rows may see.
        own: what its rows do not see of those.
    """

    first: int
    end: int
    placed: tuple[Hidden, ...]
    tail: slice
    own: Hidden

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.end - self.first


class Masks:
    """The masks of one forward pass.

    Args:
        placements: segments that its rows may see.
        positions: int64 [tail], positions of the whole tail; those of this pass's rows, its last, ascend.
        rows: how many rows the pass has.
        ascending: whether the positions of the whole tail ascend.
    """

    def __init__(
        self, placements: Sequence[Placement], positions: Tensor, rows: int, *, ascending: bool
    ) -> None:
        self.rows = rows
        self._placements, self._positions, self._ascending = placements, positions, ascending
        self._earlier = len(positions) - rows
        self._at_rows = positions[self._earlier :]
        starts = torch.tensor([placement.start for placement in placements], dtype=torch.int64)
        self._first_rows: list[int] = torch.searchsorted(self._at_rows, starts).tolist()
        self._blocks: dict[tuple[int | None, int], tuple[Block, ...]] = {}
        self._bands: dict[int, tuple[Band, ...]] = {}

    @property
    def extent(self) -> int:
        """How far the last row is from the first, in positions."""
        return int(self._at_rows[-1] - self._at_rows[0])

    def blocks(self, window: int | None, most: int, device: torch.device) -> tuple[Block, ...]:
        """Returns the rows in blocks of at most `most`, for layers of this window."""
        if (window, most) not in self._blocks:
            places = self._positions.to(device)
            triangle = self._triangle(min(most, self.rows), device)
            found = []
            for first in range(0, self.rows, most):
                end = min(first + most, self.rows)
                placed = tuple(
                    self._placed(i, first, end, window, places) for i in range(len(self._placements))
                )
                tail = slice(self._nearest(first, window), self._earlier + end)
                own = self._own(first, end, tail, window, places, triangle)
                found.append(Block(first, end, placed, tail, own))
            self._blocks[window, most] = tuple(found)
        return self._blocks[window, most]

    def bands(self, window: int, like: Tensor) -> tuple[Band, ...]:
        """Returns the bands of a pass over nothing but its own rows."""
        if window not in self._bands:
            self._bands[window] = bands(self._at_rows.tolist(), window, like)
        return self._bands[window]

    @staticmethod
    def _triangle(rows: int, device: torch.device) -> Tensor:
        """Which of as many rows come later than which."""
        order = torch.arange(rows, device=device)
        return order > order[:, None]

    def _placed(self, index: int, first: int, end: int, window: int | None, places: Tensor) -> Hidden:
        placement = self._placements[index]
        before = min(max(self._first_rows[index] - first, 0), end - first)
        stop = placement.start + placement.tokens
        inside = first + before < end and int(self._at_rows[first + before]) < stop - 1
        left_behind = window is not None and int(self._at_rows[end - 1]) - placement.start >= window
        replaced = [place - placement.lo for place in placement.hidden]
        mask = None
        if inside or left_behind:
            at_rows = places[self._earlier + first : self._earlier + end, None]
            at_keys = torch.arange(placement.start, stop, device=places.device)
            mask = at_keys > at_rows
            if window is not None:
                mask |= at_rows - at_keys >= window
        elif replaced:
            mask = torch.zeros(1, placement.tokens, dtype=torch.bool, device=places.device)
        if mask is not None:
            mask[:, replaced] = True
        return Hidden(before, mask)

    def _nearest(self, first: int, window: int | None) -> int:
        """The first key of the tail that a row from `first` on may see."""
        if window is None or not self._ascending:
            return 0
        return int(torch.searchsorted(self._positions, int(self._at_rows[first]) - window + 1))

    def _own(
        self, first: int, end: int, tail: slice, window: int | None, places: Tensor, triangle: Tensor
    ) -> Hidden:
        rows = end - first
        if window is not None:
            furthest = int(self._at_rows[end - 1]) - int(self._positions[tail].min())
            if furthest >= window:
                at_rows = places[self._earlier + first : self._earlier + end, None]
                mask = at_rows - places[tail] >= window
                mask[:, -rows:] |= triangle[:rows, :rows]
                return Hidden(0, mask)
        return Hidden(0, triangle[:rows, :rows] if rows > 1 else None)
