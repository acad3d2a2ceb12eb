"""The store: what is written comes back, and what is damaged is never used."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest
import torch

from engine.errors import StoreError
from engine.segment import Segment
from engine.store import INDEX, Origin, Served, Store

ORIGIN = Origin("travel", "trip/tokyo", "anchored", "tiny", "f")


def segment(key: str = "k", tokens: int = 5, seed: int = 0) -> Segment:
    generator = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, 3, 2, tokens, 8, generator=generator)
    return Segment(key, tuple(range(tokens)), keys.contiguous(), values.contiguous())


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


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(bytes(data))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


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
    store.record([Served("k", "disk", "hit"), *(Served(k, "none", "miss", "new") for k in "xy")])
    store.record([Served("k", "memory", "hit")])
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


def test_a_newer_store_is_refused_in_words(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with sqlite3.connect(tmp_path / INDEX) as connection:
        connection.execute("pragma user_version = 99")
    with pytest.raises(StoreError, match="newer version"):
        Store.open(tmp_path)


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


def write_forever(folder: str) -> None:
    store = Store.open(Path(folder))
    number = 0
    while True:
        store.save(segment(f"{os.getpid()}-{number}", 40, number), ORIGIN)
        number += 1


def test_a_killed_writer_leaves_a_store_that_works(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_forever, args=(str(tmp_path),)) for _ in range(2)]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list((tmp_path / "files").glob("*.safetensors"))) < 20:
        time.sleep(0.05)
    for writer in writers:
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    store = Store.open(tmp_path)
    rows = store.segments()
    assert len(rows) >= 10
    for row in rows:
        seed = int(row["key"].split("-")[1])
        read = store.load(row["key"], range(40))
        assert read is not None
        assert torch.equal(read.keys, segment("", 40, seed).keys)
    # A writer dies between its file and its row at most: one file each may stand without a row.
    files = len(list((tmp_path / "files").glob("*.safetensors")))
    assert len(rows) <= files <= len(rows) + 2
