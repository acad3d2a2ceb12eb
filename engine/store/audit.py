"""Checks whether index and files agree: for crash leftovers at each opening, for every byte on request."""

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
    """The result of a verification.

    Attributes:
        segments: number of checked segments.
        bytes: bytes read.
        seconds: duration.
        faults: segments whose files differ from the index.
        orphans: files of the store without a segment.
        repaired: whether damaged segments were quarantined, orphans deleted and a damaged index rebuilt.
        unread: segments whose files could not be read; they stay unchanged.
        foreign: names in the folder that are not the store's; they stay unchanged.
        index: the error of the index; "" for none.
        unsure: why orphans were not looked for; "" if they were.
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
        """Whether index and files agree, and all could be read."""
        return not (self.faults or self.unread or self.orphans or self.index)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and `clean`."""
        return {**asdict(self), "clean": self.clean}


class Auditor:
    """Compares the index of a store with its files."""

    def __init__(self, disk: Folder, index: Index, blobs: Blobs, catalog: Catalog, reader: Reader) -> None:
        self._disk, self._index = disk, index
        self._blobs, self._catalog, self._reader = blobs, catalog, reader

    def verify(self, *, repair: bool, progress: Progress | None) -> Verified:
        """Reads the index and every file, and compares them.

        Args:
            repair: rebuild a damaged index, quarantine damaged segments, delete orphans.
            progress: called with (done, total, file).

        Raises:
            FailedIndexError: the index cannot be read, or `repair` cannot set it aside.
        """
        rebuild.refresh(self._disk, self._index)
        index = self._index.fault() or ""
        if index and (not repair or self._index.unread):
            return Verified(0, 0, 0.0, (), (), False, foreign=tuple(self._blobs.foreign()), index=index)
        if index:
            rebuild.renew(self._disk, self._index)
        entries, faults = self._catalog.entries()
        damaged, unread, read, seconds = self._check(entries, progress)
        still = self._catalog.contains(fault.key for fault in damaged)  # others may be evicted by now
        faults += [fault for fault in damaged if fault.key in still]
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
        """Removes leftovers of a crash: rows without a file and files without a row."""
        try:
            odd = self._catalog.drop_odd()
            if odd:
                log.warning("%d invalid rows of the index are dropped", odd)
            listed, (entries, faults) = self._blobs.names(), self._catalog.entries()
            for key, entry in entries:
                if entry.file not in listed and self._blobs.is_gone(entry.file):
                    faults.append(Fault(key, entry.file, "its file is gone"))
            self._set_aside(faults)
            self._sweep(remove=True)
            self._blobs.tidy()
        except (OSError, FailedIndexError) as error:
            log.warning("leftovers of a crash in %s were not removed: %s", self._disk.path, error)

    def _set_aside(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self._reader.set_aside(fault.key, fault.file, fault.what)

    def _check(
        self, entries: Sequence[tuple[str, Entry]], progress: Progress | None
    ) -> tuple[list[Fault], list[Fault], int, float]:
        """Reads every file; returns damaged and unreadable segments, bytes read and seconds."""
        started, read = time.perf_counter(), 0
        faults: list[Fault] = []
        unread: list[Fault] = []
        for done, (key, entry) in enumerate(entries):
            if progress is not None:
                progress(done, len(entries), entry.file)
            reason = None
            try:
                with self._blobs.opened(entry) as opened:
                    opened.check(content=True)
                read += entry.bytes
            except FileNotFoundError:
                reason = "there is no such file"
            except DamagedError as error:
                reason = str(error)
                read += entry.bytes
            except (OSError, MemoryError) as error:
                unread.append(Fault(key, entry.file, f"it could not be read: {error}"))
            if reason is not None:
                faults.append(Fault(key, entry.file, reason))
        if progress is not None:
            progress(len(entries), len(entries), "")
        return faults, unread, read, time.perf_counter() - started

    def _sweep(self, *, remove: bool) -> tuple[list[str], str]:
        """Returns the files without a row, half-written ones included, and why it could not look, or "".

        It reads the index on disk in a transaction while no other process writes: an old or partial copy
        would turn valid files into orphans.
        """
        try:
            with self._disk.alone() as alone:
                if not alone:
                    return [], "another process is writing"
                orphans = self._orphans()
                if orphans and not remove:
                    time.sleep(_SETTLE_SECONDS)  # a writer deletes rows first, their files a moment later
                    orphans = sorted({*orphans} & {*self._orphans()})
                if orphans and remove:
                    self._blobs.remove(orphans)
                    half = sum(TEMPORARY.fullmatch(name) is not None for name in orphans)
                    log.info("removed %d files without a row, %d of them half written", len(orphans), half)
        except (OSError, FailedIndexError) as error:
            return [], str(error)
        return orphans, ""

    def _orphans(self) -> list[str]:
        with self._index.writing():
            listed = self._catalog.listed()
            if self._index.unfilled:
                words = "the index was rebuilt, and some files are not in it yet"
                raise FailedIndexError(words)
            rest = sorted(self._blobs.names() - listed)
        return [name for name in rest if self._blobs.is_own(name)]

    def _strangers(self) -> list[str]:
        """Files without a row that have a segment's name but not its header; they stay."""
        rest = sorted(self._blobs.names() - self._catalog.listed())
        return [name for name in rest if not self._blobs.is_own(name)]
