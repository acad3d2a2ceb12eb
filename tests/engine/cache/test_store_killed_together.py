"""Two processes killed at once: one removes, one exports or imports, at moments that are aimed at."""

from __future__ import annotations

import os
import pkgutil
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.speed.kills import context
from engine.store import Store
from tests.drawing import each
from tests.engine.cache.segments import LOADED, ORIGIN, segment
from tests.engine.cache.test_store import audit

KEYS = [f"{number:040x}" for number in range(8)]
SPARED, OTHERS = KEYS[4:], [f"{number:040x}" for number in range(8, 12)]
# What is called how often until the process halts, and whether behind that call.
Moment = tuple[str, str, int, bool]
REMOVING: dict[str, Moment] = {
    "before its rows go": ("engine.store.index.eviction", "take_out", 1, False),
    "before its rows are gone for good": ("engine.store.index.eviction", "take_out", 1, True),
    "before the first file goes": ("os", "unlink", 1, False),
    "between two files": ("os", "unlink", 3, False),
    "behind all files": ("os", "unlink", 4, True),
}
EXPORTING: dict[str, Moment] = {
    "before its manifest": ("tempfile", "TemporaryFile", 1, False),
    "between two segments": ("tarfile:TarInfo", "tobuf", 5, False),
    "before it is on the disk": ("os", "fsync", 1, False),
    "before it has its name": ("os", "link", 1, False),
    "with its name and another": ("os", "link", 1, True),
}
IN_A_LATER_SEGMENT: Moment = ("os", "fsync", 4, False)


def halt_at(moment: Moment, reached: Any) -> None:
    """Has this process wait for its death at a moment, and say that it is there."""
    owner, name, count, behind = pkgutil.resolve_name(moment[0]), *moment[1:]
    plain, calls = getattr(owner, name), 0

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        here = calls == count
        found = plain(*given, **named) if behind or not here else None
        if here:
            reached.set()
            signal.pause()
        return found

    setattr(owner, name, counted)


def prune(folder: Path, store: Store) -> None:
    store.prune(max_bytes=store.stats().bytes // 2)


def clear(folder: Path, store: Store) -> None:
    store.clear()


def export(folder: Path, store: Store) -> None:
    store.export(folder / "out" / "all.tar")


def bring_in(folder: Path, store: Store) -> None:
    store.import_(folder / "others.tar")


Work = Callable[[Path, Store], None]


def halting(work: Work, folder: Path, moment: Moment, reached: Any) -> None:
    store = Store.open(folder / "store")
    halt_at(moment, reached)
    work(folder, store)
    os._exit(1)


def killed_together(folder: Path, *works: tuple[Work, Moment]) -> None:
    """Starts processes one after another, and kills all when each is at its moment."""
    processes, started = context(*LOADED), []
    for work, moment in works:
        reached = processes.Event()
        worker = processes.Process(target=halting, args=(work, folder, moment, reached))
        worker.start()
        started.append(worker)
        while not reached.wait(1):
            assert worker.is_alive(), f"{work.__name__} never came to {moment}"
    for worker in started:
        worker.kill()
    for worker in started:
        worker.join()
        assert worker.exitcode == -signal.SIGKILL


def stored(folder: Path, keys: Collection[str]) -> Store:
    store = Store.open(folder)
    store.set_budget(1 << 30, "lru")
    for key in keys:
        store.save(made(key), ORIGIN)
    return store


def made(key: str) -> Any:
    return segment(key, 20, (KEYS + OTHERS).index(key))


def require_right(store: Store, keys: Collection[str]) -> None:
    """Index and files agree, and what is served is right: of these keys all, and no other."""
    assert store.verify().clean
    assert store.stats().corrupt == 0
    audit(store)
    for key in KEYS + OTHERS:
        read = store.load(key, range(20))
        assert (read is not None) == (key in keys), key
        assert read is None or torch.equal(read.keys, made(key).keys)


def keys_of(store: Store) -> set[str]:
    return {row["key"] for row in store.segments()}


@pytest.mark.parametrize(
    ("pruned", "exported"),
    each(
        zip(REMOVING, (*list(EXPORTING)[2:], *list(EXPORTING)[:2]), strict=True),
        *(("between two files", "before its manifest"), ("before its rows go", "before it is on the disk")),
    ),
)
def test_nothing_is_lost_but_what_was_being_removed(tmp_path: Path, pruned: str, exported: str) -> None:
    stored(tmp_path / "store", KEYS).close()
    (tmp_path / "out").mkdir()
    killed_together(tmp_path, (export, EXPORTING[exported]), (prune, REMOVING[pruned]))
    store, target = Store.open(tmp_path / "store"), tmp_path / "out" / "all.tar"
    left = KEYS if "before its rows" in pruned else SPARED
    require_right(store, left)
    assert target.exists() == ("with its name" in exported)
    if target.exists():
        there = Store.open(tmp_path / "there")
        assert there.import_(target).segments == len(KEYS)
        require_right(there, KEYS)
    assert store.export(target, replace=True).segments == len(left)


def test_an_import_beside_a_clearing_loses_nothing_that_it_had_brought(tmp_path: Path) -> None:
    stored(tmp_path / "others", OTHERS).export(tmp_path / "others.tar")
    stored(tmp_path / "store", KEYS).close()
    killed_together(tmp_path, (clear, REMOVING["between two files"]), (bring_in, IN_A_LATER_SEGMENT))
    store = Store.open(tmp_path / "store")
    brought = keys_of(store)
    assert brought < {*OTHERS}
    require_right(store, brought)
    store.import_(tmp_path / "others.tar")
    require_right(store, OTHERS)


def test_two_that_prune_at_once(tmp_path: Path) -> None:
    """The second finds rows gone whose files are there still, and leaves those to the first."""
    stored(tmp_path / "store", KEYS).close()
    first = REMOVING["between two files"]
    killed_together(tmp_path, (prune, first), (prune, REMOVING["before the first file goes"]))
    require_right(Store.open(tmp_path / "store"), KEYS[6:])
