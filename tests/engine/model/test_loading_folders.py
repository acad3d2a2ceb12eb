"""Folders are loaded as transformers does it, whatever is written to them meanwhile and later."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t
from safetensors.torch import load_file

from engine.base.errors import ModelError
from engine.checkpoint import fingerprint as fingerprints
from engine.checkpoint.synthetic import byte_tokenizer
from engine.engine import Engine
from engine.model import loading
from engine.model.loading import load
from engine.model.model_info import look
from tests.drawing import each
from tests.engine.model.test_checkpoint import identity, saved
from tests.engine.tiny import FAMILIES, tiny_network

SCHEMA = '<schema name="s"><module name="a">The sky is wide and the sea is deep.</module></schema>'


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_loaded_as_transformers_loads_it(family: str, tmp_path: Path) -> None:
    """From shards, with weights that are renamed, fused and tied on the way."""
    tiny_network(family).save_pretrained(tmp_path, max_shard_size=60_000)
    byte_tokenizer().save_pretrained(tmp_path)
    loaded = load(str(tmp_path)).network.module
    require_transformers_own(loaded, tmp_path)


def longrope(heads: int, original: int = 128) -> dict[str, Any]:
    """Two lists of factors, as Phi 3 and Phi 4 have them."""
    lists = {"short_factor": [1.0] * heads, "long_factor": [2.0] * heads}
    return {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": original, **lists}


SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
SMALL = {**SIZES, "intermediate_size": 64, "vocab_size": 320, "max_position_embeddings": 512}
IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
ROTARIES: dict[str, Callable[[], Any]] = {
    "phi3": lambda: t.Phi3Config(
        **SMALL, **IDS, original_max_position_embeddings=128, rope_parameters=longrope(8)
    ),
    "phimoe": lambda: t.PhimoeConfig(
        **SMALL,
        **IDS,
        num_local_experts=2,
        rope_parameters={**longrope(8), "short_mscale": 1.1, "long_mscale": 1.3},
    ),
    "llama": lambda: t.LlamaConfig(**SMALL, rope_parameters=longrope(8)),
    "yarn": lambda: t.LlamaConfig(
        **SMALL, rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    ),
    "linear": lambda: t.LlamaConfig(
        **SMALL, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
    ),
    "dynamic": lambda: t.LlamaConfig(
        **SMALL, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    ),
}


@pytest.mark.parametrize("name", each(ROTARIES, "phi3", "yarn"))
def test_tables_of_rotary_embeddings_are_loaded_as_transformers_makes_them(name: str, tmp_path: Path) -> None:
    t.AutoModelForCausalLM.from_config(ROTARIES[name]()).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    model = load(str(tmp_path))
    require_transformers_own(model.network.module, tmp_path)
    assert model.context_length == (512 if name in ("yarn", "linear", "dynamic") else 128)
    assert look(str(tmp_path)).context_length == 512


def test_a_model_that_mixes_tables_with_what_has_no_memory_is_refused_for_what_it_is(tmp_path: Path) -> None:
    config = t.Gemma4TextConfig(
        **SMALL, **IDS, head_dim=16, global_head_dim=32, vocab_size_per_layer_input=320
    )
    t.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="layers differ in the number or size of their key heads"):
        load(str(tmp_path))


def test_a_rotary_embedding_that_transformers_does_not_know_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "su", "rope_theta": 1e4, "factor": 4.0}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="'su' is missing in its files, or transformers does not support it"):
        load(str(folder))


def require_transformers_own(loaded: Any, folder: Path) -> None:
    """Requires that a network is to the last bit what transformers loads."""
    own: Any = t.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    assert type(loaded) is type(own)
    assert loaded.generation_config.eos_token_id == own.generation_config.eos_token_id
    assert loaded.state_dict().keys() == own.state_dict().keys()
    for name, tensor in own.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    for name, buffer in own.named_buffers():
        assert torch.equal(dict(loaded.named_buffers())[name], buffer), name


@pytest.mark.parametrize("dtype", each(["auto", "fp32", "bf16"], "fp32"))
def test_weights_that_are_overwritten_under_a_running_engine_change_nothing(
    dtype: str, tmp_path: Path
) -> None:
    folder, other = saved(tmp_path / "m"), saved(tmp_path / "other", seed=1)
    engine = Engine.open(str(folder), cache_dir=tmp_path / "a", dtype=dtype)
    kept = shutil.copytree(folder, tmp_path / "kept")
    reference = Engine.open(str(kept), cache_dir=tmp_path / "b", dtype=dtype)
    with (
        (other / "model.safetensors").open("rb") as source,
        (folder / "model.safetensors").open("r+b") as target,
    ):
        target.write(source.read())  # in place, as cp does
    for one in (engine, reference):
        assert one.schema(SCHEMA).encode().encoded == 1
    stored, wanted = (next((tmp_path / name / "files").glob("*.safetensors")) for name in "ab")
    assert stored.name[:40] == wanted.name[:40], "one model, one name"
    for name, tensor in load_file(wanted).items():
        assert torch.equal(load_file(stored)[name], tensor)
    changed = load(str(folder), dtype=dtype)
    assert changed.fingerprint != engine.model.fingerprint
    tokens = engine.model.tokenize("Why is the sky blue?")
    logits = [
        model.network.forward(tokens, range(len(tokens)), model.network.kv_cache((), len(tokens)))
        for model in (engine.model, reference.model, changed)
    ]
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2], atol=0.01)
    engine.close()
    reference.close()


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, list[Any]]]:
    """A model's folder, and what happens to it, step by step, after its tokenizer was read."""
    folder = saved(tmp_path / "m")
    steps: list[Any] = []
    read = loading.read_checkpoint

    def then(*args: Any) -> Any:
        found = read(*args)
        if steps:
            steps.pop(0)()
        return found

    monkeypatch.setattr(loading, "read_checkpoint", then)
    yield folder, steps
    assert steps == []


