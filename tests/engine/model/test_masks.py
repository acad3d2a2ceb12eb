"""What masks hold in memory for a long pass: no more than a bound, however many rows and keys there are."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.attention import kernels
from engine.attention import masks as masks_module
from engine.attention.masks import Hidden, Masks
from engine.base.segment import Placement, Segment
from tests.engine.cases import apart, model_of

BOUND = 1 << 18  # bytes; the same number of scores is held at once


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[int, weakref.ref[Tensor]]:
    """The numbers that are made of masks, as long as anything holds them."""
    found: dict[int, weakref.ref[Tensor]] = {}
    bias = Hidden.bias

    def noting(self: Hidden, *args: Any) -> tuple[Tensor | None, Tensor | None]:
        numbers, blind = bias(self, *args)
        if numbers is not None:
            found[id(numbers)] = weakref.ref(numbers)
        return numbers, blind

    monkeypatch.setattr(Hidden, "bias", noting)
    return found


@pytest.mark.parametrize("family", ["llama-gqa", "mistral-swa", "gpt-oss"])
def test_a_long_text_beside_a_segment_holds_no_more_than_the_bound(
    family: str, made: dict[int, weakref.ref[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = model_of(family).network
    kv = network.kv_cache((), 400)
    network.forward([1, 2, 3, 4] * 100, range(400), kv)
    segment = Segment("s", (1, 2, 3, 4) * 100, *kv.tail)
    rows = 1500
    logits = []
    for bound in (BOUND, 48 << 20):
        made.clear()
        monkeypatch.setattr(kernels, "SCORE_BYTES", bound)
        monkeypatch.setattr(masks_module, "KEPT_BYTES", bound, raising=False)
        tail = network.kv_cache([Placement(segment, 0, 400, 0)], rows)
        logits.append(network.forward([5, 6, 7] * 500, range(400, 400 + rows), tail))
        held = [numbers.nbytes for one in made.values() if (numbers := one()) is not None]
        assert 0 < sum(held) <= 2 * bound
    assert apart(*logits) <= 1e-4


def test_keys_that_a_window_hides_from_all_rows_have_no_mask() -> None:
    states = torch.zeros(1, 1, 1000, 1)
    placement = Placement(Segment("k", (0,) * 1000, states, states), 0, 1000, 0)
    masks = Masks((placement,), torch.arange(1000, 1100), 100, ascending=True)
    first, second = masks.blocks(64, 50, torch.device("cpu"))
    (seen,), (left,) = first.placed, second.placed
    assert seen.mask is not None
    assert (seen.gone, seen.mask.shape) == (937, (50, 63))
    assert left.mask is not None
    assert (left.gone, left.mask.shape) == (987, (50, 13))
