"""Two processes killed at once, one that prunes and one that exports: at moments that are aimed at."""

from __future__ import annotations

import os
import pkgutil
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.kills import context
from engine.cache.store import Store
from tests.engine.segments import ORIGIN, segment
from tests.engine.test_store import audit

KEYS = [f"k{number}" for number in range(8)]
# What is called how often until the process halts, and whether behind that call.
PRUNING = {
    "before its rows go": ("engine.cache.store.eviction", "take_out", 1, False),
    "before its rows are gone for good": ("engine.cache.store.eviction", "take_out", 1, True),
    "before the first file goes": ("os", "unlink", 1, False),
    "between two files": ("os", "unlink", 3, False),
    "behind all files": ("os", "unlink", 4, True),
}
EXPORTING = {
    "before its manifest": ("tempfile", "TemporaryFile", 1, False),
    "between two segments": ("tarfile:TarInfo", "tobuf", 5, False),
    "before it is on the disk": ("os", "fsync", 1, False),
    "before it has its name": ("os", "link", 1, False),
    "with its name and another": ("os", "link", 1, True),
}
Moment = tuple[str, str, int, bool]


def halt_at(moment: Moment, reached: Any) -> None:
    """Has this process wait for its death at a moment, and say that it is there."""
    owner, name, count, behind = pkgutil.resolve_name(moment[0]), *moment[1:]
    plain, calls = getattr(owner, name), 0

    def counted(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count and not behind:
            reached.set()
            signal.pause()
        found = plain(*given, **more)
        if calls == count and behind:
            reached.set()
            signal.pause()
        return found

    setattr(owner, name, counted)


def prune(folder: str, moment: Moment, reached: Any) -> None:
    store = Store.open(Path(folder) / "store")
    halt_at(moment, reached)
    store.prune(max_bytes=store.stats().bytes // 2)
    os._exit(1)


def export(folder: str, moment: Moment, reached: Any) -> None:
    store = Store.open(Path(folder) / "store")
    halt_at(moment, reached)
    store.export(Path(folder) / "out" / "all.tar")
    os._exit(1)


def killed_together(folder: Path, *works: tuple[Callable[..., None], Moment]) -> None:
    """Starts several processes, and kills them when each is at its moment."""
    processes, started = context(), []
    for work, moment in works:
        reached = processes.Event()
        worker = processes.Process(target=work, args=(str(folder), moment, reached))
        worker.start()
        started.append(worker)
        assert reached.wait(120), f"{work.__name__} never came to {moment}"
    for worker in started:
        worker.kill()
    for worker in started:
        worker.join()
        assert worker.exitcode == -signal.SIGKILL


def stored(folder: Path) -> Store:
    store = Store.open(folder)
    store.set_budget(1 << 30, "lru")
    for number, key in enumerate(KEYS):
        store.save(segment(key, 20, number), ORIGIN)
    return store


def require_right(store: Store, keys: set[str]) -> None:
    """Index and files agree, and what is served is right: of these keys all."""
    assert store.verify().clean
    assert store.stats().corrupt == 0
    audit(store)
    for number, key in enumerate(KEYS):
        read = store.load(key, range(20))
        assert (read is not None) == (key in keys), key
        assert read is None or torch.equal(read.keys, segment(key, 20, number).keys)


@pytest.mark.parametrize(
    ("pruned", "exported"), list(zip(PRUNING, (*list(EXPORTING)[2:], *list(EXPORTING)[:2]), strict=True))
)
def test_nothing_is_lost_but_what_was_being_removed(tmp_path: Path, pruned: str, exported: str) -> None:
    stored(tmp_path / "store").close()
    (tmp_path / "out").mkdir()
    shutil.copytree(tmp_path / "store", tmp_path / "twin")
    twin = Store.open(tmp_path / "twin")
    twin.prune(max_bytes=twin.stats().bytes // 2)
    spared = {row["key"] for row in twin.segments()}
    assert len(spared) == 4

    killed_together(tmp_path, (export, EXPORTING[exported]), (prune, PRUNING[pruned]))

    store, target = Store.open(tmp_path / "store"), tmp_path / "out" / "all.tar"
    left = {row["key"] for row in store.segments()}
    assert left == (set(KEYS) if "before its rows" in pruned else spared)
    require_right(store, left)
    assert target.exists() == ("with its name" in exported)
    if target.exists():
        there = Store.open(tmp_path / "there")
        assert there.import_(target).segments == len(KEYS)
        require_right(there, set(KEYS))
    assert store.export(target, replace=True).segments == len(left)
    store.prune(max_bytes=store.stats().bytes * 4 // len(left))
    require_right(store, spared)


def test_two_that_prune_at_once(tmp_path: Path) -> None:
    """The second finds rows gone whose files are there still, and leaves those to the first."""
    stored(tmp_path / "store").close()
    behind = PRUNING["between two files"]
    killed_together(tmp_path, (prune, behind), (prune, PRUNING["before the first file goes"]))
    store = Store.open(tmp_path / "store")
    require_right(store, set(KEYS[6:]))
