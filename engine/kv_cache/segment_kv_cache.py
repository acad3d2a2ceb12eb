"""The KV cache of models whose attention the engine computes. It reads segments in place.

Keys never move; the query does. Take a key stored at local position i and placed at s + i. A query at p reads
it correctly if that query is rotated back by s (`engine.attention.rope`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.attention.banded import banded_attention, block_rows
from engine.attention.bf16_upcast import widens_copies
from engine.attention.fused_kernel import attend_fused, fuses
from engine.attention.kernels import (
    AttentionParams,
    Part,
    attend,
    causal_attention,
    pack,
    rows_at_once,
    unpack,
)
from engine.attention.masks import Block, Hidden, Masks
from engine.attention.rope import Rotaries
from engine.attention.scratch import Scratch
from engine.base.segment import Placement
from engine.kv_cache.protocol import OwnKVCache, Rowwise, StopForward, UnfitError, check_queries, check_states
from engine.kv_cache.small_segments import Gathering, split

FOLD_ABOVE = 2  # placements; decoding over more of them costs more per token than one copy


class SegmentKVCache:
    """Placed segments, and a tail with the new tokens at their positions in the prompt.

    Args:
        placements: segments in their places, in any order.
        rotaries: the rotary embedding of each layer. A layer without one reads segments at their original
            place only.
        capacity: the most new tokens.
        scratch: buffers, shared between prompts that do not run at the same time.
        watch_from: the first layer that adds to `attention`; None for none.

    Attributes:
        folded: tokens of placements copied before the tail.
        memory: folded tokens and tail, [2, layers, kv_heads, columns, head_dim]; None before a pass.
        attention: float32 [cached_tokens], attention weight of each cached token, summed over heads, rows and
            watched layers; None without watched layers.
    """

    def __init__(
        self,
        placements: Sequence[Placement],
        *,
        rotaries: Rotaries,
        capacity: int,
        scratch: Scratch | None = None,
        watch_from: int | None = None,
    ) -> None:
        self.placements = tuple(p for p in placements if p.tokens)
        self.rotaries = rotaries
        self.capacity = capacity
        self.scratch = scratch or Scratch()
        self.length = 0
        self.windows: dict[int, int | None] = {}
        self.attention = None if watch_from is None else torch.zeros(self.cached_tokens)
        self._watch_from = watch_from
        self.folded = 0
        self.memory: Tensor | None = None
        self._positions = torch.empty(capacity, dtype=torch.int64)  # of folded tokens and the tail
        self._ascending = True  # whether these are ascending
        self._rows = 0  # of the current pass
        self._masks: Masks | None = None  # of the current pass, made on first use
        self._until: int | None = None
        self._rowwise: Rowwise | None = None
        self._unseen: Tensor | None = None
        self._gathering: Gathering | None = None
        self._apart: tuple[Placement, ...] = ()  # placements read in place
        self._divided = False  # whether placements are split; a replayed pass does not need it

    def _divide(self) -> None:
        """Splits placements into gathered ones and ones read in place, and finds the latter's angles."""
        small, self._apart = split(self.placements) if self.attention is None else ((), self.placements)
        self._gathering = Gathering(small, self.rotaries) if small else None
        self._angles = self._find_angles()
        self._divided = True

    def _find_angles(self) -> dict[int, tuple[Tensor, Tensor]]:
        """Cosine and sine of every shift, by identity of the rotary embedding."""
        angles: dict[int, tuple[Tensor, Tensor]] = {}
        if any(p.shift for p in self._apart):
            device = self._apart[0].segment.keys.device
            for rotary in self.rotaries:
                if rotary is not None and id(rotary) not in angles:
                    cosine, sine = rotary.angles([-p.shift for p in self._apart], device)
                    angles[id(rotary)] = (cosine[:, None, None], sine[:, None, None])
        return angles

    @property
    def own(self) -> OwnKVCache:
        """The cache itself."""
        return self

    @property
    def watched(self) -> bool:
        """Whether `attention` is recorded."""
        return self.attention is not None

    @property
    def cached_tokens(self) -> int:
        """Tokens of all placements, hidden ones included."""
        return sum(p.tokens for p in self.placements)

    @property
    def filled(self) -> int:
        """Used columns of the memory."""
        return self.folded + self.length

    def positions(self, columns: int) -> Tensor:
        """Int64 [columns], the positions of the first columns of the memory."""
        return self._positions[:columns]

    @property
    def tail(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the new tokens, each [layers, kv_heads, length, head_dim].

        Raises:
            UnfitError: some layers did not ask for attention.
        """
        layers = len(self.rotaries)
        if len(self.windows) != layers:
            raise UnfitError(f"{layers - len(self.windows)} of {layers} layers did not call attention")
        assert self.memory is not None
        keys, values = self.memory[:, :, :, self.folded : self.filled]
        return keys, values

    def layer_tail(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer's new tokens, each [kv_heads, length, head_dim]."""
        assert self.memory is not None, "no forward pass has run"
        keys, values = self.memory[:, layer, :, self.folded : self.filled]
        return keys, values

    def begin(
        self, positions: Sequence[int], until: int | None = None, *, rowwise: Rowwise | None = None
    ) -> None:
        """Announces a forward pass over tokens at these positions, ascending, up to the layer `until`."""
        assert self.length + len(positions) <= self.capacity, "more tokens than announced"
        start, end = self.filled, self.filled + len(positions)
        if self.memory is not None and end > self.memory.shape[3]:
            self.move(self._room_for(self.memory))
        self._positions[start:end] = torch.tensor(positions, dtype=torch.int64)
        if start and self._positions[start - 1] >= self._positions[start]:
            self._ascending = False
        self._until, self._rowwise, self._unseen = until, rowwise, None
        self._rows, self._masks = len(positions), None

    def begin_tree(self, positions: Sequence[int], unseen: Tensor) -> None:
        """Announces a pass over several continuations of one prompt, as in `OwnKVCache`."""
        self.begin(positions)
        self._unseen = unseen

    @property
    def masks(self) -> Masks:
        """Masks of the rows of the current pass."""
        if not self._divided:
            self._divide()
        if self._masks is None:
            positions = self._positions[: self.filled + self._rows]
            gathered = None if self._gathering is None else self._gathering.positions
            self._masks = Masks(
                self._apart,
                positions,
                self._rows,
                ascending=self._ascending,
                gathered=gathered,
                unseen=self._unseen,
            )
        return self._masks

    def commit(self) -> None:
        """Counts the tokens of the last forward pass."""
        self.length += self._rows

    def truncate(self, length: int) -> None:
        """Drops all tokens of the tail but the first `length`."""
        assert length <= self.length
        self.length = length

    @torch.inference_mode()
    def move(self, memory: Tensor) -> None:
        """Moves folded tokens and the tail to memory with at least `filled` columns; it can grow later."""
        assert self.memory is not None, "no forward pass has run"
        memory[:, :, :, : self.filled] = self.memory[:, :, :, : self.filled]
        self.memory = memory

    @torch.inference_mode()
    def move_out(self) -> None:
        """Moves both to separate memory of full width."""
        if self.memory is not None:
            self.move(self._room_for(self.memory))

    def _room_for(self, like: Tensor) -> Tensor:
        return like.new_empty((*like.shape[:3], self.folded + self.capacity, like.shape[4]))

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Appends the pass's keys and values [kv_heads, rows, head_dim]. Returns the layer's memory."""
        if self.memory is None:
            self.memory = key.new_empty((2, len(self.rotaries), key.shape[0], self.capacity, key.shape[2]))
        if key.shape[0] != self.memory.shape[2] or key.shape[2] != self.memory.shape[4]:
            raise UnfitError("layers differ in the number or size of their key heads")
        start, end = self.filled, self.filled + key.shape[1]
        self.memory[0, layer, :, start:end] = key
        self.memory[1, layer, :, start:end] = value
        if layer == self._until:
            raise StopForward
        return self.memory[0, layer, :, :end], self.memory[1, layer, :, :end]

    def receive(self, states: Tensor, windows: dict[int, int | None]) -> None:
        """Takes the first pass's computed keys and values, [2, layers, kv_heads, rows, head_dim]."""
        self.memory = self._room_for(states)
        self.memory[:, :, :, : states.shape[3]] = states
        self.windows = dict(windows)

    @torch.inference_mode()
    def fold(self, which: Sequence[Placement] | None = None) -> None:
        """Copies placed segments before the tail, rotated to their place, so that decoding reads one run.

        By default all are copied if there are more than `FOLD_ABOVE`, or on a GPU, which then replays passes.
        """
        on_gpu = self.memory is not None and self.memory.device.type != "cpu"
        few = which is None and len(self.placements) <= FOLD_ABOVE and not on_gpu
        chosen = {id(placement) for placement in (self.placements if which is None else which)}
        if few or not chosen or self.memory is None:
            return
        run = Gathering(
            [placement for placement in self.placements if id(placement) in chosen], self.rotaries
        )
        old, before = self.memory[:, :, :, : self.filled], len(run.positions)
        columns = before + self.folded + self.capacity
        folded = old.new_empty((*old.shape[:3], columns, old.shape[4]))
        with self.scratch.turn:
            for layer in range(len(self.rotaries)):
                folded[0, layer, :, :before], folded[1, layer, :, :before] = run.layer(
                    layer, old.dtype, self.scratch
                )
        folded[:, :, :, before : before + self.filled] = old
        positions = torch.empty(columns, dtype=torch.int64)
        positions[:before] = run.positions
        positions[before : before + self.filled] = self._positions[: self.filled]
        self.memory, self._positions = folded, positions
        self.folded += before
        self._ascending = bool((positions[1 : self.filled] > positions[: self.filled - 1]).all())
        self.placements = tuple(placement for placement in self.placements if id(placement) not in chosen)
        self._divided = False

    def seen_of_own(self, window: int | None, device: torch.device) -> tuple[slice, Hidden]:
        """The memory columns that the row of a one-row pass may see, and the hidden ones among them."""
        (block,) = self.masks.blocks(window, 1, device)
        return block.tail, block.own

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Attention of this pass's tokens, as in `OwnKVCache`."""
        masks = self.masks
        check_states(layer, len(self.rotaries), masks.rows, key, value)
        check_queries(query, key)
        self.windows[layer] = rules.window
        keys, values = self.append(layer, key, value)
        heads, rows, _ = query.shape
        fresh = not self.placements and self.filled == 0 and rows > 1 and self._unseen is None
        if fresh and rules.plain:
            return self._fresh(query, key, value, rules)
        most = 1 if self._rowwise else rows_at_once(heads, self.cached_tokens + keys.shape[1], query)
        if rules.window is not None and rules.window < keys.shape[1]:
            most = min(most, block_rows(rules.window))
        if query.device.type == "cpu":
            most = min(most, masks.block_rows)
        packed = pack(query * rules.scale, key.shape[0])
        group = packed.shape[1] // rows
        blocks = []
        gathered = None
        if self._gathering is not None:
            dtype = torch.float32 if rules.softcap is None and widens_copies(packed) else packed.dtype
            gathered = self._gathering.layer(layer, dtype, self.scratch)
        idle = self._rowwise.idle if self._rowwise else 0
        for block in masks.blocks(rules.window, most, query.device):
            if block.first >= rows - idle:
                blocks.append(packed.new_zeros(packed.shape[0], idle * group, packed.shape[2]))
                break
            part = packed[:, block.first * group : block.end * group]
            blocks.append(self._attend_block(layer, part, keys, values, block, rules, gathered))
        return unpack(blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1), rows)

    def _fresh(self, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Plain attention of a first pass without a cache."""
        window = rules.window
        if window is None or self.masks.extent < window:
            return causal_attention(query, key, value, rules.scale)
        return banded_attention(query, key, value, rules.scale, self.masks.bands(window, query))

    def _attend_block(
        self,
        layer: int,
        packed: Tensor,
        keys: Tensor,
        values: Tensor,
        block: Block,
        rules: AttentionParams,
        gathered: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """One block of packed rows, [kv_heads, rows * group, head_dim] in and out."""
        rotary = self.rotaries[layer]
        turned: Sequence[Tensor] = [packed] * len(self._apart)
        if rotary is not None and self._angles:
            turned = rotary.rotate(packed[None], *self._angles[id(rotary)]).unbind()
        parts = []
        for query, placement, hidden in zip(turned, self._apart, block.placed, strict=True):
            segment, cut = placement.segment, slice(placement.lo, placement.hi)
            parts.append(Part(query, segment.keys[layer, :, cut], segment.values[layer, :, cut], hidden))
        parts.append(Part(packed, keys[:, block.tail], values[:, block.tail], block.own))
        if gathered is not None:
            joined, values_of = gathered
            parts.insert(0, Part(packed.to(joined.dtype), joined, values_of, block.gathered))
        watched = self._watch_from is not None and layer >= self._watch_from
        if not watched and fuses(rules, packed, sum(part.keys.shape[1] for part in parts)):
            return attend_fused(parts, rules, block.rows, self.scratch)
        if gathered is not None:
            parts[0] = Part(packed, joined.to(packed.dtype), values_of.to(packed.dtype), block.gathered)
        out, weights = attend(parts, rules, block.rows, self.scratch)
        if watched:
            assert self.attention is not None
            cached = weights[:, :, : self.cached_tokens]
            self.attention += cached.sum((0, 1), dtype=torch.float32).cpu()
        return out
