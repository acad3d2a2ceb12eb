"""Which folders become a store, and what of them stays as it was."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import safetensors.torch
import torch

from engine.base.errors import StoreError
from engine.store import INDEX, Store
from engine.store.blobs.claim import TAG
from tests.engine.cache.test_store import ORIGIN, segment
from tests.engine.cache.test_store_folder import tree

HEX = "0123456789abcdef"
ALIKE = [
    f"files/mylora-{HEX}.safetensors",
    f"files/{'a' * 40}-{HEX}.safetensors",
    f"files/.{HEX * 2}.tmp",
    f"quarantine/mylora-{HEX}.safetensors",
    f"quarantine/{'a' * 40}-{HEX}.safetensors",
    f"index.sqlite.damaged-20260101T000000-{'0' * 8}",
    "locks/mine.lock",
    "writing.lock",
    "CACHEDIR.TAG",
    f"{INDEX}-wal",
]


@pytest.mark.parametrize("name", ALIKE)
def test_names_like_the_stores_make_no_folder_a_store(tmp_path: Path, name: str) -> None:
    place = tmp_path / "mm"
    (place / name).parent.mkdir(parents=True)
    (place / name).write_bytes(b"years of training")
    before = tree(place)
    with pytest.raises(StoreError, match=r"neither empty nor a segment store .*--cache-dir"):
        Store.open(place)
    assert tree(place) == before


def test_a_broken_index_without_a_tag_is_taken_for_nobodys_store(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / INDEX).write_bytes(b"my own list of books" * 100)
    before = tree(tmp_path)
    with pytest.raises(StoreError, match="neither empty nor a segment store"):
        Store.open(tmp_path)
    assert tree(tmp_path) == before


def test_what_a_start_that_was_cut_short_leaves_is_taken(tmp_path: Path) -> None:
    for part in ("files", "locks"):
        (tmp_path / part).mkdir()
    for name in (TAG, INDEX):
        (tmp_path / name).write_bytes(b"")
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    store.close()
    (tmp_path / INDEX).unlink()
    assert Store.open(tmp_path).stats().segments == 1, "its mark says whose it is"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o077])
def test_a_folder_of_the_users_keeps_its_mode_and_what_is_in_it_is_private(
    tmp_path: Path, umask: int
) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o2775)
    before = os.umask(umask)
    try:
        for _ in range(2):
            store = Store.open(place)
            store.save(segment(), ORIGIN)
            assert mode(place) == 0o2775
            loose = {path.name for path in place.rglob("*") if mode(path) & 0o077}
            assert loose == set()
            store.close()
    finally:
        os.umask(before)


def test_a_folder_that_the_store_made_is_closed_again(tmp_path: Path) -> None:
    place = tmp_path / "cache"
    Store.open(place).close()
    place.chmod(0o755)
    Store.open(place).close()
    assert mode(place) == 0o700


STRANGE = (f"mylora-{HEX}.safetensors", f"{'a' * 40}-{HEX}.safetensors")


@pytest.mark.parametrize("lost", [False, True])
def test_a_file_that_only_has_a_segments_name_is_never_moved_or_deleted(tmp_path: Path, lost: bool) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    foreign = safetensors.torch.save({"lora": torch.ones(3)}, {"key": "mine"})
    for name in STRANGE:
        (store.files / name).write_bytes(foreign if "lora" in name else b"years of training")
    store.close()
    if lost:
        (tmp_path / INDEX).unlink()
    again = Store.open(tmp_path)
    found = again.verify(repair=True)
    assert found.clean
    assert set(found.foreign) == {f"files/{name}" for name in STRANGE}
    again.clear()
    again.close()
    assert {path.name for path in (tmp_path / "files").iterdir()} == set(STRANGE)
    assert not (tmp_path / "quarantine").exists()


def test_a_segment_without_a_row_is_still_removed(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    with store.index.writing() as connection:
        connection.execute("delete from segments")
    assert len(store.verify().orphans) == 1
    store.close()
    assert not list((Store.open(tmp_path).folder / "files").iterdir())


def test_the_damaged_file_that_came_last_is_kept_whatever_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.blobs.folder.QUARANTINE_BYTES", 100)
    store = Store.open(tmp_path)
    for number in range(3):
        store.save(segment(f"{number:040x}", 50, number), ORIGIN)
        path = next(store.files.iterdir())
        data = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(bytes(len(data)))
        os.utime(path, ns=(1, 10**18 - number))  # the last to come is not the last written
        assert store.load(f"{number:040x}", range(50)) is None
        store.close()
        store = Store.open(tmp_path)
        (kept,) = (tmp_path / "quarantine").iterdir()
        assert kept.name == path.name
