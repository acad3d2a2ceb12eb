"""What the probe accepts is exact to the end of its context; the rest is bounded or refused in words."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import transformers as t
from transformers.models.llama import modeling_llama

from engine.attention.rope import Rotary
from engine.base.errors import ModelError
from engine.base.segment import Placement
from engine.checkpoint.synthetic import byte_tokenizer
from engine.kv_cache import batched_kv_cache
from engine.model import hf_attention
from engine.model.model import Model
from tests.engine.cases import encoded
from tests.engine.tiny import DENSE, FAMILIES, mla, sharpened, tiny_model, tiny_network

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 320,
    "head_dim": 16,
}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]


def network_of(config: Any) -> Any:
    config = copy.deepcopy(config)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    return sharpened(t.AutoModelForCausalLM.from_config(config).eval())


def model_of(config: Any) -> Model:
    return Model("tiny", network_of(config), byte_tokenizer(), "f")


def ministral(original: int, length: int) -> Any:
    rope = {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 16.0,
        "original_max_position_embeddings": original,
        "llama_4_scaling_beta": 0.1,
    }
    return t.Ministral3Config(**SIZES, max_position_embeddings=length, rope_parameters=rope)


def gemma3(rope: dict[str, Any], length: int = 2048) -> Any:
    parameters = {
        "full_attention": {"rope_theta": 1e6, **rope},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    return t.Gemma3TextConfig(
        **SIZES,
        max_position_embeddings=length,
        layer_types=MIXED,
        sliding_window=4096,
        query_pre_attn_scalar=16,
        rope_parameters=parameters,
    )


def longrope(original: int) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "short_factor": [1.0] * 8,
        "long_factor": [4.0] * 8,
        "factor": 4.0,
        "original_max_position_embeddings": original,
    }


def phi3() -> Any:
    rope = {"rope_theta": 1e4, **longrope(128)}
    return t.Phi3Config(
        **SIZES,
        max_position_embeddings=2048,
        original_max_position_embeddings=128,
        rope_parameters=rope,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )


def dynamic() -> Any:
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    return t.LlamaConfig(**SIZES, max_position_embeddings=256, rope_parameters=rope)


def llama4() -> Any:
    return t.Llama4TextConfig(
        **SIZES,
        intermediate_size_mlp=96,
        num_local_experts=2,
        max_position_embeddings=2048,
        attn_temperature_tuning=True,
        floor_scale=64,
        no_rope_layers=[1, 0, 1],
        attention_chunk_size=8192,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=1,
    )


CASES: dict[str, tuple[Callable[[], Any], bool, int]] = {  # configuration, whether segments move, context
    "query scale beyond 16,384": (lambda: ministral(16_384, 65_536), True, 16_384),
    "query scale beyond 64": (lambda: ministral(64, 2048), False, 2048),
    "longrope in some layers": (lambda: gemma3(longrope(128)), True, 128),
    "dynamic in some layers": (lambda: gemma3({"rope_type": "dynamic", "factor": 4.0}), True, 2048),
    "longrope": (phi3, True, 128),
    "dynamic": (dynamic, True, 256),
    "temperature of 64": (llama4, True, 63),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_accepted_is_exact_to_the_end_of_its_context(case: str) -> None:
    config, moves, length = CASES[case]
    model, own = model_of(config()), network_of(config())
    assert (model.relocatable, model.context_length) == (moves, length), model.probe.summary
    assert ("cannot be moved" in model.probe.summary) == (not moves)
    declared = model.config.max_position_embeddings
    assert (f"exact up to {length} tokens" in model.probe.summary) == (length < declared)
    for end in {48, length // 2, length}:
        assert far_miss(model, own, end) <= 2e-3, end


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_hides_no_rule_and_is_none(dtype: torch.dtype) -> None:
    """A query scale whose effect is near the rounding bounds the context; a plain model is whole.

    Up to twice the bound, the effect is about twice the rounding, which depends on the processor.
    """
    config = ministral(16_384, 65_536)
    scaled = Model("scaled", network_of(config).to(dtype), byte_tokenizer(), "f")
    assert scaled.relocatable
    assert scaled.context_length in {16_384, 32_768}
    config.rope_parameters["llama_4_scaling_beta"] = 0.0
    assert Model("plain", network_of(config).to(dtype), byte_tokenizer(), "f").context_length == 65_536


def test_an_expert_that_rounding_picks_does_not_bind_segments_to_their_place() -> None:
    model = Model("experts", tiny_network("gpt-oss").bfloat16(), byte_tokenizer(), "f")
    assert model.relocatable, model.probe.summary


def far_miss(model: Model, own: Any, end: int) -> float:
    """A segment just before `end` and new tokens behind it, by the spread of the model's own logits."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(3, 250, (24,), generator=generator).tolist()
    at = end - len(tokens)
    segment = encoded(model, "k", tokens[:12], start=0 if model.relocatable else at)
    kv = model.network.kv_cache([Placement(segment, 0, 12, at)], 12)
    logits = model.network.forward(tokens[12:], range(at + 12, end), kv, keep=12)
    with torch.no_grad():
        want = own(torch.tensor([tokens]), position_ids=torch.arange(at, end)[None]).logits[0, 12:]
    return ((logits - want).abs().max() / want.std()).item()


