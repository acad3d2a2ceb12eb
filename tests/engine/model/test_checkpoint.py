"""A model is what is in its files: every byte that is read counts, and what changes later changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t
from safetensors.torch import load_file, save_file

from engine.base.errors import ModelError
from engine.checkpoint import fingerprint as fingerprints
from engine.checkpoint.checkpoint import COARSE, Checkpoint
from engine.checkpoint.fingerprint import fingerprint
from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.loading import load

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 320,
    "max_position_embeddings": 512,
}


def saved(folder: Path, seed: int = 0, shard: str | int = "50GB") -> Path:
    """A tiny model with random weights in a folder."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = t.LlamaForCausalLM(t.LlamaConfig(**SIZES))
    network.save_pretrained(folder, max_shard_size=shard)
    byte_tokenizer().save_pretrained(folder)
    return folder


def identity(folder: Path, memory: Path | None = None) -> str:
    return fingerprint(Checkpoint.of("m", folder), memory)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour has passed since every file was written."""
    now = time.time
    monkeypatch.setattr("engine.checkpoint.checkpoint.time.time", lambda: now() + 3600)


# What counts


def test_one_changed_weight_is_another_model(tmp_path: Path) -> None:
    """Wherever it lies in a file that is too large to be read at one go."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    rows, width = 24_000, 1000  # 96 MB
    save_file({"embedding": torch.zeros(rows, width)}, folder / "model.safetensors")
    found = {identity(folder)}
    size = (folder / "model.safetensors").stat().st_size
    for place in (size - 4, size // 2 + 1234, 3_000_000, size // 3):
        with (folder / "model.safetensors").open("r+b") as file:
            file.seek(place)
            file.write(b"\x01\x02\x03\x04")
        found.add(identity(folder))
    assert len(found) == 5


def test_every_shard_and_the_index_count(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", shard=20_000)
    found = {identity(folder)}
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 2
    below = folder / "shards"
    below.mkdir()
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    for shard in shards:
        shard.rename(below / shard.name)
    index["weight_map"] = {key: f"shards/{name}" for key, name in index["weight_map"].items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found.add(identity(folder))
    assert load(str(folder)).fingerprint == identity(folder)
    with (below / shards[1].name).open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\x01\x02\x03\x04")
    found.add(identity(folder))
    first, second = list(index["weight_map"])[:2]
    index["metadata"]["note"] = "another index"
    index["weight_map"] = {**index["weight_map"], first: index["weight_map"][second]}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found.add(identity(folder))
    assert len(found) == 4


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "tokenizer.json", "tokenizer_config.json", "added_tokens.json", "vocab.txt"),
        *("tokenizer.model", "tokenizer.model.v3", "tekken.json", "qwen.tiktoken", "tiktoken.model"),
        *("spiece.model", "sentencepiece.bpe.model", "vocab.bpe", "merges.txt", "bpe.codes", "source.spm"),
        *("chat_template.jinja", "chat_template.json", "additional_chat_templates/tools.jinja"),
        *("tokenizer.4.0.0.json", "dict.txt", "processor_config.json", "emoji.json"),
    ],
)
def test_every_file_that_a_tokenizer_may_read_counts(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    before = identity(folder)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((path.read_bytes() if path.exists() else b"{}") + b"\n")
    assert identity(folder) != before


def test_the_files_of_every_tokenizer_of_transformers_count(tmp_path: Path) -> None:
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES, tokenizer_class_from_name

    names: set[str] = set()
    for one in {*TOKENIZER_MAPPING_NAMES.values()} - {None}:
        try:
            files = getattr(tokenizer_class_from_name(one), "vocab_files_names", None) or {}
        except (ImportError, AttributeError):
            continue  # it needs a package that is not there, so it reads nothing
        names |= {str(file) for file in files.values() if file}
    assert len(names) > 10
    folder = saved(tmp_path / "m")
    for name in names:
        (folder / name).touch()
    assert names <= set(Checkpoint.of("m", folder).texts)


@pytest.mark.parametrize(
    "name", ["README.md", "generation_config.json", ".gitattributes", "optimizer.pt", "a.py"]
)
def test_what_changes_neither_tokens_nor_keys_does_not_count(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    before = identity(folder)
    (folder / name).write_text("{}\n")
    (folder / "consolidated.safetensors").write_bytes(b"never read, as the loader takes model.safetensors")
    assert identity(folder) == before


def test_loading_opens_no_file_that_does_not_count(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m").resolve()
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "other.jinja").write_text("{{ messages }}")
    opened: set[str] = set()
    watching = True

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if watching and event == "open" and isinstance(args[0], (str, os.PathLike)):
            path = Path(os.fspath(args[0]))
            if path.is_relative_to(folder) and path.suffix:
                opened.add(path.relative_to(folder).as_posix())

    sys.addaudithook(watch)  # it cannot be removed, so it is told to stop
    try:
        load(str(folder))
    finally:
        watching = False
    assert "config.json" in opened
    assert opened - {"generation_config.json"} <= set(Checkpoint.of("m", folder).names)


@pytest.mark.parametrize(
    "name", ["../w.safetensors", "/w.safetensors", "a/../../w.safetensors", "w.bin", 7, "a\\w"]
)
def test_an_index_that_names_files_elsewhere_is_refused(name: object, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    (folder / "model.safetensors").rename(tmp_path / "w.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ModelError, match=r"is not a \*\.safetensors file in its folder"):
        load(str(folder))


@pytest.mark.parametrize(
    "name", ["../tokenizer.1.0.0.json", "/tokenizer.1.0.0.json", "a\\tokenizer.1.json", 7]
)
def test_a_tokenizer_that_names_files_elsewhere_is_refused(name: object, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    shutil.copy(folder / "tokenizer.json", tmp_path / "tokenizer.1.0.0.json")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fast_tokenizer_files": [name]}))
    with pytest.raises(ModelError, match="is not a file in its folder"):
        load(str(folder))


@pytest.mark.parametrize("text", ["", "[]", '{"weight_map": {}}', '{"weight_map": []}', "{" * 100])
def test_a_broken_index_is_refused_in_words(text: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelError, match="is not an index of weights"):
        load(str(folder))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", shard=20_000)
    gone = sorted(folder.glob("*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(ModelError, match=f"not complete: '{gone.name}' is missing"):
        load(str(folder))


def test_missing_weights_are_not_drawn_at_random(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack the weight 'model\.layers\.1\.mlp\.up_proj\.weight';"):
        load(str(folder))


# What is remembered


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fingerprints, "LARGE", 1000)
    return saved(tmp_path / "m")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the large files that were read."""
    names: list[str] = []
    digest = fingerprints.digest_of

    def counted(path: Path, reading: Any) -> str:
        if reading is not None:
            names.append(path.name)
        return digest(path, reading)

    monkeypatch.setattr(fingerprints, "digest_of", counted)
    return names


@pytest.mark.usefixtures("later")
def test_large_files_are_read_once(large: Path, tmp_path: Path, read: list[str]) -> None:
    memory = tmp_path / "cache" / "fingerprints.json"
    first = identity(large)
    assert first == identity(large, memory)
    assert "model.safetensors" in read
    read.clear()
    assert identity(large, memory) == first
    assert read == []
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for path in large.iterdir():
        (linked / path.name).symlink_to(path)
    assert identity(linked, memory) == first
    assert read == [], "a link is the file that it leads to"
    (large / "config.json").write_text("{ }")
    assert identity(large, memory) != first
    assert read == []
    with (large / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x7f")
    assert identity(large, memory) == identity(large) != first


def test_a_file_that_was_written_just_now_is_not_remembered(large: Path, tmp_path: Path) -> None:
    """Its next change might bear the same time, where times are coarse."""
    memory = tmp_path / "fingerprints.json"
    identity(large, memory)
    assert not memory.exists()
    old = time.time() - 3600
    os.utime(large / "model.safetensors", (old, old))
    identity(large, memory)
    assert not memory.exists(), "the time of change tells, whatever the other time was set to"
    assert COARSE >= 2


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    "damage",
    [
        b"not json",
        b"[]",
        b"\xff",
        b'{"a": 1}',
        b"[" * 100_000,
        b'{"a": [[1, 2, 3, 4, 5], "' + b"z" * 32 + b'"]}',
    ],
)
def test_a_damaged_memory_is_an_empty_one(
    damage: bytes, large: Path, tmp_path: Path, read: list[str]
) -> None:
    memory = tmp_path / "fingerprints.json"
    memory.write_bytes(damage)
    assert identity(large, memory) == identity(large)
    read.clear()
    identity(large, memory)
    assert read == []


@pytest.mark.usefixtures("later")
def test_the_memory_is_private_and_bounded(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprints, "REMEMBERED", 3)
    memory = tmp_path / "cache" / "fingerprints.json"
    for number in range(5):
        identity(Path(shutil.copytree(large, tmp_path / f"m{number}")), memory)
    known = json.loads(memory.read_text())
    assert len(known) == 3
    assert str((tmp_path / "m4" / "model.safetensors").resolve()) in known
    assert stat.S_IMODE(memory.stat().st_mode) == 0o600
    assert [path.name for path in memory.parent.iterdir()] == [memory.name], "no temporary file stays"


@pytest.mark.usefixtures("later")
def test_reading_large_files_says_how_far_it_is(large: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    checkpoint, memory = Checkpoint.of("m", large), tmp_path / "f.json"
    fingerprint(checkpoint, memory, lambda *step: seen.append(step))
    done, total, what = seen[-1]
    assert done == total == sum(p.stat().st_size for p in large.iterdir() if p.stat().st_size > 1000)
    assert what.startswith("reading ")
    seen.clear()
    fingerprint(checkpoint, memory, lambda *step: seen.append(step))
    assert seen == []
