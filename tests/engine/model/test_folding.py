"""One run to decode over instead of many segments: it shows every row what they showed, windows included."""

from __future__ import annotations

import pytest
import torch

from engine.base.segment import Placement
from engine.kv_cache.segment_kv_cache import FOLD_ABOVE
from tests.engine.cases import apart, encoded, model_of

HEAD = list(range(40, 49))  # of which every segment takes some
STEPS = range(10, 16)


def decoded(family: str, *, fold: bool) -> torch.Tensor:
    """Logits step by step behind three segments out of order, a hidden token among them, in a window of 9."""
    model = model_of(family)
    segments = [encoded(model, f"k{at}", HEAD[at : at + 3]) for at in (6, 0, 3)]
    placed = [
        Placement(segments[0], 0, 3, 6, (1,)),
        Placement(segments[1], 0, 3, 0),
        Placement(segments[2], 0, 3, 3),
    ]
    assert len(placed) > FOLD_ABOVE
    kv = model.network.kv_cache(placed, 2 + len(STEPS))
    model.network.forward([9, 11], [7, 9], kv)
    if fold:
        kv.fold()
        assert not kv.placements
    return torch.cat([model.network.forward([20 + at], [at], kv) for at in STEPS])


@pytest.mark.parametrize("family", ["llama-gqa", "mistral-swa", "gemma3", "gpt-oss"])
def test_folded_segments_are_seen_where_they_stand(family: str) -> None:
    assert apart(decoded(family, fold=True), decoded(family, fold=False)) <= 1e-4
