"""The store where the system lacks what Linux has: Windows and the Mac, played by taking calls away."""

from __future__ import annotations

import errno
import gc
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.base.errors import StoreError
from engine.files import directory
from engine.files.directory import Directory
from engine.store import Store
from engine.store.blobs import segment_files
from tests.engine.cache.lesser_system import LESSER, like_windows, play, with_files_that_stay_while_open
from tests.engine.cache.test_store import ORIGIN, audit, file_of, overwrite, segment
from tests.test_architecture import ROOT


@pytest.mark.parametrize("system", LESSER)
def test_a_store_works_where_something_is_missing(
    tmp_path: Path, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    LESSER[system](monkeypatch)
    play(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("system", ["like Windows", "no locks"])
def test_two_processes_share_a_store_without_what_only_unix_has(tmp_path: Path, system: str) -> None:
    """Neither fcntl, resource, pwd nor grp can be imported there."""
    command = [sys.executable, "-m", "tests.engine.cache.lesser_system", system, str(tmp_path), "0", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    store = Store.open(tmp_path)
    found = store.verify()
    assert (found.faults, found.foreign) == ((), ())
    assert store.stats().corrupt == 0
    audit(store)


def test_a_store_goes_from_one_system_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(tmp_path).save(segment("a", 20, 1), ORIGIN)
    with monkeypatch.context() as patch:
        like_windows(patch)
        store = Store.open(tmp_path)
        read = store.load("a", range(20))
        assert read is not None
        assert torch.equal(read.keys, segment("a", 20, 1).keys)
        store.save(segment("b", 20, 2), ORIGIN)
        store.close()
    again = Store.open(tmp_path)
    assert again.load("b", range(20)) is not None
    assert again.verify().clean


def test_a_mapped_file_is_deleted_when_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_files_that_stay_while_open(monkeypatch)
    store = Store.open(tmp_path)
    made = segment("a", 20, 1)
    store.save(made, ORIGIN)
    read = store.load("a", range(20))
    assert read is not None
    assert store.prune(max_bytes=0).segments == 1
    assert (store.stats().segments, len(list(store.files.iterdir()))) == (0, 1)
    assert store.load("a", range(20)) is None
    assert torch.equal(read.keys, made.keys)
    assert caplog.text == "", "nothing is wrong, so nothing is said"
    del read
    gc.collect()
    store.save(segment("b", 20, 2), ORIGIN)
    audit(store)


def test_a_file_that_is_mapped_until_the_store_is_closed_goes_at_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_files_that_stay_while_open(monkeypatch)
    store = Store.open(tmp_path)
    store.save(segment("a", 20, 1), ORIGIN)
    read = store.load("a", range(20))
    store.clear()
    store.close()
    Store.open(tmp_path).close()
    assert len(list((tmp_path / "files").iterdir())) == 1
    assert read is not None
    assert torch.equal(read.keys, segment("a", 20, 1).keys)
    del read
    gc.collect()
    store = Store.open(tmp_path)
    audit(store)
    assert list(store.files.iterdir()) == []


def test_a_damaged_index_is_built_again_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    like_windows(monkeypatch)
    store = Store.open(tmp_path)
    store.save(segment("a", 20, 1), ORIGIN)
    store.close()
    (tmp_path / "index.sqlite").write_bytes(b"this is no database" * 100)
    again = Store.open(tmp_path)
    assert again.load("a", range(20)) is not None
    assert len(list(tmp_path.glob("index.sqlite.damaged-*"))) == 1


def test_damage_is_set_aside_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    like_windows(monkeypatch)
    store = Store.open(tmp_path)
    store.save(segment("a", 20, 1), ORIGIN)
    path = file_of(store)
    overwrite(path, path.read_bytes()[:-1] + b"\x01")
    assert store.load("a", range(20)) is None
    assert [found.name for found in (tmp_path / "quarantine").iterdir()] == [path.name]


@pytest.mark.parametrize("part", ["files", "quarantine", "locks"])
def test_a_part_that_is_a_link_is_refused_by_path_too(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    like_windows(monkeypatch)
    Store.open(tmp_path / "cache").close()
    (tmp_path / "away").mkdir()
    if (tmp_path / "cache" / part).exists():
        (tmp_path / "cache" / part).rmdir()
    (tmp_path / "cache" / part).symlink_to(tmp_path / "away")
    with pytest.raises(StoreError, match="is a link or not a folder"):
        Store.open(tmp_path / "cache")


def test_a_link_in_place_of_a_segment_is_not_read_by_path_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    like_windows(monkeypatch)
    store = Store.open(tmp_path / "cache")
    store.save(segment(), ORIGIN)
    path, elsewhere = file_of(store), tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert store.load("k", range(5)) is None
    assert elsewhere.exists()
    assert path.is_symlink()


class TestByPath:
    """A folder that is looked up by path."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Directory:
        monkeypatch.setattr(os, "supports_dir_fd", set())
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "file").write_bytes(b"mine")
        return Directory.at(tmp_path / "here")

    def test_nothing_is_done_in_a_folder_that_was_exchanged(self, folder: Directory, tmp_path: Path) -> None:
        (tmp_path / "here").rename(tmp_path / "there")
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "file").write_bytes(b"theirs")
        for use in (
            lambda: folder.open("file", os.O_RDONLY),
            lambda: folder.unlink("file"),
            lambda: folder.move("file", folder, "other"),
            folder.names,
        ):
            with pytest.raises(FileNotFoundError, match="another folder"):
                use()
        assert (tmp_path / "here" / "file").read_bytes() == b"theirs"

    @pytest.mark.parametrize("name", ["../file", "a/b", "..", "."])
    def test_no_name_leads_out(self, folder: Directory, name: str) -> None:
        with pytest.raises(OSError, match="it is not a file name"):
            folder.open(name, os.O_RDONLY)

    def test_a_file_that_is_exchanged_for_a_link_while_it_is_opened_is_refused(
        self, folder: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "theirs").write_bytes(b"theirs")
        monkeypatch.delattr(os, "O_NOFOLLOW")
        plain = os.open

        def exchanged(path: Path, *arguments: int) -> int:
            path.unlink()
            path.symlink_to(tmp_path / "theirs")
            return plain(path, *arguments)

        monkeypatch.setattr(os, "open", exchanged)
        with pytest.raises(OSError, match="exchanged") as said:
            folder.open("file", os.O_RDONLY)
        assert said.value.errno == errno.ELOOP

    def test_a_junction_is_a_link(
        self, folder: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Windows links folders to folders, which are folders by their mode."""
        (tmp_path / "here" / "inner").mkdir()
        monkeypatch.setattr(directory, "_JUNCTION", 0)
        with pytest.raises(OSError, match="link"):
            folder.inner("inner")


def test_modes_are_left_to_systems_that_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is read-only could not be deleted on Windows."""
    like_windows(monkeypatch)
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    assert stat.S_IMODE(file_of(store).stat().st_mode) & 0o200
    assert segment_files.NAME.fullmatch(file_of(store).name)
