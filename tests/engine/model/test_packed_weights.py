"""Packed weights: the same answers as plain ones, never both at once, and plain where they do not pay."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch import nn

from engine.engine import Engine
from engine.model.loading import load
from engine.model.network import Network
from engine.quantize import packed_weights
from engine.quantize.packed_weights import PackedLinear, pack_weights, packed_layers
from engine.store import Store
from tests.engine.cases import Case, apart, model_of, prompt_of, schema_of
from tests.engine.reference import Reference
from tests.engine.tiny import FAMILIES, tiny_model, tiny_network

TOKENS = range(3, 40)
HAS_BF16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()


def logits(network: Network) -> torch.Tensor:
    kv = network.kv_cache((), len(TOKENS) + 1)
    first = network.forward(TOKENS, TOKENS, kv, keep=len(TOKENS))
    return torch.cat([first, network.forward([9], [TOKENS.stop], kv)])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 3, 32, 400])
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        pytest.param(torch.bfloat16, marks=pytest.mark.skipif(not HAS_BF16, reason="no such instructions")),
    ],
)
def test_a_packed_layer_is_the_plain_one(dtype: torch.dtype, rows: int, bias: bool) -> None:
    torch.manual_seed(rows)
    plain = nn.Linear(96, 160, bias=bias).to(dtype)
    x = torch.randn(1, rows, 96).to(dtype)
    with torch.inference_mode():
        packed = PackedLinear(plain)
        one, other = plain(x), packed(x)
        assert torch.equal(packed(x.expand(2, -1, -1).transpose(0, 1))[:, 1], other[0])  # not contiguous
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    if dtype == torch.bfloat16:
        assert torch.equal(one, other)
    elif rows:
        assert apart(one, other) <= 2e-6
    assert torch.equal(packed.weight, plain.weight)


def test_formats_that_the_processor_does_not_multiply_stay_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert pack_weights(tiny_network("llama").bfloat16(), "packed") == 0
    assert pack_weights(tiny_network("llama"), "packed") > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_answers_as_with_plain_weights(family: str, dtype: torch.dtype) -> None:
    network = Network(tiny_network(family).to(dtype), model_of(family).network.setup)
    plain = logits(network)
    packed = pack_weights(network.module, "packed")
    assert packed == packed_layers(network.module)
    assert (network.dtype, network.device.type) == (dtype, "cpu")
    spread = float(plain.float().std())
    bound = 1e-5 if dtype == torch.float32 else 0.02
    assert apart(logits(network).float(), plain.float()) <= bound * spread


@pytest.mark.parametrize("family", ["llama-gqa", "qwen2-swa", "gemma2", "gpt-oss", "opt", "gptj"])
def test_segments_of_plain_weights_are_read_by_packed_ones_within_the_reference(
    family: str, tmp_path: Path
) -> None:
    text = '<module name="a">first</module><module name="b">next</module>'
    schema = schema_of(f'<schema name="p">Start.{text}</schema>')
    prompt = prompt_of("<prompt><a/><b/> and a question?</prompt>")
    writer = Engine(model_of(family), Store.open(tmp_path))
    written = Case(writer, schema, prompt)
    writer.close()
    model = tiny_model(family)
    assert pack_weights(model.network.module, "packed") > 0
    reader = Engine(model, Store.open(tmp_path))
    read = Case(reader, schema, prompt)
    assert {use.outcome for use in read.supplied.uses} == {"hit"}
    reference = Reference(tiny_network(family), relocatable=family != "opt").logits(
        written.plan, written.uses
    )
    assert apart(read.logits(), reference) <= 1e-4
    reader.close()


def test_a_head_that_shares_its_weight_with_the_embedding_is_not_held_twice() -> None:
    network = tiny_network("gemma")
    assert network.lm_head.weight is network.model.embed_tokens.weight
    assert pack_weights(network, "packed") > 0
    assert type(network.lm_head) is nn.Linear
    assert network.lm_head.weight is network.model.embed_tokens.weight


def test_rows_are_let_go_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny_network("llama")
    gc.collect()
    rows = [weakref.ref(one.weight) for one in network.modules() if type(one) is nn.Linear]
    alive = []
    made = PackedLinear.__init__

    def counting(self: PackedLinear, plain: nn.Linear) -> None:
        alive.append(sum(one() is not None for one in rows))
        made(self, plain)

    monkeypatch.setattr(PackedLinear, "__init__", counting)
    assert pack_weights(network, "packed") == len(rows)
    assert alive == list(range(len(rows), 0, -1))
    assert not any(one() is not None for one in rows)


def test_what_is_no_plain_layer_stays() -> None:
    class Own(nn.Linear):
        pass

    hooked, half = nn.Linear(8, 8), nn.Linear(8, 8).half()
    hooked.register_forward_hook(lambda *_: None)
    network = nn.ModuleList([Own(8, 8), hooked, half, nn.Linear(8, 8, device="meta")])
    assert pack_weights(network, "packed") == 0


def test_auto_leaves_small_networks_and_formats_whose_answers_would_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = tiny_network("llama")
    assert pack_weights(network, "auto") == 0
    monkeypatch.setattr(packed_weights, "SMALL", 0)
    monkeypatch.setattr(packed_weights, "WINS", 1e9)
    monkeypatch.setattr(packed_weights, "_same", lambda *_: False)
    assert pack_weights(network, "auto") == 0
    monkeypatch.setattr(packed_weights, "_same", lambda *_: True)
    assert pack_weights(network, "auto") > 0


def test_auto_compares_every_shape_however_slow_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, compared = itertools.count(0, 0.2), defaultdict[int, list[int]](list)
    monkeypatch.setattr(
        packed_weights.time, "perf_counter", lambda: float(next(clock))
    )  # no shape's turn ends
    monkeypatch.setattr(packed_weights, "WINS", 1e9)

    def seen(one: torch.Tensor, _: torch.Tensor) -> bool:
        compared[one.shape[2]].append(one.shape[1])
        return one.shape[2] != 32

    monkeypatch.setattr(packed_weights, "_same", seen)
    monkeypatch.setattr(packed_weights, "SMALL", 0)
    network = nn.ModuleList([nn.Linear(64, 128), nn.Linear(96, 32), nn.Linear(32, 16)])
    assert pack_weights(network, "auto") == 2
    assert [type(one) for one in network] == [PackedLinear, nn.Linear, PackedLinear]
    assert compared == {128: [1, 2, 8, 32, 256], 32: [1], 16: [1, 2, 8, 32, 256]}


def test_auto_keeps_plain_weights_that_are_no_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weights, "SMALL", 0)
    monkeypatch.setattr(packed_weights, "WINS", 0.0)
    assert pack_weights(tiny_network("llama").bfloat16(), "auto") == 0


def test_a_model_is_loaded_as_asked() -> None:
    assert load("demo").weights == "plain"
    assert load("demo", weights="packed").weights == "packed"
    assert load("demo", weights="plain").weights == "plain"
