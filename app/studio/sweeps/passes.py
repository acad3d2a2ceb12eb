"""The time of a forward pass over tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from app.studio.sweeps.turns import Way
from engine.base.segment import Placement
from engine.model.model import Model


def logits_after(
    model: Model, tokens: Sequence[int], start: int, placements: Sequence[Placement] = ()
) -> torch.Tensor:
    """Logits of the last token, [1, vocabulary], over placed segments."""
    kv = model.network.kv_cache(placements, len(tokens))
    return model.network.forward(tokens, range(start, start + len(tokens)), kv)


def floor_way(model: Model, tokens: Sequence[int], start: int) -> Way:
    """The way `floor`: these tokens from a position on, without a segment."""

    def run() -> float:
        started = time.perf_counter()
        logits_after(model, tokens, start)
        if model.network.device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - started) * 1000

    return Way("floor", run)
