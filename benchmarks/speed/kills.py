"""Kills writers of a store, and checks the store after each kill.

A writer writes its phase into a byte of shared memory. Most kills are aimed: the killer waits until the
writer is at a file, a row or a removal, and a moment more.
"""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import torch

from engine.base.segment import Segment
from engine.store import Origin, Store, Verify
from engine.store.blobs.claim import TEMPORARY
from engine.store.blobs.codec import Scheme
from engine.store.blobs.folder import Folder
from engine.store.blobs.local_files import LocalBlobs
from engine.store.blobs.segment_files import Entry
from engine.store.index.database import Index
from engine.store.index.eviction import Removed

ORIGIN = Origin("benchmark", "m", "isolated", "benchmark", "benchmark")
KINDS = 16
_MOST_BYTES = 1 << 20  # that a pruning leaves
_PATIENCE_SECONDS = 5.0  # for a phase that was aimed at
_START_SECONDS = 120.0
_LONGEST_SECONDS = 0.004  # that a kill waits within a phase; a write of these sizes takes a few milliseconds


class Phase(IntEnum):
    """The phase of a writer."""

    OPENING = 0
    BETWEEN = 1
    READING = 2
    FILE = 3
    ROW = 4
    REMOVING = 5


WORDS = {
    Phase.OPENING: "killed while opening",
    Phase.BETWEEN: "killed between two operations",
    Phase.READING: "killed while reading",
    Phase.FILE: "killed while writing a file",
    Phase.ROW: "killed while entering a row",
    Phase.REMOVING: "killed while removing",
}
_AIMS = (Phase.FILE, Phase.FILE, Phase.ROW, Phase.ROW, Phase.REMOVING, None)


class _Files(LocalBlobs):
    """Files of a store that reports its phase."""

    def __init__(self, folder: Folder, store: Told) -> None:
        super().__init__(folder)
        self._store = store

    def write(self, segment: Segment, scheme: Scheme, notes: Mapping[str, str]) -> Entry:
        """Writes a segment; the row is next."""
        entry = super().write(segment, scheme, notes)
        self._store.phase.value = Phase.ROW
        return entry

    def remove(self, names: Iterable[str]) -> int:
        """Removes files, and reports it."""
        return self._store.telling(Phase.REMOVING, super().remove, names)


class Told(Store):
    """A store that reports its phase."""

    phase: Any = ctypes.c_byte()

    def __init__(self, disk: Folder, index: Index, verify: Verify = "first") -> None:
        super().__init__(disk, index, verify, _Files(disk, self))

    def load(self, key: str, token_ids: Sequence[int], *others: Any) -> Segment | None:
        """Loads a segment, and reports it."""
        return self.telling(Phase.READING, super().load, key, token_ids, *others)

    def save(self, segment: Segment, origin: Origin, **others: Any) -> None:
        """Saves a segment, and reports it."""
        self.telling(Phase.FILE, super().save, segment, origin, **others)

    def prune(self, **given: Any) -> Removed:
        """Prunes, and reports it."""
        return self.telling(Phase.REMOVING, super().prune, **given)

    def telling(self, phase: Phase, work: Any, *given: Any, **named: Any) -> Any:
        """Works in a phase."""
        before, self.phase.value = self.phase.value, phase
        try:
            return work(*given, **named)
        finally:
            self.phase.value = before


def segment(number: int) -> Segment:
    """A segment of the writers, by its number."""
    generator = torch.Generator().manual_seed(number)
    tokens = 32 + 8 * number
    keys, values = torch.randn(2, 4, 2, tokens, 32, generator=generator)
    return Segment(f"k{number}", tuple(range(tokens)), keys.contiguous(), values.contiguous())


def work(
    folder: str,
    seed: int,
    seconds: float,
    phase: Any = None,
    pruned: float = 0.05,
    rounds: int | None = None,
) -> None:
    """Writes, reads and prunes; exits with status 1 if it reads wrong states."""
    until, store, draw = time.time() + seconds, Told.open(Path(folder)), random.Random(seed)
    assert isinstance(store, Told)
    if phase is not None:
        store.phase = phase
    store.phase.value = Phase.BETWEEN
    for _ in itertools.count() if rounds is None else range(rounds):
        if time.time() >= until:
            break
        made = segment(draw.randrange(KINDS))
        read = store.load(made.key, made.token_ids)
        if read is None:
            with store.disk.compute_lock(made.key, 60):
                store.save(made, ORIGIN)
        elif not torch.equal(read.keys, made.keys) or not torch.equal(read.values, made.values):
            os._exit(1)
        if draw.random() < pruned:
            store.prune(max_bytes=draw.randrange(_MOST_BYTES))
    store.close()


def right(store: Store) -> bool:
    """Whether index and files agree, and every segment is right."""
    if not store.verify().clean:
        return False
    for number in range(KINDS):
        made = segment(number)
        read = store.load(made.key, made.token_ids)
        if read is not None and not torch.equal(read.keys, made.keys):
            return False
    return True


def context(*modules: str) -> Any:
    """Processes that start with the engine and these modules loaded, and without threads of torch."""
    if "forkserver" not in multiprocessing.get_all_start_methods():  # Windows
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["benchmarks.speed.kills", "engine.engine", "sqlite_utils", *modules])
    return found


def kills(folder: Path, count: int, seed: int = 1) -> dict[str, Any]:
    """Kills this many writers of one store, one after another; returns counts."""
    processes, draw, died = context(), random.Random(seed), Counter[Phase]()
    fine = stored = half = 0
    for number in range(count):
        phase = processes.RawValue(ctypes.c_byte, Phase.OPENING)
        worker = processes.Process(target=work, args=(str(folder), number, 300.0, phase, 0.3))
        worker.start()
        _wait(worker, phase, draw.choice(_AIMS), draw)
        worker.kill()
        worker.join()
        died[Phase(phase.value)] += 1
        half += any(TEMPORARY.fullmatch(path.name) for path in (folder / "files").glob(".*"))
        store = Store.open(folder)
        fine += right(store)
        stored += store.stats().segments
        store.close()
    found = {words: died[phase] for phase, words in WORDS.items()}
    about = {"unfinished files found": half, "segments found": stored}
    return {"writers killed": count, "correct afterwards": fine, **found, **about}


def _wait(worker: Any, phase: Any, aim: Phase | None, draw: random.Random) -> None:
    """Waits for the writer's work and the aimed phase, and a random moment more."""
    started = time.monotonic()
    while phase.value == Phase.OPENING and worker.is_alive() and time.monotonic() - started < _START_SECONDS:
        time.sleep(0.001)
    time.sleep(draw.random() * 0.1)
    started = time.monotonic()
    while aim is not None and phase.value != aim and time.monotonic() - started < _PATIENCE_SECONDS:
        time.sleep(0)
    time.sleep(draw.random() * _LONGEST_SECONDS)
