"""Which layers read the map of an earlier layer of the same text: LazyFormer and SAN."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def lazyformer(layers: int, size: int = 2) -> list[int]:
    """Returns for each layer the first one of its sub-block of `size` layers."""
    return [layer - layer % size for layer in range(layers)]


def san(divergences: Sequence[float], threshold: float) -> list[int]:
    """Returns for each layer the first one of its sub-block; a divergence at the threshold begins a new one.

    Args:
        divergences: `divergence` of each layer and the next one.
        threshold: in nats, 0 to ln 2.
    """
    first = [0]
    for layer, away in enumerate(divergences, 1):
        first.append(layer if away >= threshold else first[-1])
    return first


def divergence(maps: Tensor) -> Tensor:
    """Returns the Jensen-Shannon divergence of each layer's map and the next one's, in nats.

    Args:
        maps: [layers, heads, rows, rows]; each row is a distribution.

    Returns:
        [layers - 1], means over heads and rows.
    """
    one, other = maps[:-1].double(), maps[1:].double()
    middle = (one + other) / 2

    def entropy(shares: Tensor) -> Tensor:
        return -torch.xlogy(shares, shares).sum(-1)

    return (entropy(middle) - (entropy(one) + entropy(other)) / 2).mean((1, 2)).clamp_min(0).float()
