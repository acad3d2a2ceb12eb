"""A network that was written as GGUF computes what it computed before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers as t
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from torch import Tensor

from engine.checkpoint.configuration import usable
from engine.gguf.model import GgufModel
from engine.model.loading import read_gguf
from engine.quantize.quantized_weights import FourBitLinear
from tests.drawing import each
from tests.engine.model.gguf.written import Stored, plain, rounded, write
from tests.engine.tiny import sharpened

CPU = torch.device("cpu")
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 320,
    "max_position_embeddings": 2048,
}
THETA = {"rope_theta": 5e5}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.4, 1.5, 1.6],
    "long_factor": [1.0, 1.5, 2.0, 4.0, 6.0, 8.0],
    "original_max_position_embeddings": 64,
    "partial_rotary_factor": 0.75,
    **THETA,
}
GEMMA = {**SIZES, "head_dim": 24, "query_pre_attn_scalar": 24, "sliding_window": 9}
CONFIGURATIONS: dict[str, Callable[[], Any]] = {
    "llama": lambda: t.LlamaConfig(**SIZES, rope_parameters={"rope_type": "default", **THETA}),
    "llama tied": lambda: t.LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama biased": lambda: t.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama wide heads": lambda: t.LlamaConfig(**SIZES, head_dim=24),
    "llama 3": lambda: t.LlamaConfig(
        **SIZES,
        rope_parameters={"rope_type": "llama3", **LLAMA3, **THETA, "original_max_position_embeddings": 64},
    ),
    "llama yarn": lambda: t.LlamaConfig(**SIZES, rope_parameters={**YARN, **THETA}),
    "llama linear": lambda: t.LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "factor": 4.0, **THETA}
    ),
    "mistral": lambda: t.MistralConfig(**SIZES, head_dim=16, sliding_window=9),
    "mistral without a window": lambda: t.MistralConfig(**SIZES, head_dim=16, sliding_window=None),
    "qwen2": lambda: t.Qwen2Config(**SIZES, rope_parameters={"rope_type": "default", **THETA}),
    "qwen2 tied": lambda: t.Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": lambda: t.Qwen3Config(**SIZES, head_dim=24),
    "gemma2": lambda: t.Gemma2Config(**GEMMA),
    "gemma2 other caps": lambda: t.Gemma2Config(
        **GEMMA, attn_logit_softcapping=20.0, final_logit_softcapping=10.0
    ),
    "gemma3": lambda: t.Gemma3TextConfig(**{**GEMMA, "num_hidden_layers": 7}),
    "gemma3 linear": lambda: t.Gemma3TextConfig(
        **{**GEMMA, "num_hidden_layers": 7},
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    ),
    "phi3": lambda: t.Phi3Config(**SIZES, pad_token_id=0),
    "phi3 long": lambda: t.Phi3Config(
        **SIZES, pad_token_id=0, original_max_position_embeddings=64, rope_parameters=LONG
    ),
}


def network_of(name: str) -> Any:
    config = CONFIGURATIONS[name]()
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    made = sharpened(t.AutoModelForCausalLM.from_config(config).eval())
    with torch.no_grad():
        for key, one in made.named_parameters():
            if key.endswith(("norm.weight", "bias")):
                one.add_(torch.randn_like(one) * 0.1)
    return made


def read(path: Path, dtype: torch.dtype | None = torch.float32) -> Any:
    model = GgufModel("m", [path])
    return read_gguf("m", model, usable("m", model.configuration), CPU, dtype)[0]


def logits(network: Any, tokens: int = 100) -> Tensor:
    torch.manual_seed(1)
    network.set_attn_implementation("eager")
    with torch.inference_mode():
        found: Tensor = network(torch.randint(0, 300, (1, tokens))).logits[0].float()
    return found


def apart(one: Tensor, other: Tensor) -> float:
    return float(((one - other).abs().max() / other.std()).detach())


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_in_fp32_the_logits_are_those_of_the_network(name: str, tmp_path: Path) -> None:
    twin = network_of(name)
    made = read(write(tmp_path / "m.gguf", twin))
    for tokens in (100, 40):
        assert apart(logits(made, tokens), logits(twin, tokens)) <= 1e-4


def without(key: str) -> Callable[[gguf.GGUFWriter], None]:
    def further(writer: gguf.GGUFWriter) -> None:
        for held in writer.kv_data:
            held.pop(key, None)

    return further


def test_gemma_2_has_its_usual_window_where_the_file_names_none(tmp_path: Path) -> None:
    further = without("gemma2.attention.sliding_window")
    path = write(tmp_path / "m.gguf", network_of("gemma2"), further=further)
    config = GgufModel("m", [path]).configuration
    assert config.sliding_window == 4096
    assert config.layer_types == ["sliding_attention", "full_attention", "sliding_attention"]


@pytest.mark.parametrize("every", [None, 0])
def test_gemma_3_attends_to_what_its_keys_say(every: int | None, tmp_path: Path) -> None:
    """Without a window all layers see everything; with a pattern of 0 none does."""
    twin = network_of("gemma3")
    further = without("gemma3.attention.sliding_window")
    if every is not None:
        further = lambda writer: writer.add_uint32("gemma3.attention.sliding_window_pattern", 0)  # noqa: E731
    path = write(tmp_path / "m.gguf", twin, further=further)
    twin.config.layer_types = ["full_attention" if every is None else "sliding_attention"] * 7
    made = read(path)
    assert made.config.layer_types == twin.config.layer_types
    assert apart(logits(made), logits(rebuilt(twin))) <= 1e-4


def rebuilt(twin: Any) -> Any:
    """The same weights in a network that is built for the configuration as it is now."""
    made = t.AutoModelForCausalLM.from_config(twin.config).eval()
    made.load_state_dict(twin.state_dict())
    return made


def random_blocks(kind: Kind) -> Stored:
    """Weights in blocks of random bytes, whose scales are small."""
    block, size = GGML_QUANT_SIZES[kind]
    halves = {Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208,), Kind.Q2_K: (80, 82), Kind.Q3_K: (108,)}
    generator = np.random.default_rng(3)

    def stored(name: str, tensor: Tensor) -> tuple[Any, Kind]:
        if tensor.dim() < 2 or tensor.shape[1] % block:
            return plain(name, tensor)
        raw = generator.integers(0, 256, (tensor.shape[0], tensor.shape[1] // block, size), dtype=np.uint8)
        for at in halves[kind]:
            scale = generator.uniform(0.5, 1.0, raw.shape[:2]).astype(np.float16) / 2000
            raw[..., at : at + 2] = scale[..., None].view(np.uint8)
        return raw.reshape(tensor.shape[0], -1), kind

    return stored


def dequantized(twin: Any, path: Path, dtype: torch.dtype) -> Any:
    """The network with the numbers of a file, by the package `gguf` and not by our reader."""
    numbers = {
        one.name: torch.from_numpy(dequantize(one.data, one.tensor_type).copy())
        for one in gguf.GGUFReader(path).tensors
    }
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, twin.config.num_hidden_layers)
    state = {
        key: numbers[str(names.get_name(key, try_suffixes=(".weight", ".bias")))] for key in twin.state_dict()
    }
    twin.load_state_dict(state)
    return twin.to(dtype)


WIDE = {**SIZES, "hidden_size": 256, "intermediate_size": 512}
OF_THE_PACKAGE = [Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.F16, Kind.BF16]
FAST = [Kind.Q4_0, Kind.Q4_K, Kind.Q6_K]
OF_BYTES = [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K]


@pytest.mark.parametrize("kind", each([*OF_THE_PACKAGE, *OF_BYTES], *FAST), ids=lambda kind: kind.name)
def test_quantized_weights_are_those_of_the_package(kind: Kind, tmp_path: Path) -> None:
    torch.manual_seed(0)
    twin = t.AutoModelForCausalLM.from_config(t.Qwen2Config(**WIDE)).eval()
    stored = rounded(kind) if kind in OF_THE_PACKAGE else random_blocks(kind)
    path = write(tmp_path / "m.gguf", twin, stored)
    fp32 = read(path)
    assert apart(logits(fp32), logits(dequantized(twin, path, torch.float32))) <= 1e-4
    bf16 = read(path, torch.bfloat16)
    kept = [type(one) is FourBitLinear for one in bf16.modules() if hasattr(one, "in_features")]
    assert all(kept) if kind in (Kind.Q4_0, Kind.Q4_1, Kind.Q4_K) else not any(kept)
    twin_error = apart(logits(dequantized(twin, path, torch.bfloat16)), logits(fp32))
    assert apart(logits(bf16), logits(fp32)) <= max(2.5 * twin_error, 0.02)


def test_kept_blocks_are_in_the_order_of_heads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    twin = t.AutoModelForCausalLM.from_config(t.LlamaConfig(**WIDE)).eval()
    path = write(tmp_path / "m.gguf", twin, rounded(Kind.Q4_1))
    fp32, bf16 = read(path), read(path, torch.bfloat16)
    for place in ("q_proj", "k_proj", "v_proj"):
        name = f"model.layers.1.self_attn.{place}"
        kept, numbers = bf16.get_submodule(name).weight.float(), fp32.get_submodule(name).weight
        assert type(bf16.get_submodule(name)) is FourBitLinear
        assert apart(kept, numbers) < 0.02
