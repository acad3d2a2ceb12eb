"""A sliding window spares the keys that it leaves behind, and changes nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

from engine.attention.banded import banded_attention, bands, block_rows
from engine.attention.scratch import Scratch
from tests.engine.cases import apart, model_of
from tests.engine.reference import Reference
from tests.engine.tiny import tiny_network

WINDOW = 9  # of every tiny model that has one
WINDOWED = ["mistral-swa", "qwen2-swa", "cohere2", "gemma2", "gemma3", "gpt-oss"]
LONG = 300  # several blocks of rows


def drawn(positions: str, count: int = LONG) -> tuple[list[int], list[int]]:
    draw = random.Random(positions)
    tokens = [draw.randrange(3, 300) for _ in range(count)]
    if positions == "gaps":
        return tokens, sorted(draw.sample(range(count + 200), count))
    return tokens, list(range(count))


@pytest.mark.parametrize("positions", ["gapless", "gaps"])
@pytest.mark.parametrize("family", WINDOWED)
def test_a_long_pass_equals_the_reference(family: str, positions: str) -> None:
    model, reference = model_of(family), Reference(tiny_network(family))
    tokens, places = drawn(positions)
    kv = model.network.kv_cache((), LONG)
    allowed = torch.ones(LONG, LONG, dtype=torch.bool).tril()
    want = reference.masked_pass(tokens, places, allowed)
    assert apart(model.network.forward(tokens, places, kv, keep=LONG), want) <= 1e-4


@pytest.mark.parametrize("family", WINDOWED)
def test_passes_one_after_the_other_equal_one(family: str) -> None:
    """Later rows see the tail of earlier passes, of which the window leaves most behind."""
    model = model_of(family)
    tokens, places = drawn("gaps")
    whole = model.network.forward(tokens, places, model.network.kv_cache((), LONG), keep=LONG)
    kv, parts = model.network.kv_cache((), LONG), []
    for first, end in ((0, 130), (130, 131), (131, 140), (140, 299), (299, LONG)):
        parts.append(model.network.forward(tokens[first:end], places[first:end], kv, keep=end - first))
    assert apart(torch.cat(parts), whole) <= 1e-4


@pytest.mark.parametrize("family", ["mistral-swa", "gemma2", "gpt-oss"])
def test_products_grow_with_the_window_and_not_with_the_prompt(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every layer has a window; gpt-oss has layers without one."""
    model, counted = model_of(family), {"products": 0, "full": 0}
    attend, take = nn.functional.scaled_dot_product_attention, Scratch.take

    def counting(query: torch.Tensor, key: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        counted["products"] += query.shape[1] * query.shape[2] * key.shape[2]
        return attend(query, key, *rest, **named)

    def taking(self: Scratch, name: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        counted["products"] += shape[0] * shape[1] * shape[2] if name == "scores" else 0
        return take(self, name, shape, like)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", counting)
    monkeypatch.setattr(Scratch, "take", taking)
    tokens, places = drawn("gapless", 1024)
    kv = model.network.kv_cache((), len(tokens) + 1)
    model.network.forward(tokens, places, kv)
    heads = model.config.num_attention_heads
    windowed = sum(window is not None for window in kv.windows.values())
    full = heads * len(tokens) ** 2 * (model.layers - windowed)
    most = heads * len(tokens) * (WINDOW + block_rows(WINDOW)) * windowed
    sinks = heads * len(tokens) * model.layers
    assert windowed
    assert counted["products"] <= full + most + sinks
    counted["products"] = 0
    model.network.forward(tokens[:1], [len(tokens)], kv)
    assert counted["products"] <= heads * ((WINDOW + 1) * windowed + 1026 * (model.layers - windowed))


@pytest.mark.parametrize("window", [1, 2, 63, 64, 65, 130, 511])
@pytest.mark.parametrize("positions", ["gapless", "gaps"])
def test_bands_are_the_masked_attention(window: int, positions: str) -> None:
    torch.manual_seed(window)
    _, places = drawn(positions, 200)
    query, key, value = torch.randn(4, 200, 16), torch.randn(2, 200, 16), torch.randn(2, 200, 16)
    at = torch.tensor(places)
    near = at[:, None] - at
    mask = (near >= 0) & (near < window)
    want = nn.functional.scaled_dot_product_attention(
        query[None], key[None], value[None], attn_mask=mask, scale=0.3, enable_gqa=True
    )[0]
    cut = bands(places, window, query)
    assert [(band.first, band.end) for band in cut] == [
        (first, min(first + block_rows(window), 200)) for first in range(0, 200, block_rows(window))
    ]
    assert apart(banded_attention(query, key, value, 0.3, cut), want) <= 1e-6
