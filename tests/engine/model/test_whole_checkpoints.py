"""The model that answers is the one that is stored, or its user is told what was not read."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.base.errors import ModelError
from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.loading import load
from tests.engine.tiny import save_tiny

Weights = dict[str, Tensor]
WEIGHTS = "model.safetensors"
FAMILY = "llama-gqa"
EIGHT_BITS = torch.float8_e4m3fn


def stored(folder: Path, change: Callable[[Weights], Weights], family: str = FAMILY, **config: object) -> str:
    """A tiny model's folder, with other weights and another configuration."""
    save_tiny(folder, family)
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return str(folder)


def adding(make: Callable[[str, Tensor], tuple[str, Tensor]], where: str = "proj") -> Any:
    """Adds a tensor for every weight whose name has these words."""

    def change(weights: Weights) -> Weights:
        return weights | dict(make(key, one) for key, one in weights.items() if where in key)

    return change


def renamed(name: Callable[[str], str], where: str = "") -> Any:
    return lambda weights: {name(key) if where in key else key: one for key, one in weights.items()}


def plus(**tensors: Tensor) -> Any:
    return lambda weights: weights | {key.replace("__", "."): one.clone() for key, one in tensors.items()}


def in_format(numbers: torch.dtype, *, scales: bool = False) -> Any:
    def change(weights: Weights) -> Weights:
        given = {key: one.to(numbers) if one.dim() == 2 else one for key, one in weights.items()}
        more = {f"{key}_scale": torch.tensor(0.5) for key, one in weights.items() if one.dim() == 2}
        return given | (more if scales else {})

    return change


def copied(one: str, other: str) -> Any:
    return adding(lambda key, weight: (key.replace(one, other), weight.clone()), one)


def without(words: str) -> Any:
    return lambda weights: {key: one for key, one in weights.items() if words not in key}


OTHER_MODELS = {
    "eight bits with scales": (in_format(EIGHT_BITS, scales=True), "weight_scale.*plain form"),
    "eight bits without scales": (in_format(EIGHT_BITS), "F8_E4M3.*lm_head.*plain form"),
    "integers": (in_format(torch.int8), "I8.*lm_head.*plain form"),
    "bytes": (in_format(torch.uint8, scales=True), "U8.*weight_scale.*plain form"),
    "four bits in bytes": (
        lambda w: (
            w
            | {"lm_head.weight": torch.ones(99, 1, dtype=torch.uint8), "lm_head.weight.absmax": torch.ones(9)}
        ),
        "U8.*lm_head.*absmax.*plain form",
    ),
    "scales": (adding(lambda k, w: (f"{k}_scale_inv", torch.ones(1))), "weight_scale_inv.*quantized"),
    "scales of inputs": (
        adding(lambda k, w: (k.replace("weight", "input_scale"), torch.ones(1))),
        "input_scale.*quantized",
    ),
    "four bits": (renamed(lambda k: k.replace("weight", "qweight"), "proj"), "lack.*qweight.*quantized"),
    "an adapter": (
        adding(lambda k, w: (k.replace("weight", "lora_A.weight"), torch.ones(2, 2))),
        "lora_A.*merge",
    ),
    "a named adapter": (
        adding(lambda k, w: (k.replace("weight", "lora_B.default.weight"), torch.ones(2, 2))),
        "lora_B.*merge",
    ),
    "an adapter round the weights": (
        renamed(lambda k: f"base_model.model.{k.replace('_proj', '_proj.base_layer')}"),
        "lack.*base_model.*merge",
    ),
    "biases": (
        adding(lambda k, w: (k.replace("weight", "bias"), torch.ones(len(w))), "self_attn"),
        "k_proj.bias.*and 9 more.*Correct config.json",
    ),
    "a bias of zeros": (plus(lm_head__bias=torch.zeros(320)), "lm_head.bias.*Correct config.json"),
    "norms of queries": (plus(model__layers__0__self_attn__q_norm__weight=torch.ones(8)), "q_norm.*Correct"),
    "a layer more": (copied("layers.0.", "layers.3."), r"layers\.3\..*num_hidden_layers: 3.*layer 3"),
    "another layer's part": (plus(model__layers__7__mlp__up_proj__weight=torch.ones(2)), "layer 7"),
    "a head for further tokens": (plus(mtp__layers__0__weight=torch.ones(3)), r"mtp\.layers\.0\.weight"),
    "a head of values": (plus(v_head__summary__weight=torch.ones(1, 64)), r"v_head\.summary\.weight"),
    "names of a compiled model": (
        renamed(lambda k: f"_orig_mod.{k}"),
        "lack.*begin with '_orig_mod.', like a wrapper",
    ),
    "names of a part": (renamed(lambda k: f"language_model.{k}"), "lack.*begin with 'language_model.'"),
    "names of a wrapper": (renamed(lambda k: f"base_model.model.{k}"), "begin with 'base_model.model.'"),
    "a weight twice": (
        adding(lambda k, w: (k.removeprefix("model."), w + 1), "layers.0.mlp"),
        r"'layers\.0\.mlp\S+ and 'model\.layers\.0\.mlp.* for the same weight",
    ),
    "fewer rows": (
        lambda w: w | {"lm_head.weight": w["lm_head.weight"][:300].clone()},
        r"\[300, 64\].*\[320, 64\]",
    ),
    "more rows": (
        lambda w: w | {"model.embed_tokens.weight": torch.ones(330, 64)},
        r"embed_tokens.*\[330, 64\] in the files but \[320, 64\]",
    ),
    "another width": (plus(model__norm__weight=torch.ones(32)), r"model\.norm\.weight.*\[32\].*\[64\]"),
    "an empty weight": (plus(model__norm__weight=torch.ones(0)), r"model\.norm\.weight.*\[0\].*\[64\]"),
}


