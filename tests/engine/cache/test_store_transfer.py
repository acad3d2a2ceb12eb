"""Segments from one machine to another, and indexes of other versions."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import sqlite3
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import xxhash

from engine.base.errors import StoreError
from engine.base.segment import Segment
from engine.store import INDEX, SCHEMES, Origin, Store
from engine.store.index.tables import VERSION
from engine.store.manifest import DTYPES
from tests.engine.cache.test_store import ORIGIN, audit, cut_short, file_of, flip_a_bit, segment

A, B, C = (letter * 40 for letter in "abc")


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    store = Store.open(tmp_path / "here")
    store.save(segment(A, 20, 1), ORIGIN, seconds=2.0)
    store.save(segment(B, 20, 2), ORIGIN, scheme="int8")
    store.save(segment(C, 20, 3), Origin("other", "m", "anchored", "tiny", "f"))
    found = store.export(tmp_path / "travel.tar", "travel")
    assert found.segments == 2
    store.close()
    return tmp_path / "travel.tar"


def test_segments_arrive_as_they_left(moved: Path, tmp_path: Path) -> None:
    there = Store.open(tmp_path / "there")
    steps: list[tuple[int, int]] = []
    found = there.import_(moved, lambda done, total, _: steps.append((done, total)))
    assert (found.segments, found.known, steps) == (2, 0, [(0, 2), (1, 2)])
    read = there.load(A, range(20))
    assert read is not None
    assert torch.equal(read.keys, segment(A, 20, 1).keys)
    assert there.load(B, range(20)) is not None
    assert {(row["schema"], row["seconds"]) for row in there.segments()} == {("travel", 2.0), ("travel", 0.0)}
    assert there.verify().clean
    again = there.import_(moved)
    assert (again.segments, again.known) == (0, 2)
    audit(there)


def test_an_export_is_a_tar_that_others_can_read(moved: Path) -> None:
    with tarfile.open(moved) as tar:
        assert tar.getnames() == ["manifest.jsonl", f"{A}.safetensors", f"{B}.safetensors"]
    assert moved.stat().st_mode & 0o777 == 0o600


def test_every_scheme_and_number_format_travels(tmp_path: Path) -> None:
    here, there = Store.open(tmp_path / "here"), Store.open(tmp_path / "there")
    for number, (scheme, dtype) in enumerate(itertools.product(SCHEMES, DTYPES)):
        made = segment(f"{number:040x}", 7 + number, number)
        kind = getattr(torch, dtype)
        here.save(
            Segment(made.key, made.token_ids, made.keys.to(kind), made.values.to(kind)), ORIGIN, scheme=scheme
        )
    assert here.export(tmp_path / "all.tar").segments == there.import_(tmp_path / "all.tar").segments == 9
    for row in here.segments():
        ids = range(row["tokens"])
        sent, came = here.load(row["key"], ids), there.load(row["key"], ids)
        assert sent is not None
        assert came is not None
        assert torch.equal(sent.keys, came.keys)
        assert torch.equal(sent.values, came.values)


def test_nothing_to_export_is_said(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with pytest.raises(StoreError, match="no segments of schema 'x'"):
        store.export(tmp_path / "x.tar", "x")
    store.save(segment(A), ORIGIN)
    with pytest.raises(StoreError, match="cannot be written"):
        store.export(tmp_path / "no" / "such" / "folder.tar")


@pytest.mark.parametrize(
    ("damage", "words"),
    [(flip_a_bit, "is damaged"), (cut_short, "was cut short"), (Path.unlink, "is gone")],
)
def test_what_is_damaged_is_not_exported(tmp_path: Path, damage, words: str) -> None:
    store = Store.open(tmp_path / "s")
    store.save(segment(A), ORIGIN)
    damage(file_of(store))
    with pytest.raises(StoreError, match=f"{words}.*verify --repair"):
        store.export(tmp_path / "x.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


Members = dict[str, bytes]


def members_of(path: Path) -> Members:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def rebuilt(path: Path, change: Callable[[Members], Members]) -> Path:
    """The same file with its members changed."""
    changed = path.with_name("changed.tar")
    with tarfile.open(changed, "w") as tar:
        for name, data in change(members_of(path)).items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return changed


def with_lines(members: Members, change: Callable[[list[bytes]], list[bytes]]) -> Members:
    lines = members["manifest.jsonl"].splitlines()
    return {**members, "manifest.jsonl": b"\n".join(change(lines)) + b"\n"}


def with_row(members: Members, **changes: object) -> Members:
    def change(lines: list[bytes]) -> list[bytes]:
        row = {**json.loads(lines[1]), **changes}
        return [lines[0], json.dumps({k: v for k, v in row.items() if v is not ...}).encode(), *lines[2:]]

    return with_lines(members, change)


def with_file(members: Members, data: bytes, **changes: object) -> Members:
    """Another file, of which the manifest speaks the truth."""
    name = list(members)[1]
    digest = xxhash.xxh3_128_hexdigest(data)
    return with_row({**members, name: data}, bytes=len(data), digest=digest, **changes)


def with_header(members: Members, change: Callable[[dict], object]) -> Members:
    """The file of the first segment under another header."""
    data = members[list(members)[1]]
    length = int.from_bytes(data[:8], "little")
    said = json.dumps(change(json.loads(data[8 : 8 + length]))).encode()
    return with_file(members, len(said).to_bytes(8, "little") + said + data[8 + length :])


def noted(header: dict, **notes: str) -> dict:
    return {**header, "__metadata__": {**header["__metadata__"], **notes}}


def flipped(members: Members) -> Members:
    name = list(members)[1]
    return {**members, name: members[name][:-1] + bytes([members[name][-1] ^ 1])}


def deep(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b'{"key":' + b"[" * 50_000 + b"]" * 50_000 + b"}", *lines[2:]]


def endless(lines: list[bytes]) -> list[bytes]:
    return [lines[0], re.sub(rb'"seconds": [\d.]+', b'"seconds": 1e999', lines[1]), lines[2]]


def in_another_order(members: Members) -> Members:
    return {name: members[name] for name in ("manifest.jsonl", f"{B}.safetensors", f"{A}.safetensors")}


IDS = "00000001" * 20
HOSTILE: list[tuple[Callable[[Members], Members], str]] = [
    # of the manifest
    (lambda m: with_row(m, key="../../victim/model"), "line 2 .*key is '../../victim/model'; it must be 40"),
    (lambda m: with_row(m, key=A.upper()), "line 2 .*key"),
    (lambda m: with_row(m, key=B), "key is .*unique"),
    (lambda m: with_row(m, key=f"{A}\n"), "key"),
    (lambda m: with_row(m, key=7), "key is 7"),
    (lambda m: with_row(m, key=...), "fields is"),
    (lambda m: with_row(m, file="../../evil"), "fields is"),
    (lambda m: with_row(m, bytes=-1), "bytes is -1"),
    (lambda m: with_row(m, bytes=True), "bytes is True"),
    (lambda m: with_row(m, bytes=2**70), "bytes is 1180591620717411303424"),
    (lambda m: with_row(m, bytes=1e3), "bytes is 1000.0"),
    (lambda m: with_row(m, bytes=10), "which its shape, dtype and scheme take"),
    (lambda m: with_row(m, bytes=10 << 30), "which its shape, dtype and scheme take"),
    (lambda m: with_row(m, seconds=float("inf")), "Infinity is not a number"),
    (lambda m: with_row(m, seconds=float("nan")), "NaN is not a number"),
    (lambda m: with_lines(m, endless), "seconds is inf"),
    (lambda m: with_row(m, seconds=-1), "seconds is -1"),
    (lambda m: with_row(m, seconds=True), "seconds is True"),
    (lambda m: with_row(m, seconds="2"), "seconds is '2'"),
    (lambda m: with_row(m, created=2**70), "created is"),
    (lambda m: with_row(m, digest="0" * 31), "digest"),
    (lambda m: with_row(m, token_ids="xyz"), "token_ids"),
    (lambda m: with_row(m, token_ids=IDS + "0000000"), "token_ids"),
    (lambda m: with_row(m, token_ids=IDS + IDS), "token_ids is '40 tokens'; it must be 20 tokens"),
    (lambda m: with_row(m, token_ids="ffffffff" * 20), "numbers from 0 on"),
    (lambda m: with_row(m, scheme="zip"), "scheme is 'zip'"),
    (lambda m: with_row(m, scheme=["plain"]), "scheme is"),
    (lambda m: with_row(m, dtype="float64"), "dtype is 'float64'"),
    (lambda m: with_row(m, scope="all"), "scope is 'all'"),
    (lambda m: with_row(m, shape="what"), "shape is 'what'"),
    (lambda m: with_row(m, shape=[3, 2, 20]), "shape is"),
    (lambda m: with_row(m, shape=[3, 2, 20, 0]), "shape is"),
    (lambda m: with_row(m, shape=[2**31, 2**31, 20, 2**31]), "shape is"),
    (lambda m: with_row(m, shape=[3, True, 20, 8]), "shape is True"),
    (lambda m: with_row(m, model="m" * 1001), "model is"),
    (lambda m: with_row(m, model="\ud800"), "model is"),
    (lambda m: with_row(m, labels=[["x"]]), "labels is"),
    (lambda m: with_row(m, labels=[["x", 1]]), "path is 1"),
    (lambda m: with_row(m, labels=[["x", "y"]] * 40_000), "values"),
    (lambda m: with_row(m, labels={"x": "y"}), "labels is"),
    (lambda m: with_lines(m, deep), "nested too deep|more than 100,000 values"),
    (lambda m: with_lines(m, lambda li: [li[0], b"[" * 90_000, li[2]]), "line 2"),
    (lambda m: with_lines(m, lambda li: [li[0], li[1][:-1] + b', "key": "x"}', li[2]]), "named once"),
    (lambda m: with_lines(m, lambda li: [li[0], b"\xff", li[2]]), "line 2"),
    (lambda m: with_lines(m, lambda li: [li[0], b"7", li[2]]), "line 2"),
    (lambda m: with_lines(m, lambda li: [li[0], b"9" * 5000, li[2]]), "line 2"),
    (lambda m: with_lines(m, lambda li: [*li, li[1]]), "must be unique"),
    (lambda m: with_lines(m, lambda li: li[:2]), "lists 1 segments and promises 2"),
    (lambda m: with_lines(m, lambda li: [b'{"format": 99}']), "newer version"),
    (lambda m: with_lines(m, lambda li: [b'{"format": 1}']), "format is 1"),
    (lambda m: with_lines(m, lambda li: [b'{"format": true, "segments": 2}']), "format is True"),
    (lambda m: with_lines(m, lambda li: [b'{"format": 2, "segments": -1}']), "segments is -1"),
    (lambda m: with_lines(m, lambda li: [b"x" * (13 << 20)]), "line 1 .*longer than"),
    (lambda m: {**m, "manifest.jsonl": b""}, "promises"),
    (lambda m: dict(list(m.items())[1:]), "begins with"),
    # of the members
    (flipped, "is damaged"),
    (lambda m: dict(list(m.items())[:2]), "cut short|end of file"),
    (in_another_order, "does not match its manifest"),
    (lambda m: {**m, "extra": b"x"}, "has more than its manifest lists"),
    # of the contents; test_store_contents.py has every damaged header
    (lambda m: with_file(m, bytes(len(m[f"{A}.safetensors"]))), "header cannot be read"),
    (lambda m: with_file(m, b"\xff" * len(m[f"{A}.safetensors"])), "header cannot be read"),
    (lambda m: with_header(m, lambda _: ["x"]), "header cannot be read"),
    (lambda m: with_header(m, lambda h: noted(h, key=B)), "its header has another key"),
    (lambda m: with_header(m, lambda h: noted(h, token_ids="AAAA")), "another token_ids"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_not_as_it_left_is_refused(moved: Path, change, words: str, tmp_path: Path) -> None:
    before = {path for path in tmp_path.rglob("*") if path.name not in ("travel.tar", "changed.tar")}
    there = Store.open(tmp_path / "deep" / "there")
    with pytest.raises(StoreError, match=words):
        there.import_(rebuilt(moved, change))
    assert there.verify().clean
    audit(there)
    there.close()
    outside = {path for path in tmp_path.rglob("*") if tmp_path / "deep" not in (path, *path.parents)}
    assert outside - before <= {moved, tmp_path / "changed.tar"}


def test_a_file_that_breaks_in_the_middle_leaves_what_came_before(moved: Path, tmp_path: Path) -> None:
    def change(members: Members) -> Members:
        name = f"{B}.safetensors"
        return {**members, name: bytes(len(members[name]))}

    there = Store.open(tmp_path / "there")
    with pytest.raises(StoreError, match=rf"segment 2 of 2 \({B}\) is damaged"):
        there.import_(rebuilt(moved, change))
    assert there.load(A, range(20)) is not None
    assert there.stats().segments == 1
    assert there.verify().clean
    assert there.import_(moved).segments == 1


def test_files_that_are_no_export_are_refused(tmp_path: Path) -> None:
    there = Store.open(tmp_path / "there")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, words in (
        ("text", "not a valid file of pml cache export"),
        ("empty", "not a valid file of pml cache export"),
        ("none", "does not exist"),
        ("folder", "is a folder"),
        ("pipe", "not a regular file"),
    ):
        with pytest.raises(StoreError, match=words):
            there.import_(tmp_path / name)


ODD = (
    *(tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME),
)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("place", [0, 1])
def test_what_tar_has_besides_plain_files_is_refused(
    moved: Path, tmp_path: Path, kind: bytes, place: int
) -> None:
    data = bytearray(moved.read_bytes())
    with tarfile.open(moved) as tar:
        member = tar.getmembers()[place]
    member.type, member.linkname, member.pax_headers = kind, "/etc/passwd", {}
    data[member.offset : member.offset + 512] = member.tobuf(tarfile.GNU_FORMAT)[:512]
    (tmp_path / "odd.tar").write_bytes(data)
    with pytest.raises(StoreError, match="not a plain file"):
        Store.open(tmp_path / "there").import_(tmp_path / "odd.tar")


@pytest.mark.parametrize("size", [-1, 1 << 40, 65 << 20])
def test_sizes_that_a_header_makes_up_are_not_believed(tmp_path: Path, size: int) -> None:
    member = tarfile.TarInfo("manifest.jsonl")
    member.size = size
    (tmp_path / "odd.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))
    with pytest.raises(StoreError, match=r"not a plain file|are read|cut short|line 1"):
        Store.open(tmp_path / "there").import_(tmp_path / "odd.tar")


def large(folder: Path, tokens: int = 2_000) -> Path:
    """An export with one segment of 77 MB."""
    store = Store.open(folder / "large")
    store.save(Segment(A, (0,) * tokens, *torch.zeros(2, 30, 4, tokens, 40)), ORIGIN)
    store.export(folder / "large.tar")
    store.close()
    return folder / "large.tar"


def test_a_large_segment_is_never_held_in_memory(tmp_path: Path) -> None:
    file = large(tmp_path)
    there = Store.open(tmp_path / "there")
    tracemalloc.start()
    try:
        assert there.import_(file).segments == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.stat().st_size > 76_000_000
    assert peak < 8_000_000, f"{peak:,} bytes"


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda store: store.set_budget(1_000_000), "budget is 1,000,000 bytes.*pml cache budget"),
        (lambda store: store.settings.pin("travel"), "of them pinned"),
        (None, "has 5,000 left. Free some space"),
    ],
)
def test_room_is_asked_for_before_anything_is_read(tmp_path: Path, prepare, words: str, monkeypatch) -> None:
    file = large(tmp_path)
    there = Store.open(tmp_path / "there")
    there.save(segment(B, 1000), ORIGIN)
    if prepare is None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5_000))
    else:
        there.set_budget(77_000_000)
        prepare(there)
    monkeypatch.setattr("engine.store.blobs.folder.Folder.writing", None)
    with pytest.raises(StoreError, match=words):
        there.import_(file)
    assert there.stats().segments == 1


@pytest.mark.parametrize(
    ("version", "words"), [(VERSION - 1, "an older version"), (VERSION + 1, "a newer version")]
)
def test_an_index_of_another_version_is_refused_and_stays_as_it_is(
    version: int, words: str, tmp_path: Path
) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    store.close()
    with sqlite3.connect(tmp_path / INDEX) as connection:
        connection.execute(f"pragma user_version = {version}")
    with pytest.raises(StoreError, match=words):
        Store.open(tmp_path)
    with sqlite3.connect(tmp_path / INDEX) as connection:
        connection.execute(f"pragma user_version = {VERSION}")
    assert Store.open(tmp_path).load("k", range(5)) is not None


def test_a_new_index_that_fails_leaves_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.store.index import tables

    monkeypatch.setattr(tables, "TABLES", tables.TABLES + "; create table segments (key)")
    with pytest.raises(StoreError, match="segments already exists"):
        Store.open(tmp_path)
    with sqlite3.connect(tmp_path / INDEX) as connection:
        assert connection.execute("select count(*) from sqlite_master").fetchone()[0] == 0
