"""Full disks, folders that cannot be written, no free descriptor: the answer comes."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from app.cli import main
from engine.base.errors import StoreError
from engine.base.events import Answer
from engine.engine import Engine
from engine.store import Store
from tests.engine.cache.segments import in_processes
from tests.engine.cache.test_store import ORIGIN, audit, overwrite, segment
from tests.engine.tiny import tiny_model

SCHEMA = '<schema name="s">Read. <module name="a">alpha</module><module name="b">beta</module></schema>'
SIX = [f"k{number}" for number in range(6)]


def filled(folder: Path, tokens: int = 20) -> Store:
    """A store with segments k0 to k5."""
    store = Store.open(folder)
    for number, key in enumerate(SIX):
        store.save(segment(key, tokens, number), ORIGIN, seconds=float(number))
    return store


def loaded(store: Store, tokens: int = 20) -> list[bool]:
    """Whether each of the six is found; what is found must be right."""
    found = []
    for number, key in enumerate(SIX):
        read = store.load(key, range(tokens))
        assert read is None or torch.equal(read.keys, segment(key, tokens, number).keys)
        found.append(read is not None)
    return found


def answered(engine: Engine) -> Answer:
    """Returns the answer, with a warning for each segment that was not written."""
    return engine.schema(SCHEMA).prompt("<prompt><a/><b/> so?</prompt>").answer(max_new_tokens=4, sync=True)


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real one of a megabyte."""
    with small_disk(tmp_path / "small", "1m") as place:
        yield place


def fill_up(place: Path) -> Path:
    """Leaves not one block free."""
    ballast = place / "ballast"
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    assert shutil.disk_usage(place).free == 0
    return ballast


def test_on_a_full_disk_a_store_opens_says_so_once_and_gives_what_it_has(disk: Path, caplog) -> None:
    engine = Engine(tiny_model(chat=False), Store.open(disk / "cache"))
    want = answered(engine)
    engine.close()
    ballast = fill_up(disk)
    store = Store.open(disk / "cache")
    assert store.read_only
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    for words in (str(disk / "cache"), "is read-only", "pml cache prune", "--cache-dir"):
        assert words in warning
    assert (store.stats().segments, len(store.segments())) == (3, 3)
    again = Engine(tiny_model(chat=False), store)
    found = answered(again)
    assert found.token_ids == want.token_ids
    assert {use.tier for use in found.segments} == {"disk"}
    assert found.warnings == ()
    ballast.unlink()
    store.save(segment("more"), ORIGIN)
    assert not store.read_only, "it is written again once there is room"
    assert store.verify().clean
    again.close()


def test_on_a_full_disk_a_new_store_stores_nothing_and_the_answer_comes(disk: Path) -> None:
    fill_up(disk)
    engine = Engine(tiny_model(chat=False), Store.open(disk / "cache"))
    found = answered(engine)
    assert found.tokens["generated"] == 4
    (warning,) = found.warnings
    assert "could not be written" in warning
    assert engine.store.stats().segments == 0
    engine.close()


