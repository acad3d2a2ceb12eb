"""Attention over segments, read where they lie.

Keys never move; the query does. A key stored at local position i and placed at s + i is read correctly
by a query at p if that query is turned back by s (`engine.model.rope`). All scores of a block of rows go into
one reused buffer, where masks, sliding windows, soft caps and sinks are plain edits; one softmax runs over
it, and the values of each segment are accumulated: exact, without concatenating anything.

Knows nothing about prompts, tokens or files. Registered with transformers as `ATTENTION`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from engine.model.banded import Band, banded_attention, bands, block_rows
from engine.model.rope import Rotaries
from engine.segment import Placement

ATTENTION = "prompt_cache_segments"
CARRIED = "prompt_cache_kv"  # attribute of attention modules, where keyword arguments do not reach them
SCORE_BYTES = 48 << 20  # of scores held at once; more rows are processed in blocks
FOLD_ABOVE = 2  # placements; decoding over more of them costs more per token than one copy


@dataclass(frozen=True)
class AttentionParams:
    """How a layer scores its keys, beside the dot product.

    Attributes:
        scale: factor of the scores.
        window: a query at p sees keys at p - window + 1 and later; None for all.
        softcap: scores are bounded smoothly by this (Gemma 2); None for no bound.
        sinks: [heads], a score per head that takes weight and adds no value (gpt-oss); None for none.
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None

    @property
    def plain(self) -> bool:
        """Whether there is nothing but the scale, the causal order and a window."""
        return self.softcap is None and self.sinks is None


class UnfitError(Exception):
    """A model does not ask for attention in a way that can be followed; the message says what it does."""


class DroppedError(Exception):
    """The keys and values to attend to did not reach the attention function."""


class StopForward(Exception):  # noqa: N818 - it ends a pass, and is no fault
    """Ends a forward pass of which only the first layers were wanted."""


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


