"""The store: what is written comes back, and what is damaged is never used."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
import torch

from engine.base.errors import StoreError
from engine.base.events import Answer
from engine.base.segment import Segment
from engine.base.tiers import Outcome, Reason, Tier
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.store import INDEX, Lookup, Origin, Scheme, Store
from tests.engine.cache.segments import ORIGIN, segment
from tests.engine.cases import held_in_memory, model_of, prompt_of, schema_of


def file_of(store: Store) -> Path:
    return next((store.folder / "files").glob("*.safetensors"))


def audit(store: Store) -> None:
    """Every row has a file of its size, and every file a row."""
    with sqlite3.connect(store.folder / INDEX) as connection:
        rows = dict(connection.execute("select file, bytes from segments").fetchall())
    files = {p.name: p.stat().st_size for p in (store.folder / "files").glob("*.safetensors")}
    assert rows == files


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_segment_comes_back_after_a_restart(tmp_path: Path, dtype: torch.dtype) -> None:
    first = Store.open(tmp_path)
    made = segment()
    made = Segment(made.key, made.token_ids, made.keys.to(dtype), made.values.to(dtype))
    first.save(made, ORIGIN)
    first.close()
    store = Store.open(tmp_path)
    read = store.load("k", made.token_ids)
    assert read is not None
    assert torch.equal(read.keys, made.keys)
    assert torch.equal(read.values, made.values)
    assert store.stats().segments == 1
    assert store.stats().bytes == file_of(store).stat().st_size
    row = store.segments()[0]
    assert (row["schema"], row["path"], row["tokens"]) == ("travel", "trip/tokyo", 5)
    audit(store)


def overwrite(path: Path, data: bytes) -> None:
    """Writes into a file that is sealed against it, as root or a careless tool would."""
    path.chmod(0o600)
    path.write_bytes(data)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    overwrite(path, bytes(data))


def cut_short(path: Path) -> None:
    overwrite(path, path.read_bytes()[:-10])


def swap(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(bytes(reversed(path.read_bytes())))
    other.replace(path)


@pytest.mark.parametrize("damage", [flip_a_bit, cut_short, swap, Path.unlink])
def test_a_damaged_file_is_set_aside_and_counted(tmp_path: Path, damage, caplog) -> None:
    first = Store.open(tmp_path)
    first.save(segment(), ORIGIN)
    first.close()
    store = Store.open(tmp_path)
    damage(file_of(store))
    assert store.load("k", range(5)) is None
    assert "is not used" in caplog.text
    assert store.stats().corrupt == 1
    assert store.stats().segments == 0
    audit(store)
    store.save(segment(), ORIGIN)
    assert store.load("k", range(5)) is not None


def test_other_tokens_under_the_same_key_are_no_hit(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    assert store.load("k", [9, 9, 9, 9, 9]) is None


def test_a_row_without_a_file_is_a_miss(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    assert store.load("unknown", [1]) is None
    assert store.contains(["unknown"]) == set()


def test_clear_removes_files_and_spares_other_schemas(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment("a"), ORIGIN)
    store.save(segment("b", seed=1), Origin("other", "m", "anchored", "tiny", "f"))
    assert store.clear("travel") == 1
    assert store.contains(["a", "b"]) == {"b"}
    audit(store)
    assert store.clear() == 1
    assert not list((store.folder / "files").iterdir())


def test_hits_and_misses_are_counted(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    store.record(
        [Lookup("k", Tier.DISK, Outcome.HIT), *(Lookup(k, Tier.NONE, Outcome.MISS, Reason.NEW) for k in "xy")]
    )
    store.record([Lookup("k", Tier.MEMORY, Outcome.HIT)])
    assert (store.stats().hits, store.stats().misses) == (2, 2)
    assert store.segments()[0]["hits"] == 2


def test_a_folder_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    with pytest.raises(StoreError, match="--cache-dir"):
        Store.open(blocked)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / INDEX).write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError, match="--cache-dir"):
        Store.open(tmp_path / "bad")


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        store.save(segment(), ORIGIN)
    assert not list((store.folder / "files").iterdir())
    assert store.contains(["k"]) == set()


def test_two_writers_of_one_segment_do_not_spoil_each_other(tmp_path: Path) -> None:
    one, two = Store.open(tmp_path), Store.open(tmp_path)
    one.save(segment(), ORIGIN)
    assert one.load("k", range(5)) is not None
    two.save(segment(seed=1), Origin("other", "m", "anchored", "tiny", "f"))
    for store in (one, two):
        read = store.load("k", range(5))
        assert read is not None
        assert torch.equal(read.keys, segment(seed=1).keys)
    assert one.stats().corrupt == 0
    audit(one)


def test_many_keys_are_looked_up_at_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    assert store.contains([*map(str, range(50_000)), "k"]) == {"k"}


def shaped(key: str, ids: tuple[int, ...], *sides: int, dtype: torch.dtype = torch.float32) -> Segment:
    return Segment(key, ids, torch.ones(sides, dtype=dtype), torch.ones(sides, dtype=dtype))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda la, h, n, d: (la + 1, h, n, d), "have the shape"),
        (lambda la, h, n, d: (la, h + 1, n, d), "have the shape"),
        (lambda la, h, n, d: (la, h, n + 1, d), "have the shape"),
        (lambda la, h, n, d: (la, h, n, 2 * d), "have the shape"),
        (lambda la, h, n, d: (la, n, h, d), "have the shape"),
        (torch.bfloat16, "are torch.bfloat16 and the model's torch.float32"),
    ],
)
@pytest.mark.parametrize("scheme", ["plain", "int8"])
def test_a_segment_of_another_form_is_set_aside_and_the_answer_comes(
    tmp_path: Path, change, words: str, scheme: Scheme, caplog
) -> None:
    store = Store.open(tmp_path)
    store.settings.set_scheme(scheme)
    engine = Engine(model_of("llama-gqa", chat=False), store)
    schema, prompt = schema_of('<schema name="s">Read this. </schema>'), prompt_of("<prompt>so?</prompt>")
    settings = RunSettings(max_new_tokens=2)

    def answered() -> Answer:
        engine.memory_tier.clear()
        return engine.schema(schema).prompt(prompt).answer(settings)

    want = answered()
    (row,) = store.segments()
    held = held_in_memory(engine)[row["key"]]
    sides, dtype = tuple(held.keys.shape), held.keys.dtype
    sides, dtype = (sides, change) if isinstance(change, torch.dtype) else (change(*sides), dtype)
    store.save(shaped(row["key"], held.token_ids, *sides, dtype=dtype), ORIGIN, scheme=scheme)
    found = answered()
    assert found.token_ids == want.token_ids
    assert [use.reason for use in found.segments] == ["damaged"]
    assert words in caplog.text
    assert store.stats().corrupt == 1
    assert [use.tier for use in answered().segments] == ["disk"]
    engine.close()
