"""Segments on disk, as the engine uses them: found, saved, bounded, explained."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import platformdirs

from engine.cache.store import audit, eviction, files, moving, rebuild
from engine.cache.store.audit import Fault, Progress, Verified
from engine.cache.store.claim import FILES
from engine.cache.store.codec import Scheme
from engine.cache.store.eviction import POLICIES, NoRoomError, Policy, Removed, Victim
from engine.cache.store.files import VERIFY, Entry, Verify
from engine.cache.store.folder import Folder, NotPlainError
from engine.cache.store.holds import Hold, Holds
from engine.cache.store.index import FailedIndexError, Index
from engine.cache.store.ledger import Origin
from engine.cache.store.reading import Chosen, Reader, pack_ids
from engine.cache.store.transfer import Moved
from engine.errors import StoreError
from engine.prompt.recipe import TURN
from engine.segment import Segment
from engine.tiers import Reason

log = logging.getLogger(__name__)

_ODD = "typeof(key) <> 'text' or typeof(bytes) <> 'integer'"  # by which rows could not even be deleted
_WAIT = "Wait for that program or end it, or choose another folder with --cache-dir."
_MAKE_ROOM = (
    "Free some space (pml cache prune --max-bytes 5GB), make the folder writable, or choose another one with "
    "--cache-dir."
)
PATIENCE_SECONDS = 60.0  # for another process that computes the same segment


def default_folder() -> Path:
    """Returns the user's cache folder for segments."""
    return Path(platformdirs.user_cache_dir("prompt-cache-studio")) / "segments"


