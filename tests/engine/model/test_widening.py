"""Numbers of bf16 that are multiplied in fp32: where, and that nothing is lost by it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.attention import bf16_upcast
from engine.attention.banded import banded_attention, bands
from engine.attention.fused_kernel import attend_fused
from engine.attention.kernels import AttentionParams, Part, attend, causal_attention
from engine.attention.masks import Hidden
from engine.attention.scratch import Scratch
from engine.base.segment import Form, Placement
from engine.kv_cache.packed_kv_cache import PackedText, empty_segment
from engine.model.network import Network
from tests.engine.cases import model_of
from tests.engine.tiny import tiny_network

X86: dict[str, Any] = {"architecture": "x86_64", "avx2": True, "cpu_name": "Intel Xeon"}


@pytest.mark.parametrize(
    ("told", "faster"),
    [
        ({}, False),
        ({"architecture": "aarch64", "cpu_name": "Neoverse"}, False),
        (X86 | {"avx2": False}, False),
        (X86, True),
        (X86 | {"avx512_bf16": True}, True),
        (X86 | {"avx512_bf16": True, "amx_bf16": True}, False),
        (X86 | {"avx512_bf16": True, "cpu_name": "AMD EPYC"}, False),
        (X86 | {"cpu_name": "AMD EPYC"}, True),
    ],
)
def test_what_a_processor_tells_decides(told: dict[str, Any], faster: bool) -> None:
    assert bf16_upcast.fp32_is_faster(told) is faster


@pytest.fixture(params=[False, True], ids=["narrow", "wide"])
def wide(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    chosen: bool = request.param
    monkeypatch.setattr(bf16_upcast, "_here", lambda: chosen)
    return chosen


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def test_few_rows_and_other_formats_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16_upcast, "_here", lambda: True)
    assert bf16_upcast.widens(drawn(2, 64, 8))
    assert not bf16_upcast.widens(drawn(2, 63, 8))
    assert not bf16_upcast.widens(drawn(2, 64, 8).half())
    assert not bf16_upcast.widens(drawn(2, 64, 8).float())


def test_causal_and_banded_attention_give_the_numbers_of_fp32(wide: bool) -> None:
    query, keys, values = drawn(4, 96, 8), drawn(2, 96, 8, seed=2), drawn(2, 96, 8, seed=3)
    exact = causal_attention(query.float(), keys.float(), values.float(), 0.3)
    found = causal_attention(query, keys, values, 0.3)
    assert found.dtype == torch.bfloat16
    assert found.float().sub(exact).abs().max() < (0.01 if wide else 0.03)
    cut = bands(range(96), 20, query)
    exact = banded_attention(query.float(), keys.float(), values.float(), 0.3, bands(range(96), 20, exact))
    found = banded_attention(query, keys, values, 0.3, cut)
    assert found.dtype == torch.bfloat16
    assert found.float().sub(exact).abs().max() < (0.01 if wide else 0.03)


@pytest.mark.parametrize("sinks", [None, [0.5, -1.0, 2.0, 0.0]])
def test_parts_of_many_rows_give_the_numbers_of_fp32(wide: bool, sinks: list[float] | None) -> None:
    rows, rules = 40, AttentionParams(1.0, sinks=None if sinks is None else torch.tensor(sinks))
    triangle = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    hidden = [Hidden(), Hidden(3), Hidden(0, torch.tensor([[True] * 4 + [False]])), Hidden(0, triangle)]
    parts = [
        Part(drawn(2, 80, 8, seed=at), drawn(2, keys, 8, seed=9 + at), drawn(2, keys, 8, seed=20 + at), one)
        for at, (keys, one) in enumerate(zip((30, 7, 5, rows), hidden, strict=True))
    ]
    full = [Part(one.query.float(), one.keys.float(), one.values.float(), one.hidden) for one in parts]
    exact, _ = attend(full, rules, rows, Scratch())
    found = attend_fused(parts, rules, rows, Scratch())
    assert found.dtype == torch.bfloat16
    assert found.float().sub(exact).abs().max() < (0.02 if wide else 0.06)


@pytest.mark.parametrize("family", ["llama", "llama-gqa", "mistral-swa"])
def test_a_network_computes_no_worse(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = model_of(family).network.setup

    def logits(network: Network) -> torch.Tensor:
        text = PackedText(empty_segment(_form(network), "s", range(70), torch.device("cpu")), 0)
        seen = Placement(text.segment, 0, 70, 0)
        after = PackedText(empty_segment(_form(network), "t", range(5, 70), torch.device("cpu")), 70, (seen,))
        network.encode([text, after])
        behind = [seen, Placement(after.segment, 0, 65, 70)]
        return network.forward(range(70), range(135, 205), network.kv_cache(behind, 70), keep=70).float()

    exact = logits(Network(tiny_network(family), setup))
    narrow = Network(tiny_network(family).bfloat16(), setup)
    found = {}
    for chosen in (False, True):
        monkeypatch.setattr(bf16_upcast, "_here", lambda chosen=chosen: chosen)
        found[chosen] = logits(narrow)
    errors = {chosen: float((one - exact).square().mean()) for chosen, one in found.items()}
    assert errors[True] <= 1.1 * errors[False]
    assert not torch.equal(found[True], found[False])


def _form(network: Network) -> Form:
    kv = network.kv_cache((), 1)
    network.forward([1], [0], kv)
    keys, _ = kv.tail
    return Form(keys.shape[0], keys.shape[1], keys.shape[3], keys.dtype)
