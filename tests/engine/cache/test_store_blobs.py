"""The store over another place for its files than a folder: it asks what the protocol says, and no more."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from torch import Tensor

from engine.base.errors import StoreError
from engine.base.segment import Segment
from engine.base.tiers import Reason
from engine.store import Scheme, Store, rebuild
from engine.store.blobs import contents
from engine.store.blobs.codec import pack, unpack
from engine.store.blobs.contents import DamagedError
from engine.store.blobs.folder import Folder
from engine.store.blobs.segment_files import Entry, new_name, write
from tests.engine.cache.test_store import ORIGIN, segment


@dataclass
class Kept:
    """A file of the place: its bytes, and keys and values as they would be read."""

    data: bytes
    entry: Entry
    tensors: tuple[Tensor, Tensor]


class Opened:
    """A file that is open."""

    settled = True

    def __init__(self, kept: Kept, entry: Entry) -> None:
        self._kept, self.entry = kept, entry

    @property
    def state(self) -> tuple[int, ...]:
        return (id(self._kept.data),)

    def check(self, *, content: bool) -> None:
        if self._kept.entry != self.entry:
            raise DamagedError("it is another file")

    def tensors(self) -> tuple[Tensor, Tensor]:
        self.check(content=False)
        return self._kept.tensors


class Shelf:
    """Files in memory, within some room. The product writes them in a scratch folder first."""

    def __init__(self, scratch: Path, room: int = 1 << 20) -> None:
        self._scratch, self.room = Folder.open(scratch), room
        self.kept: dict[str, Kept] = {}
        self.aside: dict[str, Kept] = {}
        self.announced: list[str] = []

    @property
    def free(self) -> int:
        return self.room - sum(len(kept.data) for kept in self.kept.values())

    def write(self, segment: Segment, scheme: Scheme, notes: Mapping[str, str]) -> Entry:
        entry = write(self._scratch, segment, scheme, notes)
        with self._scratch.file(entry.file) as file:
            data = file.read()
        self._scratch.remove([entry.file])
        packed = pack(segment.keys, segment.values, scheme)
        self._take(Kept(data, entry, unpack(packed, scheme, entry.shape, segment.keys.dtype)))
        return entry

    def receive(self, entry: Entry, pieces: Iterator[bytes], said: Mapping[str, str]) -> None:
        data = b"".join(pieces)
        contents.check(io.BytesIO(data), entry.bytes, entry.scheme, entry.shape, entry.dtype, said)
        flat = torch.frombuffer(bytearray(data[-_size(entry) :]), dtype=getattr(torch, entry.dtype))
        keys, values = flat.view(2, *entry.shape)
        self._take(Kept(data, entry, (keys, values)))

    def _take(self, kept: Kept) -> None:
        if len(kept.data) > self.free:
            raise OSError(errno.ENOSPC, "the shelf is full")
        self.kept[kept.entry.file] = kept

    @contextmanager
    def opened(self, entry: Entry, *, copied: bool = False) -> Iterator[Opened]:
        yield Opened(self._at(entry.file), entry)

    def content(self, name: str) -> BinaryIO:
        return io.BytesIO(self._at(name).data)

    def _at(self, name: str) -> Kept:
        if name not in self.kept:
            raise FileNotFoundError(errno.ENOENT, "it is not on the shelf", name)
        return self.kept[name]

    def expect_soon(self, entries: Sequence[Entry]) -> None:
        self.announced += [entry.file for entry in entries]

    def names(self) -> set[str]:
        return set(self.kept)

    def is_own(self, name: str) -> bool:
        return name in self.kept

    def is_gone(self, name: str) -> bool:
        return name not in self.kept

    def remove(self, names: Iterable[str]) -> int:
        gone = [self.kept.pop(name) for name in names if name in self.kept]
        return sum(len(kept.data) for kept in gone)

    def set_aside(self, name: str) -> None:
        self.aside[name] = self._at(name)
        del self.kept[name]

    def tidy(self) -> None:
        self.aside.clear()

    def foreign(self) -> list[str]:
        return []


def _size(entry: Entry) -> int:
    count = 2 * getattr(torch, entry.dtype).itemsize
    for side in entry.shape:
        count *= side
    return count


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "scratch")


@pytest.fixture
def store(tmp_path: Path, shelf: Shelf) -> Iterator[Store]:
    disk = Folder.open(tmp_path / "store")
    store = Store(disk, rebuild.opened(disk), blobs=shelf)
    yield store
    assert list(store.files.iterdir()) == [], "a file was written past the shelf"
    store.close()


def loaded(store: Store, key: str) -> Segment | None:
    return store.load(key, range(5))


@pytest.mark.parametrize("scheme", ["plain", "int8"])
def test_what_is_saved_is_found_there(store: Store, shelf: Shelf, scheme: Scheme) -> None:
    made = segment()
    store.save(made, ORIGIN, scheme=scheme)
    found = loaded(store, "k")
    assert found is not None
    assert torch.allclose(found.keys, made.keys, atol=0.0 if scheme == "plain" else 0.1)
    (kept,) = shelf.kept.values()
    assert store.stats().bytes == len(kept.data) == kept.entry.bytes
    store.expect_soon(["k", "none"])
    assert shelf.announced == [kept.entry.file]


def test_the_budget_evicts_there(store: Store, shelf: Shelf) -> None:
    for number in range(3):
        store.save(segment(f"k{number}"), ORIGIN)
    size = store.stats().bytes // 3
    store.set_budget(2 * size)
    assert len(shelf.kept) == 2
    with store.using(["k2"]):
        store.set_budget(0)
        assert store.contains(["k0", "k1", "k2"]) == {"k2"}
    assert store.remove(["k2"]).segments == 1
    assert shelf.kept == {}


def test_what_is_damaged_there_is_set_aside_there(store: Store, shelf: Shelf) -> None:
    store.save(segment(), ORIGIN)
    (kept,) = shelf.kept.values()
    kept.entry = replace(kept.entry, digest="0" * 32)
    assert not store.verify().clean
    assert loaded(store, "k") is None
    assert (list(shelf.aside), shelf.kept) == ([kept.entry.file], {})
    assert store.stats().corrupt == 1
    assert store.evictions()[0]["reason"] == Reason.DAMAGED


def test_what_has_no_row_there_is_an_orphan_and_what_has_no_file_is_no_segment(
    store: Store, shelf: Shelf
) -> None:
    store.save(segment("a"), ORIGIN)
    store.save(segment("b"), ORIGIN)
    (a,) = [name for name in shelf.kept if name.startswith("a-")]
    stray = new_name("c")
    shelf.kept[stray] = shelf.kept.pop(a)
    found = store.verify()
    assert found.orphans == (stray,)
    assert [fault.key for fault in found.faults] == ["a"]
    assert store.verify(repair=True).repaired
    assert store.verify().clean
    assert store.contains(["a", "b"]) == {"b"}


def test_a_place_that_is_full_says_so_and_keeps_no_row(store: Store, shelf: Shelf) -> None:
    shelf.room = 100
    with pytest.raises(StoreError, match="the shelf is full"):
        store.save(segment(), ORIGIN)
    assert store.stats().segments == 0
    assert store.stats().disk_free == 100


def test_segments_travel_from_a_folder_to_another_place_and_back(
    store: Store, shelf: Shelf, tmp_path: Path
) -> None:
    here = Store.open(tmp_path / "here")
    made = [segment(f"{number:040x}", seed=number) for number in range(3)]
    for one in made:
        here.save(one, replace(ORIGIN, fingerprint="0" * 32))
    here.export(tmp_path / "out.tar")
    assert store.import_(tmp_path / "out.tar").segments == 3
    assert len(shelf.kept) == 3
    store.export(tmp_path / "back.tar")
    back = Store.open(tmp_path / "back")
    assert back.import_(tmp_path / "back.tar").segments == 3
    for one in made:
        for place in (store, back):
            found = loaded(place, one.key)
            assert found is not None
            assert torch.equal(found.keys, one.keys)
            assert torch.equal(found.values, one.values)
    assert back.verify().clean
