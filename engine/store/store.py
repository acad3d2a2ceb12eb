"""Segments on disk, as the engine uses them: found, saved, bounded, explained.

`Store` delegates to its parts: the index (`index/`), the files (`blobs/`), and modules that need both
(`reading`, `writing`, `removal`, `audit`, `export_import`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from engine.base.errors import StoreError
from engine.base.segment import Form, Segment
from engine.base.tiers import Reason
from engine.store import export_import, rebuild, write_behind
from engine.store.audit import Auditor, Progress, Verified
from engine.store.blobs.claim import FILES, default_folder
from engine.store.blobs.codec import Scheme
from engine.store.blobs.folder import Folder
from engine.store.blobs.local_files import LocalBlobs
from engine.store.blobs.protocol import Blobs
from engine.store.blobs.segment_files import VERIFY, Verify
from engine.store.disk_space import Room
from engine.store.index.catalog import Catalog
from engine.store.index.database import FailedIndexError, Index
from engine.store.index.eviction import ClearedError, Policy, Removed
from engine.store.index.in_use import Hold, Holds
from engine.store.index.listing import Listing
from engine.store.index.measurements import Measured
from engine.store.index.reasons import Sought
from engine.store.index.settings import Settings
from engine.store.index.stats import Ledger, Lookup, Origin, StoreStats
from engine.store.index.ttl import Keep, Keeps
from engine.store.reading import Reader, pack_ids
from engine.store.removal import Queue, Remover
from engine.store.tar_archive import Moved
from engine.store.write_behind import Behind
from engine.store.writing import MAKE_ROOM, WAIT, Writer

log = logging.getLogger(__name__)


class Store:
    """Segments on disk. Safe to use from several threads and several processes.

    What is saved behind an answer is there for whoever asks this store: it is waited for.

    Args:
        disk: the folder, held open.
        index: the open index.
        verify: when a file's digest is checked: at every load, at the first one of this process, or never.
        blobs: the place of the files; None for the folder itself.

    Attributes:
        folder: the store's path.
        files: the folder of its files.
        settings: the settings and pins that people have given it.
        holds: the keys that nothing in this process evicts.
        listing: its segments, for people to look through; ask after `finish_writing`.
        room: what it will take in.
        measured: what was measured of answers over its segments.
    """

    def __init__(
        self, disk: Folder, index: Index, verify: Verify = "first", blobs: Blobs | None = None
    ) -> None:
        self.disk, self.index = disk, index
        self.folder, self.files = disk.path, disk.path / FILES
        self.blobs: Blobs = LocalBlobs(disk) if blobs is None else blobs
        self.holds, self.settings, self._ledger = Holds(), Settings(index), Ledger(index)
        self._keeps, self.measured = Keeps(index), Measured(index)
        self.listing = Listing(index)
        self._catalog = Catalog(index, self.settings, self.holds)
        self._reader = Reader(self._catalog, self.blobs, verify)
        self._remover = Remover(index, self._catalog, self.settings, self._reader)
        self._auditor = Auditor(disk, index, self.blobs, self._catalog, self._reader)
        self._behind = Behind(write_behind.MOST_BYTES, write_behind.MOST)
        self.room = Room(index, self.settings, self.blobs, self._behind.bytes_of)
        self._writer = Writer(disk, self.blobs, self._catalog, self._reader, self.room)
        self._unwritten: dict[str, Sought] = {}  # what is about to be stored, by key

    @classmethod
    def open(
        cls,
        folder: Path | None = None,
        *,
        verify: Verify = "first",
        clock: Callable[[], float] = time.time,
    ) -> Store:
        """Opens a store, makes it where there is none, and clears up what a crash has left.

        Where nothing can be written it is opened for reading, with a warning. A damaged index is set aside
        and built again from the files.

        Args:
            folder: None for the user's cache folder.
            verify: "always", "first" or "never".
            clock: a function that returns the seconds since 1970, by which ages and times to live go.

        Raises:
            StoreError: the folder is neither empty nor a store, cannot be made or read, or is too new.
        """
        folder = folder if folder is not None else default_folder()
        if verify not in VERIFY:
            raise StoreError(f"verify is {verify!r}; it must be one of {', '.join(VERIFY)}.")
        disk = Folder.open(folder)
        try:
            store = cls(disk, rebuild.opened(disk, clock), verify)
        except BaseException:
            disk.close()
            raise
        if store.read_only:
            log.warning(
                "the segment store in %s is only read: %s. Answers come as before and nothing new is stored. "
                "%s",
                folder,
                store.read_only,
                WAIT if store.index.held else MAKE_ROOM,
            )
        else:
            store._auditor.recover()
            try:
                store._remover.expire()
                store._keeps.tidy()
            except FailedIndexError as error:
                log.warning("what is too old in %s was not evicted: %s", folder, error)
        return store

    def close(self) -> None:
        """Writes what is not written yet, and closes all. The store must not be used afterwards."""
        self._behind.close()
        self.index.close()
        self.disk.close()

    @property
    def read_only(self) -> str:
        """Why nothing can be written, "" where it can."""
        return self.index.read_only

    def try_compute_lock(self, key: str) -> AbstractContextManager[bool]:
        """Lets this process compute a segment where no other is at it; gives whether it may."""
        return self.disk.try_compute_lock(key)

    def using(self, keys: Iterable[str]) -> Hold:
        """Keeps segments from being evicted by this process until what is returned is released.

        Another process may evict them; what is mapped stays readable until it is unmapped.
        """
        return self.holds.hold(keys)

    # Segments

    def contains(self, keys: Iterable[str]) -> set[str]:
        """Returns those of the keys that are stored; none where the index cannot be read."""
        keys = list(keys)
        self._behind.wait(keys)
        return self._catalog.contains(keys)

    def lacks(self, keys: Iterable[str]) -> set[str]:
        """Returns those of the keys that are neither stored nor about to be; waits for none of the latter."""
        asked = set(keys) - self._behind.keys
        return asked - self._catalog.contains(asked)

    def seconds(self, keys: Iterable[str]) -> dict[str, float]:
        """Returns how long computing these took, by key; of what is stored and was timed."""
        keys = list(keys)
        self._behind.wait(keys)
        return self._catalog.seconds(keys)

    def load(self, key: str, token_ids: Sequence[int], form: Form | None = None) -> Segment | None:
        """Returns a segment, or None where it must be computed.

        A file that is missing, cut short, changed, of other tokens or of another form is set aside and
        counted as corrupt. One that cannot be read just now stays as it is.

        Args:
            key: the segment's name.
            token_ids: the tokens it must have.
            form: the form its keys and values must have; None takes any.
        """
        self._behind.wait([key])
        return self._reader.load(key, token_ids, form)

    def expect_soon(self, keys: Iterable[str]) -> None:
        """Has the operating system read files ahead, layer by layer, while something else goes on."""
        self._reader.expect_soon(keys)

    def save(
        self,
        segment: Segment,
        origin: Origin,
        *,
        scheme: Scheme = "plain",
        seconds: float = 0.0,
        cleared: str | None = None,
    ) -> None:
        """Writes a segment, and evicts what the budget asks for.

        Args:
            segment: the segment to keep.
            origin: the segment's origin, for people.
            scheme: how keys and values are stored.
            seconds: how long computing it took.
            cleared: `settings.cleared` when it was computed; None where it is to be stored in any case.

        Raises:
            ClearedError: the store was cleared since then.
            StoreError: disk or budget is full, or the folder cannot be written; nothing is left behind. A
                budget of 0 is no fault: then nothing is to be stored.
        """
        if self.settings.budget:
            self._writer.save(segment, origin, scheme, seconds, cleared)

    def save_behind(
        self,
        segment: Segment,
        origin: Origin,
        *,
        scheme: Scheme = "plain",
        seconds: float = 0.0,
        cleared: str | None = None,
        beside: Collection[str] | None = None,
        ended: Callable[[StoreError | None], None],
    ) -> None:
        """Saves a segment like `save` while something else goes on; waits only where much is unsaved.

        Where there is no room for it by now, nothing is written, and that is said at once.

        Args:
            segment: as for `save`.
            origin: as for `save`.
            scheme: as for `save`.
            seconds: as for `save`.
            cleared: as for `save`; where it was cleared, that is no fault.
            beside: keys of what does not go for it; None where room was claimed for it.
            ended: called when it is saved, or with what `save` has raised; from another thread.
        """
        if beside is not None and (lacking := self._writer.lacking(segment, origin, scheme, beside)):
            self._behind.put(lambda: self._writer.refuse(segment, origin))
            ended(lacking)
            return

        def work() -> None:
            failed = None
            try:
                self.save(segment, origin, scheme=scheme, seconds=seconds, cleared=cleared)
            except ClearedError as error:
                log.info("%s", error)
            except StoreError as error:
                failed = error
            finally:
                self._unwritten.pop(segment.key, None)
                ended(failed)

        self._unwritten[segment.key] = Sought(
            *(segment.key, pack_ids(segment.token_ids), origin.schema, origin.path, origin.scope),
            *(origin.fingerprint, str(segment.keys.dtype).removeprefix("torch."), scheme),
        )
        try:
            self._behind.put(work, segment.key, segment.nbytes)
        except BaseException:
            self._unwritten.pop(segment.key, None)
            ended(None)
            raise

    def write_now(self) -> None:
        """Has what is to be written behind answers written from now on, and does not wait for it."""
        self._behind.hurry()

    def afterwards(self, work: Callable[[], None]) -> None:
        """Does something that raises nothing when all is written that is to be written by now."""
        if self._behind.busy:
            self._behind.put(work)
        else:
            work()

    def finish_writing(self) -> None:
        """Waits until all is written that was to be written behind answers."""
        self._behind.wait()

    # Times to live

    def keep(self, keys: Iterable[str], seconds: float) -> None:
        """Promises that segments are not evicted for some time, for their age neither; in all processes.

        They may be written later. Of two promises the later end holds, and the longer time is what a read
        begins anew. What somebody deletes or clears goes all the same. Where the promise cannot be written
        down, a warning says so.

        Args:
            keys: the segments.
            seconds: their time to live, from now on.

        Raises:
            StoreError: the time is not above 0.
        """
        self._keeps.keep(keys, seconds)

    def renew(self, keys: Iterable[str]) -> None:
        """Begins the time to live of what is kept anew, after a read; nothing happens to other keys."""
        self._keeps.renew(keys)

    def kept(self, keys: Iterable[str]) -> dict[str, Keep]:
        """Returns those of the keys whose time to live has not ended, stored yet or not."""
        return self._keeps.kept(keys)

    def expired(self) -> set[str]:
        """Returns the segments whose time to live has ended, and that are still there, pinned or not.

        Those too that another program has removed for it since this was asked last.

        They stay until the budget wants their room; `remove` them with `Reason.EXPIRED` where they must not.
        """
        return self._keeps.expired()

    # What is said of them

    def stats(self) -> StoreStats:
        """Returns the totals."""
        self.finish_writing()
        number, size, counted = self._ledger.totals()
        kept, kept_until = self._keeps.totals()
        return StoreStats(
            segments=number,
            bytes=size,
            **{name: counted.get(name, 0) for name in ("hits", "misses", "corrupt", "evicted")},
            budget=self.settings.budget,
            pinned=self.settings.pinned_bytes,
            kept=kept,
            kept_until=kept_until,
            max_age=self.settings.max_age,
            policy=self.settings.policy,
            scheme=self.settings.scheme,
            disk_free=self.blobs.free,
            served=self._ledger.served(),
        )

    def segments(self) -> list[dict[str, Any]]:
        """Returns one row per segment, the last used first."""
        self.finish_writing()
        return self._ledger.segments()

    def evictions(self, limit: int = 100) -> list[dict[str, Any]]:
        """Returns what went and why, the latest first."""
        self.finish_writing()
        return self._ledger.evictions(limit)

    def misses(self, limit: int = 100) -> list[dict[str, Any]]:
        """Returns what was asked for and not there, with the reason, the latest first."""
        self.finish_writing()
        return self._ledger.misses(limit)

    def record(self, served: Sequence[Lookup]) -> None:
        """Writes an answer into the ledger, after its segments; what cannot be written is left out."""
        self.afterwards(lambda: self._ledger.record(served))

    def label(self, served: Sequence[Lookup]) -> None:
        """Enters which schemas use what they have found; so a pin of one keeps what another has stored."""
        self.finish_writing()
        self._ledger.label(served)

    def reason(self, sought: Sought) -> str:
        """Says why a segment is not there; waits for no other that is about to be written."""
        self._behind.wait([sought.key])
        return self._ledger.reason(sought, tuple(self._unwritten.values()))

    # Removing

    def set_budget(self, size: int, policy: Policy | None = None) -> Removed:
        """Sets the budget, for good, and evicts what it asks for.

        Raises:
            StoreError: the size is below 0, or there is no such policy.
        """
        self.finish_writing()
        self.settings.set_budget(size, policy)
        return self.prune(max_bytes=size)

    def set_max_age(self, seconds: float | None) -> Removed:
        """Sets, for good, after how many seconds what was not used goes, and evicts it; None for never.

        It goes at every opening of the store and at every write.

        Raises:
            StoreError: the age is not above 0.
        """
        self.settings.set_max_age(seconds)
        return self.prune(older_than=seconds)

    def prune(self, *, max_bytes: int | None = None, older_than: float | None = None) -> Removed:
        """Evicts down to a size, or what was not used for some seconds; not pinned, kept or used ones."""
        self.finish_writing()
        return self._remover.prune(max_bytes=max_bytes, older_than=older_than)

    def surplus(self, max_bytes: int) -> Removed:
        """Returns what a budget of this size would evict now; nothing is removed.

        Raises:
            StoreError: the index cannot be read.
        """
        return self._remover.surplus(max_bytes)

    def next_out(self, free: int, limit: int = 100) -> Queue:
        """Returns what the budget would evict for so many bytes more, in its order; nothing is removed.

        Args:
            free: how many bytes.
            limit: the most segments that are told one by one.

        Raises:
            StoreError: the index cannot be read.
        """
        self.finish_writing()
        return self._remover.next_out(free, limit)

    def remove(self, keys: Iterable[str], reason: Reason = Reason.DELETED) -> Removed:
        """Removes segments, pinned and kept ones too.

        For `Reason.EXPIRED` those stay that a read or an answer has kept anew meanwhile.
        """
        self.finish_writing()
        keys = set(keys)
        if reason == Reason.EXPIRED:
            self._keeps.removed(keys)
        return self._remover.remove(keys, reason)

    def clear(self, schema: str | None = None, *, pinned: bool = False, conversation: bool = False) -> int:
        """Removes all segments, or those that only this schema uses; returns how many.

        Args:
            schema: None for all.
            pinned: remove those of pinned schemas too.
            conversation: remove earlier turns of conversations only.
        """
        self.finish_writing()
        if not conversation:
            try:
                self.measured.clear(schema)
            except FailedIndexError as error:
                log.warning("measurements of reuse were not cleared: %s", error)
        return self._remover.clear(schema, pinned=pinned, conversation=conversation)

    # Auditing and moving

    def verify(self, *, repair: bool = False, progress: Progress | None = None) -> Verified:
        """Reads the index and every file, and compares them.

        Args:
            repair: build a damaged index again, set faulty segments aside, remove files that belong to none.
            progress: called with (done, total, file).
        """
        self.finish_writing()
        return self._auditor.verify(repair=repair, progress=progress)

    def export(
        self,
        target: Path,
        schema: str | None = None,
        progress: Progress | None = None,
        *,
        conversation: bool = False,
        replace: bool = False,
    ) -> Moved:
        """Writes the segments of a schema, or all of them, into one file.

        Args:
            target: the file, outside the store's own folder.
            schema: None for all.
            progress: called with (done, total, key).
            conversation: whether earlier turns of conversations go along.
            replace: whether a plain file that is there is replaced.

        Raises:
            StoreError: there are none, or the file is there already or cannot be written.
        """
        self.finish_writing()
        exporter = export_import.Exporter(self.index, self.disk, self.blobs)
        return exporter.write(target, schema, progress, conversation=conversation, replace=replace)

    def import_(self, source: Path, progress: Progress | None = None) -> Moved:
        """Takes the segments of an exported file in, each verified before it is entered.

        Raises:
            StoreError: the file is none of ours or damaged, or there is no room; what was taken in stays.
        """
        self.finish_writing()
        importer = export_import.Importer(
            self.disk, self.blobs, self._catalog, self.settings, self.holds, self._writer
        )
        return importer.take_in(source, progress)
