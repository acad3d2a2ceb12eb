"""GGUF files as models: one file, folders, shards, and files that are damaged or say what is not computed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers as t
from gguf.constants import GGMLQuantizationType as Kind
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Engine
from engine.base.errors import ModelError
from engine.checkpoint.checkpoint import Checkpoint
from engine.checkpoint.fingerprint import fingerprint
from engine.gguf import reader
from engine.gguf.model import GgufModel
from engine.gguf.reader import read_header
from engine.model import devices
from engine.model.loading import load, load_tokenizer
from engine.model.model_info import look
from engine.prompt.template.tokenizer import Fragment
from tests.drawing import draws
from tests.engine.model.gguf.test_gguf_networks import WIDE
from tests.engine.model.gguf.written import rounded, write
from tests.engine.tiny import tiny_network

SCHEMA = (
    '<schema name="s"><user><module name="a">The sea is far.</module>'
    '<module name="b">It is cold there.</module></user></schema>'
)
PROMPT = '<prompt schema="s"><b/><user>Where?</user></prompt>'


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gguf") / "small.gguf", tiny_network("llama-gqa"))


def test_a_file_answers_from_the_cache_as_without(file: Path, tmp_path: Path) -> None:
    with Engine.open(str(file), cache_dir=tmp_path / "store") as engine:
        prompt = engine.schema(SCHEMA).prompt(PROMPT)
        cached, uncached = prompt.answer(max_new_tokens=8), prompt.answer(mode="uncached", max_new_tokens=8)
        assert engine.model.family == "llama"
        assert engine.model.path == "segments"
        assert cached.text == uncached.text
        assert cached.tokens["from_cache"] > 0


def test_what_is_written_of_a_file_is_that_of_the_file(file: Path) -> None:
    header, own = read_header("m", file), gguf.GGUFReader(file)
    fields = {key: one.contents() for key, one in own.fields.items() if not key.startswith("GGUF.")}
    assert header.metadata == fields
    assert {key: (one.kind, one.offset, one.bytes) for key, one in header.tensors.items()} == {
        one.name: (one.tensor_type, one.data_offset, one.n_bytes) for one in own.tensors
    }
    assert all(list(header.tensors[one.name].shape) == one.shape.tolist()[::-1] for one in own.tensors)


def shards(folder: Path) -> list[Path]:
    write(folder / "parts.gguf", tiny_network("llama-gqa"), shard=7)
    found = sorted(folder.glob("*.gguf"))
    assert len(found) > 2
    return found


def test_all_shards_are_one_model_and_any_of_them_names_it(file: Path, tmp_path: Path) -> None:
    found = shards(tmp_path)
    whole = GgufModel("m", [file])
    for place in (found[0], found[-1], tmp_path):
        checkpoint = Checkpoint.of("m", place)
        assert checkpoint.paths == tuple(found)
        assert GgufModel("m", checkpoint.paths).parameters == whole.parameters
    one, other = load(str(file)), load(str(tmp_path))
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        assert torch.equal(one.network.own_logits(ids[0].tolist()), other.network.own_logits(ids[0].tolist()))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda found: found[1].unlink(), "is not complete: 'parts-00002-of-"),
        (lambda found: shutil.copy(found[1], found[2]), "is part 1 of"),
        (lambda found: found[2].write_bytes(b""), "is empty"),
    ],
)
def test_a_shard_that_is_missing_or_another_is_named(
    harm: Callable[[list[Path]], Any], words: str, tmp_path: Path
) -> None:
    harm(shards(tmp_path))
    with pytest.raises(ModelError, match=words):
        load(str(tmp_path))


def test_a_folder_with_several_models_asks_for_one(file: Path, tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf", "mmproj-a.gguf"):
        shutil.copy(file, tmp_path / name)
    with pytest.raises(ModelError, match=r"has 2 GGUF models: a\.gguf, b\.gguf\. Name one"):
        load(str(tmp_path))
    assert load(str(tmp_path / "b.gguf")).family == "llama"
    (tmp_path / "b.gguf").unlink()
    assert load(str(tmp_path)).family == "llama"


def test_the_name_of_a_file_is_no_part_of_the_model(file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / "other name.GGUF")
    first = fingerprint(Checkpoint.of("m", file))
    assert first == fingerprint(Checkpoint.of("m", tmp_path / "other name.GGUF"))
    with (tmp_path / "other name.GGUF").open("r+b") as written:
        written.seek(-1, 2)
        written.write(b"\1")
    assert first != fingerprint(Checkpoint.of("m", tmp_path / "other name.GGUF"))


def test_a_file_is_known_by_its_first_bytes(file: Path, tmp_path: Path) -> None:
    for name in ("no-ending", "sha256-abc", "weights.bin"):
        shutil.copy(file, tmp_path / name)
        assert look(str(tmp_path / name)).kind == "file"
    found = load(str(tmp_path / "no-ending"))
    assert found.fingerprint == load(str(file)).fingerprint


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("note.gguf", b"some text", r"'note\.gguf' is not a GGUF file: its first bytes differ\. Give a GGUF"),
        ("empty.gguf", b"", r"'empty\.gguf' is empty\. Fetch it again"),
        ("note.txt", b"some text", r"is not a GGUF file\. Give a GGUF file, or a folder"),
        ("empty", b"", r"is not a GGUF file\. Give"),
    ],
)
def test_what_is_no_gguf_file_is_said_to_be_none(
    name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    for ask in (look, load, load_tokenizer):
        with pytest.raises(ModelError, match=words):
            ask(str(tmp_path / name))


def test_the_tokenizer_and_the_sizes_are_known_before_the_weights(file: Path) -> None:
    text = Fragment("the sea")
    assert load_tokenizer(str(file)).encode([text]) == load(str(file)).chat.tokens.encode([text])
    found = look(str(file))
    assert (found.kind, found.family, found.context_length) == ("file", "llama", 2048)
    assert found.weight_bytes == 4 * found.parameters


def test_blocks_of_four_bits_take_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = t.AutoModelForCausalLM.from_config(t.Qwen2Config(**WIDE))
    path = write(tmp_path / "m.gguf", network, rounded(Kind.Q4_0))
    kept = load(str(path), dtype="bf16")
    assert "up to bf16 rounding. Its logits" in kept.probe.summary
    assert kept.weights == "four-bit"
    assert (kept.stored.format, kept.stored.bytes) == ("GGUF Q4_0", path.stat().st_size)
    assert kept.stored == look(str(path)).stored
    assert [look(str(path), dtype=one).weights for one in ("bf16", "fp32")] == ["four-bit", ""]
    assert load(str(path)).weights == "plain"
    for ask in (load, look):
        with pytest.raises(ModelError, match=r"are in four bits already\. Leave --quantize int8 out"):
            ask(str(path), quantize="int8")
    monkeypatch.setattr(devices, "SMALL", 1000)
    assert load(str(path)).weights == "four-bit", "of a large model"
    found = look(str(path), dtype="bf16")
    assert found.weight_bytes < 1.1 * found.parameters  # half a byte each, and two for those of embeddings


def key(name: str, value: Any, kind: gguf.GGUFValueType) -> Callable[[gguf.GGUFWriter], None]:
    def put(writer: gguf.GGUFWriter) -> None:
        for held in writer.kv_data:
            held.pop(name, None)
        writer.add_key_value(name, value, kind)

    return put


@pytest.mark.parametrize(
    ("name", "value", "kind", "words"),
    [
        (
            "general.architecture",
            "mamba",
            gguf.GGUFValueType.STRING,
            "'mamba' of the GGUF file is not supported",
        ),
        ("llama.expert_count", 8, gguf.GGUFValueType.UINT32, "has llama.expert_count = 8"),
        ("llama.attention.scale", 0.5, gguf.GGUFValueType.FLOAT32, "has llama.attention.scale = 0.5"),
        ("llama.attention.value_length", 4, gguf.GGUFValueType.UINT32, "values and keys differ in size"),
        ("llama.rope.dimension_count", 4, gguf.GGUFValueType.UINT32, "rotates 4 of 8 channels"),
        ("llama.rope.scaling.type", "su", gguf.GGUFValueType.STRING, "unknown method 'su'"),
        ("llama.rope.scaling.type", "longrope", gguf.GGUFValueType.STRING, "lacks 'rope_factors_short"),
        ("llama.block_count", 0, gguf.GGUFValueType.UINT32, "llama.block_count of the GGUF file is 0"),
        ("llama.block_count", "3", gguf.GGUFValueType.STRING, "'llama.block_count' of the GGUF file is 3"),
        ("llama.block_count", 4, gguf.GGUFValueType.UINT32, "has 3 layers, but llama.block_count is 4"),
        ("llama.block_count", 2, gguf.GGUFValueType.UINT32, "has 3 layers, but llama.block_count is 2"),
        ("llama.block_count", 1 << 30, gguf.GGUFValueType.UINT32, "has 3 layers"),
        ("llama.feed_forward_length", 1 << 30, gguf.GGUFValueType.UINT32, "'blk.0.ffn_down.weight' of"),
        ("llama.attention.head_count_kv", 1 << 30, gguf.GGUFValueType.UINT32, "'blk.0.attn_k.weight' of the"),
        ("llama.embedding_length", 128, gguf.GGUFValueType.UINT32, "sizes"),
        ("tokenizer.ggml.pre", "none-such", gguf.GGUFValueType.STRING, "none-such"),
        ("tokenizer.ggml.model", "rwkv", gguf.GGUFValueType.STRING, "rwkv"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_key(
    name: str, value: Any, kind: gguf.GGUFValueType, words: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "m.gguf", tiny_network("llama-gqa"), further=key(name, value, kind))
    with pytest.raises(ModelError, match=words):
        load(str(path))


def test_tokens_that_a_vocabulary_does_not_have_are_ignored_and_named(tmp_path: Path) -> None:
    def further(writer: gguf.GGUFWriter) -> None:
        key("tokenizer.ggml.bos_token_id", 1 << 20, gguf.GGUFValueType.UINT32)(writer)
        key("tokenizer.ggml.eot_token_id", -1, gguf.GGUFValueType.INT32)(writer)

    model = load(str(write(tmp_path / "m.gguf", tiny_network("llama-gqa"), further=further)))
    assert "bos_token_id (1048576), eot_token_id (-1). They are ignored" in "".join(model.notes)
    assert max(model.end_tokens) < 320
    assert min(model.end_tokens) >= 0


def test_a_tensor_that_the_metadata_does_not_explain_is_told_in_words_of_the_format(tmp_path: Path) -> None:
    def further(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("blk.0.attn_q.bias.more", np.ones(4, np.float32))

    with pytest.raises(ModelError, match="the network of the metadata of the GGUF file") as refused:
        load(str(write(tmp_path / "m.gguf", tiny_network("llama-gqa"), further=further)))
    assert "Fetch the file again, or convert the model again" in str(refused.value)
    assert "config.json" not in str(refused.value)
    assert "save_pretrained" not in str(refused.value)


def test_a_list_of_lists_in_the_place_of_a_number_is_refused(tmp_path: Path) -> None:
    further = key("llama.feed_forward_length", [[96], [96]], gguf.GGUFValueType.ARRAY)
    path = write(tmp_path / "m.gguf", tiny_network("llama-gqa"), further=further)
    for read in (look, load):
        with pytest.raises(ModelError, match=r"'llama\.feed_forward_length' of the GGUF file is"):
            read(str(path))


@pytest.mark.parametrize(
    ("tensor", "numbers", "words"),
    [
        ("rope_factors_long.weight", np.ones(4, np.float32), "lacks 'rope_factors_short.weight' or"),
        ("model.layers.0.mlp.up_proj.weight", np.ones((8, 8), np.float32), "two tensors for 'model.layers"),
        (
            "rope_freqs.weight",
            np.ones(4, np.float64),
            "'rope_freqs.weight' of the GGUF file is stored as F64",
        ),
        ("blk.0.more", np.ones(4, np.int8), "'blk.0.more' of the GGUF file is stored as I8, which is not"),
    ],
)
def test_a_tensor_that_is_not_understood_is_named(
    tensor: str, numbers: Any, words: str, tmp_path: Path
) -> None:
    path = write(
        tmp_path / "m.gguf",
        tiny_network("llama-gqa"),
        further=lambda writer: writer.add_tensor(tensor, numbers),
    )
    for read in (look, load):
        with pytest.raises(ModelError, match=words):
            read(str(path))


def test_factors_of_rotary_frequencies_beside_a_factor_of_all_are_refused(tmp_path: Path) -> None:
    def further(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_factor(4.0)
        writer.add_tensor("rope_freqs.weight", np.ones(4, np.float32))

    path = write(tmp_path / "m.gguf", tiny_network("llama-gqa"), further=further)
    with pytest.raises(ModelError, match=r"has both 'rope_freqs\.weight' and the rope\.scaling\.type"):
        load(str(path))


def test_a_factor_of_zero_scales_nothing(tmp_path: Path) -> None:
    further = key("llama.rope.scaling.factor", 0.0, gguf.GGUFValueType.FLOAT32)
    path = write(tmp_path / "m.gguf", tiny_network("llama-gqa"), further=further)
    assert GgufModel("m", [path]).configuration.rope_parameters["rope_type"] == "default"


def test_a_file_that_becomes_shorter_while_its_header_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "m.gguf", tiny_network("llama-gqa"))
    known = os.fstat

    def shrinking(file: int) -> os.stat_result:
        found = known(file)
        os.truncate(path, 100)
        return found

    monkeypatch.setattr(reader.os, "fstat", shrinking)
    monkeypatch.setattr(reader, "_BLOCK", 64)
    with pytest.raises(ModelError, match="it shrank during reading"):
        GgufModel("m", [path])


def test_what_a_header_lists_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", tiny_network("llama-gqa"))
    monkeypatch.setattr(reader, "_VALUES", 500)
    with pytest.raises(ModelError, match="more than 500 values"):
        load(str(path))


@pytest.mark.parametrize("left_out", ["blk.1.ffn_up.weight", "output_norm.weight", "token_embd.weight"])
def test_a_missing_tensor_is_named(left_out: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", tiny_network("llama-gqa"), leave_out=(left_out,))
    with pytest.raises(ModelError, match=r"lack the weight|has no 'token_embd\.weight'"):
        load(str(path))


def test_weights_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    network = tiny_network("llama-gqa")
    network.model.layers[1].mlp.up_proj.weight.data[0, 0] = float("nan")
    with pytest.raises(ModelError, match=r"NaN in 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        load(str(write(tmp_path / "m.gguf", network)))


def test_a_pointer_of_git_lfs_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ModelError, match="pointer of Git LFS"):
        load(str(tmp_path / "m.gguf"))


@settings(max_examples=draws(300), deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_refused_in_words(data: st.DataObject, file: Path) -> None:
    """Cut short anywhere, or with some bytes of its header changed: nothing but a ModelError, or a header."""
    whole = file.read_bytes()
    start = read_header("m", file).tensors["token_embd.weight"].offset
    if data.draw(st.booleans()):
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        changed = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 4))):
            changed[data.draw(st.integers(0, start - 1))] = data.draw(st.integers(0, 255))
        damaged = bytes(changed)
    path = file.with_name("damaged.gguf")
    path.write_bytes(damaged)
    with contextlib.suppress(ModelError):
        model = GgufModel("m", [path])
        model.configuration  # noqa: B018 - what it raises is looked at
        model.tokenizer  # noqa: B018
    if len(damaged) < len(whole):
        with pytest.raises(ModelError):
            GgufModel("m", [path])


@pytest.mark.parametrize(
    ("version", "words"),
    [(b"\4\0\0\0", "has version 4; versions 2 and 3"), (b"\0\0\0\3", "of the other byte order")],
)
def test_another_version_asks_for_another_file(
    version: bytes, words: str, file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + version + file.read_bytes()[8:])
    with pytest.raises(ModelError, match=f"{words}.*Convert the model again"):
        load(str(path))
