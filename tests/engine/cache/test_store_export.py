"""The file that an export writes: nothing of the user's goes under for it, and what cannot travel is said."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.base.errors import StoreError
from engine.store import INDEX, Origin, Store
from tests.app.conftest import run_pml as run_pml
from tests.engine.cache.test_store import ORIGIN, segment
from tests.engine.cache.test_store_folder import tree

A, B = "a" * 40, "b" * 40


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.open(tmp_path / "cache")
    made.save(segment(A, 20), ORIGIN)
    return made


def plain(path: Path) -> None:
    path.write_text("years of work")


def linked(path: Path) -> None:
    away = path.with_name("away.txt")
    plain(away)
    path.symlink_to(away)


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def piped(path: Path) -> None:
    os.mkfifo(path)


def what(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_ino, stat.S_IFMT(status.st_mode)


@pytest.mark.parametrize("make", [plain, linked, dangling, piped])
def test_what_is_there_stays(store: Store, tmp_path: Path, make: Callable[[Path], None]) -> None:
    target = tmp_path / "thesis.txt"
    make(target)
    before, files = what(target), set(tmp_path.iterdir())
    with pytest.raises(StoreError, match=r"thesis\.txt' exists already.*--force"):
        store.export(target)
    if make is plain:
        assert store.export(target, replace=True).segments == 1
        assert target.read_bytes().startswith(b"manifest.jsonl")
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    else:
        with pytest.raises(StoreError, match="not a plain file"):
            store.export(target, replace=True)
        assert what(target) == before
    assert set(tmp_path.iterdir()) == files
    away = tmp_path / "away.txt"
    assert not away.exists() or away.read_text() == "years of work"


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("name", [INDEX, "all.tar", "files/all.tar"])
def test_nothing_is_written_into_the_stores_own_folder(
    store: Store, tmp_path: Path, name: str, replace: bool
) -> None:
    (tmp_path / "alias").symlink_to(tmp_path / "cache")
    before = set(tree(store.folder))
    for folder in ("cache", "alias"):
        with pytest.raises(StoreError, match=r"inside the cache folder.*another folder"):
            store.export(tmp_path / folder / name, replace=replace)
    assert set(tree(store.folder)) == before
    assert store.verify().clean


def test_the_command_replaces_only_by_force(store: Store, tmp_path: Path, run_pml) -> None:
    target = tmp_path / "thesis.txt"
    plain(target)
    words = ("cache", "export", target, "--cache-dir", store.folder)
    done = run_pml(*words)
    assert (done.status, target.read_text()) == (1, "years of work")
    assert "--force" in done.err
    assert run_pml(*words, "--force").status == 0
    assert Store.open(tmp_path / "there").import_(target).segments == 1


# What cannot travel


LONG = "m" + "x" * 1_100


def test_long_names_travel(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "here")
    path = "/".join(["deep", LONG, "\u6771" * 300_000])
    store.save(segment(A, 20), Origin(LONG, path, "anchored", "tiny", "f"))
    assert store.export(tmp_path / "all.tar").segments == 1
    there = Store.open(tmp_path / "there")
    assert there.import_(tmp_path / "all.tar").segments == 1
    (row,) = there.segments()
    assert (row["schema"], row["path"]) == (LONG, path)


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ("update segments set model = ? where key = ?", ["x" * 2000, B]),
        ("update segments set scope = ? where key = ?", ["unknown", B]),
        ("update labels set path = ? where key = ?", ["\u6771" * (3 << 20), B]),
    ],
)
def test_a_segment_that_cannot_travel_keeps_no_other_back(
    store: Store, tmp_path: Path, change: str, values: list[str], run_pml
) -> None:
    store.save(segment(B, 20, 1), ORIGIN)
    with store.index.writing() as connection:
        connection.execute(change, values)
    found = store.export(tmp_path / "all.tar")
    assert found.segments == 1
    (said,) = found.unfit
    assert B in said
    assert "clear" not in said
    done = run_pml("cache", "export", tmp_path / "again.tar", "--cache-dir", store.folder)
    assert (done.status, "Wrote 1 segment" in done.out) == (0, True)
    assert B in done.err
    store.remove([A])
    with pytest.raises(StoreError, match=B) as failed:
        store.export(tmp_path / "none.tar")
    assert "clear" not in str(failed.value)
    assert not (tmp_path / "none.tar").exists()
