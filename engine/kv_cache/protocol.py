"""What new tokens may attend to, behind one protocol: cached segments in their places, and a tail that grows.

Knows nothing about prompts, files or how attention is computed.
"""

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
    """A model does not ask for attention in a way that can be followed; the message says what it does."""


class StopForward(Exception):  # noqa: N818 - it ends a pass, and is no fault
    """Ends a forward pass of which only the first layers were wanted."""


@dataclass(frozen=True)
class Rowwise:
    """Each row of a pass attends by the very products that a pass of its own would take.

    Attributes:
        idle: the last rows, which attend to nothing: they keep a pass of one row from taking products of
            another kind than a pass of several.
    """

    idle: int = 0


@dataclass(frozen=True)
class Rows:
    """What one prompt wants of a forward pass.

    Attributes:
        token_ids: the tokens to compute.
        positions: of those, ascending.
        keep: of how many of the last ones it wants logits.
        rowwise: how they attend one by one; None for all at once.
    """

    token_ids: list[int]
    positions: list[int]
    keep: int = 1
    rowwise: Rowwise | None = None

    @property
    def real(self) -> Rows:
        """These without the idle ones, which a pass with rows of others has no need of."""
        idle = self.rowwise.idle if self.rowwise is not None else 0
        if not idle:
            return self
        return Rows(self.token_ids[:-idle], self.positions[:-idle], self.keep - idle, Rowwise())

    def cut(self, count: int) -> tuple[Rows, Rows]:
        """Returns the first `count` of them, without logits, and the others, for passes one after the other.

        At least the rows of which there are to be logits are among the others.
        """
        count = min(count, len(self.token_ids) - self.keep)
        first = Rows(self.token_ids[:count], self.positions[:count], 0, self.rowwise)
        return first, Rows(self.token_ids[count:], self.positions[count:], self.keep, self.rowwise)


class KVCache(Protocol):
    """All keys and values that the tokens of one prompt may attend to.

    A forward pass is announced (`begin`), runs through the layers, and is counted (`commit`).

    Attributes:
        placements: segments that are read where they lie.
        length: tokens of the tail.
        capacity: the most tokens that the tail can hold.
        windows: the sliding window that the model asked for, by layer, None for none; empty for models with
            attention code of their own.
    """

    placements: tuple[Placement, ...]
    length: int
    capacity: int
    windows: dict[int, int | None]

    @property
    def own(self) -> OwnKVCache | None:
        """Itself, where attention is ours; None where it is the model's own."""

    @property
    def cached_tokens(self) -> int:
        """Tokens of all placements, hidden ones included."""

    @property
    def tail(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the new tokens, each [layers, kv_heads, length, head_dim].

        Raises:
            UnfitError: some layers did not hand theirs over.
        """

    def layer_tail(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer's new tokens, each [kv_heads, length, head_dim]."""

    def begin(
        self, positions: Sequence[int], until: int | None = None, *, rowwise: Rowwise | None = None
    ) -> None:
        """Announces a forward pass.

        Args:
            positions: positions of its tokens, ascending.
            until: the layer at whose keys and values the pass ends with StopForward; None for a whole pass.
            rowwise: how its rows attend one by one, where attention is ours; None for all at once.
        """

    def commit(self) -> None:
        """Counts the tokens of the forward pass that has just run."""

    def truncate(self, length: int) -> None:
        """Forgets all tokens of the tail but the first `length`, as if they had never been computed."""

    def fold(self, which: Sequence[Placement] | None = None) -> None:
        """Makes one run of keys of many placements: of all where decoding over it is faster, or of these."""


class OwnKVCache(KVCache, Protocol):
    """A KV cache that computes its attention itself, so that its rows may do so together with others'.

    Attributes:
        folded: tokens of placements that were copied before the tail.
        memory: where those and the tail are, [2, layers, kv_heads, columns, head_dim]; None before a pass.
    """

    folded: int
    memory: Tensor | None

    @property
    def watched(self) -> bool:
        """Whether it adds up how much is looked at."""

    @property
    def filled(self) -> int:
        """Columns of the memory that hold a token."""

    def positions(self, columns: int) -> Tensor:
        """Int64 [columns], of what the first columns of the memory hold."""

    def move(self, memory: Tensor) -> None:
        """Moves what is folded, and the tail, to other memory; wider one is taken when it is needed.

        Args:
            memory: [2, layers, kv_heads, columns, head_dim], with at least `filled` columns.
        """

    def move_out(self) -> None:
        """Moves both to memory of its own, as wide as they may become."""

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds this pass's keys and values [kv_heads, rows, head_dim]; returns all that the memory holds."""

    def seen_of_own(self, window: int | None, device: torch.device) -> tuple[slice, Hidden]:
        """Columns of the memory that the row of a pass of one may see, and what it does not see of them."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Attention of this pass's tokens over everything they may see, [heads, rows, head_dim]."""


def placed_keys(placement: Placement, layer: int, rotary: Rotary | None) -> Tensor:
    """Returns a layer's keys of a placement as they would be where it stands.

    Args:
        placement: the placement, hidden tokens included.
        layer: the layer's index.
        rotary: the rotary embedding of the layer; None for none.

    Returns:
        [kv_heads, tokens, head_dim].
    """
    stored = placement.segment.keys[layer, :, placement.lo : placement.hi]
    return rotary.shift(stored, placement.shift) if rotary else stored


def check_queries(query: Tensor, key: Tensor) -> None:
    """Checks queries [heads, rows, head_dim] against the keys of the same rows.

    Raises:
        UnfitError: they are none of these.
    """
    if query.shape[1] != key.shape[1] or query.shape[0] % key.shape[0] or query.shape[2] != key.shape[2]:
        raise UnfitError(f"queries {tuple(query.shape)} do not match keys {tuple(key.shape)}")


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