@pytest.mark.parametrize("what", OTHER_MODELS)
def test_files_of_another_model_than_the_configuration_s_are_refused_by_name(
    what: str, tmp_path: Path
) -> None:
    change, words = OTHER_MODELS[what]
    with pytest.raises(ModelError, match=words):
        load(stored(tmp_path / "m", change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (copied("experts.1.", "experts.2."), r"experts.*\[3, .*\[2, "),
        (without("experts.1."), r"experts.*\[1, .*\[2, "),
        (renamed(lambda k: k.replace("experts.1.", "experts.4.")), r"lack.*experts\.1\.w1.*and 24 more"),
        (without("layers.0.block_sparse_moe.experts.1.w1"), r"lack.*layers\.0.*experts\.1\.w1\.weight'"),
        (copied("layers.0.", "layers.3."), "num_hidden_layers: 3"),
    ],
)
def test_experts_are_those_of_the_configuration(change: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        load(stored(tmp_path / "m", change, "mixtral"))


@pytest.mark.parametrize(
    ("family", "one", "other"),
    [
        ("gpt-neox", "embed_out.weight", "lm_head.weight"),
        ("mixtral", "block_sparse_moe.gate", "mlp.gate"),
        ("gpt2", "transformer.wte", "wte"),
    ],
)
@pytest.mark.parametrize("more", [0, 1])
def test_two_names_of_one_weight_hold_the_same(
    family: str, one: str, other: str, more: int, tmp_path: Path
) -> None:
    change = adding(lambda key, weight: (key.replace(one, other), weight + more), one)
    folder = stored(tmp_path / "m", change, family)
    if not more:
        assert load(folder).notes == ()
        return
    with pytest.raises(
        ModelError, match=f"{one}.*{other}.* for the same weight, with different|{other}.*{one}"
    ):
        load(folder)


@pytest.mark.parametrize("numbers", ["float8_e4m3fn", "int8"])
def test_a_configuration_of_quantized_numbers_is_refused(numbers: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="quantized"):
        load(stored(tmp_path / "m", dict, dtype=numbers))


# A head that is the embedding


def test_a_head_of_other_values_than_the_embedding_that_it_is_tied_to_is_refused(tmp_path: Path) -> None:
    def change(weights: Weights) -> Weights:
        return weights | {"lm_head.weight": weights["model.embed_tokens.weight"] + 1}

    with pytest.raises(
        ModelError, match=r"'lm_head\.weight'.*'model\.embed_tokens\.weight'.*tie_word_embeddings"
    ):
        load(stored(tmp_path / "m", change, "gemma"))


def test_a_head_that_equals_the_embedding_is_tied_to_it(tmp_path: Path) -> None:
    def change(weights: Weights) -> Weights:
        return weights | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}

    model = load(stored(tmp_path / "m", change, "gemma"))
    assert model.notes == ()
    assert model.network.module.lm_head.weight is model.network.module.model.embed_tokens.weight


# What changes nothing

MASK = torch.ones(1, 1, 8, 8, dtype=torch.bool)
TURNS = 1 / 10000 ** (torch.arange(4) / 4)


