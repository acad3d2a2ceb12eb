"""Segments on disk, as the engine uses them: lookup, storage, budget, statistics."""

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
    """Segments on disk. Safe for several threads and several processes.

    Lookups wait for delayed writes of the segments that they ask for. Use `listing` after `finish_writing`.

    Attributes:
        folder: the store's path.
        files: the folder of its files.
        settings: its settings and pins.
        holds: keys that this process must not evict.
        listing: its segments, for browsing; use it after `finish_writing`.
        room: its free space.
        measured: measurements of answers over its segments.
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
        self._unwritten: dict[str, Sought] = {}  # segments to be stored, by key

    @classmethod
    def open(
        cls,
        folder: Path | None = None,
        *,
        verify: Verify = "first",
        clock: Callable[[], float] = time.time,
    ) -> Store:
        """Opens or creates a store, and removes leftovers of a crash.

        A store that cannot be written is opened for reading, with a warning. A damaged index is set aside and
        rebuilt from the files. `clock` returns the seconds since 1970.

        Raises:
            StoreError: the folder is neither empty nor a store, cannot be created or read, or is too new.
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
                "the segment store in %s is read-only: %s. Answers work as before, but nothing new is "
                "stored. %s",
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
                log.warning("old segments in %s were not evicted: %s", folder, error)
        return store

    def close(self) -> None:
        """Finishes delayed writes and closes the store, which must not be used afterwards."""
        self._behind.close()
        self.index.close()
        self.disk.close()

    @property
    def read_only(self) -> str:
        """Why nothing can be written, or ""."""
        return self.index.read_only

    def try_compute_lock(self, key: str) -> AbstractContextManager[bool]:
        """Takes the lock to compute a segment, if no other process has it; yields whether it did."""
        return self.disk.try_compute_lock(key)

    def using(self, keys: Iterable[str]) -> Hold:
        """Locks segments against eviction by this process until the returned hold is released.

        Another process may evict them; mapped ones stay readable.
        """
        return self.holds.hold(keys)

    def contains(self, keys: Iterable[str]) -> set[str]:
        """Returns the stored ones of these keys; none if the index cannot be read."""
        keys = list(keys)
        self._behind.wait(keys)
        return self._catalog.contains(keys)

    def lacks(self, keys: Iterable[str]) -> set[str]:
        """Returns the keys that are neither stored nor about to be; does not wait for delayed writes."""
        wanted = set(keys) - self._behind.keys
        return wanted - self._catalog.contains(wanted)

    def seconds(self, keys: Iterable[str]) -> dict[str, float]:
        """Returns the recorded seconds to compute these segments, by key."""
        keys = list(keys)
        self._behind.wait(keys)
        return self._catalog.seconds(keys)

    def load(self, key: str, token_ids: Sequence[int], form: Form | None = None) -> Segment | None:
        """Returns a segment, or None if it must be computed.

        A damaged file, or one with other tokens or another form, is quarantined and counted as corrupt. One
        that cannot be read now stays. With `form` None any form is valid.
        """
        self._behind.wait([key])
        return self._reader.load(key, token_ids, form)

    def expect_soon(self, keys: Iterable[str]) -> None:
        """Lets the operating system read files ahead, layer by layer, in the background."""
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
        """Writes a segment, and evicts others over the budget. With a budget of 0 it does nothing.

        `seconds` is the time to compute it, and `cleared` the value of `settings.cleared` then; None stores
        it in any case.

        Raises:
            ClearedError: the store was cleared since then.
            StoreError: disk or budget is full, or the folder cannot be written; no file is left.
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
        """Saves a segment like `save`, but in the background; waits only if many writes are pending.

        If there is no room without evicting `beside`, it writes nothing and reports that at once. With
        `beside` None its room is claimed. `ended` is called from another thread with the error of `save`, or
        None.
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
        """Starts delayed writes without waiting for them."""
        self._behind.hurry()

    def afterwards(self, work: Callable[[], None]) -> None:
        """Runs work that raises nothing after all pending writes."""
        if self._behind.busy:
            self._behind.put(work)
        else:
            work()

    def finish_writing(self) -> None:
        """Waits until all delayed writes are finished."""
        self._behind.wait()

    def keep(self, keys: Iterable[str], seconds: float) -> None:
        """Protects segments from eviction for some time, in all processes, stored or not yet.

        The later end and the longer time of two calls count; each read renews the time. Deleting and clearing
        remove the segments anyway. A failure to write this down is logged as a warning.

        Raises:
            StoreError: the time is not above 0.
        """
        self._keeps.keep(keys, seconds)

    def renew(self, keys: Iterable[str]) -> None:
        """Renews the time to live of retained segments after a read; ignores other keys."""
        self._keeps.renew(keys)

    def kept(self, keys: Iterable[str]) -> dict[str, Keep]:
        """Returns the keys whose time to live has not ended, stored or not yet."""
        return self._keeps.kept(keys)

    def expired(self) -> set[str]:
        """Returns the stored segments, pinned or not, whose time to live has ended.

        Includes those that another process has removed for that reason since the last call. Expired segments
        stay until the budget needs their room; remove them with `Reason.EXPIRED` if they must not.
        """
        return self._keeps.expired()

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
        """Returns removed segments with reasons, the latest first."""
        self.finish_writing()
        return self._ledger.evictions(limit)

    def misses(self, limit: int = 100) -> list[dict[str, Any]]:
        """Returns misses with reasons, the latest first."""
        self.finish_writing()
        return self._ledger.misses(limit)

    def record(self, served: Sequence[Lookup]) -> None:
        """Counts an answer's lookups after its segments are written; logs a failure."""
        self.afterwards(lambda: self._ledger.record(served))

    def label(self, served: Sequence[Lookup]) -> None:
        """Records which schemas use these segments, so that each schema's pin protects them."""
        self.finish_writing()
        self._ledger.label(served)

    def reason(self, sought: Sought) -> str:
        """Returns why a segment is missing; waits only for its own delayed write."""
        self._behind.wait([sought.key])
        return self._ledger.reason(sought, tuple(self._unwritten.values()))

    def set_budget(self, size: int, policy: Policy | None = None) -> Removed:
        """Sets the budget permanently, and evicts segments over it.

        Raises:
            StoreError: the size is below 0, or there is no such policy.
        """
        self.finish_writing()
        self.settings.set_budget(size, policy)
        return self.prune(max_bytes=size)

    def set_max_age(self, seconds: float | None) -> Removed:
        """Sets the age limit of unused segments permanently, and evicts older ones; None for no limit.

        Evictions happen at every opening of the store and at every write.

        Raises:
            StoreError: the age is not above 0.
        """
        self.settings.set_max_age(seconds)
        return self.prune(older_than=seconds)

    def prune(self, *, max_bytes: int | None = None, older_than: float | None = None) -> Removed:
        """Evicts down to a size, or segments unused for some seconds; never pinned, retained or used ones."""
        self.finish_writing()
        return self._remover.prune(max_bytes=max_bytes, older_than=older_than)

    def surplus(self, max_bytes: int) -> Removed:
        """Returns what a budget of this size would evict now; removes nothing.

        Raises:
            StoreError: the index cannot be read.
        """
        return self._remover.surplus(max_bytes)

    def next_out(self, free: int, limit: int = 100) -> Queue:
        """Returns what the budget would evict for `free` more bytes, in order; removes nothing.

        `limit` is the most segments to list.

        Raises:
            StoreError: the index cannot be read.
        """
        self.finish_writing()
        return self._remover.next_out(free, limit)

    def remove(self, keys: Iterable[str], reason: Reason = Reason.DELETED) -> Removed:
        """Removes segments, pinned and retained ones too.

        For `Reason.EXPIRED`, segments that were retained anew meanwhile stay.
        """
        self.finish_writing()
        keys = set(keys)
        if reason == Reason.EXPIRED:
            self._keeps.removed(keys)
        return self._remover.remove(keys, reason)

    def clear(self, schema: str | None = None, *, pinned: bool = False, conversation: bool = False) -> int:
        """Removes all segments, or those that only this schema uses; returns their number.

        Pinned ones stay by default. `conversation` removes only earlier turns of conversations.
        """
        self.finish_writing()
        if not conversation:
            try:
                self.measured.clear(schema)
            except FailedIndexError as error:
                log.warning("measurements of reuse were not cleared: %s", error)
        return self._remover.clear(schema, pinned=pinned, conversation=conversation)

    def verify(self, *, repair: bool = False, progress: Progress | None = None) -> Verified:
        """Reads the index and every file, and compares them.

        `repair` rebuilds a damaged index, quarantines damaged segments and deletes orphans.
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
        """Writes the segments of a schema, or all, to one file.

        `conversation` includes earlier turns of conversations. `progress` is called with (done, total, key).

        Raises:
            StoreError: there are no segments, or the file exists or cannot be written.
        """
        self.finish_writing()
        exporter = export_import.Exporter(self.index, self.disk, self.blobs)
        return exporter.write(target, schema, progress, conversation=conversation, replace=replace)

    def import_(self, source: Path, progress: Progress | None = None) -> Moved:
        """Imports the segments of an exported file, each after verification.

        Raises:
            StoreError: the file is invalid or damaged, or there is no room; imported segments stay.
        """
        self.finish_writing()
        importer = export_import.Importer(
            self.disk, self.blobs, self._catalog, self.settings, self.holds, self._writer
        )
        return importer.take_in(source, progress)