@pytest.mark.parametrize("opened", ["before", "after"])
def test_a_full_disk_is_freed_by_pruning(disk: Path, opened: str) -> None:
    """The index needs room to forget a file, and only the file can give it."""
    store = filled(disk / "cache", 100)
    if opened == "after":
        store.close()
    fill_up(disk)
    if opened == "after":
        store = Store.open(disk / "cache")
    size = sum(path.stat().st_size for path in store.files.iterdir())
    removed = store.prune(max_bytes=size // 2)
    assert 3 <= removed.segments < 6
    assert shutil.disk_usage(disk).free > 0
    assert store.stats().segments == 6 - removed.segments
    audit(store)
    removed = store.prune(max_bytes=0)
    store.save(segment("new"), ORIGIN)
    assert store.load("new", range(5)) is not None
    assert store.verify().clean


def test_what_is_mapped_gives_its_room_back_later_and_is_forgotten_at_once(disk: Path) -> None:
    store = filled(disk / "cache", 100)
    held = [store.load(key, range(100)) for key in SIX]
    fill_up(disk)
    assert store.prune(max_bytes=0).segments == 6
    assert shutil.disk_usage(disk).free == 0, "memory holds the files"
    assert store.contains(SIX) == set()
    held.clear()
    assert shutil.disk_usage(disk).free > 0
    store.save(segment("k0"), ORIGIN)
    assert [row["key"] for row in store.segments()] == ["k0"]
    assert store.contains(SIX) == {"k0"}
    assert store.load("k0", range(5)) is not None
    assert store.verify().clean


@pytest.mark.parametrize(
    "words", [["list"], ["stats"], ["verify"], ["prune", "--max-bytes", "0"], ["clear"]], ids=lambda w: w[0]
)
def test_every_command_works_on_a_full_disk(
    disk: Path,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    filled(disk / "cache", 100).close()
    fill_up(disk)
    with pytest.raises(SystemExit) as ended:
        main(["cache", *words, "--json", "--cache-dir", str(disk / "cache")])
    assert ended.value.code in (0, None)
    assert "is read-only" in caplog.text
    json.loads(capsys.readouterr().out)
    if words[0] in ("prune", "clear"):
        assert not list((disk / "cache" / "files").iterdir())
        assert Store.open(disk / "cache").stats().segments == 0


def test_a_damaged_file_on_a_full_disk_is_computed_again_and_the_answer_comes(disk: Path) -> None:
    engine = Engine(tiny_model(chat=False), Store.open(disk / "cache"))
    want = answered(engine)
    engine.close()
    for path in (disk / "cache" / "files").iterdir():
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        overwrite(path, bytes(data))
    fill_up(disk)
    again = Engine(tiny_model(chat=False), Store.open(disk / "cache"))
    found = answered(again)
    assert found.token_ids == want.token_ids
    assert {use.outcome for use in found.segments} == {"miss"}
    again.close()


def test_a_disk_that_fills_up_while_answering_costs_one_warning(disk: Path) -> None:
    engine = Engine(tiny_model(chat=False), Store.open(disk / "cache"))
    ballast = fill_up(disk)
    found = answered(engine)
    (warning,) = found.warnings
    assert "No space left" in warning or "full" in warning
    assert "pml cache prune" in warning
    ballast.unlink()
    assert not list((disk / "cache" / "files").iterdir())
    engine.memory_tier.clear()
    assert answered(engine).token_ids == found.token_ids
    assert engine.store.verify().clean
    engine.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_disk_that_may_only_be_read_is_read(disk: Path, clean: bool) -> None:
    """Clean: the index was closed; otherwise its write-ahead log holds what was written last."""
    store = filled(disk / "first")
    if clean:
        store.close()
    shutil.copytree(disk / "first", disk / "cache")
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        again = Store.open(disk / "cache")
        assert again.read_only
        assert loaded(again) == [True] * 6
        assert again.verify().clean
        for refused in (
            again.clear,
            lambda: again.settings.pin("travel"),
            lambda: again.save(segment(), ORIGIN),
        ):
            with pytest.raises(StoreError, match=r"read-?only|Read-only"):
                refused()
        again.record([])
        with again.disk.compute_lock("k", 60) as waited:
            assert not waited
        again.close()
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


def reads_as_nobody(place: Path) -> None:
    os.setgid(65534)
    os.setuid(65534)
    filled(place).close()
    for path in [*place.rglob("*"), place]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    store = Store.open(place)
    assert "is read-only" in store.read_only
    assert loaded(store) == [True] * 6
    for path in [place, *place.rglob("*")]:
        path.chmod(0o755)


def test_a_folder_without_the_right_to_write_is_read() -> None:
    """Root may write everywhere, so another user tries."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        in_processes(reads_as_nobody, (Path(folder) / "cache",))


def reads_without_descriptors(place: Path) -> None:
    store = Store.open(place)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
    without = loaded(store)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))
    assert without == [False] * 6
    assert loaded(store) == [True] * 6
    assert store.stats().corrupt == 0


def test_without_a_free_descriptor_no_file_is_taken_for_damaged(tmp_path: Path) -> None:
    filled(tmp_path).close()
    in_processes(reads_without_descriptors, (tmp_path,))
    assert not (tmp_path / "quarantine").exists()


@pytest.mark.parametrize("policy", ["always", "first", "never"])
@pytest.mark.parametrize(
    "error",
    [OSError(code, os.strerror(code)) for code in (errno.EIO, errno.EACCES, errno.ENFILE, errno.ESTALE)]
    + [MemoryError("no memory"), RuntimeError("unable to mmap")],
    ids=str,
)
@pytest.mark.parametrize("where", ["open", "read", "map"])
def test_what_cannot_be_read_just_now_stays_and_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog, error: Exception, where: str, policy
) -> None:
    store = filled(tmp_path)
    store.close()
    store = Store.open(tmp_path, verify=policy)
    before = {path.name for path in store.files.iterdir()}

    def fail(*_: object, **__: object) -> None:
        raise error

    if isinstance(error, RuntimeError) and where != "map":
        pytest.skip("only mapping fails like that")
    with monkeypatch.context() as patch:
        if where == "map":
            patch.setattr(torch.UntypedStorage, "from_file", fail)
            patch.setattr(torch, "frombuffer", fail)
        else:
            patch.setattr("engine.store.blobs.folder.Folder.opened" if where == "open" else "os.pread", fail)
            patch.setattr(os, "preadv", fail)
        assert loaded(store) == [False] * 6
        if where != "map":
            found = store.verify()
            assert (len(found.unread), found.faults, found.clean) == (6, (), False)
    assert caplog.text.count("could not be read") == 6
    assert loaded(store) == [True] * 6
    assert {path.name for path in store.files.iterdir()} == before
    assert store.stats().corrupt == 0


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyError("a bug"), TypeError("a bug")])
def test_a_fault_of_our_own_while_reading_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("engine.store.blobs.segment_files.unpack", fail)
    filled(tmp_path).close()
    store = Store.open(tmp_path)
    with pytest.raises(type(error), match="a bug"):
        loaded(store)
    assert store.stats().corrupt == 0
