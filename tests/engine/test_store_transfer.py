"""Segments from one machine to another, and indexes from one version to the next."""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
from pathlib import Path

import pytest
import torch

from engine.errors import StoreError
from engine.fingerprint import fingerprint_folder
from engine.store import INDEX, Origin, Store
from engine.store.migrations import MIGRATIONS, VERSION
from tests.engine.test_store import ORIGIN, audit, segment


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    store = Store.open(tmp_path / "here")
    store.save(segment("a", 20, 1), ORIGIN, seconds=2.0)
    store.save(segment("b", 20, 2), ORIGIN, scheme="int8")
    store.save(segment("c", 20, 3), Origin("other", "m", "anchored", "tiny", "f"))
    found = store.export(tmp_path / "travel.tar", "travel")
    assert found.segments == 2
    store.close()
    return tmp_path / "travel.tar"


def test_segments_arrive_as_they_left(moved: Path, tmp_path: Path) -> None:
    there = Store.open(tmp_path / "there")
    steps: list[tuple[int, int]] = []
    found = there.import_(moved, lambda done, total, _: steps.append((done, total)))
    assert (found.segments, found.known, steps) == (2, 0, [(0, 2), (1, 2)])
    read = there.load("a", range(20))
    assert read is not None
    assert torch.equal(read.keys, segment("a", 20, 1).keys)
    assert there.load("b", range(20)) is not None
    assert {(row["schema"], row["seconds"]) for row in there.segments()} == {("travel", 2.0), ("travel", 0.0)}
    assert there.verify().clean
    again = there.import_(moved)
    assert (again.segments, again.known) == (0, 2)
    audit(there)


def test_nothing_to_export_is_said(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with pytest.raises(StoreError, match="no segments of schema 'x'"):
        store.export(tmp_path / "x.tar", "x")
    store.save(segment(), ORIGIN)
    with pytest.raises(StoreError, match="cannot be written"):
        store.export(tmp_path / "no" / "such" / "folder.tar")


def rebuilt(path: Path, change) -> Path:
    """The same file with its members changed."""
    with tarfile.open(path) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar}
    changed = path.with_name("changed.tar")
    with tarfile.open(changed, "w") as tar:
        for name, data in change(members).items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return changed


def with_row(members: dict[str, bytes], **changes) -> dict[str, bytes]:
    manifest = json.loads(members["manifest.json"])
    manifest["segments"][0].update(changes)
    return {**members, "manifest.json": json.dumps(manifest).encode()}


def flipped(members: dict[str, bytes]) -> dict[str, bytes]:
    name = list(members)[1]
    return {**members, name: members[name][:-1] + bytes([members[name][-1] ^ 1])}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flipped, "was damaged on its way"),
        (lambda m: dict(list(m.items())[:2]), "1 segments are missing"),
        (lambda m: dict(list(m.items())[1:]), "does not begin with a manifest"),
        (lambda m: with_row(m, file="../../evil-0123456789abcdef.safetensors"), "manifest cannot be read"),
        (lambda m: with_row(m, bytes=-1), "manifest cannot be read"),
        (lambda m: with_row(m, scheme="zip"), "manifest cannot be read"),
        (lambda m: with_row(m, shape="what"), "manifest cannot be read"),
        (lambda m: with_row(m, labels=[["x"]]), "manifest cannot be read"),
        (lambda m: {**m, "extra": b"x"}, "is not what its manifest says"),
        (lambda m: {"manifest.json": b'{"format": 99, "segments": []}'}, "newer version"),
    ],
)
def test_what_is_not_as_it_left_is_refused(moved: Path, change, words: str, tmp_path: Path) -> None:
    there = Store.open(tmp_path / "there")
    with pytest.raises(StoreError, match=words):
        there.import_(rebuilt(moved, change))
    assert there.verify().clean
    assert not list(tmp_path.rglob("evil*"))


def test_files_that_are_no_export_are_refused(tmp_path: Path) -> None:
    there = Store.open(tmp_path / "there")
    (tmp_path / "text").write_text("hello")
    for name, words in (("text", "no file of pml cache export"), ("none", "cannot be read")):
        with pytest.raises(StoreError, match=words):
            there.import_(tmp_path / name)


def test_links_in_an_export_are_refused(moved: Path, tmp_path: Path) -> None:
    with tarfile.open(moved, "a") as tar:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(StoreError, match="no plain file"):
        Store.open(tmp_path / "there").import_(moved)


def index_of_version(folder: Path, version: int) -> None:
    """The database file that an earlier version has left, with a segment in it."""
    (folder / "files").mkdir(parents=True)
    with sqlite3.connect(folder / INDEX) as connection:
        for steps in MIGRATIONS[:version]:
            for step in steps:
                step(connection)
        connection.execute(f"pragma user_version = {version}")
        if version:
            columns = "key, file, bytes, digest, tokens, token_ids, dtype, fingerprint, model, scope"
            connection.execute(
                f"insert into segments ({columns}, created, last_used, hits) values"
                " ('k', 'k-0123456789abcdef.safetensors', 3, '', 1, x'00', 'float32', 'f', 'm', 's', 1, 1, 0)"
            )
            connection.execute("insert into counters values ('hits', 7)")
    (folder / "files" / "k-0123456789abcdef.safetensors").write_bytes(b"abc")


@pytest.mark.parametrize("version", range(VERSION))
def test_an_index_of_every_earlier_version_is_brought_up_to_date(version: int, tmp_path: Path) -> None:
    index_of_version(tmp_path, version)
    store = Store.open(tmp_path)
    with store._index.reading() as connection:
        assert connection.execute("pragma user_version").fetchone()[0] == VERSION
    assert store.stats().hits == (7 if version else 0)
    assert store.stats().segments == 0, "names of version 1 are never asked for again"
    assert not list(store.files.iterdir())
    store.save(segment(), ORIGIN)
    assert store.load("k", range(5)) is not None
    assert store.verify().clean
    store.close()
    Store.open(tmp_path).close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_of_version(tmp_path, 1)
    from engine.store import migrations

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("delete from segments")
        raise sqlite3.OperationalError("the disk went away")

    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS[:1], (broken,)))
    with pytest.raises(StoreError, match="the disk went away"):
        Store.open(tmp_path)
    with sqlite3.connect(tmp_path / INDEX) as connection:
        assert connection.execute("pragma user_version").fetchone()[0] == 1
        assert connection.execute("select count(*) from segments").fetchone()[0] == 1


def test_fingerprints_of_large_folders_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import fingerprint

    monkeypatch.setattr(fingerprint, "WHOLE", 1000)
    folder, memory = tmp_path / "m", tmp_path / "memory" / "fingerprints.json"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    weights = folder / "model.safetensors"
    weights.write_bytes(bytes(3 << 20))
    first = fingerprint_folder(folder, memory)
    assert first == fingerprint_folder(folder) == fingerprint_folder(folder, memory)
    read: list[Path] = []
    monkeypatch.setattr(fingerprint, "_update_with_file", lambda _digest, path: read.append(path))
    assert fingerprint_folder(folder, memory) == first
    assert read == []
    (folder / "config.json").write_text("{ }")
    assert fingerprint_folder(folder, memory) != first
    assert read == [weights]
    memory.write_text("not json")
    fingerprint_folder(folder, memory)
    assert len(read) == 2
