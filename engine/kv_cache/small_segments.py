"""Small placed segments, copied next to each other layer by layer, with keys rotated to their places.

Every part of an attention has a fixed cost: a call, rotated queries, a merge. Below a size, copying keys and
values costs less. Layers share the buffers, so memory use stays constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from engine.attention.rope import Rotaries, Rotary
from engine.attention.scratch import Scratch
from engine.base.segment import Placement

# Of a layer's keys; a larger part costs less than its copy. A GPU copies faster than Python makes a call.
MOST_NUMBERS, MOST_ON_GPU = 1 << 16, 1 << 23
FEWEST = 3  # segments; fewer are not worth a copy


class Gathering:
    """Some placements, read as one run of keys.

    At least one placement is needed, and none may overlap. Hidden tokens are left out. `positions` is int64
    [tokens] on the CPU, ascending.
    """

    def __init__(self, placements: Sequence[Placement], rotaries: Rotaries) -> None:
        ordered = sorted(placements, key=lambda placement: placement.start)
        positions = torch.cat([torch.arange(p.start, p.start + p.tokens) for p in ordered])
        hidden = torch.tensor([at + p.shift for p in ordered for at in p.hidden], dtype=torch.int64)
        read = torch.isin(positions, hidden, invert=True).nonzero()[:, 0] if len(hidden) else None
        self.positions = positions if read is None else positions[read]
        self._keys = [p.segment.keys[:, :, p.lo : p.hi].unbind() for p in ordered]
        self._values = [p.segment.values[:, :, p.lo : p.hi].unbind() for p in ordered]
        self._read = None if read is None else read.to(ordered[0].segment.keys.device)
        self._shifts = [placement.shift for placement in ordered]
        self._counts = torch.tensor([placement.tokens - len(placement.hidden) for placement in ordered])
        self._rotaries = rotaries
        self._angles: dict[int, tuple[Tensor, Tensor]] = {}

    def layer(self, layer: int, dtype: torch.dtype, scratch: Scratch) -> tuple[Tensor, Tensor]:
        """Returns rotated keys and values of a layer, each [kv_heads, tokens, head_dim].

        The next call overwrites the buffers in `scratch`.
        """
        rotary = self._rotaries[layer]
        keys = self._joined([of[layer] for of in self._keys], "gathered keys", dtype, scratch)
        values = self._joined([of[layer] for of in self._values], "gathered values", dtype, scratch)
        if rotary is not None and any(self._shifts):
            rotary.turn(keys, *self._angles_of(rotary, keys.device), scratch)
        return keys, values

    def _joined(self, pieces: list[Tensor], name: str, dtype: torch.dtype, scratch: Scratch) -> Tensor:
        kv_heads, _, size = pieces[0].shape
        joined = scratch.take(name, (kv_heads, sum(piece.shape[1] for piece in pieces), size), pieces[0])
        torch.cat(pieces, 1, out=joined)
        if self._read is not None:
            read = scratch.take(f"read {name}", (kv_heads, len(self._read), size), joined)
            joined = torch.index_select(joined, 1, self._read, out=read)
        if dtype == joined.dtype:
            return joined
        wide = scratch.take(f"wide {name}", tuple(joined.shape), joined.new_empty((), dtype=dtype))
        return wide.copy_(joined)

    def _angles_of(self, rotary: Rotary, device: torch.device) -> tuple[Tensor, Tensor]:
        angles = self._angles.get(id(rotary))
        if angles is None:
            cosine, sine = rotary.angles(self._shifts, device)
            counts = self._counts.to(device)
            cosine, sine = (states.repeat_interleave(counts, 0) for states in (cosine, rotary.signed(sine)))
            angles = self._angles[id(rotary)] = cosine, sine
        return angles


def split(placements: Sequence[Placement]) -> tuple[tuple[Placement, ...], tuple[Placement, ...]]:
    """Returns the placements that are worth gathering, none if two of them overlap, and the others."""
    small = tuple(p for p in placements if _is_small(p))
    places = sorted((p.start, p.start + p.tokens) for p in small)
    if len(small) < FEWEST or any(end > start for (_, end), (start, _) in pairwise(places)):
        return (), tuple(placements)
    return small, tuple(p for p in placements if not _is_small(p))


def _is_small(placement: Placement) -> bool:
    """Whether its copy is cheap and some of it is read."""
    keys = placement.segment.keys
    numbers = placement.tokens * keys.shape[1] * keys.shape[3]
    most = MOST_NUMBERS if keys.device.type == "cpu" else MOST_ON_GPU
    return numbers <= most and placement.tokens > len(placement.hidden)