def test_a_query_scale_of_a_models_own_keeps_segments_in_their_places() -> None:
    """(1 + p / 2048) ^ 0.1 at every position: no length is exact, the schema's own places are."""
    plain = modeling_llama.LlamaModel.forward
    places: list[torch.Tensor] = []

    def forward(self: Any, *args: Any, position_ids: Any = None, **kwargs: Any) -> Any:
        length = kwargs["input_ids"].shape[1] if position_ids is None else 0
        places[:] = [torch.arange(length)[None] if position_ids is None else position_ids]
        return plain(self, *args, position_ids=position_ids, **kwargs)

    def rotated(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        q, k = unscaled(q, k, cos, sin, unsqueeze_dim)
        return q * (1 + places[0][:, None, :, None] / 2048) ** 0.1, k

    unscaled = modeling_llama.apply_rotary_pos_emb
    config = t.LlamaConfig(**SIZES, max_position_embeddings=8192)
    with (
        mock.patch.object(modeling_llama.LlamaModel, "forward", forward),
        mock.patch.object(modeling_llama, "apply_rotary_pos_emb", rotated),
    ):
        model, own = model_of(config), network_of(config)
        assert (model.relocatable, model.context_length) == (False, 8192)
        assert "depends on its position" in model.probe.positions
        assert far_miss(model, own, 6000) <= 1e-4


def doge() -> Any:
    return t.DogeConfig(**SIZES, max_position_embeddings=2048, keep_window_size=1024)


def test_attention_with_a_mask_of_its_own_is_refused_in_words() -> None:
    with pytest.raises(ModelError, match="use their own attention mask"):
        model_of(doge())


def test_a_rule_that_begins_with_many_tokens_bounds_the_context() -> None:
    """A sparse attention keeps the best keys of more than `keep_best`; a dozen tokens do not show it."""
    eager = modeling_llama.eager_attention_forward

    def sparse(module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
        best = module.config.keep_best
        if key.shape[2] > best:
            dropped = key[0, 0, :, 0].topk(key.shape[2] - best, largest=False).indices
            mask = mask.clone()
            mask[..., dropped] = -1e30
        return eager(module, query, key, value, mask, **kwargs)

    config = t.LlamaConfig(**SIZES, max_position_embeddings=4096)
    config.keep_best = 1500
    with mock.patch.object(modeling_llama, "eager_attention_forward", sparse):
        model = model_of(config)
    assert model.context_length == 1499
    assert "keep_best" in model.probe.summary
    assert config.keep_best == 1500


def test_a_rule_without_a_name_is_seen_where_a_longer_pass_is_cheap() -> None:
    eager = modeling_llama.eager_attention_forward

    def sparse(module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
        scale = kwargs.pop("scaling") * (1.5 if key.shape[2] > 100 else 1.0)
        return eager(module, query, key, value, mask, scaling=scale, **kwargs)

    with mock.patch.object(modeling_llama, "eager_attention_forward", sparse):
        model = model_of(t.LlamaConfig(**SIZES, max_position_embeddings=4096))
    assert model.context_length == 100
    assert "the number of tokens changes how it attends" in model.probe.summary


def test_windows_are_followed_when_they_are_lowered_into_sight() -> None:
    """A window of thousands of tokens is checked as one of five, one place wrong is found."""
    config = t.MistralConfig(**SIZES, max_position_embeddings=8192, sliding_window=4096)
    assert model_of(config).context_length == 8192
    rules = hf_attention.AttentionParams

    def wrong(scale: float, window: int | None = None, *rest: Any) -> Any:
        return rules(scale, window and window + 1, *rest)

    with mock.patch.object(hf_attention, "AttentionParams", wrong):
        assert model_of(config).context_length == 4095


def test_a_model_without_positions_is_not_said_to_have_a_bias() -> None:
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    model = model_of(t.SmolLM3Config(**SIZES, **ids, no_rope_layers=[0] * SIZES["num_hidden_layers"]))
    assert model.probe.positions.startswith("none: ")
    assert model.relocatable


@pytest.mark.parametrize("window", [0, -1])
@pytest.mark.parametrize("kind", [t.MistralConfig, t.Gemma2Config])
def test_a_window_that_sees_nothing_is_refused_in_words(kind: Any, window: int) -> None:
    with pytest.raises(ModelError, match=f"a window of {window} tokens; null means none"):
        model_of(kind(**SIZES, sliding_window=window))


def test_frequencies_are_a_copy_that_the_model_cannot_rewrite() -> None:
    model = model_of(phi3())
    rotary = model.rotaries[0]
    assert rotary is not None
    before = rotary.inverse_frequency.clone()
    model.network.forward([5, 6], [1000, 1001], model.network.kv_cache((), 2))
    assert torch.equal(rotary.inverse_frequency, before)


def test_an_error_of_our_own_is_not_an_unsupported_model() -> None:
    def broken(self: Any, *_: Any) -> Any:
        raise AttributeError("a mistake in the engine")

    with mock.patch.object(Rotary, "angles", broken), pytest.raises(AttributeError, match="a mistake in"):
        tiny_model(measure=True)


def test_an_error_of_the_models_code_is_a_refusal() -> None:
    network = tiny_network()

    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("a layer of another kind")

    network.model.layers[1].self_attn.forward = broken
    with pytest.raises(ModelError, match="a layer of another kind"):
        Model("broken", network, byte_tokenizer(), "f")


def nanochat() -> Any:
    return t.NanoChatConfig(**SIZES, max_position_embeddings=2048)


def test_latent_attention_is_refused_for_what_it_is() -> None:
    with pytest.raises(ModelError, match="keys are 16 channels wide and values 8"):
        model_of(mla())


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_several_prompts_share_a_pass_where_attention_is_ours(family: str) -> None:
    model = tiny_model(family)
    assert bool(model.alone) == (family in DENSE)
    assert model.probe.to_json()["alone"] == model.alone


def test_a_model_whose_rows_are_not_theirs_in_a_pass_of_several_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batched_kv_cache, "merged", lambda found, _, query: found[0].out.to(query.dtype))
    model = tiny_model("llama-gqa", measure=True)
    assert "logits of rows of several prompts in one pass differ by" in model.alone
    assert f"Prompts are answered one by one: {model.alone}." in model.probe.summary


def test_a_model_whose_own_rounding_exceeds_the_fixed_limits_is_measured_by_it() -> None:
    """Sixteen layers with large weights: in bf16 the logits of most rows are more than 3% from each other."""
    torch.manual_seed(0)
    config = t.LlamaConfig(**{**SIZES, "num_hidden_layers": 16})
    config._attn_implementation = "eager"
    network = t.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 2 and "emb" not in name:
                parameter.mul_(10.0)
    model = Model("deep", network.bfloat16(), byte_tokenizer(), "deep")
    assert model.path == "segments"
    assert model.relocatable
    assert model.probe.checks["one pass"] > 0.15
