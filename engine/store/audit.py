"""Whether index and files agree: at every opening what a crash has left, and on request every byte."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.store import rebuild
from engine.store.blobs.claim import FILES, TEMPORARY
from engine.store.blobs.contents import DamagedError
from engine.store.blobs.folder import Folder
from engine.store.blobs.protocol import Blobs
from engine.store.blobs.segment_files import Entry
from engine.store.index.catalog import Catalog, Fault
from engine.store.index.database import FailedIndexError, Index
from engine.store.reading import Reader

log = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
_SETTLE_SECONDS = 0.3


@dataclass(frozen=True)
class Verified:
    """What a verification found.

    Attributes:
        segments: how many segments were checked.
        bytes: how many bytes were read.
        seconds: time that it took.
        faults: segments whose files are not what the index says.
        orphans: files of the store that belong to no segment.
        repaired: whether faulty segments were set aside, orphans removed, and a damaged index was built
            again.
        unread: segments whose files could not be read just now; they stay as they are.
        foreign: names in the folder that are none of the store's; they stay as they are.
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


class Auditor:
    """Compares the index of a store with its files.

    Args:
        disk: the folder of the store.
        index: the open index.
        blobs: the files.
        catalog: the rows.
        reader: the reader that sets aside what is damaged.
    """

    def __init__(self, disk: Folder, index: Index, blobs: Blobs, catalog: Catalog, reader: Reader) -> None:
        self._disk, self._index = disk, index
        self._blobs, self._catalog, self._reader = blobs, catalog, reader

    def verify(self, *, repair: bool, progress: Progress | None) -> Verified:
        """Reads the index and every file, and compares them.

        Args:
            repair: build a damaged index again, set faulty segments aside, remove files that belong to none.
            progress: called with (done, total, file).

        Raises:
            FailedIndexError: the index cannot be read, or not be set aside where it is to be repaired.
        """
        rebuild.refresh(self._disk, self._index)
        index = self._index.fault() or ""
        if index and (not repair or self._index.unread):
            return Verified(0, 0, 0.0, (), (), False, foreign=tuple(self._blobs.foreign()), index=index)
        if index:
            rebuild.renew(self._disk, self._index)
        entries, faults = self._catalog.entries()
        found, unread, read, seconds = self._check(entries, progress)
        still = self._catalog.contains(fault.key for fault in found)  # another process may have evicted some
        faults += [fault for fault in found if fault.key in still]
        left, unsure = self._sweep(remove=False)
        strange = self._strangers()
        repaired = repair and not self._index.read_only
        if repaired:
            self._set_aside(faults)
            self.recover()
        return Verified(
            len(entries),
            read,
            seconds,
            tuple(faults),
            tuple(left),
            repaired,
            tuple(unread),
            tuple(sorted([*self._blobs.foreign(), *(f"{FILES}/{name}" for name in strange)])),
            index,
            unsure,
        )

    def recover(self) -> None:
        """Drops rows that name no file of the store, and files without a row: what a crash has left."""
        try:
            odd = self._catalog.drop_odd()
            if odd:
                log.warning("%d rows of the index were none of a store's, and are dropped", odd)
            listed, (entries, faults) = self._blobs.names(), self._catalog.entries()
            for key, entry in entries:
                if entry.file not in listed and self._blobs.is_gone(entry.file):
                    faults.append(Fault(key, entry.file, "its file is gone"))
            self._set_aside(faults)
            self._sweep(remove=True)
            self._blobs.tidy()
        except (OSError, FailedIndexError) as error:
            log.warning(
                "what an earlier crash may have left in %s was not cleared up: %s", self._disk.path, error
            )

    def _set_aside(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self._reader.set_aside(fault.key, fault.file, fault.what)

    def _check(
        self, entries: Sequence[tuple[str, Entry]], progress: Progress | None
    ) -> tuple[list[Fault], list[Fault], int, float]:
        """Reads every file.

        Returns:
            The faults, those that could not be read, the bytes that were read, and the seconds that it took.
        """
        started, read = time.perf_counter(), 0
        faults: list[Fault] = []
        unread: list[Fault] = []
        for done, (key, entry) in enumerate(entries):
            if progress is not None:
                progress(done, len(entries), entry.file)
            wrong = None
            try:
                with self._blobs.opened(entry) as opened:
                    opened.check(content=True)
                read += entry.bytes
            except FileNotFoundError:
                wrong = "there is no such file"
            except DamagedError as error:
                wrong = str(error)
                read += entry.bytes
            except (OSError, MemoryError) as error:
                unread.append(Fault(key, entry.file, f"it could not be read: {error}"))
            if wrong is not None:
                faults.append(Fault(key, entry.file, wrong))
        if progress is not None:
            progress(len(entries), len(entries), "")
        return faults, unread, read, time.perf_counter() - started

    def _sweep(self, *, remove: bool) -> tuple[list[str], str]:
        """Finds the files of the store that no row lists, those half written included.

        By nothing but the index on the disk, inside a transaction, while nobody else writes: an old copy, or
        one that was not read whole, would call good files orphans.

        Returns:
            The names, and why there was no looking, "" where there was.
        """
        try:
            with self._disk.alone() as alone:
                if not alone:
                    return [], "another process is writing just now"
                found = self._orphans()
                if found and not remove:
                    time.sleep(_SETTLE_SECONDS)  # rows go first, and their files a moment later
                    found = sorted({*found} & {*self._orphans()})
                if found and remove:
                    self._blobs.remove(found)
                    half = sum(TEMPORARY.fullmatch(name) is not None for name in found)
                    log.info("removed %d files without a row, %d of them half written", len(found), half)
        except (OSError, FailedIndexError) as error:
            return [], str(error)
        return found, ""

    def _orphans(self) -> list[str]:
        with self._index.writing():
            listed = self._catalog.listed()
            if self._index.unfilled:
                words = "the index was made anew, and not every file could be entered into it yet"
                raise FailedIndexError(words)
            rest = sorted(self._blobs.names() - listed)
        return [name for name in rest if self._blobs.is_own(name)]

    def _strangers(self) -> list[str]:
        """Files without a row that have a segment's name and do not say that they are one; they stay."""
        rest = sorted(self._blobs.names() - self._catalog.listed())
        return [name for name in rest if not self._blobs.is_own(name)]