def edit(path: Path) -> Any:
    return lambda: path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "added_tokens.json"])
def test_files_that_change_while_they_are_read_are_read_again(name: str, changing: Any) -> None:
    folder, steps = changing
    (folder / "added_tokens.json").write_text("{}")
    before = identity(folder)
    steps.append(edit(folder / name))
    assert load(str(folder)).fingerprint == identity(folder) != before


def test_a_change_that_bears_the_same_time_is_seen(changing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system whose times are coarse: the stamp of the weights stays as it was."""
    folder, steps = changing
    path = folder / "model.safetensors"

    def unseen() -> None:
        with path.open("r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(b"\x01\x02\x03\x04")

    def coarse(file: Path) -> tuple[int, ...]:
        return (1, 1, file.stat().st_size, 2**62, 2**62)

    monkeypatch.setattr("engine.checkpoint.checkpoint.stamp", coarse)
    monkeypatch.setattr(fingerprints, "stamp", coarse)
    before = identity(folder)
    steps.append(unseen)
    assert load(str(folder)).fingerprint == identity(folder) != before


def test_stamps_that_change_by_themselves_are_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As inodes do on some network folders."""
    folder, inodes = saved(tmp_path / "m"), count()

    def unsteady(path: Path) -> tuple[int, ...]:
        return (1, next(inodes), path.stat().st_size, 1, 1)

    monkeypatch.setattr("engine.checkpoint.checkpoint.stamp", unsteady)
    monkeypatch.setattr(fingerprints, "stamp", unsteady)
    assert load(str(folder)).fingerprint == identity(folder)


@pytest.mark.long
@pytest.mark.parametrize("way", ["in place", "renamed"])
def test_weights_and_fingerprint_belong_together_while_somebody_writes(way: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    contents = [(saved(tmp_path / str(seed), seed) / "model.safetensors").read_bytes() for seed in (0, 1)]
    wanted = {}
    for content in contents:
        (folder / "model.safetensors").write_bytes(content)
        wanted[identity(folder)] = load(str(folder)).network.module.state_dict()
    assert len(wanted) == 2
    done = threading.Event()

    def write() -> None:
        for content in cycle(contents):
            if done.wait(0.02):
                return
            if way == "in place":
                with (folder / "model.safetensors").open("r+b") as file:
                    file.write(content)
            else:
                (folder / "new").write_bytes(content)
                (folder / "new").replace(folder / "model.safetensors")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(8):
            try:
                model = load(str(folder))
            except ModelError:
                continue
            for name, tensor in wanted[model.fingerprint].items():
                assert torch.equal(model.network.module.state_dict()[name], tensor), name
    finally:
        done.set()
        writer.join()


@pytest.mark.parametrize("gone", ["model.safetensors", "config.json", "."])
def test_files_that_vanish_while_they_are_read_are_said(gone: str, changing: Any) -> None:
    folder, steps = changing
    steps.append((lambda: shutil.rmtree(folder)) if gone == "." else (folder / gone).unlink)
    with pytest.raises(ModelError, match="model"):
        load(str(folder))


def test_files_that_never_rest_are_refused_in_words(changing: Any) -> None:
    folder, steps = changing
    steps += [edit(folder / "tokenizer_config.json")] * 2
    with pytest.raises(ModelError, match="change during loading"):
        load(str(folder))


def test_weights_that_are_cut_short_while_they_are_replaced_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "m")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])
    read = loading.read_checkpoint

    def written(*args: Any) -> Any:
        try:
            return read(*args)
        finally:
            if (folder / "model.safetensors").stat().st_size < len(whole):
                (folder / "model.safetensors").write_bytes(whole)

    monkeypatch.setattr(loading, "read_checkpoint", written)
    assert load(str(folder)).fingerprint == identity(folder)


def test_weights_that_are_cut_short_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="damaged or cut short: fetch it again"):
        load(str(folder))


@pytest.mark.parametrize("ends", [1, [1, 2]])
def test_what_ends_an_answer_comes_from_the_configuration_where_no_other_file_says_it(
    ends: object, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "m")
    (folder / "generation_config.json").unlink()
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": ends}))
    assert load(str(folder)).end_tokens >= set(ends if isinstance(ends, list) else [ends])
