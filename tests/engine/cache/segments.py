"""Segments of drawn numbers, for tests of the store that need no model."""

from __future__ import annotations

import torch

from engine.base.segment import Segment
from engine.store import Origin

ORIGIN = Origin("travel", "trip/tokyo", "anchored", "tiny", "f")

LOADED = ("tests.engine.cases",)
"""What the server of processes loads once, besides the engine, for all processes that tests start."""


def segment(key: str = "k", tokens: int = 5, seed: int = 0) -> Segment:
    """A segment of two layers, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, 3, 2, tokens, 8, generator=generator)
    return Segment(key, tuple(range(tokens)), keys.contiguous(), values.contiguous())
