"""Segments, the only thing that is ever stored, and placements, where a prompt puts them.

A segment holds the keys and values of one run of tokens at *local* positions 0..n-1. It never moves:
a placement says where its tokens stand in a prompt, and attention rotates the query instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Segment:
    """Keys and values of one run of tokens, encoded under one scope.

    Attributes:
        key: the digest that names the segment (`engine.prompt.recipe.segment_key`).
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
        """How many tokens it has."""
        return len(self.token_ids)

    @property
    def nbytes(self) -> int:
        """Bytes of its keys and values."""
        return self.keys.nbytes + self.values.nbytes


@dataclass(frozen=True)
class Form:
    """What keys and values of a model look like.

    Attributes:
        layers: how many layers the model has.
        heads: how many KV heads each layer has.
        size: the size of a head.
        dtype: the number format of keys and values.
    """

    layers: int
    heads: int
    size: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values that one token takes in all layers."""
        return 2 * self.layers * self.heads * self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Placement:
    """Tokens `lo..hi` of a segment, standing in the prompt from position `start` on.

    Attributes:
        hidden: local positions, ascending and within `lo..hi`, of tokens that are computed anew and so must
            not be read from the segment.
    """

    segment: Segment
    lo: int
    hi: int
    start: int
    hidden: tuple[int, ...] = ()

    @property
    def shift(self) -> int:
        """Position in the prompt minus local position: the angle by which queries turn back."""
        return self.start - self.lo

    @property
    def tokens(self) -> int:
        """How many tokens it places."""
        return self.hi - self.lo
