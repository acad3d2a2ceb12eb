"""Causal attention within a sliding window, in blocks of rows that read only visible keys.

A prompt of n tokens takes n times (window + block) products of rows and keys, not n times n / 2.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.attention.bf16_upcast import widened

_FEWEST_ROWS, _MOST_ROWS = 64, 256


def block_rows(window: int) -> int:
    """Rows per block: few enough that all of them see most of the keys that they read."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, window // 2))


@dataclass(frozen=True)
class Band:
    """Rows `first..end` of a pass, which read its keys `start..end`.

    Attributes:
        mask: [rows, keys], added to the scores: 0, or minus infinity if a row may not see a key.
    """

    start: int
    first: int
    end: int
    mask: Tensor


def bands(positions: Sequence[int], window: int, like: Tensor) -> tuple[Band, ...]:
    """Cuts a pass without earlier keys into blocks of rows.

    Args:
        positions: positions of the pass's tokens, ascending.
        window: a query at p sees keys at p - window + 1 and later.
        like: a tensor with the masks' dtype and device.
    """
    blocks = []
    regular: dict[tuple[int, int], Tensor] = {}  # masks of rows and keys without gaps
    rows = block_rows(window)
    for first in range(0, len(positions), rows):
        end = min(first + rows, len(positions))
        start = bisect_left(positions, positions[first] - window + 1)
        gapless = positions[end - 1] - positions[start] == end - 1 - start
        shape = (end - first, first - start)
        mask = regular.get(shape) if gapless else None
        if mask is None:
            at = torch.tensor(positions[start:end], device=like.device)
            apart = at[first - start :, None] - at
            mask = torch.zeros(apart.shape, dtype=like.dtype, device=like.device)
            mask.masked_fill_((apart < 0) | (apart >= window), -torch.inf)
            if gapless:
                regular[shape] = mask
        blocks.append(Band(start, first, end, mask))
    return tuple(blocks)


def banded_attention(query: Tensor, key: Tensor, value: Tensor, scale: float, cut: Sequence[Band]) -> Tensor:
    """Windowed causal attention: query [heads, rows, head_dim], key and value [kv_heads, rows, head_dim]."""
    grouped, out = query.shape[0] != key.shape[0], torch.empty_like(query)
    query, key, value = widened(query, key, value)
    for band in cut:
        rows, keys = slice(band.first, band.end), slice(band.start, band.end)
        out[:, rows] = nn.functional.scaled_dot_product_attention(
            query[None, :, rows],
            key[None, :, keys],
            value[None, :, keys],
            attn_mask=band.mask.to(query.dtype),
            scale=scale,
            enable_gqa=grouped,
        )[0]
    return out
