"""Which folders become a store, and what of them stays as it was."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from engine.errors import StoreError
from engine.store import INDEX, Store
from engine.store.claim import TAG
from tests.engine.test_store import ORIGIN, segment
from tests.engine.test_store_folder import tree

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
