"""Segments, the stored unit, and placements, their positions in a prompt.

A segment has the keys and values of one run of tokens at *local* positions 0..n-1. It never moves: a
placement gives the position of its tokens in a prompt, and attention rotates the query instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Segment:
    """Keys and values of one run of tokens, encoded under one scope.

    Attributes:
        key: the segment's digest (`engine.prompt.recipe.segment_key`).
        token_ids: the tokens, compared with the wanted ones at every hit.
        keys: [layers, kv_heads, tokens, head_dim], rotated for local positions 0..n-1.
        values: [layers, kv_heads, tokens, head_dim].
    """

    key: str
    token_ids: tuple[int, ...]
    keys: Tensor
    values: Tensor

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return len(self.token_ids)

    @property
    def nbytes(self) -> int:
        """Bytes of its keys and values."""
        return self.keys.nbytes + self.values.nbytes


@dataclass(frozen=True)
class Form:
    """The layers, KV heads per layer, head size and dtype of a model's keys and values."""

    layers: int
    heads: int
    size: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """Bytes of the keys and values of one token in all layers."""
        return 2 * self.layers * self.heads * self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Placement:
    """Tokens `lo..hi` of a segment at positions from `start` on in a prompt.

    Attributes:
        hidden: local positions, ascending and within `lo..hi`, of tokens that are recomputed and not read
            from the segment.
    """

    segment: Segment
    lo: int
    hi: int
    start: int
    hidden: tuple[int, ...] = ()

    @property
    def shift(self) -> int:
        """Position in the prompt minus local position: the angle by which queries rotate back."""
        return self.start - self.lo

    @property
    def tokens(self) -> int:
        """The number of placed tokens."""
        return self.hi - self.lo
