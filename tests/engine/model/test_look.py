"""What a model takes, told before its weights are read: as it is once they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.choices import Quantize
from engine.base.errors import ModelError
from engine.checkpoint.kv_sizes import known_models, kv_sizes
from engine.model.loading import load
from engine.model.model_info import AbsentError, look
from engine.quantize import memory_fit
from engine.quantize.memory_fit import Free, free_memory, weight_sizes
from tests.engine.tiny import FAMILIES, save_tiny, tiny_model, tiny_network


@pytest.mark.parametrize("family", FAMILIES)
def test_a_configuration_says_what_a_token_takes(family: str) -> None:
    model = tiny_model(family)
    sizes = kv_sizes(model.network.module.config)
    assert sizes.bytes_per_token(4) == model.bytes_per_token
    assert (sizes.layers, sizes.kv_heads, sizes.size) == (model.layers, model.form.heads, model.form.size)


@pytest.mark.parametrize("family", ["llama-gqa", "gpt2", "falcon", "gemma3", "gpt-oss"])
def test_a_folder_is_told_as_it_is_once_it_is_loaded(family: str, tmp_path: Path) -> None:
    name = str(save_tiny(tmp_path / family, family))
    found, model = look(name), load(name)
    weights = weight_sizes(model.network.module)
    assert found.kind == "folder"
    assert found.family == model.family
    assert found.parameters == weights.count == sum(one.numel() for one in model.network.module.parameters())
    assert found.bytes_per_token == model.bytes_per_token
    assert found.dtype == model.dtype
    assert found.weight_bytes == 4 * weights.count
    assert found.peak_bytes >= found.weight_bytes
    assert found.working_bytes > found.working_tokens * found.bytes_per_token


@pytest.mark.parametrize(
    ("given", "quantize"),
    [({}, "none"), ({"dtype": "bf16"}, "none"), ({}, "int8"), ({}, "int4"), ({"weights": "packed"}, "none")],
)
def test_the_bundled_model_takes_what_is_told(given: dict[str, Any], quantize: Quantize) -> None:
    model = load("demo", quantize=quantize, **given)
    found = look("demo", dtype=given.get("dtype", "auto"), quantize=quantize)
    weights = weight_sizes(model.network.module)
    assert found.kind == "bundled"
    assert weights.count == found.parameters
    tables = sum(one.nbytes for one in model.network.module.buffers())
    assert found.weight_bytes <= weights.bytes <= found.weight_bytes + tables
    assert found.peak_bytes >= found.weight_bytes
    assert found.context_length == model.context_length


def test_random_weights_are_told_without_any() -> None:
    found = look("random:llama2-7b")
    assert (found.kind, found.dtype) == ("random", "bf16")
    assert found.parameters == 6_738_415_616
    assert found.weight_bytes == 2 * found.parameters
    assert look("random:llama2-7b", quantize="int4").weight_bytes < 0.4 * found.weight_bytes
    assert look("random:llama2-7b", quantize="int4").peak_bytes == found.weight_bytes, "it is read whole"


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("/no/such/folder", {}, "there is no folder"),
        ("random:gpt-9", {}, "random shape 'gpt-9' is unknown"),
        ("demo", {"device": "cuda"}, "torch finds no GPU"),
        ("demo", {"dtype": "fp8"}, "dtype 'fp8' is unknown"),
        ("demo", {"dtype": "fp16", "quantize": "int4"}, "leave --dtype fp16 out"),
        ("a b", {}, "neither a local file or folder nor a Hugging Face id"),
    ],
)
def test_what_could_not_be_loaded_is_refused_in_words(name: str, given: dict[str, Any], words: str) -> None:
    if given.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ModelError, match=words):
        look(name, **given)


def test_a_folder_that_is_no_model_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        look(str(tmp_path))
    folder = save_tiny(tmp_path / "m")
    weights = folder / "model.safetensors"
    kept = weights.read_bytes()
    weights.unlink()
    with pytest.raises(ModelError, match="neither model"):
        look(str(folder))
    weights.write_bytes(kept)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"bits": 4}}))
    with pytest.raises(ModelError, match="quantized"):
        look(str(folder))


def test_an_id_that_is_not_here_is_absent_and_nothing_is_asked() -> None:
    with pytest.raises(AbsentError, match="not on this machine"):
        look("owner/name")


def test_the_papers_table_comes_out_of_configurations() -> None:
    of_paper = [one for one in known_models() if one.paper is not None]
    assert len(of_paper) == 8
    for one in of_paper:  # which cuts what it does not round
        assert int(one.sizes.unshared(2) / 2**20 * 100) / 100 == one.paper, one.title
    (llama,) = (one for one in of_paper if one.title == "Llama 2 70B")
    assert llama.sizes.bytes_per_token(2) == llama.sizes.unshared(2) // 8


def test_free_memory_is_that_of_the_system_or_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n")
    most, used = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(memory_fit, "MEMINFO", info)
    monkeypatch.setattr(memory_fit, "GROUPS", ((most, used),))
    assert free_memory("cpu") == Free(600 << 10, 1000 << 10)
    most.write_text("max\n")
    used.write_text("5\n")
    assert free_memory("cpu") == Free(600 << 10, 1000 << 10)
    most.write_text(f"{500 << 10}\n")
    used.write_text(f"{100 << 10}\n")
    assert free_memory("cpu") == Free(400 << 10, 500 << 10)
    info.write_text("nothing")
    assert free_memory("cpu") is None


def test_rounded_and_shared_weights_count_once() -> None:
    network = tiny_network("gemma3")  # its head is its embedding
    assert weight_sizes(network).count == sum(one.numel() for one in network.parameters())
