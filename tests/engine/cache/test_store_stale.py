"""An index that was not read whole, or not lately: no file is removed by what it says."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from engine.base.errors import StoreError
from engine.store import INDEX, Store
from tests.engine.cache.segments import in_processes
from tests.engine.cache.test_store import ORIGIN, audit, segment
from tests.engine.cache.test_store_failures import disk, fill_up, filled, loaded
from tests.engine.cache.test_store_index import no_database, spoil_in_use

__all__ = ["disk"]


def files(folder: Path) -> int:
    return len(list((folder / "files").iterdir()))


def test_what_another_has_stored_since_is_not_swept_by_a_stale_copy(disk: Path) -> None:
    filled(disk / "cache").close()
    ballast = fill_up(disk)
    stale = Store.open(disk / "cache")
    assert stale.read_only
    ballast.unlink()
    other = Store.open(disk / "cache")
    for number in range(5):
        other.save(segment(f"new{number}"), ORIGIN)
    found = stale.verify(repair=True)
    assert (found.clean, found.segments, files(disk / "cache")) == (True, 11, 11)
    audit(other)


def test_nothing_is_swept_while_the_index_cannot_be_written(disk: Path) -> None:
    filled(disk / "cache").close()
    fill_up(disk)
    store = Store.open(disk / "cache")
    (store.files / "stray-0123456789abcdef.safetensors").touch()
    found = store.verify(repair=True)
    assert (found.orphans, found.repaired, files(disk / "cache")) == ((), False, 7)
    assert "cannot be used" in found.unsure


def test_a_damaged_index_on_a_full_disk_costs_no_file(disk: Path) -> None:
    filled(disk / "cache").close()
    no_database(disk / "cache" / INDEX)
    ballast = fill_up(disk)
    store = Store.open(disk / "cache")
    store.verify(repair=True)
    assert files(disk / "cache") == 6
    ballast.unlink()
    assert store.verify(repair=True).segments == 6
    assert loaded(store) == [True] * 6
    store.close()
    again = Store.open(disk / "cache")
    assert loaded(again) == [True] * 6
    audit(again)


def test_an_index_that_was_made_anew_and_never_filled_is_filled_at_the_next_opening(tmp_path: Path) -> None:
    from engine.store.blobs.folder import Folder
    from engine.store.index.database import Index

    filled(tmp_path).close()
    (tmp_path / INDEX).unlink()
    Index(Folder.open(tmp_path)).close()  # and here its process is killed
    again = Store.open(tmp_path)
    assert loaded(again) == [True] * 6
    audit(again)


def repairs_as_nobody(folder: Path) -> None:
    os.setgid(65534)
    os.setuid(65534)
    store = Store.open(folder)
    found = store.verify(repair=True)
    assert store.read_only
    assert not found.clean
    assert found.orphans == ()
    assert "cannot be" in found.index


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_an_index_that_cannot_be_read_costs_no_file() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "cache"
        filled(folder).close()
        Path(place).chmod(0o755)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, 65534)
        (folder / INDEX).chmod(0)
        in_processes(repairs_as_nobody, (folder,))
        assert files(folder) == 6


def test_a_repair_that_has_no_room_leaves_a_store_that_answers(disk: Path) -> None:
    store = filled(disk / "cache")
    spoil_in_use(store)
    ballast = fill_up(disk)
    store.verify(repair=True)
    assert store.stats().segments == 6
    assert loaded(store) == [True] * 6
    with pytest.raises(StoreError, match="could not be written"):
        store.save(segment("new"), ORIGIN)
    ballast.unlink()
    store.save(segment("new"), ORIGIN)
    assert files(disk / "cache") == 7
    store.close()
    again = Store.open(disk / "cache")
    assert loaded(again) == [True] * 6
    audit(again)


def test_a_damaged_index_that_cannot_be_set_aside_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    spoil_in_use(store)

    def refused() -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store.disk, "set_index_aside", refused)
    with pytest.raises(StoreError, match=r"cannot be set aside.*Permission denied"):
        store.verify(repair=True)
    with pytest.raises(StoreError, match="damaged"):
        store.save(segment("new"), ORIGIN)
    monkeypatch.undo()
    assert store.verify(repair=True).segments == 6
    assert loaded(store) == [True] * 6