class Store(Reader):
    """Segments on disk. Safe to use from several threads and several processes.

    Args:
        disk: the folder, held open.
        index: the open index.
        verify: when a file's digest is checked: at every load, at the first one of this process, or never.
    """

    def __init__(self, disk: Folder, index: Index, verify: Verify = "first") -> None:
        super().__init__(disk, index, verify)
        self._holds = Holds()

    @classmethod
    def open(cls, folder: Path | None = None, *, verify: Verify = "first") -> Store:
        """Opens a store, makes it where there is none, and clears up what a crash has left.

        Where nothing can be written it is opened for reading, with a warning. A damaged index is set aside
        and built again from the files.

        Args:
            folder: None for the user's cache folder.
            verify: "always", "first" or "never".

        Raises:
            StoreError: the folder is neither empty nor a store, cannot be made or read, or is too new.
        """
        folder = folder if folder is not None else default_folder()
        if verify not in VERIFY:
            raise StoreError(f"verify is {verify!r}; it must be one of {', '.join(VERIFY)}.")
        disk = Folder.open(folder)
        try:
            store = cls(disk, rebuild.opened(disk), verify)
        except BaseException:
            disk.close()
            raise
        if store.read_only:
            log.warning(
                "the segment store in %s is only read: %s. Answers come as before and nothing new is stored. "
                "%s",
                folder,
                store.read_only,
                _WAIT if store._index.held else _MAKE_ROOM,
            )
        else:
            store._recover()
            store._expire()
        return store

    def close(self) -> None:
        """Closes index and folder. The store must not be used afterwards."""
        super().close()
        self.disk.close()

    @property
    def read_only(self) -> str:
        """Why nothing can be written, "" where it can."""
        return self._index.read_only

    @contextmanager
    def compute_lock(self, key: str) -> Iterator[bool]:
        """Lets one process at a time compute a segment; gives whether another one has been at it."""
        with self.disk.compute_lock(key, PATIENCE_SECONDS) as waited:
            yield waited

    def using(self, keys: Iterable[str]) -> Hold:
        """Keeps segments from being evicted by this process until what is returned is released.

        Another process may evict them; what is mapped stays readable until it is unmapped.
        """
        return self._holds.hold(keys)

    # Saving

    def save(
        self, segment: Segment, origin: Origin, *, scheme: Scheme = "plain", seconds: float = 0.0
    ) -> None:
        """Writes a segment: temporary file, flush, rename, and then its row; evicts what the budget asks for.

        Args:
            segment: the segment to keep.
            origin: where it comes from, for people.
            scheme: how keys and values are stored.
            seconds: how long computing it took.

        Raises:
            StoreError: disk or budget is full, or the folder cannot be written; nothing is left behind. A
                budget of 0 is no fault: then nothing is to be stored.
        """
        if self.budget == 0:
            return
        now = time.time()
        notes = {name: str(value) for name, value in asdict(origin).items()}
        notes |= {"created": f"{now:.6f}", "seconds": f"{seconds:.6e}"}
        try:
            if self.read_only:
                self._index.set("written", f"{now:.6f}")  # says why not, before a file is written in vain
            with self.disk.shared():
                entry = files.write(self.disk, segment, scheme, notes)
                self._enter(segment, origin, entry, seconds, now)
        except (OSError, FailedIndexError) as error:
            if isinstance(error, NoRoomError):
                with contextlib.suppress(FailedIndexError), self._index.writing() as connection:
                    eviction.refuse(connection, segment.key, (origin.schema, origin.path), segment.nbytes)
            raise StoreError(
                f"a segment of {segment.nbytes:,} bytes could not be written to {str(self.folder)!r}: "
                f"{error}. {_advice(error)}"
            ) from error

    def _enter(self, segment: Segment, origin: Origin, entry: Entry, seconds: float, now: float) -> None:
        row = {
            **_columns(entry),
            "key": segment.key,
            "tokens": segment.tokens,
            "token_ids": pack_ids(segment.token_ids),
            "fingerprint": origin.fingerprint,
            "model": origin.model,
            "scope": origin.scope,
            "created": now,
            "last_used": now,
            "hits": 0,
            "seconds": seconds,
        }
        try:
            gone = self.enter(row, [(origin.schema, origin.path)])
        except BaseException:
            self.disk.remove([entry.file])
            raise
        log.info(
            "stored %s of %s: %d tokens, %d bytes",
            origin.path or "text",
            origin.schema,
            segment.tokens,
            entry.bytes,
        )
        self.discard(gone)

    def enter(self, row: dict[str, Any], labels: Sequence[tuple[str, str]]) -> list[str]:
        """Enters a row within the budget; returns the files that have no row any more."""
        key, budget = str(row["key"]), self.budget
        with self._index.writing() as connection:
            self._settle(connection)
            old = connection.execute("select file from segments where key = ?", [key]).fetchone()
            names = ", ".join(row)
            marks = ", ".join("?" * len(row))
            connection.execute(
                f"insert or replace into segments ({names}) values ({marks})", list(row.values())
            )
            connection.executemany(
                "insert or ignore into labels (key, schema, path) values (?, ?, ?)",
                [(key, *label) for label in labels],
            )
            connection.execute(
                f"update segments set worth = ? + {eviction.WORTH} where key = ?",
                [eviction.inflation(connection), key],
            )
            keep = {key, *self._holds.keys()}
            old_age = self._old(connection, self.max_age, keep)
            eviction.take_out(connection, old_age, Reason.AGE)
            victims = eviction.over_budget(connection, budget, self.policy, keep)
            freed = sum(victim.bytes for victim in victims)
            if eviction.used(connection) - freed > budget:
                raise NoRoomError(
                    f"the store's budget of {budget:,} bytes has no room left beside what is pinned or in use"
                )
            eviction.raise_inflation(connection, victims)
            eviction.take_out(connection, victims, Reason.BUDGET)
            victims = [*old_age, *victims]
            self.count(connection, "evicted", len(victims))
        self._owed = []
        self._verified.pop(str(row["file"]), None)
        for victim in victims:
            log.info("evicted segment %s (%d bytes)", victim.key, victim.bytes)
        if old is not None and old[0] != row["file"]:
            victims.append(Victim(key, old[0], 0))
        return eviction.files_of(victims)

    @staticmethod
    def _old(connection: sqlite3.Connection, age: float | None, keep: Collection[str]) -> list[Victim]:
        """What was not used for `age` seconds."""
        return [] if age is None else eviction.too_old(connection, time.time() - age, keep)

    # Removing

    def set_budget(self, size: int, policy: Policy | None = None) -> Removed:
        """Sets the budget, for good, and evicts what it asks for.

        Raises:
            StoreError: it is none.
        """
        if size < 0 or (policy is not None and policy not in POLICIES):
            raise StoreError(f"a budget of {size} bytes with policy {policy!r} cannot be kept.")
        self._index.set("budget", str(size))
        if policy is not None:
            self._index.set("policy", policy)
        return self.prune(max_bytes=size)

    def set_max_age(self, seconds: float | None) -> Removed:
        """Sets, for good, after how many seconds what was not used goes, and evicts it; None for never.

        It goes at every opening of the store and at every write.

        Raises:
            StoreError: it is none.
        """
        if seconds is not None and not 0 < seconds < math.inf:
            raise StoreError(f"an age of {seconds} seconds cannot be kept; it must be above 0.")
        self._index.set("max_age", "" if seconds is None else repr(float(seconds)))
        return self.prune(older_than=seconds)

    def _expire(self) -> None:
        """Evicts what is older than the age limit."""
        try:
            if self.max_age is not None:
                self.prune(older_than=self.max_age)
        except FailedIndexError as error:
            log.warning("what is too old in %s was not evicted: %s", self.folder, error)

    def prune(self, *, max_bytes: int | None = None, older_than: float | None = None) -> Removed:
        """Evicts down to a size, or what was not used for some seconds; not what is pinned or in use."""
        keep = self._holds.keys()

        def choose(connection: sqlite3.Connection) -> Chosen:
            old = self._old(connection, older_than, keep)
            more: list[Victim] = []
            if max_bytes is not None:
                room = max_bytes + sum(victim.bytes for victim in old)
                spared = keep | {victim.key for victim in old}
                more = eviction.over_budget(connection, room, self.policy, spared)
            return [(old, Reason.AGE), (more, Reason.BUDGET)]

        return self._take_out(choose, "evicted")

    def remove(self, keys: Iterable[str], reason: Reason = Reason.DELETED) -> Removed:
        """Removes segments, pinned ones too."""
        wanted = set(keys)

        def choose(connection: sqlite3.Connection) -> Chosen:
            rows = connection.execute("select key, file, bytes from segments").fetchall()
            return [([Victim(*row) for row in rows if row[0] in wanted], reason)]

        return self._take_out(choose)

    def _take_out(self, choose: Callable[[sqlite3.Connection], Chosen], counter: str = "") -> Removed:
        """Removes rows and then files; on a full disk the files first: the index needs their room."""
        try:
            chosen = self.strike(choose, counter)
            victims = [victim for group, _ in chosen for victim in group]
            self.discard(eviction.files_of(victims))
        except FailedIndexError as error:
            if not error.refused:
                raise
            with self._index.reading() as connection:
                chosen = choose(connection)
            victims = [victim for group, _ in chosen for victim in group]
            if victims and not self.discard(eviction.files_of(victims)):
                raise
            try:
                self.strike(lambda _: chosen, counter)
            except FailedIndexError as still:
                self._owed = [*self._owed, *chosen]
                log.warning("the files are deleted, and leave the index when there is room: %s", still)
        for victim in victims:
            log.info("removed segment %s (%d bytes)", victim.key, victim.bytes)
        return Removed(len(victims), sum(victim.bytes for victim in victims))

    def clear(self, schema: str | None = None, *, pinned: bool = False, conversation: bool = False) -> int:
        """Removes all segments, or those that only this schema uses; returns how many.

        Args:
            schema: None for all.
            pinned: remove those of pinned schemas too.
            conversation: remove earlier turns of conversations only.
        """
        with self._index.reading() as connection:
            keys = {row[0] for row in connection.execute("select key from segments")}
            labels = connection.execute("select key, schema from labels").fetchall()
            turns = connection.execute("select key from labels where path = ?", [TURN]).fetchall()
        if conversation:
            keys = {row[0] for row in turns}
        if schema is not None:
            keys &= {key for key, name in labels if name == schema}
            keys -= {key for key, name in labels if name != schema}
        if not pinned:
            pins = set(self.pins())
            keys -= {key for key, name in labels if name in pins}
        return self.remove(keys, Reason.CLEARED).segments

    # Auditing

    def verify(self, *, repair: bool = False, progress: Progress | None = None) -> Verified:
        """Reads the index and every file, and compares them.

        Args:
            repair: build a damaged index again, set faulty segments aside, remove files that belong to none.
            progress: called with (done, total, file).
        """
        rebuild.refresh(self.disk, self._index)
        index = self._index.fault() or ""
        if index and (not repair or self._index.unread):
            return Verified(0, 0, 0.0, (), (), False, foreign=tuple(self.disk.foreign()), index=index)
        if index:
            rebuild.renew(self.disk, self._index)
        entries, faults = self.entries()
        found, unread, read, seconds = audit.check(self.disk, entries, progress)
        still = self.contains(fault.key for fault in found)  # another process may have evicted some meanwhile
        faults += [fault for fault in found if fault.key in still]
        left, unsure = audit.sweep(self.disk, self._index, remove=False)
        strange = audit.strangers(self.disk, self.listed())
        repaired = repair and not self._index.read_only
        if repaired:
            for fault in faults:
                self.set_aside(fault.key, fault.file, fault.what)
            self._recover()
        return Verified(
            len(entries),
            read,
            seconds,
            tuple(faults),
            tuple(left),
            repaired,
            tuple(unread),
            tuple(sorted([*self.disk.foreign(), *(f"{FILES}/{name}" for name in strange)])),
            index,
            unsure,
        )

    def _recover(self) -> None:
        """Drops rows that name no file of the store, and files without a row."""
        try:
            with self._index.reading() as connection:
                odd = connection.execute(f"select count(*) from segments where {_ODD}").fetchone()[0]
            if odd:
                log.warning("%d rows of the index are none of a store's, and are dropped", odd)
                with self._index.writing() as connection:
                    connection.execute(f"delete from segments where {_ODD}")
            listed, (entries, faults) = self.disk.ours(), self.entries()
            for key, entry in entries:
                if entry.file not in listed and self._is_gone(entry.file):
                    faults.append(Fault(key, entry.file, "its file is gone"))
            for fault in faults:
                self.set_aside(fault.key, fault.file, fault.what)
            audit.sweep(self.disk, self._index, remove=True)
            self.disk.trim_quarantine()
        except (OSError, FailedIndexError) as error:
            log.warning(
                "what an earlier crash may have left in %s was not cleared up: %s", self.folder, error
            )

    def _is_gone(self, name: str) -> bool:
        try:
            with self.disk.opened(name):
                return False
        except FileNotFoundError:
            return True
        except (OSError, NotPlainError):
            return False

    # Moving

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
            conversation: earlier turns of conversations too.
            replace: a plain file that is there is replaced.

        Raises:
            StoreError: there are none, or the file is there already or cannot be written.
        """
        return moving.export(self, target, schema, progress, conversation=conversation, replace=replace)

    def import_(self, source: Path, progress: Progress | None = None) -> Moved:
        """Takes the segments of an exported file in, each verified before it is entered.

        Raises:
            StoreError: the file is none of ours or damaged, or there is no room; what was taken in stays.
        """
        return moving.take_in(self, source, progress)


def _advice(error: Exception) -> str:
    """What to do about a segment that could not be saved."""
    if isinstance(error, NoRoomError):
        return (
            "Raise the budget (pml cache budget SIZE), or let go of a pinned schema (pml cache unpin NAME)."
        )
    if isinstance(error, TimeoutError) or (isinstance(error, FailedIndexError) and error.busy):
        return _WAIT
    return _MAKE_ROOM


def _columns(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "shape": json.dumps(list(entry.shape))}
