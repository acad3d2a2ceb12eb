"""Writers that are killed: what a store is worth after it, and in the middle of what each one died.

A writer tells through a byte of shared memory what it is about, so the byte that it leaves says where it was.
Most kills are aimed: the killer waits until the writer is at a file, a row, or a removal, and a moment more.
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
    """What a writer is about."""

    OPENING = 0
    BETWEEN = 1
    READING = 2
    FILE = 3
    ROW = 4
    REMOVING = 5


WORDS = {
    Phase.OPENING: "killed_opening",
    Phase.BETWEEN: "killed_between",
    Phase.READING: "killed_reading",
    Phase.FILE: "killed_writing_a_file",
    Phase.ROW: "killed_entering_a_row",
    Phase.REMOVING: "killed_removing",
}
_AIMS = (Phase.FILE, Phase.FILE, Phase.ROW, Phase.ROW, Phase.REMOVING, None)


class _Files(LocalBlobs):
    """Files of a store that says what it is about."""

    def __init__(self, folder: Folder, store: Told) -> None:
        super().__init__(folder)
        self._store = store

    def write(self, segment: Segment, scheme: Scheme, notes: Mapping[str, str]) -> Entry:
        """Does as files do; the row is next."""
        entry = super().write(segment, scheme, notes)
        self._store.phase.value = Phase.ROW
        return entry

    def remove(self, names: Iterable[str]) -> int:
        """Does as files do, and says so."""
        return self._store.telling(Phase.REMOVING, super().remove, names)


class Told(Store):
    """A store that says what it is about."""

    phase: Any = ctypes.c_byte()

    def __init__(self, disk: Folder, index: Index, verify: Verify = "first") -> None:
        super().__init__(disk, index, verify, _Files(disk, self))

    def load(self, key: str, token_ids: Sequence[int], *others: Any) -> Segment | None:
        """Does as a store does, and says so."""
        return self.telling(Phase.READING, super().load, key, token_ids, *others)

    def save(self, segment: Segment, origin: Origin, **others: Any) -> None:
        """Does as a store does, and says so."""
        self.telling(Phase.FILE, super().save, segment, origin, **others)

    def prune(self, **given: Any) -> Removed:
        """Does as a store does, and says so."""
        return self.telling(Phase.REMOVING, super().prune, **given)

    def telling(self, phase: Phase, work: Any, *given: Any, **named: Any) -> Any:
        """Does some work and says so meanwhile."""
        before, self.phase.value = self.phase.value, phase
        try:
            return work(*given, **named)
        finally:
            self.phase.value = before


def segment(number: int) -> Segment:
    """One of the segments that writers write, the same for the same number."""
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
    """Writes, reads, prunes; ends with status 1 where something wrong is served.

    Args:
        folder: the folder of the store.
        seed: of what is drawn.
        seconds: after which it ends.
        phase: a byte that it tells what it is about; None for nobody.
        pruned: share of the rounds that prune.
        rounds: number of rounds after which it ends too; None for no such number.
    """
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
    """Whether index and files agree and nothing wrong is served."""
    if not store.verify().clean:
        return False
    for number in range(KINDS):
        made = segment(number)
        read = store.load(made.key, made.token_ids)
        if read is not None and not torch.equal(read.keys, made.keys):
            return False
    return True


def context(*modules: str) -> Any:
    """Processes that begin with the engine and these modules loaded, and no thread of torch running."""
    if "forkserver" not in multiprocessing.get_all_start_methods():  # Windows
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["benchmarks.kills", "engine.engine", "sqlite_utils", *modules])
    return found


def kills(folder: Path, count: int, seed: int = 1) -> dict[str, Any]:
    """Kills so many writers, one after another, on one store.

    Returns:
        `kills`, `right` (after which index and files agreed and nothing wrong was served), how many died in
        which phase (`WORDS`), `half_written` (after which an unfinished file lay there), `segments_found`.
    """
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
    return {"kills": count, "right": fine, **found, "half_written": half, "segments_found": stored}


def _wait(worker: Any, phase: Any, aim: Phase | None, draw: random.Random) -> None:
    """Until the writer works, and for the phase that is aimed at; then a drawn moment more."""
    started = time.monotonic()
    while phase.value == Phase.OPENING and worker.is_alive() and time.monotonic() - started < _START_SECONDS:
        time.sleep(0.001)
    time.sleep(draw.random() * 0.1)
    started = time.monotonic()
    while aim is not None and phase.value != aim and time.monotonic() - started < _PATIENCE_SECONDS:
        time.sleep(0)
    time.sleep(draw.random() * _LONGEST_SECONDS)
