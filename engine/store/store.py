"""Segments on disk, as the engine uses them: found, saved, bounded, explained."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
import uuid
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import platformdirs
import safetensors

from engine.errors import StoreError
from engine.segment import Form, Segment
from engine.store import audit, eviction, files, locks, moving
from engine.store.audit import Progress, Verified
from engine.store.books import Books, Origin
from engine.store.codec import Scheme
from engine.store.eviction import POLICIES, Policy, Removed, Victim
from engine.store.files import VERIFY, Entry, Verify
from engine.store.index import Index
from engine.store.transfer import Moved

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0  # for another process that computes the same segment
_BATCH = 500  # keys in one query
_ENTRY = "file, bytes, digest, dtype, scheme, shape"


def default_folder() -> Path:
    """Returns the user's cache folder for segments."""
    return Path(platformdirs.user_cache_dir("prompt-cache-studio")) / "segments"


class Store(Books):
    """Segments on disk. Safe to use from several threads and several processes.

    Args:
        folder: holds the index and the files.
        index: the open index.
        verify: when a file's digest is checked: at every load, at the first one of this process, or never.
    """

    def __init__(self, folder: Path, index: Index, verify: Verify = "first") -> None:
        super().__init__(folder, index)
        self.files, self.verify_policy = folder / "files", verify
        self._verified: set[str] = set()
        self._in_use: Counter[str] = Counter()
        self._use_lock = threading.RLock()  # the collector may end an answer inside it

    @classmethod
    def open(cls, folder: Path | None = None, *, verify: Verify = "first") -> Store:
        """Opens a store, makes it where there is none, and clears up what a crash has left.

        Args:
            folder: None for the user's cache folder.
            verify: "always", "first" or "never".

        Raises:
            StoreError: the folder cannot be made or written, or its index is none of ours.
        """
        folder = folder if folder is not None else default_folder()
        if verify not in VERIFY:
            raise StoreError(f"verify is {verify!r}; it must be one of {', '.join(VERIFY)}.")
        try:
            (folder / "files").mkdir(parents=True, exist_ok=True)
            _require_writable(folder)
            store = cls(folder, Index(folder), verify)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"the cache folder {str(folder)!r} cannot be used: {error}. Choose another one with "
                "--cache-dir, or make this one writable."
            ) from error
        try:
            store._recover()
        except (OSError, sqlite3.Error) as error:
            log.warning("what an earlier crash may have left in %s was not cleared up: %s", folder, error)
        return store

    # Finding

    def contains(self, keys: Iterable[str]) -> set[str]:
        """Returns those of the keys that the index lists."""
        wanted = list(keys)
        found: set[str] = set()
        with self._index.reading() as connection:
            for batch in (wanted[i : i + _BATCH] for i in range(0, len(wanted), _BATCH)):
                marks = ",".join("?" * len(batch))
                rows = connection.execute(f"select key from segments where key in ({marks})", batch)
                found.update(row[0] for row in rows.fetchall())
        return found

    def load(self, key: str, token_ids: Sequence[int], form: Form | None = None) -> Segment | None:
        """Returns a segment whose tensors are mapped from its file, or None where it must be computed.

        A file that is missing, cut short, changed, of other tokens or of another form is set aside and
        counted as corrupt.

        Args:
            key: names the segment.
            token_ids: that it must have.
            form: that its keys and values must have; None takes any.
        """
        found = self._entry(key)
        if found is None:
            return None
        entry, blob = found
        path = self.files / entry.file
        try:
            wrong = (
                self._fault(path, entry)
                if blob == _pack(token_ids)
                else "its tokens are not those of its key"
            )
            if wrong is None:
                segment = Segment(key, tuple(token_ids), *files.read(path, entry))
                wrong = form.misfit(segment) if form is not None else None
                if wrong is None:
                    return segment
        except (OSError, safetensors.SafetensorError, RuntimeError, KeyError) as error:
            wrong = str(error) if path.exists() else "its file is gone"
        if not path.exists():
            again = self._entry(key)
            if again is None:  # another process has evicted it since
                return None
            if again[0].file != entry.file:
                return self.load(key, token_ids, form)
        self._set_aside(key, entry.file, wrong)
        return None

    def expect_soon(self, keys: Iterable[str]) -> None:
        """Has the operating system read files ahead, layer by layer, while something else goes on."""
        found = [entry[0] for key in keys if (entry := self._entry(key)) is not None]
        files.expect_soon([(self.files / entry.file, entry) for entry in found])

    @contextmanager
    def turn(self, key: str) -> Iterator[bool]:
        """Lets one process at a time compute a segment; gives whether another one has been at it."""
        with locks.turn(self.folder / "locks" / f"{key}.lock", PATIENCE_SECONDS) as waited:
            yield waited

    @contextmanager
    def using(self, keys: Iterable[str]) -> Iterator[None]:
        """Keeps segments from being evicted by this process for a while.

        Another process may evict them; what is mapped stays readable until it is unmapped.
        """
        held = list(keys)
        with self._use_lock:
            self._in_use.update(held)
        try:
            yield
        finally:
            with self._use_lock:
                self._in_use.subtract(held)
                self._in_use += Counter()

    # Saving

    def save(
        self, segment: Segment, origin: Origin, *, scheme: Scheme = "plain", seconds: float = 0.0
    ) -> None:
        """Writes a segment: temporary file, flush, rename, and then its row; evicts what the budget asks for.

        Args:
            segment: to keep.
            origin: for people.
            scheme: how keys and values are stored.
            seconds: that computing it took.

        Raises:
            StoreError: disk or budget is full, or the folder cannot be written; nothing is left behind.
        """
        try:
            with locks.shared(self.folder / "writing.lock"):
                notes = {name: str(value) for name, value in asdict(origin).items()}
                entry = files.write(self.files, segment.key, segment.keys, segment.values, scheme, notes)
                self._enter(segment, origin, entry, seconds)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"a segment of {segment.nbytes:,} bytes could not be written to {str(self.folder)!r}: "
                f"{error}. Free some space (pml cache prune) or choose another folder with --cache-dir."
            ) from error

    def _enter(self, segment: Segment, origin: Origin, entry: Entry, seconds: float) -> None:
        now = time.time()
        row = {
            **_columns(entry),
            "key": segment.key,
            "tokens": segment.tokens,
            "token_ids": _pack(segment.token_ids),
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
            (self.files / entry.file).unlink(missing_ok=True)
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
            victims = eviction.over_budget(connection, budget, self.policy, {key, *self._in_use})
            freed = sum(victim.bytes for victim in victims)
            if eviction.used(connection) - freed > budget:
                raise OSError(
                    f"the store's budget of {budget:,} bytes has no room left beside what is pinned or in use"
                )
            eviction.raise_inflation(connection, victims)
            eviction.take_out(connection, victims, "evicted: budget")
            self.count(connection, "evicted", len(victims))
        self._verified.discard(str(row["file"]))
        for victim in victims:
            log.info("evicted segment %s (%d bytes) for the budget", victim.key, victim.bytes)
        kept = old[0] if old is not None and old[0] != row["file"] else None
        return [victim.file for victim in victims] + ([kept] if kept else [])

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

    def prune(self, *, max_bytes: int | None = None, older_than: float | None = None) -> Removed:
        """Evicts down to a size, or what was not used for some seconds; not what is pinned or in use."""
        with self._index.writing() as connection:
            keep = set(self._in_use)
            victims: list[Victim] = []
            if older_than is not None:
                victims = eviction.too_old(connection, time.time() - older_than, keep)
                eviction.take_out(connection, victims, "evicted: age")
            if max_bytes is not None:
                more = eviction.over_budget(connection, max_bytes, self.policy, keep)
                eviction.take_out(connection, more, "evicted: budget")
                victims += more
            self.count(connection, "evicted", len(victims))
        return self._removed(victims)

    def remove(self, keys: Iterable[str], reason: str = "deleted") -> Removed:
        """Removes segments, pinned ones too."""
        wanted = set(keys)
        with self._index.writing() as connection:
            rows = connection.execute("select key, file, bytes from segments").fetchall()
            victims = [Victim(*row) for row in rows if row[0] in wanted]
            eviction.take_out(connection, victims, reason)
        return self._removed(victims)

    def clear(self, schema: str | None = None) -> int:
        """Removes all segments, or those that only this schema uses; returns how many."""
        with self._index.reading() as connection:
            keys = {row[0] for row in connection.execute("select key from segments")}
            labels = connection.execute("select key, schema from labels").fetchall()
        if schema is not None:
            keys = {key for key, name in labels if name == schema}
            keys -= {key for key, name in labels if name != schema}
        return self.remove(keys, "cleared").segments

    def _removed(self, victims: Sequence[Victim]) -> Removed:
        self.discard([victim.file for victim in victims])
        for victim in victims:
            log.info("removed segment %s (%d bytes)", victim.key, victim.bytes)
        return Removed(len(victims), sum(victim.bytes for victim in victims))

    def discard(self, names: Iterable[str]) -> None:
        """Removes files that have no row any more."""
        for name in names:
            (self.files / name).unlink(missing_ok=True)
            self._verified.discard(name)

    # Auditing

    def verify(self, *, repair: bool = False, progress: Progress | None = None) -> Verified:
        """Reads every file and compares it with the index.

        Args:
            repair: set faulty segments aside, and remove files that belong to none.
            progress: called with (done, total, file).
        """
        with self._index.reading() as connection:
            rows = connection.execute(f"select key, {_ENTRY} from segments").fetchall()
        entries = [(row[0], _entry_of(row[1:])) for row in rows]
        faults, read, seconds = audit.check(self.files, entries, progress)
        still = self.contains(
            fault.key for fault in faults
        )  # another process may have evicted some meanwhile
        faults = [fault for fault in faults if fault.key in still]
        left = [path.name for path in audit.orphans(self.files, self._listed())]
        if repair:
            for fault in faults:
                self._set_aside(fault.key, fault.file, fault.what)
            self._recover()
        return Verified(len(entries), read, seconds, tuple(faults), tuple(left), repair)

    def _recover(self) -> None:
        audit.sweep(self.files, self.folder / "writing.lock", self._listed)
        audit.trim_quarantine(self.folder / "quarantine")

    def _listed(self) -> set[str]:
        with self._index.reading() as connection:
            return {row[0] for row in connection.execute("select file from segments").fetchall()}

    def _entry(self, key: str) -> tuple[Entry, bytes] | None:
        with self._index.reading() as connection:
            row = connection.execute(
                f"select {_ENTRY}, token_ids from segments where key = ?", [key]
            ).fetchone()
        return (_entry_of(row[:-1]), row[-1]) if row is not None else None

    def _fault(self, path: Path, entry: Entry) -> str | None:
        policy = self.verify_policy
        content = policy == "always" or (policy == "first" and entry.file not in self._verified)
        wrong = files.fault(path, entry, content=content)
        if wrong is None and content:
            self._verified.add(entry.file)
        return wrong

    def _set_aside(self, key: str, file: str, what: str) -> None:
        log.warning("segment %s is not used (%s); it is computed again", key, what)
        with self._index.writing() as connection:
            row = connection.execute(
                "select key, file, bytes from segments where key = ? and file = ?", [key, file]
            ).fetchone()
            victims = [Victim(*row)] if row else []
            eviction.take_out(connection, victims, "damaged")
            self.count(connection, "corrupt", len(victims))
        self._verified.discard(file)
        path, aside = self.files / file, self.folder / "quarantine"
        try:
            aside.mkdir(exist_ok=True)
            path.replace(aside / file)
            audit.trim_quarantine(aside)
        except OSError as error:
            log.info("segment %s could not be set aside: %s", key, error)

    # Moving

    def export(self, target: Path, schema: str | None = None, progress: Progress | None = None) -> Moved:
        """Writes the segments of a schema, or all of them, into one file.

        Raises:
            StoreError: there are none, or the file cannot be written.
        """
        return moving.export(self, target, schema, progress)

    def import_(self, source: Path, progress: Progress | None = None) -> Moved:
        """Takes the segments of an exported file in, each verified before it is entered.

        Raises:
            StoreError: the file is none of ours or damaged, or there is no room; what was taken in stays.
        """
        return moving.take_in(self, source, progress)


def _columns(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "shape": json.dumps(list(entry.shape))}


def _entry_of(row: Sequence[Any]) -> Entry:
    file, size, digest, dtype, scheme, shape = row
    return Entry(file, size, digest, dtype, scheme, tuple(json.loads(shape)) if shape else ())


def _require_writable(folder: Path) -> None:
    probe = folder / f".write-{uuid.uuid4().hex}"
    probe.write_bytes(b"")
    probe.unlink()


def _pack(token_ids: Sequence[int]) -> bytes:
    return array("i", token_ids).tobytes()
