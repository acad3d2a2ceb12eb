"""The folder of a store: what is the user's own stays as it is, whatever is asked of the store."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from engine import store as stores
from engine.base.errors import StoreError
from engine.store import INDEX, Store
from tests.engine.cache.segments import in_processes
from tests.engine.cache.test_store import ORIGIN, audit, file_of, overwrite, segment

SOURCES = Path(stores.__file__).parent


def tree(folder: Path) -> dict[str, bytes]:
    """Every path under a folder, with the content of what is a file."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


def with_thesis(place: Path) -> None:
    (place / "files").mkdir()
    (place / "files" / "thesis.docx").write_text("years of work")


def with_documents(place: Path) -> None:
    (place / "letter.txt").write_text("dear")


def with_quarantine(place: Path) -> None:
    (place / "quarantine").mkdir()
    (place / "quarantine" / "sample.bin").write_bytes(b"\0" * 100)


def with_foreign_index(place: Path) -> None:
    with sqlite3.connect(place / INDEX) as connection:
        connection.execute("create table notes (text)")
        connection.execute("insert into notes values ('mine')")


def with_foreign_index_and_files(place: Path) -> None:
    with_foreign_index(place)
    (place / "files").mkdir()


def with_foreign_index_of_an_application(place: Path) -> None:
    with sqlite3.connect(place / INDEX) as connection:
        connection.execute("pragma application_id = 7")
        connection.execute("create table segments (key, file, bytes, digest, tokens, token_ids)")


FOREIGN = [
    with_thesis,
    with_documents,
    with_quarantine,
    with_foreign_index,
    with_foreign_index_and_files,
    with_foreign_index_of_an_application,
]


@pytest.mark.parametrize("fill", FOREIGN)
def test_a_folder_that_is_neither_empty_nor_ours_is_refused_and_stays_as_it_is(
    tmp_path: Path, fill: Callable[[Path], None]
) -> None:
    place = tmp_path / "documents"
    place.mkdir()
    fill(place)
    before = tree(place)
    with pytest.raises(StoreError, match=r"neither empty nor a segment store .*--cache-dir"):
        Store.open(place)
    assert tree(place) == before


def everything(place: Path, target: Path) -> None:
    """Opens a store, and does all that moves or removes files."""
    store = Store.open(place)
    store.verify()
    store.verify(repair=True)
    store.load("k", range(5))
    store.save(segment(f"{9:040x}", 5, 9), ORIGIN)
    overwrite(next(store.files.glob(f"{9:040x}-*")), b"x")
    store.load(f"{9:040x}", range(5))
    store.prune(max_bytes=0)
    store.save(segment(f"{8:040x}", 5, 8), ORIGIN)
    store.export(target)
    store.clear()
    store.close()


def test_foreign_files_within_a_store_are_reported_and_never_touched(tmp_path: Path) -> None:
    place = tmp_path / "cache"
    store = Store.open(place)
    store.save(segment(), ORIGIN)
    (place / "quarantine").mkdir()
    foreign = {
        "notes.txt": b"mine",
        "files/thesis.docx": b"years of work",
        "files/.half.tmp": b"mine",
        "files/model.safetensors": b"mine",
        "files/k-0123456789ABCDEF.safetensors": b"mine",
        "quarantine/sample.bin": b"mine",
        "locks/mine.txt": b"mine",
    }
    (place / "locks").mkdir(exist_ok=True)
    for name, content in foreign.items():
        (place / name).write_bytes(content)
    (place / "files" / f"folder-{'0' * 16}.safetensors").mkdir()
    with (place / "quarantine" / "large.bin").open("wb") as file:
        file.truncate(400 << 20)  # more than quarantine keeps of its own
    found = store.verify()
    assert found.clean
    assert set(found.foreign) == {*foreign, f"files/folder-{'0' * 16}.safetensors", "quarantine/large.bin"}
    everything(place, tmp_path / "all.tar")
    for name, content in foreign.items():
        assert (place / name).read_bytes() == content
    assert (place / "quarantine" / "large.bin").stat().st_size == 400 << 20
    assert (place / "files" / f"folder-{'0' * 16}.safetensors").is_dir()


def test_names_drawn_at_random_survive_unless_the_store_gives_them(tmp_path: Path) -> None:
    draw, store = random.Random(3), Store.open(tmp_path / "cache")
    store.save(segment(), ORIGIN)
    ours = re.compile(r"\.[0-9a-f]{32}\.tmp")  # no name makes a segment: its header must say what it is
    made = set()
    for _ in range(200):
        stem = "".join(draw.choice("abf09-_. é\n") for _ in range(draw.randrange(1, 40)))
        ending = draw.choice(
            [".safetensors", ".tmp", "", f"-{draw.randrange(16**16):016x}.safetensors", ".lock"]
        )
        name = (stem + ending).strip(".") or "x"
        (store.files / name).write_bytes(b"drawn")
        made.add(name)
    everything(store.folder, tmp_path / "all.tar")
    left = {path.name for path in store.files.iterdir()}
    assert {name for name in made if not ours.fullmatch(name)} == left


