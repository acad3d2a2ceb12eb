"""A network attends as it is told; measuring it, or telling it otherwise, changes nothing of it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.base.segment import Placement
from engine.kv_cache.protocol import KVCache
from engine.kv_cache.segment_kv_cache import SegmentKVCache
from engine.model.network import Network
from engine.model.probe import probe
from tests.engine.cases import apart, encoded, model_of
from tests.engine.tiny import tiny_network

TOKENS = list(range(5, 25))
BOTH_PATHS = ["llama-gqa", "gemma3", "falcon", "bloom"]


def logits(network: Network, kv: KVCache | None = None) -> torch.Tensor:
    kv = kv or network.kv_cache((), len(TOKENS))
    return network.forward(TOKENS, range(len(TOKENS)), kv, keep=len(TOKENS))


@pytest.mark.parametrize("family", [*BOTH_PATHS, "gpt2", "jetmoe"])
def test_probing_changes_nothing_and_finds_the_same_again(family: str) -> None:
    network = Network(tiny_network(family))
    before, setup = network.config.to_dict(), network.setup
    first, second = probe(network, "n"), probe(network, "n")
    assert network.setup is setup
    assert network.config.to_dict() == before
    assert first.to_json() == second.to_json()
    assert (first.form, first.setup.carried) == (second.form, second.setup.carried)


@pytest.mark.parametrize("family", BOTH_PATHS)
def test_views_of_one_module_take_turns(family: str) -> None:
    """Each pass attends in its own way, whichever came before it."""
    module = tiny_network(family)
    plain = Network(module)
    found = plain.under(probe(plain, "n").setup)
    own, ours = plain.own_logits(TOKENS), logits(found)
    for _ in range(2):
        assert torch.equal(found.own_logits(TOKENS), own)
        assert torch.equal(logits(found), ours)
    assert apart(own, ours) <= 1e-4


def test_rotary_embeddings_are_an_argument() -> None:
    """Without any, a segment is read as if it stood where it was encoded."""
    model = model_of("llama-gqa")
    network = model.network
    unmoved = network.under(replace(network.setup, rotaries=(None,) * network.layers))
    segment = encoded(model, "k", TOKENS)

    def read(by: Network, start: int) -> torch.Tensor:
        kv = by.kv_cache([Placement(segment, 0, len(TOKENS), start)], 1)
        return by.forward([3], [start + len(TOKENS)], kv)

    assert torch.equal(read(unmoved, 0), read(network, 0))
    assert apart(read(network, 40), read(network, 0)) <= 1e-4
    assert apart(read(unmoved, 40), read(network, 0)) > 1e-2


@pytest.mark.parametrize("family", [*BOTH_PATHS, "gpt2"])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_pass_that_ends_at_a_layer_gives_that_layers_keys(family: str, layer: int) -> None:
    network = model_of(family).network
    whole = network.kv_cache((), len(TOKENS))
    logits(network, whole)
    entered = set[int]()
    hooks = [
        module.register_forward_pre_hook(lambda one, _: entered.add(one.layer_idx))
        for module in network.module.modules()
        if hasattr(module, "layer_idx")
    ]
    keys, values = network.first_keys(TOKENS, range(len(TOKENS)), layer)
    for hook in hooks:
        hook.remove()
    assert max(entered) == layer
    assert torch.equal(keys, whole.tail[0][layer])
    assert torch.equal(values, whole.tail[1][layer])
    assert torch.equal(whole.layer_tail(layer)[0], keys)


@pytest.mark.parametrize("family", [*BOTH_PATHS, "gpt2"])
def test_both_caches_keep_the_protocol(family: str) -> None:
    model = model_of(family)
    network = model.network
    head = encoded(model, "k", TOKENS[:8])
    kv = network.kv_cache([Placement(head, 0, 8, 0), Placement(head, 0, 0, 8)], 5)
    assert (len(kv.placements), kv.cached_tokens, kv.length, kv.capacity) == (1, 8, 0, 5)
    network.forward(TOKENS[8:11], range(8, 11), kv)
    kv.fold()
    network.forward(TOKENS[11:12], [11], kv)
    assert kv.length == 4
    assert [states.shape[2] for states in kv.tail] == [4, 4]
    whole = network.kv_cache((), 12)
    network.forward(TOKENS[:12], range(12), whole)
    assert apart(kv.tail[0], whole.tail[0][:, :, 8:]) <= 1e-5
    with pytest.raises(AssertionError, match="more tokens than announced"):
        network.forward(TOKENS[:2], [12, 13], kv)


@pytest.mark.parametrize("family", ["llama-gqa", "gpt-oss"])
def test_attention_to_cached_tokens_is_shown_in_their_order(family: str) -> None:
    """Every row's weights sum to one over what it sees; sinks and new tokens take some of it."""
    model = model_of(family)
    network = model.network
    placements = [Placement(encoded(model, "k", TOKENS[:8]), 0, 8, 0)]
    found = network.attention_to_cache(TOKENS[8:], range(8, 20), placements)
    assert network.shows_attention
    assert found.shape == (8,)
    assert (found > 0).all()
    rows = network.layers * network.config.num_attention_heads * 12
    assert 0 < float(found.sum()) < rows
    hidden = [replace(placements[0], hidden=(2, 5))]
    without = network.attention_to_cache(TOKENS[8:], range(8, 20), hidden)
    assert (without[[2, 5]] == 0).all()


@pytest.mark.parametrize("family", ["falcon", "bloom"])
def test_models_with_attention_of_their_own_do_not_show_it(family: str) -> None:
    assert not model_of(family).network.shows_attention


def test_passes_of_two_threads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers are shared by all that compute with a module, two engines over one model among them."""
    network = model_of("llama-gqa").network
    others = network.under(network.setup)
    inside, most = [0], [0]
    attend = SegmentKVCache.attend

    def watched(kv: SegmentKVCache, *given: Any) -> torch.Tensor:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.01)
        try:
            return attend(kv, *given)
        finally:
            inside[0] -= 1

    monkeypatch.setattr(SegmentKVCache, "attend", watched)

    def run(one: Network) -> torch.Tensor:
        return one.forward(range(20), range(20), one.kv_cache((), 20))

    alone = run(network)
    with ThreadPoolExecutor(2) as threads:
        found = [done.result() for done in [threads.submit(run, one) for one in (network, others)]]
    assert most == [1]
    assert all(torch.equal(one, alone) for one in found)
