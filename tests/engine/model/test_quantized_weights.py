"""Rounded weights: the products are those of the rounded weight, and the network is probed as what it is."""

from __future__ import annotations

import copy
import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from engine.base.choices import Quantize
from engine.base.errors import ModelError
from engine.checkpoint.fingerprint import quantized_fingerprint
from engine.checkpoint.synthetic import byte_tokenizer
from engine.engine import Engine
from engine.model.loading import load
from engine.model.long_context_check import COARSE
from engine.model.model import Model
from engine.quantize.quantized_weights import (
    GROUP,
    EightBitLinear,
    FourBitLinear,
    QuantizedLinear,
    quantize_weights,
    quantized_scheme,
)
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import Case, apart, prompt_of, schema_of
from tests.engine.reference import Reference
from tests.engine.tiny import FAMILIES, save_tiny, tiny_network

PLAIN = {"gpt2", "falcon", "falcon-new", "falcon-alibi"}  # without a layer to round
SCHEMES: tuple[Quantize, ...] = ("int8", "int4")
HALF_STEP = {"int8": 0.5 / 127, "int4": 0.5 / 15}


def rounded(plain: nn.Linear, scheme: Quantize) -> QuantizedLinear:
    with torch.inference_mode():
        return EightBitLinear(plain) if scheme == "int8" else FourBitLinear(plain)


def steps(weight: torch.Tensor, scheme: Quantize) -> torch.Tensor:
    """The most by which each weight may be off: half of what two codes are apart, and bf16's rounding."""
    if scheme == "int8":
        reach = weight.abs().amax(1, keepdim=True)
    else:
        least, most = weight.view(len(weight), -1, GROUP).aminmax(dim=2, keepdim=True)
        reach = (most - least).expand(-1, -1, GROUP).reshape(weight.shape)
    return reach * HALF_STEP[scheme] + weight.abs().max() * 2**-7


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 5, 64, 200])
@pytest.mark.parametrize("scheme", SCHEMES)
@torch.inference_mode()
def test_a_rounded_layer_is_the_product_with_a_near_weight(scheme: Quantize, rows: int, bias: bool) -> None:
    torch.manual_seed(rows)
    plain = nn.Linear(96, 160, bias=bias).bfloat16()
    plain.weight.data[3] = 0.0
    x = torch.randn(1, rows, 96).bfloat16()
    layer = rounded(plain, scheme)
    weight = layer.weight.float()
    off = (weight - plain.weight.float()).abs()
    assert bool((off <= steps(plain.weight.float(), scheme)).all())
    assert float(off.max()) > 0
    one = layer(x)
    assert torch.equal(layer(x.expand(2, -1, -1).transpose(0, 1))[:, 1], one[0])  # not contiguous
    assert (one.shape, one.dtype) == ((1, rows, 160), torch.bfloat16)
    if rows:
        exact = nn.functional.linear(x.float(), weight, plain.bias.float() if bias else None)
        assert apart(one.float(), exact) <= 2**-6 * float(exact.abs().max())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_row_is_the_same_beside_any_others(scheme: Quantize) -> None:
    torch.manual_seed(0)
    layer, x = rounded(nn.Linear(128, 64).bfloat16(), scheme), torch.randn(600, 128).bfloat16()
    with torch.inference_mode():
        whole = layer(x)
        for at, rows in ((0, 1), (3, 2), (7, 4), (20, 33), (40, 100), (0, 512)):
            assert torch.equal(layer(x[at : at + rows]), whole[at : at + rows])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("family", each(FAMILIES, "llama-gqa", "gpt-oss", "gpt2", "bloom"))
def test_the_probe_holds_on_the_rounded_network(family: str, scheme: Quantize) -> None:
    network = tiny_network(family).bfloat16()
    if family in PLAIN:
        with pytest.raises(ModelError, match="has no layers that --quantize can round"):
            quantize_weights("m", network, scheme)
        return
    quantize_weights("m", network, scheme)
    assert quantized_scheme(network) == scheme
    model = Model("m", network, byte_tokenizer(), f"m-{family}")
    assert (model.weights, model.dtype) == (scheme, "bf16")
    assert model.probe.relocatable == (family != "opt")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("family", ["llama-gqa", "gemma2", "gpt-oss", "opt", "gptj"])
