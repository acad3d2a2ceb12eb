"""The KV cache of models with their own attention code: a dense buffer indexed by position.

Falcon, BLOOM, MPT, GPT-J and similar models compute attention and take keys from a cache object. This cache
has a row per position. It copies placed segments and new tokens to their positions and masks empty rows. A
key's index is its position plus a constant, so biases that these models derive from indices (ALiBi: a slope
times the index) are correct.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from engine.attention.rope import Rotaries
from engine.base.segment import Placement
from engine.kv_cache.protocol import Rowwise, StopForward, UnfitError, check_states, placed_keys


class DenseKVCache:
    """Placed segments and new tokens in one buffer, by position.

    It implements the cache object of transformers (`update` and its siblings).

    Args:
        placements: segments in their places, which overlap in hidden tokens only.
        rotaries: the rotary embedding of each layer. A layer without one takes segments at their original
            place only, or has no positions in its keys (ALiBi).
        capacity: the most new tokens.
    """

    is_compileable = False

    def __init__(self, placements: Sequence[Placement], *, rotaries: Rotaries, capacity: int) -> None:
        self.placements = tuple(p for p in placements if p.tokens)
        self.rotaries = rotaries
        self.capacity = capacity
        self.length = 0
        self.windows: dict[int, int | None] = {}
        self._buffer: list[tuple[Tensor, Tensor] | None] = [None] * len(rotaries)  # [1, kv_heads, room, dim]
        self._origin = 0
        self._room = 0
        self._filled = torch.zeros(0, dtype=torch.bool)
        self._used = 0  # columns up to the last filled one
        self._at = torch.zeros(0, dtype=torch.int64)  # columns of new tokens
        self._rows = torch.zeros(0, dtype=torch.int64)  # of the current pass
        self._until: int | None = None

    @property
    def own(self) -> None:
        """None: the model computes attention."""
        return

    @property
    def cached_tokens(self) -> int:
        """Tokens of all placements, hidden ones included."""
        return sum(p.tokens for p in self.placements)

    @property
    def tail(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the new tokens, each [layers, kv_heads, length, head_dim].

        Raises:
            UnfitError: a layer has its keys elsewhere.
        """
        states = [buffer for buffer in self._buffer if buffer is not None]
        if len(states) != len(self.rotaries):
            raise UnfitError(f"{len(states)} of {len(self.rotaries)} layers keep their keys in the cache")
        keys = torch.stack([keys[0, :, self._at] for keys, _ in states])
        values = torch.stack([values[0, :, self._at] for _, values in states])
        return keys, values

    def layer_tail(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer's new tokens, each [kv_heads, length, head_dim]."""
        buffer = self._buffer[layer]
        assert buffer is not None, "no forward pass has run"
        return buffer[0][0, :, self._at], buffer[1][0, :, self._at]

    def begin(
        self,
        positions: Sequence[int],
        until: int | None = None,
        *,
        rowwise: Rowwise | None = None,  # noqa: ARG002
    ) -> None:
        """Announces a forward pass over tokens at these positions, ascending, up to the layer `until`.

        `rowwise` has no effect, because the model computes attention.
        """
        assert self.length + len(positions) <= self.capacity, "more tokens than announced"
        if not self._room:
            starts = [p.start for p in self.placements]
            ends = [p.start + p.tokens for p in self.placements]
            self._origin = min([*starts, positions[0]])
            end = max([*ends, positions[-1] + 1])
            self._room = end - self._origin + self.capacity - len(positions)
            self._filled = torch.zeros(self._room, dtype=torch.bool)
            for start, stop in zip(starts, ends, strict=True):
                self._filled[start - self._origin : stop - self._origin] = True
        self._rows = torch.tensor(positions, dtype=torch.int64) - self._origin
        self._filled[self._rows] = True
        self._used = int(self._filled.nonzero()[-1]) + 1
        self._until = until

    def commit(self) -> None:
        """Counts the tokens of the last forward pass."""
        self.length += len(self._rows)
        self._at = torch.cat([self._at, self._rows])

    @torch.inference_mode()
    def truncate(self, length: int) -> None:
        """Drops all new tokens but the first `length`."""
        assert length <= self.length
        self._filled[self._at[length:]] = False
        self._at, self.length = self._at[:length], length

    def fold(self, which: Sequence[Placement] | None = None) -> None:
        """Does nothing: the cache is one buffer already."""

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Adds this pass's keys and values [1, kv_heads, rows, head_dim]. Returns those of all positions."""
        check_states(layer_idx, len(self.rotaries), len(self._rows), key, value)
        buffers = self._buffer[layer_idx]
        if buffers is None:
            buffers = self._buffer[layer_idx] = self._assembled(layer_idx, key, value)
        for buffer, new in zip(buffers, (key, value), strict=True):
            buffer[:, :, self._rows] = new
        if layer_idx == self._until:
            raise StopForward
        keys, values = buffers
        return keys[:, :, : self._used], values[:, :, : self._used]

    def get_seq_length(self, _layer_idx: int = 0) -> int:
        """Columns before this pass's rows, by the models' count: all but the rows."""
        return self._used - len(self._rows)

    def get_mask_sizes(self, _rows: int, _layer_idx: int = 0) -> tuple[int, Any]:
        """The number of columns, and which of them are filled."""
        return self._used, self._filled[: self._used]

    def get_query_offset(self, _layer_idx: int = 0) -> Tensor:
        """The column of each row."""
        return self._rows

    def _assembled(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's buffers with the segments at their places."""
        keys = key.new_zeros((1, key.shape[1], self._room, key.shape[3]))
        values = value.new_zeros((1, value.shape[1], self._room, value.shape[3]))
        for placement in self.placements:
            at = slice(placement.start - self._origin, placement.start - self._origin + placement.tokens)
            keys[0, :, at] = placed_keys(placement, layer, self.rotaries[layer])
            values[0, :, at] = placement.segment.values[layer, :, placement.lo : placement.hi]
        return keys, values
