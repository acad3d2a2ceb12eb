"""Attention over segments, read where they lie.

Keys never move; the query does. A key stored at local position i and placed at s + i is read correctly
by a query at p if that query is turned back by s, for rotary attention depends on p - (s + i) only
(RoFormer, section 3.2). All scores of a block of rows go into one reused buffer, one softmax runs over
it, and the values of each segment are accumulated: exact, without concatenating anything.

Knows nothing about prompts, tokens or files. Registered with transformers as `ATTENTION`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from engine.segment import Placement

ATTENTION = "prompt_cache_segments"
SCORE_BYTES = 48 << 20  # of scores held at once; more rows are processed in blocks
FOLD_ABOVE = 2  # placements; decoding over more of them costs more per token than one copy


@dataclass(frozen=True)
class Rotary:
    """The rotary embedding of a model, as far as moving a query needs it.

    Attributes:
        inverse_frequency: [rotary_dim / 2], fp32, radians per position.
        interleaved: True where pairs are (0, 1), (2, 3), …; False where they are (i, i + rotary_dim / 2).
    """

    inverse_frequency: Tensor
    interleaved: bool = False

    @property
    def dim(self) -> int:
        """Channels of a head that are rotated."""
        return 2 * self.inverse_frequency.numel()

    def angles(self, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns cosine and sine, each [positions, rotary_dim] in fp32 (angles are taken in fp64)."""
        frequency = self.inverse_frequency.double()
        turns = torch.tensor(positions, dtype=torch.float64, device=frequency.device)[:, None] * frequency
        doubled = turns.repeat_interleave(2, -1) if self.interleaved else torch.cat([turns, turns], -1)
        return doubled.cos().float(), doubled.sin().float()

    def turn(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Rotates the first `dim` channels of x [..., head_dim]; cosine and sine broadcast to those."""
        part = x[..., : self.dim].float()
        if self.interleaved:
            swapped = torch.stack([-part[..., 1::2], part[..., 0::2]], -1).flatten(-2)
        else:
            first, second = part.chunk(2, -1)
            swapped = torch.cat([-second, first], -1)
        turned = torch.addcmul(part * cosine, swapped, sine).to(x.dtype)
        if self.dim == x.shape[-1]:
            return turned
        rest = x[..., self.dim :].expand(*turned.shape[:-1], -1)
        return torch.cat([turned, rest], -1)


class Scratch:
    """Buffers that are reused from layer to layer and call to call (fresh memory costs page faults)."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Returns an uninitialised tensor of this shape, with the dtype and device of `like`."""
        count = 1
        for size in shape:
            count *= size
        held = self._held.get(name)
        if held is None or held.numel() < count or held.dtype != like.dtype or held.device != like.device:
            held = self._held[name] = torch.empty(count, dtype=like.dtype, device=like.device)
        return held[:count].view(shape)


class KeyValues:
    """All keys and values that the tokens of one prompt may attend to: placed segments, and a growing tail.

    The tail holds the new tokens at their positions in the prompt, in ascending order.

    Args:
        placements: where segments stand. Need not be sorted.
        rotary: None for a model without rotary embedding; then every shift must be 0.
        layers: number of attention layers.
        capacity: the most new tokens there will be.
        scratch: buffers, shared between prompts that run one after the other.
    """

    def __init__(
        self,
        placements: Sequence[Placement],
        *,
        rotary: Rotary | None,
        layers: int,
        capacity: int,
        scratch: Scratch | None = None,
    ) -> None:
        self.placements = tuple(p for p in placements if p.tokens)
        self.rotary = rotary
        self.layers = layers
        self.capacity = capacity
        self.scratch = scratch or Scratch()
        self.length = 0  # of the tail
        self._tail: Tensor | None = None  # [2, layers, kv_heads, capacity, head_dim]
        self._pending = 0
        self._first_rows: tuple[int, ...] = ()
        self._find_angles()

    def _find_angles(self) -> None:
        self._angles: tuple[Tensor, Tensor] | None = None
        if self.rotary is not None and any(p.shift for p in self.placements):
            cosine, sine = self.rotary.angles([-p.shift for p in self.placements])
            self._angles = (cosine[:, None, None], sine[:, None, None])  # [placements, 1, 1, rotary_dim]

    @property
    def cached_tokens(self) -> int:
        """Tokens of all placements."""
        return sum(p.tokens for p in self.placements)

    @property
    def tail(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the new tokens, each [layers, kv_heads, length, head_dim]."""
        assert self._tail is not None, "no forward pass has run"
        keys, values = self._tail[:, :, :, : self.length]
        return keys, values

    def expect(self, positions: Sequence[int]) -> None:
        """Announces the positions (ascending) of the tokens of the forward pass that comes next."""
        assert self.length + len(positions) <= self.capacity, "more tokens than announced"
        self._pending = len(positions)
        first = []
        for placement in self.placements:
            row = 0
            while row < len(positions) and positions[row] < placement.start:
                row += 1
            first.append(row)
        self._first_rows = tuple(first)

    def commit(self) -> None:
        """Counts the tokens of the forward pass that has just run."""
        self.length += self._pending
        self._pending = 0

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds this pass's keys and values [kv_heads, rows, head_dim]; returns the layer's whole tail."""
        if self._tail is None:
            self._tail = key.new_empty((2, self.layers, key.shape[0], self.capacity, key.shape[2]))
        end = self.length + key.shape[1]
        self._tail[0, layer, :, self.length : end] = key
        self._tail[1, layer, :, self.length : end] = value
        return self._tail[0, layer, :, :end], self._tail[1, layer, :, :end]

    def fold(self) -> None:
        """Copies all placed segments into the tail, turned to their place: one run to decode over."""
        if len(self.placements) <= FOLD_ABOVE or self._tail is None:
            return
        cached, old = self.cached_tokens, self._tail[:, :, :, : self.length]
        shape = (*old.shape[:3], cached + self.capacity, old.shape[4])
        folded = old.new_empty(shape)
        at = 0
        for placement in self.placements:
            segment, span = placement.segment, slice(placement.lo, placement.hi)
            keys = segment.keys[:, :, span]
            if placement.shift and self.rotary is not None:
                cosine, sine = self.rotary.angles([placement.shift])
                keys = self.rotary.turn(keys, cosine, sine)
            folded[0, :, :, at : at + placement.tokens] = keys
            folded[1, :, :, at : at + placement.tokens] = segment.values[:, :, span]
            at += placement.tokens
        folded[:, :, :, cached : cached + self.length] = old
        self._tail, self.length, self.capacity = folded, cached + self.length, cached + self.capacity
        self.placements = ()
        self._find_angles()

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention of this pass's tokens over everything they may see.

        Args:
            layer: index of the attention layer.
            query: [heads, rows, head_dim], rotated for the prompt's positions.
            key: [kv_heads, rows, head_dim], likewise.
            value: [kv_heads, rows, head_dim].
            scale: factor of the scores.

        Returns:
            [heads, rows, head_dim].
        """
        tail_keys, tail_values = self.append(layer, key, value)
        heads, rows, head_dim = query.shape
        if not self.placements and self.length == 0 and rows > 1:
            return causal_attention(query, key, value, scale)
        kv_heads = key.shape[0]
        group = heads // kv_heads
        # [kv_heads, rows * group, head_dim]: rows outermost, so that what sees a segment is one slice
        packed = (
            (query * scale)
            .view(kv_heads, group, rows, head_dim)
            .transpose(1, 2)
            .reshape(kv_heads, -1, head_dim)
        )
        row_bytes = heads * (self.cached_tokens + tail_keys.shape[1]) * query.element_size()
        block = max(1, SCORE_BYTES // max(1, row_bytes))
        if rows <= block:
            out = self._attend_rows(layer, packed, tail_keys, tail_values, 0, group)
        else:
            out = torch.cat(
                [
                    self._attend_rows(
                        layer, packed[:, a * group : (a + block) * group], tail_keys, tail_values, a, group
                    )
                    for a in range(0, rows, block)
                ],
                1,
            )
        return out.view(kv_heads, rows, group, head_dim).transpose(1, 2).reshape(heads, rows, head_dim)

    def _attend_rows(
        self, layer: int, packed: Tensor, tail_keys: Tensor, tail_values: Tensor, first: int, group: int
    ) -> Tensor:
        """One block of packed rows [kv_heads, rows * group, head_dim]; `first` is its first row."""
        kv_heads, count, _ = packed.shape
        rows = count // group
        visible = min(tail_keys.shape[1], self.length + first + rows)  # nothing later is seen by this block
        cached = self.cached_tokens
        scores = self.scratch.take("scores", (kv_heads, count, cached + visible), packed)
        if self._angles is not None and self.rotary is not None:
            turned = self.rotary.turn(packed[None], *self._angles)
        else:
            turned = packed[None].expand(len(self.placements), -1, -1, -1)
        at = 0
        for index, placement in enumerate(self.placements):
            columns = scores[:, :, at : at + placement.tokens]
            hidden = min(max(self._first_rows[index] - first, 0), rows) * group
            if hidden:
                columns[:, :hidden] = -torch.inf
            if hidden < count:
                keys = placement.segment.keys[layer, :, placement.lo : placement.hi]
                torch.bmm(turned[index, :, hidden:], keys.transpose(1, 2), out=columns[:, hidden:])
            at += placement.tokens
        columns = scores[:, :, cached:]
        torch.bmm(packed, tail_keys[:, :visible].transpose(1, 2), out=columns)
        if rows > 1:
            own = columns.view(kv_heads, rows, group, visible)[..., self.length + first :]
            future = torch.ones(rows, own.shape[-1], dtype=torch.bool, device=own.device).triu_(1)
            own.masked_fill_(future[:, None], -torch.inf)
        weights = self.scratch.take("weights", tuple(scores.shape), packed)
        torch.softmax(scores, -1, out=weights)
        out = torch.bmm(weights[:, :, cached:], tail_values[:, :visible])
        at = 0
        for placement in self.placements:
            values = placement.segment.values[layer, :, placement.lo : placement.hi]
            out.baddbmm_(weights[:, :, at : at + placement.tokens], values)
            at += placement.tokens
        return out


def causal_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Plain causal attention: query [heads, rows, head_dim], key and value [kv_heads, rows, head_dim]."""
    grouped = query.shape[0] != key.shape[0]
    out = nn.functional.scaled_dot_product_attention(
        query[None], key[None], value[None], is_causal=True, scale=scale, enable_gqa=grouped
    )
    return out[0]


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    scaling: float | None = None,
    kv: KeyValues | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: query [1, heads, rows, head_dim] → ([1, rows, heads, head_dim], None)."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if kv is None:
        out = causal_attention(query[0], key[0], value[0], scale)
    else:
        layer: Any = module.layer_idx
        out = kv.attend(layer, query[0], key[0], value[0], scale)
    return out.transpose(0, 1)[None], None


def register() -> None:
    """Makes `ATTENTION` known to transformers; calling it again changes nothing."""
    AttentionInterface.register(ATTENTION, _attention)
