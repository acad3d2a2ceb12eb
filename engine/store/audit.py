"""Whether index and files agree: at every opening what a crash has left, and on request every byte."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.store import locks
from engine.store.files import TEMPORARY, Entry, fault

log = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
QUARANTINE_BYTES = 1 << 28  # of damaged files that are kept to be looked at


@dataclass(frozen=True)
class Fault:
    """A segment whose file is not what the index says."""

    key: str
    file: str
    what: str


@dataclass(frozen=True)
class Verified:
    """What a verification found.

    Attributes:
        segments: that were checked.
        bytes: that were read.
        seconds: that it took.
        faults: of segments.
        orphans: files that belong to no segment.
        repaired: faulty segments were set aside and orphans removed.
    """

    segments: int
    bytes: int
    seconds: float
    faults: tuple[Fault, ...]
    orphans: tuple[str, ...]
    repaired: bool

    @property
    def clean(self) -> bool:
        """Whether index and files agree."""
        return not self.faults and not self.orphans

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name, and whether it is clean."""
        return {**asdict(self), "clean": self.clean}


def check(
    folder: Path, entries: Iterable[tuple[str, Entry]], progress: Progress | None
) -> tuple[list[Fault], int, float]:
    """Reads every file; returns the faults, the bytes that were read, and the seconds that it took."""
    started, read, faults = time.perf_counter(), 0, []
    listed = list(entries)
    for done, (key, entry) in enumerate(listed):
        if progress is not None:
            progress(done, len(listed), entry.file)
        try:
            wrong = fault(folder / entry.file, entry, content=True)
        except FileNotFoundError:
            wrong = "there is no such file"
        except OSError as error:
            wrong = str(error)
        read += entry.bytes
        if wrong is not None:
            faults.append(Fault(key, entry.file, wrong))
    if progress is not None:
        progress(len(listed), len(listed), "")
    return faults, read, time.perf_counter() - started


def orphans(folder: Path, listed: set[str]) -> list[Path]:
    """Files that no row lists, those half written included."""
    return [path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in listed]


def sweep(folder: Path, writing: Path, listed: Callable[[], set[str]]) -> int:
    """Removes orphans, unless another process is writing just now; returns how many.

    Args:
        folder: of the files.
        writing: the lock that every writer shares.
        listed: the files that have a row, asked for while the lock is held.
    """
    with locks.alone(writing) as alone:
        if not alone:
            return 0
        found = orphans(folder, listed())
        for path in found:
            path.unlink(missing_ok=True)
    if found:
        half = sum(path.name.endswith(TEMPORARY) for path in found)
        log.info("removed %d files without a row, %d of them half written", len(found), half)
    return len(found)


def trim_quarantine(folder: Path) -> None:
    """Keeps the newest damaged files, up to a size."""
    if not folder.is_dir():
        return
    total = 0
    for path in sorted(folder.iterdir(), key=lambda p: p.stat().st_mtime, reverse=True):
        total += path.stat().st_size
        if total > QUARANTINE_BYTES:
            path.unlink(missing_ok=True)
