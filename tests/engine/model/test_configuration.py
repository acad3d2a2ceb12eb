"""Nothing that a model's folder says makes transformers fetch, import or patch code."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from engine.base.errors import ModelError
from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.loading import load
from engine.model.model import Model
from tests.drawing import each

LLAMA = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 320,
    "max_position_embeddings": 512,
}
FETCHES = (
    *(
        "transformers.modeling_utils.lazy_import_flash_attention",
        "transformers.dynamic_module_utils.importlib",
    ),
    *(
        "transformers.integrations.hub_kernels.get_kernel",
        "transformers.integrations.hub_kernels.lazy_load_kernel",
    ),
    *("transformers.fusion_mapping.register_fusion_patches", "transformers.modeling_utils.kernelize"),
    *(
        f"transformers.models.auto.{name}.get_class_from_dynamic_module"
        for name in ("auto_factory", "configuration_auto", "tokenization_auto")
    ),
    *("transformers.utils.hub.hf_hub_download", "transformers.utils.hub.snapshot_download"),
)


def llama() -> Any:
    return t.LlamaForCausalLM(t.LlamaConfig(**LLAMA))


def mixtral() -> Any:
    return t.MixtralForCausalLM(t.MixtralConfig(**LLAMA, num_local_experts=2, num_key_value_heads=4))


def gemma3() -> Any:
    text = {**LLAMA, "num_key_value_heads": 2, "head_dim": 8, "model_type": "gemma3_text"}
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sized = {**vision, "image_size": 28, "patch_size": 14}
    return t.Gemma3ForConditionalGeneration(
        t.Gemma3Config(text_config=text, vision_config=sized, mm_tokens_per_image=4, image_token_index=319)
    )


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked for, with `kernels` and flash attention seemingly installed and no network to be had."""
    asked: list[str] = []

    def refuse(what: str) -> Callable[..., Any]:
        def fail(*given: Any, **_: Any) -> Any:
            asked.append(f"{what} {given}")
            raise RuntimeError(f"{what} was asked for {given}")

        return fail

    for name in FETCHES:
        monkeypatch.setattr(name, refuse(name))
    monkeypatch.setattr("transformers.modeling_utils.is_kernels_available", lambda: True)
    monkeypatch.setattr(socket.socket, "connect", refuse("the network"))
    return asked


def told(folder: Path, file: str, fields: dict[str, Any]) -> None:
    path = folder / file
    given = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(given | fields))


def logits(model: Model) -> torch.Tensor:
    tokens = model.tokenize("Why is the sky blue?")
    kv = model.network.kv_cache((), len(tokens))
    return model.network.forward(tokens, range(len(tokens)), kv, len(tokens))


@cache
def kept(network: Callable[[], Any]) -> dict[str, bytes]:
    """The files of a model, by their names."""
    with torch.random.fork_rng(), tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        network().save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)
        return {one.name: one.read_bytes() for one in Path(folder).iterdir()}


def made(folder: Path, network: Callable[[], Any]) -> Path:
    """Writes a model's folder."""
    folder.mkdir()
    for name, content in kept(network).items():
        (folder / name).write_bytes(content)
    return folder


@cache
def plain_logits(network: Callable[[], Any]) -> torch.Tensor:
    """The logits of a model as it was saved."""
    with tempfile.TemporaryDirectory() as folder:
        return logits(load(str(made(Path(folder) / "m", network))))


KERNELS = ("owner/kernel", "kernels-community/flash-attn@v1:run", "paged|owner/kernel", "flash_attention_2")


