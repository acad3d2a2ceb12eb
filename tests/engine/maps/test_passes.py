"""Passes with recorded or given maps equal the plain pass where they must."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine.base.errors import ModelError
from engine.maps.passes import MapPasses
from engine.maps.sharing import divergence, lazyformer, san
from tests.drawing import each
from tests.engine.cases import model_of
from tests.engine.maps.corpora import passes_of, texts

KNOWN = ("llama", "llama-gqa", "mistral-swa", "qwen3", "olmo2", "smollm3", "gemma2", "gpt-oss")
UNKNOWN = ("phi3", "gpt2", "afmoe", "jetmoe", "bloom")
TEXT = [7, 9, 30, 44, 21, 90, 120, 4, 5, 6, 7, 8, 9, 10]


def plain(passes: MapPasses, tokens: list[int]) -> Tensor:
    network, rows = passes.network, len(tokens)
    with network.headless():
        return network.forward(tokens, range(rows), network.kv_cache((), rows), rows)


@pytest.mark.parametrize("family", each(KNOWN, "llama-gqa", "gemma2"))
def test_a_texts_own_maps_give_the_states_of_the_plain_pass(family: str) -> None:
    passes = passes_of(family)
    want, found = plain(passes, TEXT), passes.record(TEXT)
    assert (found.states - want).abs().max() < 1e-4
    assert (passes.mapped(TEXT, found.maps) - want).abs().max() < 1e-4
    assert (passes.mapped(TEXT, found.maps.half()) - want).abs().max() < 5e-3
    assert found.maps.sum(-1) == pytest.approx(1, abs=1e-5)
    logits = passes.mapped_logits(TEXT, found.maps, [3, 13])
    assert (logits - passes.network.own_logits(TEXT)[[3, 13]]).abs().max() < 1e-4
    assert (plain(passes, TEXT) - want).abs().max() == 0  # the layers compute their own function again


def test_another_texts_maps_change_the_states() -> None:
    passes = passes_of()
    other = passes.record([*range(100, 114)]).maps
    assert (passes.mapped(TEXT, other) - plain(passes, TEXT)).abs().max() > 0.1


def test_layers_ask_for_maps_and_compute_those_that_are_missing() -> None:
    passes = passes_of()
    maps, asked = passes.record(TEXT).maps, []

    def choose(layer: int, states: Tensor) -> Tensor | None:
        asked.append((layer, tuple(states.shape)))
        return maps[layer] if layer == 1 else None

    assert (passes.chosen(TEXT, choose) - plain(passes, TEXT)).abs().max() < 1e-4
    assert asked == [(layer, (14, 64)) for layer in range(3)]


def test_layers_share_the_map_of_an_earlier_one() -> None:
    passes = passes_of()
    assert (passes.shared(TEXT, [0, 1, 2]) - plain(passes, TEXT)).abs().max() < 1e-4
    first = passes.record(TEXT)
    seen: list[Tensor] = []
    found = passes.shared(TEXT, [0, 0, 2])

    def choose(layer: int, states: Tensor) -> Tensor | None:
        seen.append(states)
        return first.maps[0] if layer == 1 else None

    assert (passes.chosen(TEXT, choose) - found).abs().max() < 1e-4


def test_sub_blocks_of_the_baselines() -> None:
    assert lazyformer(5) == [0, 0, 2, 2, 4]
    assert lazyformer(6, 3) == [0, 0, 0, 3, 3, 3]
    assert san([0.1, 0.3, 0.2, 0.1], 0.2) == [0, 0, 2, 3, 3]
    assert san([0.1, 0.1], 0.0) == [0, 1, 2]


def test_divergence_of_layers() -> None:
    same = torch.tensor([[1.0, 0.0], [0.5, 0.5]]).expand(1, 1, 2, 2)
    other = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).expand(1, 1, 2, 2)
    assert divergence(torch.cat([same, same])).tolist() == [0]
    # the second row: entropy of (1/4, 3/4), less half of ln 2; the first is equal
    row = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)) - math.log(2) / 2
    assert divergence(torch.cat([same, other])).tolist() == pytest.approx([row / 2])


@pytest.mark.parametrize("family", each(UNKNOWN, "gpt2", "afmoe"))
def test_other_attention_is_refused(family: str) -> None:
    model = model_of(family)
    with pytest.raises(ModelError, match=f"'tiny-{family}' cannot reuse attention maps: "):
        MapPasses(model.network, model.name)


def test_invalid_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = passes_of()
    weight = passes.attention[1].v_proj.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(math.nan)
    try:
        with pytest.raises(ModelError, match="invalid number"):
            passes.record(texts()[0])
    finally:
        with torch.no_grad():
            weight.copy_(before)
