"""The fused way of attention against the plain one: over parts, in every family, and without copying keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from engine.attention import bf16_upcast, fused_kernel
from engine.attention.fused_kernel import attend_fused, fuses
from engine.attention.kernels import AttentionParams, Part, attend, pack
from engine.attention.masks import Hidden
from engine.attention.scratch import Scratch
from engine.base.segment import Placement, Segment
from engine.kv_cache import segment_kv_cache
from engine.kv_cache.segment_kv_cache import SegmentKVCache
from engine.model.model import Model
from engine.model.network import Network
from tests.engine.cases import apart, model_of
from tests.engine.tiny import SEGMENTS, tiny_network

HEADS, SIZE = 6, 8
PLAIN = AttentionParams(1.0)


def drawn_parts(
    kv_heads: int, rows: int, hidden: list[Hidden], dtype: torch.dtype = torch.float32
) -> list[Part]:
    """Parts with queries, keys and values of their own, strided as those of a tail; the last is the rows'."""
    generator, found = torch.Generator().manual_seed(1), []
    triangle = torch.ones(rows, rows, dtype=torch.bool).triu(1) if rows > 1 else None
    for index, one in enumerate([*hidden, Hidden(0, triangle)]):
        tokens = rows if index == len(hidden) else 5 + index
        query = pack(torch.randn(HEADS, rows, SIZE, generator=generator), kv_heads).to(dtype)
        keys, values = torch.randn(2, kv_heads, tokens + 7, SIZE, generator=generator).to(dtype)
        found.append(Part(query, keys[:, :tokens], values[:, :tokens], one))
    return found


def masked(rows: int, keys: int) -> torch.Tensor:
    return torch.rand(rows, keys, generator=torch.Generator().manual_seed(rows)) < 0.4


HIDDEN = {
    "nothing": [Hidden(), Hidden()],
    "first rows": [Hidden(2), Hidden(4)],
    "some keys": [Hidden(1, masked(4, 5)), Hidden(0, masked(1, 6))],
    "its last keys": [Hidden(0, masked(4, 3)), Hidden()],
    "all of it": [Hidden(0, torch.ones(1, 5, dtype=torch.bool)), Hidden()],
    "all of it from some rows": [Hidden(0, torch.tensor([[1], [0], [1], [0]]).bool().expand(4, 5)), Hidden()],
    "alone": [],
}


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("what", HIDDEN)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 3e-6), (torch.bfloat16, 4e-2)])
def test_fused_parts_are_merged_to_what_one_softmax_gives(
    what: str, sinks: bool, kv_heads: int, dtype: torch.dtype, bound: float
) -> None:
    rules = AttentionParams(1.0, sinks=torch.randn(HEADS).to(dtype) if sinks else None)
    parts = drawn_parts(kv_heads, 4, HIDDEN[what], dtype)
    plain, _ = attend(parts, rules, 4, Scratch())
    assert apart(attend_fused(parts, rules, 4, Scratch()), plain) <= bound


def test_one_row_of_many_heads() -> None:
    parts = drawn_parts(2, 1, [Hidden(), Hidden(1), Hidden(0, masked(1, 7))])
    plain, _ = attend(parts, PLAIN, 1, Scratch())
    assert apart(attend_fused(parts, PLAIN, 1, Scratch()), plain) <= 3e-6


def test_what_the_kernel_cannot_do_is_left_to_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16_upcast, "_here", lambda: False)
    query = torch.zeros(2, 12, SIZE)
    assert fuses(PLAIN, query, 10)
    assert not fuses(AttentionParams(1.0, softcap=2.0), query, 10)
    assert not fuses(PLAIN, query.double(), 999)
    assert not fuses(PLAIN, query.half(), 999)
    assert fuses(PLAIN, query.bfloat16(), 128)
    assert not fuses(PLAIN, query.bfloat16(), 127)
    many = torch.zeros(2, 200, SIZE).bfloat16()
    assert not fuses(PLAIN, many, 999)
    monkeypatch.setattr(bf16_upcast, "_here", lambda: True)
    assert fuses(PLAIN, many, 999)