HOSTILE = [
    "../../precious.txt",
    "{here}/precious.txt",
    "..",
    "",
    "files",
    "k\n-0123456789abcdef.safetensors",
    None,
    7,
]


@pytest.mark.parametrize("while_open", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_name_in_the_index_that_is_none_of_ours_is_never_followed(
    tmp_path: Path, name: object, while_open: bool, caplog
) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("years of work")
    store = Store.open(tmp_path / "one" / "cache")
    store.save(segment(), ORIGIN)
    store.save(segment("other", 5, 1), ORIGIN)
    if isinstance(name, str):
        name = name.replace("{here}", str(tmp_path))
    with sqlite3.connect(store.folder / INDEX) as connection:
        connection.execute("update segments set file = ?, bytes = 13 where key = 'k'", [name])
    if not while_open:
        store.close()
        store = Store.open(tmp_path / "one" / "cache")
        assert {row["key"] for row in store.segments()} == {"other"}
    assert store.load("k", range(5)) is None
    assert "is not used" in caplog.text
    assert store.load("other", range(5)) is not None
    everything(store.folder, tmp_path / "all.tar")
    assert precious.read_text() == "years of work"


@pytest.mark.parametrize(
    "change", ["key = null", "key = x'00ff'", "bytes = 'many'", "token_ids = 7", "shape = '[['"]
)
def test_a_row_of_odd_types_is_dropped(tmp_path: Path, change: str) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    store.close()
    with sqlite3.connect(tmp_path / INDEX) as connection:
        connection.execute(f"update segments set {change}")
    again = Store.open(tmp_path)
    assert again.load("k", range(5)) is None
    again.save(segment(), ORIGIN)
    assert again.set_budget(10**6).segments == 0
    assert again.verify().clean
    assert again.clear() == 1


def test_verification_names_a_row_that_points_elsewhere_and_repair_drops_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "cache")
    store.save(segment(), ORIGIN)
    with sqlite3.connect(store.folder / INDEX) as connection:
        connection.execute("update segments set file = '../../precious.txt'")
    (fault,) = store.verify().faults
    assert "not this segment's" in fault.what
    store.verify(repair=True)
    assert store.verify().clean
    audit(store)


def test_a_row_of_another_segments_file_takes_nothing_from_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment("a", 5, 1), ORIGIN)
    store.save(segment("b", 5, 2), ORIGIN)
    with sqlite3.connect(store.folder / INDEX) as connection:
        (file,) = connection.execute("select file from segments where key = 'b'").fetchone()
        connection.execute("update segments set file = ? where key = 'a'", [file])
    assert store.load("a", range(5)) is None
    read = store.load("b", range(5))
    assert read is not None
    assert torch.equal(read.keys, segment("b", 5, 2).keys)


def test_a_store_of_an_earlier_version_still_opens(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    store.close()
    (tmp_path / "CACHEDIR.TAG").unlink()
    with sqlite3.connect(tmp_path / INDEX) as connection:
        connection.execute("pragma application_id = 0")
    (tmp_path / f".write-{'0' * 32}").write_bytes(b"")  # of one that was killed
    again = Store.open(tmp_path)
    assert again.load("k", range(5)) is not None
    assert again.verify().clean
    again.close()
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / INDEX).write_bytes(b"this is no database" * 100)
    assert Store.open(tmp_path).load("k", range(5)) is not None, "its mark says whose it is now"


@pytest.mark.parametrize("part", ["files", "quarantine", "locks"])
def test_a_part_of_the_store_that_is_a_link_is_refused(tmp_path: Path, part: str) -> None:
    store = Store.open(tmp_path / "cache")
    store.save(segment(), ORIGIN)
    store.close()
    away = tmp_path / "away"
    away.mkdir()
    (away / "k-0123456789abcdef.safetensors").write_bytes(b"mine")
    if (tmp_path / "cache" / part).exists():
        (tmp_path / "cache" / part).rename(tmp_path / "moved")
    (tmp_path / "cache" / part).symlink_to(away)
    with pytest.raises(StoreError, match="is a link or not a folder"):
        Store.open(tmp_path / "cache")
    assert tree(away) == {"k-0123456789abcdef.safetensors": b"mine"}


def test_a_link_to_the_whole_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "large")
    store = Store.open(tmp_path / "cache")
    store.save(segment(), ORIGIN)
    assert store.load("k", range(5)) is not None
    assert (tmp_path / "large" / INDEX).exists()