@pytest.mark.parametrize("network", each([llama, mixtral, gemma3], llama))
@pytest.mark.parametrize(
    "fields",
    [
        *({"_attn_implementation": one} for one in KERNELS),
        *({field: "owner/kernel"} for field in ("attn_implementation", "_attn_implementation_internal")),
        {"_attn_implementation": {"": "owner/kernel", "text_config": "owner/kernel"}},
        {"_experts_implementation": "deepgemm", "experts_implementation": "sonicmoe"},
        {"fusion_config": {"patch_embeddings": True}},
        {"auto_map": {"AutoConfig": "owner/code--c.C", "AutoModelForCausalLM": "owner/code--m.M"}},
        {"custom_pipelines": {"text-generation": {"impl": "p.P", "pt": ["AutoModel"]}}},
        {"use_kernels": True, "kernel_config": {"RMSNorm": "owner/kernel:Norm"}, "allow_all_kernels": True},
        {"distributed_config": {"tp_size": 2}},
        {"_name_or_path": "owner/name"},
    ],
    ids=lambda fields: next(iter(fields)) + "=" + str(next(iter(fields.values())))[:24],
)
def test_fields_that_name_code_are_not_followed(
    network: Callable[[], Any], fields: dict[str, Any], tmp_path: Path, fetched: list[str]
) -> None:
    folder = made(tmp_path / "m", network)
    plain = plain_logits(network)
    nested = {"text_config": json.loads((folder / "config.json").read_text()).get("text_config", {}) | fields}
    told(folder, "config.json", fields | (nested if len(nested["text_config"]) > len(fields) else {}))
    told(folder, "generation_config.json", {"custom_generate": "owner/code", "trust_remote_code": True})
    told(folder, "tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["owner/code--t.T", None]}})
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("raise SystemExit('this ran')")
    model = load(str(folder))
    assert torch.equal(logits(model), plain)
    assert fetched == []


def test_fields_of_a_model_within_a_model_are_not_followed(tmp_path: Path, fetched: list[str]) -> None:
    fields = {"_attn_implementation": {"": "owner/kernel", "text_config": "owner/kernel"}}
    test_fields_that_name_code_are_not_followed(gemma3, fields, tmp_path, fetched)


@pytest.mark.parametrize(
    "method", ["mxfp4", "fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors", "unheard-of"]
)
@pytest.mark.parametrize("field", ["quantization_config", "compression_config"])
@pytest.mark.parametrize("network", each([llama, gemma3], gemma3))
def test_quantized_weights_are_refused_in_words(
    network: Callable[[], Any], field: str, method: str, tmp_path: Path, fetched: list[str]
) -> None:
    folder = made(tmp_path / "m", network)
    fields = {field: {"quant_method": method}}
    if network is gemma3:
        fields = {"text_config": json.loads((folder / "config.json").read_text())["text_config"] | fields}
    told(folder, "config.json", fields)
    with pytest.raises(ModelError, match=r"are quantized .*\. Use the model in its plain form"):
        load(str(folder))
    assert fetched == []


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize(
    "name",
    [
        *("LlamaForCausalLM", "LlamaForCausalLMFast", "AutoModelForCausalLM", "AutoTokenizer", "LlamaConfig"),
        *("pipeline", "Trainer", "AutoProcessor", "GenerationConfig", "PreTrainedModel", "logging"),
    ],
)
def test_only_a_tokenizer_is_loaded_as_the_tokenizer(
    name: str, file: str, tmp_path: Path, fetched: list[str]
) -> None:
    """`tokenizer_class` may name whatever transformers has, and its `from_pretrained` is called."""
    folder = made(tmp_path / "m", llama)
    told(folder, "config.json", {"_attn_implementation": "owner/kernel", "model_type": "llama"})
    (folder / "tokenizer_config.json").write_text("{}")
    told(folder, file, {"tokenizer_class": name})
    with pytest.raises(ModelError, match="is not a tokenizer"):
        load(str(folder))
    assert fetched == []


def test_weights_of_another_name_are_refused_in_words(tmp_path: Path) -> None:
    folder = made(tmp_path / "m", llama)
    told(folder, "config.json", {"transformers_weights": "other.safetensors"})
    with pytest.raises(ModelError, match="names other weights with transformers_weights"):
        load(str(folder))


def test_an_adapter_in_the_folder_fetches_no_other_model(
    tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if peft were installed, which transformers asks for adapters wherever it is given a folder."""
    folder = made(tmp_path / "m", llama)
    told(folder, "adapter_config.json", {"base_model_name_or_path": "owner/name", "peft_type": "LORA"})
    for place in ("modeling_utils", "models.auto.auto_factory", "integrations.peft"):
        monkeypatch.setattr(f"transformers.{place}.is_peft_available", lambda: True, raising=False)
    with pytest.raises(ModelError, match="has an adapter"):
        load(str(folder))
    assert fetched == []


@pytest.mark.parametrize("name", ["shard-00000-model-00001-of-00002.safetensors", "pytorch_model.bin"])
def test_other_weights_beside_the_right_ones_are_not_read(name: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "m", llama)
    plain = load(str(folder))
    (folder / name).write_bytes(b"no weights")
    again = load(str(folder))
    assert again.fingerprint == plain.fingerprint
    assert torch.equal(logits(again), logits(plain))