def over_segments(network: Network, rows: int) -> torch.Tensor:
    """Logits of new tokens between and behind moved segments of which some tokens are hidden, then of one."""
    kv = network.kv_cache((), 24)
    network.forward(range(40, 64), range(24), kv)
    segment = Segment("s", tuple(range(40, 64)), *kv.tail)
    moved = any(network.setup.rotaries)
    placed = [
        Placement(segment, 0, 8, 0, (3, 4)),
        Placement(segment, 2 if moved else 14, 11 if moved else 23, 14),
        Placement(segment, 0, 5, 30) if moved else Placement(segment, 23, 24, 23),
    ]
    places = [3, 4, 8, *range(36, 36 + rows - 3)]
    tail = network.kv_cache(placed, rows + 2)
    first = network.forward([7, 9, 11, *range(5, 5 + rows - 3)], places, tail, keep=rows)
    tail.fold()
    later = [network.forward([token], [place], tail) for token, place in ((20, 90), (21, 91))]
    return torch.cat([first, *later])


@pytest.mark.parametrize("family", SEGMENTS)
def test_every_family_has_the_logits_of_the_plain_way(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = model_of(family).network
    fused = over_segments(network, 9)
    monkeypatch.setattr(segment_kv_cache, "fuses", lambda *_: False)
    assert apart(fused, over_segments(network, 9)) <= 2e-5


@pytest.mark.parametrize("family", ["llama", "llama-gqa", "gemma2", "gpt-oss", "mistral-swa"])
def test_in_bf16_both_ways_differ_by_rounding(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(tiny_network(family).bfloat16(), model_of(family).network.setup)
    exact = over_segments(model_of(family).network, 9)
    monkeypatch.setitem(fused_kernel.FEWEST_KEYS, torch.bfloat16, 0)
    fused = over_segments(network, 9).float()
    monkeypatch.setattr(segment_kv_cache, "fuses", lambda *_: False)
    products = over_segments(network, 9).float()
    spread = float(exact.std())
    assert apart(fused, products) <= 0.3 * spread
    assert float((fused - exact).square().mean()) <= 2 * float((products - exact).square().mean())


def copied(call: Any, least: int) -> list[str]:
    """The operators of a call that write as many numbers as a layer's keys, or more, without computing."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        call()
    kinds = ("aten::copy_", "aten::clone", "aten::contiguous", "aten::cat", "aten::stack")
    big = []
    for event in found.events():
        for shape in event.input_shapes if event.name in kinds else ():
            sizes = [size for size in shape if isinstance(size, int)]
            if sizes and torch.Size(sizes).numel() >= least:
                big.append(f"{event.name}{sizes}")
    return big


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "llama-gqa", "gemma2", "gpt-oss"])
def test_a_step_of_decoding_copies_no_keys(family: str, dtype: torch.dtype) -> None:
    setup = model_of(family).network.setup
    network = Network(tiny_network(family).to(dtype), setup)
    kv = network.kv_cache((), 300)
    network.forward(range(256), range(256), kv)
    segment = Segment("s", tuple(range(256)), *kv.tail)
    placed = [Placement(segment, 0, 256, 256 * i) for i in range(3)]
    tail = network.kv_cache(placed, 10)
    network.forward([1, 2], [768, 769], tail)
    tail.fold()
    assert isinstance(tail, SegmentKVCache)
    network.forward([3], [770], tail)
    assert tail.memory is not None
    keys = tail.memory[0, 0, :, : tail.filled]
    least = keys.numel() // keys.shape[0] if dtype == torch.bfloat16 else keys.numel()
    assert copied(lambda: network.forward([4], [771], tail), least) == []


def test_a_prefill_copies_no_keys() -> None:
    model: Model = model_of("llama")
    network = Network(tiny_network("llama").bfloat16(), model.network.setup)
    kv = network.kv_cache((), 256)
    network.forward(range(256), range(256), kv)
    segment = Segment("s", tuple(range(256)), *kv.tail)
    tail = network.kv_cache([Placement(segment, 0, 250, 0), Placement(segment, 6, 256, 250)], 8)
    keys, _ = kv.layer_tail(0)
    assert copied(lambda: network.forward(range(8), range(500, 508), tail), keys.numel() // 2) == []
