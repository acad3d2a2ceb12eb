"""Whether index and files agree: at every opening what a crash has left, and on request every byte."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from engine.cache.store.claim import TEMPORARY
from engine.cache.store.files import Entry, Opened, says_it_is
from engine.cache.store.folder import Folder, NotPlainError
from engine.cache.store.index import FailedIndexError, Index

log = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
_SETTLE_SECONDS = 0.3


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
        segments: how many were checked.
        bytes: how many were read.
        seconds: how long it took.
        faults: of segments.
        orphans: files of the store that belong to no segment.
        repaired: faulty segments were set aside, orphans removed, and a damaged index was built again.
        unread: segments whose files could not be read just now; they stay as they are.
        foreign: what is in the folder and none of the store's; it stays as it is.
        index: what is wrong with the index, "" where nothing is.
        unsure: why no file was looked at as an orphan, "" where all were.
    """

    segments: int
    bytes: int
    seconds: float
    faults: tuple[Fault, ...]
    orphans: tuple[str, ...]
    repaired: bool
    unread: tuple[Fault, ...] = ()
    foreign: tuple[str, ...] = ()
    index: str = ""
    unsure: str = ""

    @property
    def clean(self) -> bool:
        """Whether index and files agree, as far as all of it was read."""
        return not (self.faults or self.unread or self.orphans or self.index)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name, and whether it is clean."""
        return {**asdict(self), "clean": self.clean}


def check(
    folder: Folder, entries: Iterable[tuple[str, Entry]], progress: Progress | None
) -> tuple[list[Fault], list[Fault], int, float]:
    """Reads every file.

    Returns:
        The faults, those that could not be read, the bytes that were read, and the seconds that it took.
    """
    started, read = time.perf_counter(), 0
    faults: list[Fault] = []
    unread: list[Fault] = []
    listed = list(entries)
    for done, (key, entry) in enumerate(listed):
        if progress is not None:
            progress(done, len(listed), entry.file)
        wrong = None
        try:
            with folder.opened(entry.file) as descriptor:
                wrong = Opened(descriptor, entry).fault(content=True)
                read += entry.bytes
        except FileNotFoundError:
            wrong = "there is no such file"
        except NotPlainError as error:
            wrong = str(error)
        except (OSError, MemoryError) as error:
            unread.append(Fault(key, entry.file, f"it could not be read: {error}"))
        if wrong is not None:
            faults.append(Fault(key, entry.file, wrong))
    if progress is not None:
        progress(len(listed), len(listed), "")
    return faults, unread, read, time.perf_counter() - started


def sweep(folder: Folder, index: Index, *, remove: bool) -> tuple[list[str], str]:
    """Finds the files of the store that no row lists, those half written included.

    By nothing but the index on the disk, inside a transaction, while nobody else writes: an old copy, or
    one that was not read whole, would call good files orphans.

    Args:
        folder: of the store.
        index: the index that lists its files.
        remove: delete what is found.

    Returns:
        The names, and why there was no looking, "" where there was.
    """
    try:
        with folder.alone() as alone:
            if not alone:
                return [], "another process is writing just now"
            found = _orphans(folder, index)
            if found and not remove:
                time.sleep(_SETTLE_SECONDS)  # rows go first, and their files a moment later
                found = sorted({*found} & {*_orphans(folder, index)})
            if found and remove:
                folder.remove(found)
                half = sum(TEMPORARY.fullmatch(name) is not None for name in found)
                log.info("removed %d files without a row, %d of them half written", len(found), half)
    except (OSError, FailedIndexError) as error:
        return [], str(error)
    return found, ""


def _orphans(folder: Folder, index: Index) -> list[str]:
    with index.writing() as connection:
        listed = {row[0] for row in connection.execute("select file from segments").fetchall()}
        if index.unfilled:
            raise FailedIndexError("the index was made anew, and not every file could be entered into it yet")
        rest = [name for name in folder.ours() if name not in listed]
    return [name for name in rest if _is_own(folder, name)]


def strangers(folder: Folder, listed: set[str]) -> list[str]:
    """Files without a row that have a segment's name and do not say that they are one; they stay."""
    return [name for name in folder.ours() if name not in listed and not _is_own(folder, name)]


def _is_own(folder: Folder, name: str) -> bool:
    """Whether a file is half written or a segment by its own header; what cannot be read is left alone."""
    if TEMPORARY.fullmatch(name):
        return True
    try:
        with folder.opened(name) as descriptor:
            return says_it_is(descriptor, name)
    except (OSError, NotPlainError):
        return False
