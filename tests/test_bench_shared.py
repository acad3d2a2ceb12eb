"""`python -m benchmarks.shared`: the sides compute the same, and ours holds what is shared once. No times."""

from __future__ import annotations

import pytest
import torch

from benchmarks.shared import Cell, Ours, Prompts, measure


@pytest.mark.parametrize("shape", ["own", "grouped"])
@pytest.mark.parametrize("shared", [0, 48, 96])
def test_all_sides_compute_the_same(shape: str, shared: int) -> None:
    prompts = Prompts(Cell(shape, 96, shared, readers=5, dtype="fp32"))
    with torch.inference_mode():
        want = prompts.private()
        assert (prompts.unaware() - want).abs().max() <= 1e-5
        assert (Ours(prompts).in_order() - want).abs().max() <= 1e-5


def test_a_cell_tells_times_ratios_and_bytes() -> None:
    found = measure(Cell("grouped", 128, 128, readers=4), 1, lambda _: None)
    assert set(found["median_ms"]) == {"ours", "unaware", "private", "reordered"}
    assert set(found["ratios"]) == {"unaware", "private", "reordered"}
    assert found["apart"] <= 0.05
    # A slot has room for 32 tokens at least.
    assert found["bytes"]["private"] / found["bytes"]["ours"] == pytest.approx(4 * 130 / (128 + 4 * 32))
    assert "reordered" not in measure(Cell("own", 64, 0, readers=2), 1, lambda _: None)["median_ms"]