def test_a_link_in_place_of_a_segment_is_not_read_and_what_it_points_to_stays(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "cache")
    store.save(segment(), ORIGIN)
    path, elsewhere = file_of(store), tmp_path / "elsewhere"
    elsewhere.write_bytes(path.read_bytes())  # the very content: only that it is a link is wrong
    path.unlink()
    path.symlink_to(elsewhere)
    assert store.load("k", range(5)) is None
    assert store.verify().foreign == (f"files/{path.name}",)
    everything(store.folder, tmp_path / "all.tar")
    assert elsewhere.exists()
    assert path.is_symlink()


def test_a_pipe_in_place_of_a_segment_keeps_nobody_waiting(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    path = file_of(store)
    path.unlink()
    os.mkfifo(path)
    found: list[object] = []

    def read() -> None:
        store.expect_soon(["k"])
        found.append(store.load("k", range(5)))
        found.append(store.verify().clean)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(60)
    assert found == [None, True], "it waits for a writer that never comes"
    assert stat.S_ISFIFO(path.lstat().st_mode)


def test_deleting_and_renaming_happen_in_one_place_each() -> None:
    for words, places in (
        (r"os\.(unlink|remove|rename|replace)\b|\brmtree\b|\brmdir\b|\.unlink\(\)", set()),
        (r"\.unlink\(", {"deletion.py"}),
        (r"\.move\(", {"folder.py"}),
    ):
        found = {
            path.name for path in SOURCES.rglob("*.py") if re.search(words, path.read_text(encoding="utf-8"))
        }
        assert found == places


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {
        str(p.relative_to(folder.parent)): stat.S_IMODE(p.stat().st_mode)
        for p in [folder, *folder.rglob("*")]
    }


@pytest.mark.usefixtures("open_umask")
def test_nobody_else_may_read_a_store(tmp_path: Path) -> None:
    place = tmp_path / "cache"
    store = Store.open(place)
    store.save(segment(), ORIGIN)
    store.save(segment("damaged", 5, 1), ORIGIN)
    with store.disk.compute_lock("k", 60):
        overwrite(next(store.files.glob("damaged-*")), b"x")
        assert store.load("damaged", range(5)) is None
        found = modes(place)
    assert {name for name, mode in found.items() if mode & 0o077} == set()
    assert f"cache/{INDEX}-wal" in found
    assert found[f"cache/files/{file_of(store).name}"] == 0o400


@pytest.mark.usefixtures("open_umask")
def test_a_store_that_others_could_read_is_closed_to_them_at_opening(tmp_path: Path) -> None:
    place = tmp_path / "cache"
    store = Store.open(place)
    store.save(segment(), ORIGIN)
    store.close()
    (place / "mine.txt").write_text("mine")
    for path in [place, *place.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
    Store.open(place)
    found = modes(place)
    assert found.pop("cache/mine.txt") == 0o666, "what is none of the store's stays as it is"
    assert {name for name, mode in found.items() if mode & 0o077} == set()


def test_under_always_what_was_checked_is_what_is_used(tmp_path: Path) -> None:
    Store.open(tmp_path).save(segment("k", 500), ORIGIN)
    store = Store.open(tmp_path, verify="always")
    read = store.load("k", range(500))
    assert read is not None
    path = file_of(store)
    overwrite(path, bytes(path.stat().st_size))
    assert torch.equal(read.keys, segment("k", 500).keys)
    assert torch.equal(read.values, segment("k", 500).values)


def reads_what_is_cut_short(folder: Path) -> None:
    store = Store.open(folder, verify="always")
    read = store.load("k", range(5000))
    path = file_of(store)
    path.chmod(0o600)
    os.truncate(path, 10)
    assert read is not None
    assert torch.equal(read.keys, segment("k", 5000).keys)
    assert torch.equal(read.values, segment("k", 5000).values)
    assert store.load("k", range(5000)) is None


def test_under_always_a_file_that_is_cut_short_later_ends_no_process(tmp_path: Path) -> None:
    Store.open(tmp_path).save(segment("k", 5000), ORIGIN)
    in_processes(reads_what_is_cut_short, (tmp_path,))


def test_under_first_a_file_that_was_written_to_is_checked_again(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment("k", 20), ORIGIN)
    path = file_of(store)
    os.utime(path, ns=(1, 1))
    for _ in range(2):
        assert store.load("k", range(20)) is not None
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    overwrite(path, bytes(data))
    os.utime(path, ns=(1, 1))  # only the time of change tells
    assert store.load("k", range(20)) is None
    assert store.stats().corrupt == 1


def test_who_may_not_write_is_kept_from_a_casual_edit(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    assert not stat.S_IMODE(file_of(store).stat().st_mode) & 0o222
