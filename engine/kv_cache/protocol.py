"""The protocol of KV caches: cached segments in their places, and a tail that grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.attention.kernels import AttentionParams
from engine.attention.masks import Hidden
from engine.attention.rope import Rotary
from engine.base.segment import Placement


class UnfitError(Exception):
    """A model's attention calls do not fit; the message describes them."""


class StopForward(Exception):  # noqa: N818 - not an error: it ends a pass
    """Ends a forward pass after its first layers."""


@dataclass(frozen=True)
class Rowwise:
    """Each row of a pass attends with the same products as in a pass of its own.

    The last `idle` rows attend to nothing. They make a pass of one row use the same kind of products as a
    pass of several.
    """

    idle: int = 0


@dataclass(frozen=True)
class Rows:
    """The rows of one prompt in a forward pass.

    Attributes:
        token_ids: the tokens to compute.
        positions: their positions, ascending.
        keep: the number of last tokens whose logits are wanted.
        rowwise: how they attend one by one; None for all at once.
    """

    token_ids: list[int]
    positions: list[int]
    keep: int = 1
    rowwise: Rowwise | None = None

    @property
    def real(self) -> Rows:
        """The rows without idle ones, which a pass with other prompts' rows does not need."""
        idle = self.rowwise.idle if self.rowwise is not None else 0
        if not idle:
            return self
        return Rows(self.token_ids[:-idle], self.positions[:-idle], self.keep - idle, Rowwise())

    def cut(self, count: int) -> tuple[Rows, Rows]:
        """Returns the first `count` rows, without logits, and the others, which have all wanted logits."""
        count = min(count, len(self.token_ids) - self.keep)
        first = Rows(self.token_ids[:count], self.positions[:count], 0, self.rowwise)
        return first, Rows(self.token_ids[count:], self.positions[count:], self.keep, self.rowwise)


class KVCache(Protocol):
    """All keys and values that the tokens of one prompt may attend to.

    A forward pass is announced (`begin`), runs through the layers, and is counted (`commit`).

    Attributes:
        placements: segments that are read in place.
        length: tokens of the tail.
        capacity: the most tokens of the tail.
        windows: the model's sliding window by layer, None for none; empty for models with their own attention
            code.
    """

    placements: tuple[Placement, ...]
    length: int
    capacity: int
    windows: dict[int, int | None]

    @property
    def own(self) -> OwnKVCache | None:
        """The cache itself if the engine computes attention; None if the model does."""

    @property
    def cached_tokens(self) -> int:
        """Tokens of all placements, hidden ones included."""

    @property
    def tail(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the new tokens, each [layers, kv_heads, length, head_dim].

        Raises:
            UnfitError: a layer did not return its keys and values.
        """

    def layer_tail(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer's new tokens, each [kv_heads, length, head_dim]."""

    def begin(
        self, positions: Sequence[int], until: int | None = None, *, rowwise: Rowwise | None = None
    ) -> None:
        """Announces a forward pass.

        Args:
            positions: positions of its tokens, ascending.
            until: the layer whose keys and values end the pass with StopForward; None for a whole pass.
            rowwise: how its rows attend one by one, if the engine computes attention; None for all at once.
        """

    def commit(self) -> None:
        """Counts the tokens of the last forward pass."""

    def truncate(self, length: int) -> None:
        """Drops all tokens of the tail but the first `length`."""

    def fold(self, which: Sequence[Placement] | None = None) -> None:
        """Copies these placements into one run; by default all, if that speeds up decoding."""


class OwnKVCache(KVCache, Protocol):
    """A KV cache that computes its own attention, so its rows can attend together with other caches' rows.

    Attributes:
        folded: tokens of placements copied before the tail.
        memory: folded tokens and tail, [2, layers, kv_heads, columns, head_dim]; None before a pass.
    """

    folded: int
    memory: Tensor | None

    @property
    def watched(self) -> bool:
        """Whether it records attention weights."""

    @property
    def filled(self) -> int:
        """Used columns of the memory."""

    def positions(self, columns: int) -> Tensor:
        """Int64 [columns], the positions of the first columns of the memory."""

    def move(self, memory: Tensor) -> None:
        """Moves folded tokens and the tail to memory with at least `filled` columns; it can grow later."""

    def move_out(self) -> None:
        """Moves both to separate memory of full width."""

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Appends the pass's keys and values [kv_heads, rows, head_dim]. Returns the layer's memory."""

    def receive(self, states: Tensor, windows: dict[int, int | None]) -> None:
        """Takes the first pass's computed keys and values, [2, layers, kv_heads, rows, head_dim]."""

    def seen_of_own(self, window: int | None, device: torch.device) -> tuple[slice, Hidden]:
        """The memory columns that the row of a one-row pass may see, and the hidden ones among them."""

    def begin_tree(self, positions: Sequence[int], unseen: Tensor) -> None:
        """Announces a pass over several continuations of one prompt.

        Args:
            positions: positions of its tokens, ascending; continuations may repeat one.
            unseen: bool [tokens, tokens], true where a token does not see another one of the pass.
        """

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Attention of this pass's tokens.

        Args:
            layer: index of the attention layer.
            query: [heads, rows, head_dim], rotated for the prompt's positions.
            key: [kv_heads, rows, head_dim], rotated likewise.
            value: [kv_heads, rows, head_dim].
            rules: parameters of the layer.

        Returns:
            [heads, rows, head_dim].

        Raises:
            StopForward: the layer ends the pass.
            UnfitError: the shapes do not fit a segment.
        """


def placed_keys(placement: Placement, layer: int, rotary: Rotary | None) -> Tensor:
    """Returns a layer's keys of a placement, rotated to its place, [kv_heads, tokens, head_dim]."""
    stored = placement.segment.keys[layer, :, placement.lo : placement.hi]
    return rotary.shift(stored, placement.shift) if rotary else stored


def check_queries(query: Tensor, key: Tensor) -> None:
    """Checks queries [heads, rows, head_dim] against the keys of the same rows.

    Raises:
        UnfitError: the shapes differ.
    """
    if query.shape[1] != key.shape[1] or query.shape[0] % key.shape[0] or query.shape[2] != key.shape[2]:
        raise UnfitError(f"queries {tuple(query.shape)} do not match keys {tuple(key.shape)}")


def check_states(layer: int, layers: int, rows: int, key: Tensor, value: Tensor) -> None:
    """Checks a model's keys and values [..., kv_heads, tokens, head_dim].

    Raises:
        UnfitError: they do not fit a segment.
    """
    if layer >= layers:
        raise UnfitError(f"layer {layer} calls attention, but the configuration has {layers} layers")
    if key.shape != value.shape:
        raise UnfitError(
            f"keys are {key.shape[-1]} channels wide and values {value.shape[-1]} "
            "(as in multi-head latent attention); a segment needs the same width for both"
        )
    if key.shape[-2] != rows:
        raise UnfitError(f"a pass over {rows} tokens gives keys of {key.shape[-2]}")
