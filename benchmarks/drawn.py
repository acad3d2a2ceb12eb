"""Drawn tokens, and modules of equal length: the same for every way that begins at token ids."""

from __future__ import annotations

import itertools

import torch


def drawn_tokens(vocabulary: int, count: int, seed: int) -> list[int]:
    """Token ids, each as likely as any other.

    Args:
        vocabulary: how many there are to draw from.
        count: how many are drawn.
        seed: the seed of the draw.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn: list[int] = torch.randint(0, vocabulary, (count,), generator=generator).tolist()
    return drawn


def spans(cached: int, modules: int) -> list[tuple[int, int]]:
    """Where each module begins and ends, when `cached` tokens are split over `modules`."""
    return list(itertools.pairwise(cached * i // modules for i in range(modules + 1)))