@pytest.mark.parametrize(
    ("family", "tensors"),
    [
        (FAMILY, {"model__layers__0__self_attn__masked_bias": torch.tensor(-1e9)}),
        (FAMILY, {"model__layers__0__attn__bias": MASK}),
        (FAMILY, {"model__position_ids": torch.arange(9)}),
        (FAMILY, {"extra__weight": torch.ones(0, 4)}),
        ("gpt2", {"transformer__h__0__attn__masked_bias": torch.tensor(-1e9)}),
    ],
)
def test_what_is_no_weight_is_named_and_left_out(
    family: str, tensors: dict[str, Tensor], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        model = load(stored(tmp_path / "m", plus(**tensors), family))
    (note,) = model.notes
    (name,) = (key.replace("__", ".") for key in tensors)
    assert name in note
    assert [one.getMessage() for one in caplog.records] == [note]


@pytest.mark.parametrize(
    ("family", "tensors"),
    [
        (FAMILY, {f"model__layers__{i}__self_attn__rotary_emb__inv_freq": TURNS for i in range(3)}),
        (FAMILY, {"model__layers__0__self_attn__rotary_emb__inv_freq": TURNS.bfloat16()}),
        ("gpt2", {"transformer__h__0__attn__bias": MASK}),
        ("gpt-neox", {"gpt_neox__layers__0__attention__bias": MASK}),
    ],
)
def test_what_transformers_leaves_out_itself_is_not_spoken_of(
    family: str, tensors: dict[str, Tensor], tmp_path: Path
) -> None:
    assert load(stored(tmp_path / "m", plus(**tensors), family)).notes == ()


def test_other_rotary_frequencies_than_the_configuration_s_are_named(tmp_path: Path) -> None:
    change = plus(model__layers__1__self_attn__rotary_emb__inv_freq=TURNS / 2)
    (note,) = load(stored(tmp_path / "m", change)).notes
    assert "'model.layers.1.self_attn.rotary_emb.inv_freq'" in note
    assert "rope_theta" in note


@pytest.mark.parametrize("name", [lambda k: f"model.{k}", lambda k: k.removeprefix("model.")])
def test_names_that_transformers_finds_by_itself_are_read(name: Callable[[str], str], tmp_path: Path) -> None:
    model = load(stored(tmp_path / "m", renamed(name)))
    assert model.notes == ()
    own = load(str(save_tiny(tmp_path / "own"))).network.module.state_dict()
    assert all(torch.equal(own[key], one) for key, one in model.network.module.state_dict().items())


def test_what_reads_pictures_is_left_out_of_a_language_model_and_named(tmp_path: Path) -> None:
    sizes = {"num_attention_heads": 4, "hidden_size": 64}
    text = {
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "intermediate_size_mlp": 96,
        "vocab_size": 320,
        "max_position_embeddings": 512,
        "num_local_experts": 2,
        "interleave_moe_layer_step": 1,
        "attention_chunk_size": 512,
        "pad_token_id": 1,
    }
    vision = {
        "num_hidden_layers": 1,
        "intermediate_size": 256,
        "image_size": 28,
        "patch_size": 14,
        "vision_output_dim": 32,
        "projector_input_dim": 32,
        "projector_output_dim": 32,
        "pixel_shuffle_ratio": 0.5,
    }
    config = t.Llama4Config(text_config=sizes | text, vision_config=sizes | vision)
    folder = tmp_path / "m"
    t.Llama4ForConditionalGeneration(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    (note,) = load(str(folder)).notes
    assert "'multi_modal_projector.linear_1.weight', 'vision_model.class_embedding'" in note
    weights = load_file(folder / WEIGHTS)
    weights["language_model.model.layers.0.self_attn.q_proj.bias"] = torch.ones(64)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"layers\.0\.self_attn\.q_proj\.bias"):
        load(str(folder))


# Files


def sharded(folder: Path) -> tuple[Path, dict[str, str]]:
    save_tiny(folder)
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = {key: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, key in enumerate(weights)}
    for name in set(names.values()):
        save_file({key: one for key, one in weights.items() if names[key] == name}, folder / name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return folder, names


def test_a_tensor_that_only_the_index_names_is_missing(tmp_path: Path) -> None:
    folder, names = sharded(tmp_path / "m")
    assert load(str(folder)).notes == ()
    names["model.layers.0.self_attn.q_proj.bias"] = "model-00001-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(ModelError, match=r"names 'model\.layers\.0\.self_attn\.q_proj\.bias', but no file"):
        load(str(folder))


@pytest.mark.parametrize("more", [0, 1])
def test_shards_that_hold_one_tensor_hold_the_same(more: int, tmp_path: Path) -> None:
    folder, names = sharded(tmp_path / "m")
    key = "model.norm.weight"
    other = next(name for name in names.values() if name != names[key])
    weights, own = load_file(folder / other), load_file(folder / names[key])[key]
    save_file(weights | {key: own + more}, folder / other)
    if not more:
        load(str(folder))
        return
    with pytest.raises(ModelError, match=r"two files of model .* 'model\.norm\.weight'"):
        load(str(folder))


def test_files_of_weights_that_are_not_read_are_named(tmp_path: Path) -> None:
    folder, _ = sharded(tmp_path / "m")
    save_file({"a": torch.ones(1)}, folder / "consolidated.safetensors")
    assert load(str(folder)).notes == (), "Mistral's own form of the same weights"
    save_tiny(tmp_path / "other", seed=1)
    (tmp_path / "other" / WEIGHTS).rename(folder / WEIGHTS)
    (note,) = load(str(folder)).notes
    assert "are those of 'model.safetensors'; 'model-00001-of-00002.safetensors'" in note


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
@pytest.mark.parametrize("alone", [True, False])
def test_an_adapter_in_a_folder_is_refused(name: str, alone: bool, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    if alone:
        folder.mkdir()
    else:
        save_tiny(folder)
    (folder / name).write_bytes(b"{}")
    with pytest.raises(ModelError, match=f"has an adapter .{name}.*merge_and_unload"):
        load(str(folder))


def cut(data: bytes) -> bytes:
    return data[:-10]


def reaching_beyond(data: bytes) -> bytes:
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    head["model.norm.weight"]["data_offsets"][1] += 1 << 30
    made = json.dumps(head).encode()
    return len(made).to_bytes(8, "little") + made + data[8 + size :]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "damaged or cut short: fetch it again"),
        (reaching_beyond, "damaged or cut short: fetch it again"),
        (lambda data: data[:20], "damaged or cut short: fetch it again"),
        (lambda data: b"", "damaged or cut short: fetch it again"),
        (lambda data: data + b"more", "damaged"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
        (lambda data: b"<html>404: not found</html>", "damaged"),
    ],
)
def test_a_damaged_file_is_named(damage: Callable[[bytes], bytes], words: str, tmp_path: Path) -> None:
    path = save_tiny(tmp_path / "m") / WEIGHTS
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelError, match=f"'model.safetensors' has incomplete weights .*{words}"):
        load(str(path.parent))