class SegmentKVCache:
    """All keys and values that the tokens of one prompt may attend to: placed segments, and a growing tail.

    The tail holds the new tokens at their positions in the prompt; those of one forward pass ascend.

    Args:
        placements: where segments stand. Need not be sorted.
        rotaries: of each layer. A layer without one reads segments in their own place only.
        capacity: the most new tokens there will be.
        scratch: buffers, shared between prompts that run one after the other.
    """

    def __init__(
        self,
        placements: Sequence[Placement],
        *,
        rotaries: Rotaries,
        capacity: int,
        scratch: Scratch | None = None,
    ) -> None:
        self.placements = tuple(p for p in placements if p.tokens)
        self.rotaries = rotaries
        self.capacity = capacity
        self.scratch = scratch or Scratch()
        self.length = 0  # of the tail
        self.until: int | None = None  # the layer whose keys end the pass with StopForward
        self.attention: Tensor | None = None  # [cached_tokens], summed over layers, heads and rows
        self.windows: dict[int, int | None] = {}  # by layer, as the model asked for them
        self._tail: Tensor | None = None  # [2, layers, kv_heads, capacity, head_dim]
        self._at: list[int] = []  # positions of the tail
        self._rows: list[int] = []  # positions of the pass that comes next
        self._first_rows: tuple[int, ...] = ()
        self._masks: dict[tuple[int, int | None], Tensor | None] = {}
        self._bands: dict[int, tuple[Band, ...]] = {}  # of this pass, by window
        self._ascending = True  # whether the tail's positions do
        self._angles = self._find_angles()

    def _find_angles(self) -> dict[int, tuple[Tensor, Tensor]]:
        """Cosine and sine of every shift, by identity of the rotary embedding."""
        found: dict[int, tuple[Tensor, Tensor]] = {}
        if any(p.shift for p in self.placements):
            for rotary in self.rotaries:
                if rotary is not None and id(rotary) not in found:
                    cosine, sine = rotary.angles([-p.shift for p in self.placements])
                    found[id(rotary)] = (cosine[:, None, None], sine[:, None, None])
        return found

    @property
    def cached_tokens(self) -> int:
        """Tokens of all placements, hidden ones included."""
        return sum(p.tokens for p in self.placements)

    @property
    def tail(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the new tokens, each [layers, kv_heads, length, head_dim]."""
        assert self._tail is not None, "no forward pass has run"
        keys, values = self._tail[:, :, :, : self.length]
        return keys, values

    def layer_tail(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer's new tokens, each [kv_heads, length, head_dim]."""
        assert self._tail is not None, "no forward pass has run"
        keys, values = self._tail[:, layer, :, : self.length]
        return keys, values

    def watch(self) -> None:
        """From now on adds up in `attention` how much the rows look at each cached token."""
        self.attention = torch.zeros(self.cached_tokens)

    def expect(self, positions: Sequence[int]) -> None:
        """Announces the positions (ascending) of the tokens of the forward pass that comes next."""
        assert self.length + len(positions) <= self.capacity, "more tokens than announced"
        self._rows = list(positions)
        self._first_rows = tuple(bisect_left(self._rows, p.start) for p in self.placements)
        self._masks = {}
        self._bands = {}
        self._ascending = self._ascending and (not self._at or self._at[-1] < self._rows[0])

    def commit(self) -> None:
        """Counts the tokens of the forward pass that has just run."""
        self.length += len(self._rows)
        self._at.extend(self._rows)
        self._rows = []

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds this pass's keys and values [kv_heads, rows, head_dim]; returns the layer's whole tail."""
        if self._tail is None:
            self._tail = key.new_empty((2, len(self.rotaries), key.shape[0], self.capacity, key.shape[2]))
        if key.shape[0] != self._tail.shape[2] or key.shape[2] != self._tail.shape[4]:
            raise UnfitError("layers differ in the number or size of their key heads")
        end = self.length + key.shape[1]
        self._tail[0, layer, :, self.length : end] = key
        self._tail[1, layer, :, self.length : end] = value
        if layer == self.until:
            raise StopForward
        return self._tail[0, layer, :, :end], self._tail[1, layer, :, :end]

    def fold(self) -> None:
        """Copies all placed segments into the tail, turned to their place: one run to decode over."""
        if len(self.placements) <= FOLD_ABOVE or self._tail is None:
            return
        old, kept = self._tail[:, :, :, : self.length], [_kept(p) for p in self.placements]
        cached = sum(len(local) for local in kept)
        folded = old.new_empty((*old.shape[:3], cached + self.capacity, old.shape[4]))
        at = 0
        positions: list[int] = []
        for placement, local in zip(self.placements, kept, strict=True):
            segment, end = placement.segment, at + len(local)
            which: Any = torch.tensor(local) if placement.hidden else slice(placement.lo, placement.hi)
            for layer, rotary in enumerate(self.rotaries):
                keys = segment.keys[layer, :, which]
                folded[0, layer, :, at:end] = rotary.shift(keys, placement.shift) if rotary else keys
            folded[1, :, :, at:end] = segment.values[:, :, which]
            positions.extend(place + placement.shift for place in local)
            at = end
        folded[:, :, :, cached : cached + self.length] = old
        self._tail, self.length, self.capacity = folded, cached + self.length, cached + self.capacity
        self._at = positions + self._at
        self._ascending = False
        self.placements = ()
        self._angles = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Attention of this pass's tokens over everything they may see.

        Args:
            layer: index of the attention layer.
            query: [heads, rows, head_dim], rotated for the prompt's positions.
            key: [kv_heads, rows, head_dim], likewise.
            value: [kv_heads, rows, head_dim].
            rules: of the layer.

        Returns:
            [heads, rows, head_dim].

        Raises:
            StopForward: the layer is the one that ends the pass.
        """
        check_states(layer, len(self.rotaries), len(self._rows), key, value)
        if query.shape[1] != key.shape[1] or query.shape[0] % key.shape[0] or query.shape[2] != key.shape[2]:
            raise UnfitError(f"queries {tuple(query.shape)} do not match keys {tuple(key.shape)}")
        self.windows[layer] = rules.window
        tail_keys, tail_values = self.append(layer, key, value)
        heads, rows, head_dim = query.shape
        if not self.placements and self.length == 0 and rows > 1 and rules.plain:
            return self._fresh(query, key, value, rules)
        kv_heads = key.shape[0]
        group = heads // kv_heads
        # [kv_heads, rows * group, head_dim]: rows outermost, so that what sees a segment is one slice
        packed = (
            (query * rules.scale)
            .view(kv_heads, group, rows, head_dim)
            .transpose(1, 2)
            .reshape(kv_heads, -1, head_dim)
        )
        row_bytes = heads * (self.cached_tokens + tail_keys.shape[1]) * query.element_size()
        block = max(1, SCORE_BYTES // max(1, row_bytes))
        if rules.window is not None and rules.window < tail_keys.shape[1]:
            block = min(block, block_rows(rules.window))
        if rows <= block:
            out = self._attend_rows(layer, packed, tail_keys, tail_values, _Span(0, rows, group), rules)
        else:
            parts = []
            for first in range(0, rows, block):
                span = _Span(first, min(block, rows - first), group)
                part = packed[:, first * group : span.end * group]
                parts.append(self._attend_rows(layer, part, tail_keys, tail_values, span, rules))
            out = torch.cat(parts, 1)
        return out.view(kv_heads, rows, group, head_dim).transpose(1, 2).reshape(heads, rows, head_dim)

    def _fresh(self, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Plain attention of the first pass over nothing but itself."""
        window = rules.window
        if window is None or self._rows[-1] - self._rows[0] < window:
            return causal_attention(query, key, value, rules.scale)
        if window not in self._bands:
            self._bands[window] = bands(self._rows, window, query)
        return banded_attention(query, key, value, rules.scale, self._bands[window])

    def _attend_rows(
        self,
        layer: int,
        packed: Tensor,
        tail_keys: Tensor,
        tail_values: Tensor,
        span: _Span,
        rules: AttentionParams,
    ) -> Tensor:
        """One block of packed rows: [kv_heads, rows * group, head_dim] in and out."""
        kv_heads, count, _ = packed.shape
        visible = min(tail_keys.shape[1], self.length + span.end)  # nothing later is seen by this block
        nearest, cached = self._nearest(span, rules.window), self.cached_tokens
        end = cached + visible - nearest
        scores = self.scratch.take("scores", (kv_heads, count, end + (rules.sinks is not None)), packed)
        self._score(layer, packed, scores, span)
        torch.bmm(packed, tail_keys[:, nearest:visible].transpose(1, 2), out=scores[:, :, cached:end])
        if rules.softcap is not None:
            scores.div_(rules.softcap).tanh_().mul_(rules.softcap)
        if rules.sinks is not None:
            sinks = rules.sinks.to(scores.dtype).view(kv_heads, 1, span.group)
            scores[:, :, -1] = sinks.expand(-1, span.rows, -1).reshape(kv_heads, -1)
        self._hide(scores, cached, slice(nearest, visible), span, rules.window)
        weights = self.scratch.take("weights", tuple(scores.shape), packed)
        torch.softmax(scores, -1, out=weights)
        if self.attention is not None:
            self.attention += weights[:, :, :cached].sum((0, 1), dtype=torch.float32).cpu()
        out = torch.bmm(weights[:, :, cached:end], tail_values[:, nearest:visible])
        at = 0
        for placement in self.placements:
            values = placement.segment.values[layer, :, placement.lo : placement.hi]
            out.baddbmm_(weights[:, :, at : at + placement.tokens], values)
            at += placement.tokens
        return out

    def _nearest(self, span: _Span, window: int | None) -> int:
        """The first key of the tail that a row of a block may see."""
        if window is None or not self._ascending:
            return 0
        first = self._rows[span.first] - window + 1
        if self._at and first <= self._at[-1]:
            return bisect_left(self._at, first)
        return self.length + bisect_left(self._rows, first)

    def _score(self, layer: int, packed: Tensor, scores: Tensor, span: _Span) -> None:
        """Scores of the placed keys, by queries that are turned back; what no row may see stays unset."""
        rotary = self.rotaries[layer]
        if rotary is not None and self._angles:
            turned = rotary.rotate(packed[None], *self._angles[id(rotary)])
        else:
            turned = packed[None].expand(len(self.placements), -1, -1, -1)
        at = 0
        for index, placement in enumerate(self.placements):
            before = span.before(self._first_rows[index])
            if before < packed.shape[1]:
                keys = placement.segment.keys[layer, :, placement.lo : placement.hi]
                columns = scores[:, before:, at : at + placement.tokens]
                torch.bmm(turned[index, :, before:], keys.transpose(1, 2), out=columns)
            at += placement.tokens

    def _hide(self, scores: Tensor, cached: int, tail: slice, span: _Span, window: int | None) -> None:
        """Takes away what a row may not see: the future, what a window has left behind, what is replaced."""
        at = 0
        for index, placement in enumerate(self.placements):
            columns = scores[:, :, at : at + placement.tokens]
            columns[:, : span.before(self._first_rows[index])] = -torch.inf
            forbidden = self._forbidden(index, window, scores.device)
            if forbidden is not None:
                span.mask(columns, forbidden[span.first : span.end])
            at += placement.tokens
        own = scores[:, :, cached : cached + tail.stop - tail.start]
        if span.rows > 1:
            future = torch.ones(span.rows, own.shape[2], dtype=torch.bool, device=own.device)
            span.mask(own, future.triu_(self.length + span.first + 1 - tail.start))
        if window is not None:
            at_keys = torch.tensor((self._at + self._rows)[tail], device=own.device)
            at_rows = torch.tensor(self._rows[span.first : span.end], device=own.device)
            span.mask(own, at_rows[:, None] - at_keys >= window)

    def _forbidden(self, index: int, window: int | None, device: torch.device) -> Tensor | None:
        """Which rows (of the whole pass) may not see which tokens of a placement; None where all may.

        Rows before the placement are left out of the question.
        """
        key = (index, window)
        if key not in self._masks:
            placement, rows = self.placements[index], self._rows
            first, end = self._first_rows[index], placement.start + placement.tokens
            inside = first < len(rows) and rows[first] < end - 1
            left_behind = window is not None and bool(rows) and rows[-1] - placement.start >= window
            mask = None
            if inside or left_behind or placement.hidden:
                at_rows = torch.tensor(rows, device=device)[:, None]
                at_keys = torch.arange(placement.start, end, device=device)
                mask = at_keys > at_rows
                if window is not None:
                    mask |= at_rows - at_keys >= window
                mask[:, [place - placement.lo for place in placement.hidden]] = True
            self._masks[key] = mask
        return self._masks[key]


@dataclass(frozen=True)
class _Span:
    """A block of rows of a pass; `group` query heads share a key head, rows are outermost."""

    first: int
    rows: int
    group: int

    @property
    def end(self) -> int:
        return self.first + self.rows

    def before(self, row: int) -> int:
        """How many packed rows of the block lie before this row of the pass."""
        return min(max(row - self.first, 0), self.rows) * self.group

    def mask(self, columns: Tensor, forbidden: Tensor) -> None:
        """Hides columns [kv_heads, rows * group, n] where forbidden [rows, n]."""
        shape = (columns.shape[0], self.rows, self.group, columns.shape[2])
        columns.view(shape).masked_fill_(forbidden[:, None], -torch.inf)


def check_states(layer: int, layers: int, rows: int, key: Tensor, value: Tensor) -> None:
    """Checks keys and values [..., kv_heads, tokens, head_dim] that a model hands over.

    Raises:
        UnfitError: they are none that a segment can hold.
    """
    if layer >= layers:
        raise UnfitError(f"layer {layer} asks for attention, and the configuration names {layers} layers")
    if key.shape != value.shape:
        raise UnfitError(
            f"keys are {key.shape[-1]} channels wide and values {value.shape[-1]} "
            "(as in multi-head latent attention); a segment holds both in one width"
        )
    if key.shape[-2] != rows:
        raise UnfitError(f"a pass over {rows} tokens gives keys of {key.shape[-2]}")


def _kept(placement: Placement) -> list[int]:
    hidden = set(placement.hidden)
    return [place for place in range(placement.lo, placement.hi) if place not in hidden]


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
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    kv: SegmentKVCache | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: query [1, heads, rows, head_dim] → ([1, rows, heads, head_dim], None)."""
    if kv is None:
        kv = getattr(module, CARRIED, None)
    if kv is None:
        raise DroppedError("the layers of this model drop the keyword arguments of its call")
    if attention_mask is not None:  # transformers makes none for `ATTENTION`
        raise UnfitError("its layers mask their attention by a rule of their own")
    layer: Any = getattr(module, "layer_idx", None)
    if layer is None or len(query) != 1:
        raise UnfitError("its attention layers are not numbered, or take several sequences for one")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = kv.attend(layer, query[0], key[0], value[0], AttentionParams(scale, sliding_window, softcap, s_aux))
    return out.transpose(0, 1)[None].contiguous(), None


def register() -> None:
    """Makes `ATTENTION` known to transformers; calling it again changes nothing."""
    AttentionInterface.register(ATTENTION, _attention)