def test_cached_logits_are_those_of_the_rounded_networks_own_attention(
    family: str, scheme: Quantize, tmp_path: Path
) -> None:
    network = tiny_network(family).bfloat16()
    quantize_weights("m", network, scheme)
    text = '<module name="a">first</module><module name="b">next</module>'
    schema = schema_of(f'<schema name="p">Start.{text}</schema>')
    prompt = prompt_of("<prompt><a/><b/> and a question?</prompt>")
    with Engine(Model("m", copy.deepcopy(network), byte_tokenizer(), "m"), Store.open(tmp_path)) as engine:
        case = Case(engine, schema, prompt)
        found = case.logits().float()
        own = Reference(network, relocatable=family != "opt").logits(case.plan, case.uses).float()
    assert float((found - own).abs().max()) <= COARSE * float(own.std())


def test_a_head_that_shares_its_weight_with_the_embedding_stays() -> None:
    network = tiny_network("gemma").bfloat16()
    quantize_weights("m", network, "int4")
    assert network.lm_head.weight is network.model.embed_tokens.weight


def test_the_head_gets_eight_bits_and_what_routes_stays() -> None:
    network = tiny_network("jetmoe").bfloat16()
    quantize_weights("m", network, "int4")
    kinds = {name: type(part) for name, part in network.named_modules()}
    assert kinds["lm_head"] is EightBitLinear or network.lm_head.weight is network.model.embed_tokens.weight
    assert FourBitLinear in kinds.values()
    assert not any(issubclass(kind, QuantizedLinear) for name, kind in kinds.items() if "router" in name)
    plain = tiny_network("llama").bfloat16()
    quantize_weights("m", plain, "int4")
    assert type(plain.lm_head) is EightBitLinear


def test_what_the_products_do_not_take_stays() -> None:
    class Own(nn.Linear):
        pass

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(
                [Own(64, 64), nn.Linear(33, 16), nn.Linear(64, 7), nn.Linear(64, 64, device="meta")]
            )
            self.gate = nn.Linear(64, 64)

        def get_output_embeddings(self) -> None:
            return None

    with pytest.raises(ModelError, match="no layers"):
        quantize_weights("m", Net().bfloat16(), "int8")


def test_weights_are_let_go_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny_network("llama").bfloat16()
    gc.collect()
    plain = [weakref.ref(part.weight) for part in network.modules() if type(part) is nn.Linear]
    alive = []
    made = QuantizedLinear.__init__

    def counting(self: QuantizedLinear, layer: nn.Linear) -> None:
        alive.append(sum(one() is not None for one in plain))
        made(self, layer)

    monkeypatch.setattr(QuantizedLinear, "__init__", counting)
    quantize_weights("m", network, "int4")
    assert alive == list(range(len(plain), 0, -1))
    assert not any(one() is not None for one in plain)


def test_rounded_models_are_models_of_their_own(tmp_path: Path) -> None:
    folder = str(save_tiny(tmp_path / "m"))
    plain, eight, four = (load(folder, dtype="bf16", quantize=one) for one in ("none", *SCHEMES))
    assert [one.weights for one in (plain, eight, four)] == ["plain", "int8", "int4"]
    assert len({one.fingerprint for one in (plain, eight, four)}) == 3
    assert eight.fingerprint == quantized_fingerprint(plain.fingerprint, "int8")
    assert {one.dtype for one in (eight, four)} == {"bf16"}
    text = '<schema name="p"><module name="a">first</module></schema>'
    outcomes = []
    for model in (plain, eight, four, load(folder, quantize="int4")):
        with Engine(model, Store.open(tmp_path / "store")) as engine:
            case = Case(engine, schema_of(text), prompt_of("<prompt><a/>and?</prompt>"))
            outcomes.append({use.outcome for use in case.supplied.uses})
    assert outcomes == [{"miss"}, {"miss"}, {"miss"}, {"hit"}]


def test_the_layers_that_stay_plain_may_be_packed(tmp_path: Path) -> None:
    folder = str(save_tiny(tmp_path / "m"))
    assert load(folder, quantize="int8", weights="packed").weights == "int8"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dtype": "fp32"}, "computes in bf16"),
        ({"dtype": "fp16"}, "leave --dtype fp16 out"),
        ({"quantize": "int3"}, "use one of none, int8, int4"),
    ],
)
def test_what_cannot_be_rounded_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load("random:llama-100m", **{"quantize": "int8", **given})  # type: ignore[arg-type]


def test_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ModelError, match="add --device cpu"):
        load("random:llama-100m", quantize="int4")