# Numbers

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize("quantize", ["none", "int8", "int4"])
@pytest.mark.parametrize(
    ("key", "number", "words"),
    [
        ("model.norm.weight", NAN, "have NaN"),
        ("model.embed_tokens.weight", NAN, "have NaN"),
        ("lm_head.weight", NAN, "have NaN"),
        ("model.layers.1.mlp.up_proj.weight", INFINITE, "have (infinite numbers|NaN)"),
        ("model.layers.2.self_attn.q_proj.weight", -INFINITE, "have (infinite numbers|NaN)"),
    ],
)
def test_weights_that_are_no_numbers_are_named(
    quantize: Any, key: str, number: float, words: str, tmp_path: Path
) -> None:
    def change(weights: Weights) -> Weights:
        weights[key][-1] = number  # of the embedding the row of a token that few prompts have
        return weights

    with pytest.raises(ModelError, match=f"{words} in '{key}'.*fetch the model again") as refused:
        load(stored(tmp_path / "m", change), quantize=quantize)
    assert "another family" not in str(refused.value)


def test_an_expert_that_no_short_text_asks_is_looked_at_too(tmp_path: Path) -> None:
    def change(weights: Weights) -> Weights:
        weights["model.layers.2.block_sparse_moe.experts.1.w2.weight"][0, 0] = NAN
        return weights

    with pytest.raises(ModelError, match=r"have NaN in 'model\.layers\.2\.mlp\.experts\.down_proj'"):
        load(stored(tmp_path / "m", change, "mixtral"))


def test_weights_that_are_too_large_for_the_number_format_are_no_damage(tmp_path: Path) -> None:
    def change(weights: Weights) -> Weights:
        weights["model.layers.0.mlp.up_proj.weight"][0, 0] = 1e6
        return weights

    with pytest.raises(ModelError, match="too large for fp16: use --dtype bf16 or fp32"):
        load(stored(tmp_path / "m", change), dtype="fp16")


@pytest.mark.parametrize("where", ["", "lm_head", "model.norm"])
def test_weights_of_zeros_that_give_all_tokens_one_logit_are_named(where: str, tmp_path: Path) -> None:
    def change(weights: Weights) -> Weights:
        return {key: torch.zeros_like(one) if where in key else one for key, one in weights.items()}

    with pytest.raises(
        ModelError, match=f"same logit. All numbers are zero in '{where}.*fetch the model again"
    ):
        load(stored(tmp_path / "m", change))
