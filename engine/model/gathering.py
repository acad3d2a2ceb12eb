"""Small placed segments, copied side by side for one layer at a time, with their keys turned to their places.

Every part of an attention costs some time however small it is: a call, turned queries, a merge. Below a size
a copy of its keys and values costs less. The buffers are reused from layer to layer, so nothing grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from engine.model.rope import Rotaries, Rotary
from engine.model.scratch import Scratch
from engine.segment import Placement

MOST_NUMBERS = 1 << 16  # of a layer's keys; a part of more costs less time than its copy
FEWEST = 3  # segments; with less of them there is nothing to gain


class Gathering:
    """Some placements, read as one run of keys.

    Args:
        placements: at least one, of which no two overlap; their hidden tokens are left out.
        rotaries: the rotary embedding of each layer.

    Attributes:
        positions: int64 [tokens] on the CPU, ascending.
    """

    def __init__(self, placements: Sequence[Placement], rotaries: Rotaries) -> None:
        ordered = sorted(placements, key=lambda placement: placement.start)
        places = [_read(placement) for placement in ordered]
        self.positions = torch.cat([at + p.shift for at, p in zip(places, ordered, strict=True)])
        self._keys = [_by_layer(p.segment.keys, p, at) for p, at in zip(ordered, places, strict=True)]
        self._values = [_by_layer(p.segment.values, p, at) for p, at in zip(ordered, places, strict=True)]
        self._shifts = [placement.shift for placement in ordered]
        self._counts = torch.tensor([len(at) for at in places])
        self._rotaries = rotaries
        self._angles: dict[int, tuple[Tensor, Tensor]] = {}

    def layer(self, layer: int, dtype: torch.dtype, scratch: Scratch) -> tuple[Tensor, Tensor]:
        """Keys, rotated for their positions, and values of a layer, in buffers that the next call writes to.

        Args:
            layer: its index.
            dtype: the number format of both.
            scratch: the buffers.

        Returns:
            Two tensors [kv_heads, tokens, head_dim].
        """
        rotary = self._rotaries[layer]
        keys = _joined([of[layer] for of in self._keys], "gathered keys", dtype, scratch)
        values = _joined([of[layer] for of in self._values], "gathered values", dtype, scratch)
        if rotary is not None and any(self._shifts):
            rotary.turn(keys, *self._angles_of(rotary, keys.device), scratch)
        return keys, values

    def _angles_of(self, rotary: Rotary, device: torch.device) -> tuple[Tensor, Tensor]:
        found = self._angles.get(id(rotary))
        if found is None:
            cosine, sine = rotary.angles(self._shifts, device)
            counts = self._counts.to(device)
            cosine, sine = (states.repeat_interleave(counts, 0) for states in (cosine, rotary.signed(sine)))
            found = self._angles[id(rotary)] = cosine, sine
        return found


def split(placements: Sequence[Placement]) -> tuple[tuple[Placement, ...], tuple[Placement, ...]]:
    """Returns the placements that are worth gathering, none where two of them overlap, and the others."""
    small = tuple(p for p in placements if _is_small(p))
    places = sorted((p.start, p.start + p.tokens) for p in small)
    if len(small) < FEWEST or any(end > start for (_, end), (start, _) in pairwise(places)):
        return (), tuple(placements)
    return small, tuple(p for p in placements if not _is_small(p))


def _is_small(placement: Placement) -> bool:
    """Whether its copy costs little, and any of it is read."""
    keys = placement.segment.keys
    numbers = placement.tokens * keys.shape[1] * keys.shape[3]
    return numbers <= MOST_NUMBERS and placement.tokens > len(placement.hidden)


def _read(placement: Placement) -> Tensor:
    """Local positions of a placement's tokens that are read."""
    places = torch.arange(placement.lo, placement.hi)
    if not placement.hidden:
        return places
    return places[~torch.isin(places, torch.tensor(placement.hidden))]


def _by_layer(states: Tensor, placement: Placement, places: Tensor) -> tuple[Tensor, ...]:
    """The keys or values of what is read, [kv_heads, tokens, head_dim] for each layer."""
    if placement.hidden:
        return states[:, :, places.to(states.device)].unbind()
    return states[:, :, placement.lo : placement.hi].unbind()


def _joined(pieces: list[Tensor], name: str, dtype: torch.dtype, scratch: Scratch) -> Tensor:
    kv_heads, _, size = pieces[0].shape
    joined = scratch.take(name, (kv_heads, sum(piece.shape[1] for piece in pieces), size), pieces[0])
    torch.cat(pieces, 1, out=joined)
    if dtype == joined.dtype:
        return joined
    return scratch.take(f"wide {name}", tuple(joined.shape), joined.new_empty((), dtype=dtype)).copy_(joined)
