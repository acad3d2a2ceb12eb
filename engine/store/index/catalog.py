"""The index rows of a store's segments: lookup, insertion and deletion."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.base.tiers import Reason
from engine.store.blobs import segment_files
from engine.store.blobs.segment_files import Entry
from engine.store.index import eviction, settings
from engine.store.index.database import FailedIndexError, Index
from engine.store.index.eviction import ClearedError, NoRoomError, Victim
from engine.store.index.in_use import Holds
from engine.store.index.settings import Settings
from engine.store.index.stats import count

log = logging.getLogger(__name__)

_BATCH = 500  # keys in one query
_ENTRY = ", ".join(segment_files.COLUMNS)
_ODD = "typeof(key) <> 'text' or typeof(bytes) <> 'integer'"  # invalid rows
Chosen = list[tuple[list[Victim], Reason]]
"""Segments to remove, with the reason."""


@dataclass(frozen=True)
class Fault:
    """A segment whose file differs from the index."""

    key: str
    file: str
    what: str


class UnfitRowError(Exception):
    """A row of the index is invalid; the message says why. `file` is the file name in it."""

    def __init__(self, file: str, words: str) -> None:
        super().__init__(words)
        self.file = file


class Catalog:
    """The rows of a store's segments."""

    def __init__(self, index: Index, settings: Settings, holds: Holds) -> None:
        self._index, self._settings, self._holds = index, settings, holds
        self._owed: Chosen = []  # rows to delete later, whose files are deleted

    def contains(self, keys: Iterable[str]) -> set[str]:
        """Returns the keys with a row; none if the index cannot be read."""
        wanted = list(keys)
        stored: set[str] = set()
        try:
            with self._index.reading() as connection:
                for batch in (wanted[i : i + _BATCH] for i in range(0, len(wanted), _BATCH)):
                    marks = ",".join("?" * len(batch))
                    rows = connection.execute(f"select key from segments where key in ({marks})", batch)
                    stored.update(row[0] for row in rows.fetchall())
        except FailedIndexError as error:
            log.warning("%s", error)
        return stored - {victim.key for victims, _ in self._owed for victim in victims}

    def seconds(self, keys: Iterable[str]) -> dict[str, float]:
        """Returns the recorded seconds to compute these segments."""
        wanted, seconds_by_key = list(keys), dict[str, float]()
        try:
            with self._index.reading() as connection:
                for batch in (wanted[i : i + _BATCH] for i in range(0, len(wanted), _BATCH)):
                    marks = ",".join("?" * len(batch))
                    rows = connection.execute(
                        f"select key, seconds from segments where seconds > 0 and key in ({marks})", batch
                    )
                    seconds_by_key.update(rows.fetchall())
        except FailedIndexError as error:
            log.warning("%s", error)
        return seconds_by_key

    def entry(self, key: str) -> tuple[Entry, bytes] | None:
        """Returns the index entry of a segment's file, and its tokens, 4 bytes each.

        Raises:
            UnfitRowError: the row is invalid.
            FailedIndexError: the index cannot be read.
        """
        with self._index.reading() as connection:
            row = connection.execute(
                f"select {_ENTRY}, token_ids from segments where key = ?", [key]
            ).fetchone()
        if row is None:
            return None
        try:
            return segment_files.entry_of(key, row[:-1]), row[-1]
        except ValueError as error:
            raise UnfitRowError(str(row[0]), str(error)) from error

    def entries(self) -> tuple[list[tuple[str, Entry]], list[Fault]]:
        """Returns the entries of all files, and the invalid rows."""
        with self._index.reading() as connection:
            rows = connection.execute(f"select key, {_ENTRY} from segments").fetchall()
        entries, faults = [], []
        for key, *row in rows:
            try:
                entries.append((key, segment_files.entry_of(key, row)))
            except ValueError as error:
                faults.append(Fault(str(key), str(row[0]), str(error)))
        return entries, faults

    def listed(self) -> set[str]:
        """Returns the files with a row."""
        with self._index.reading() as connection:
            return {row[0] for row in connection.execute("select file from segments").fetchall()}

    @property
    def now(self) -> float:
        """The current time, in seconds since 1970."""
        return self._index.clock()

    @property
    def bytes(self) -> int:
        """The bytes of all files with a row."""
        with self._index.reading() as connection:
            return eviction.used(connection)

    def require_writable(self) -> None:
        """Switches from a read-only copy to the index on disk.

        Raises:
            FailedIndexError: it is still not writable.
        """
        if self._index.read_only:
            self._index.set("written", f"{self.now:.6f}")

    def enter(
        self, row: dict[str, Any], labels: Sequence[tuple[str, str]], cleared: str | None = None
    ) -> list[str]:
        """Enters a row within the budget; returns the files that lost their row.

        `cleared` is `Settings.cleared` at the time of computing; None skips the check.

        Raises:
            ClearedError: the store was cleared since.
            NoRoomError: the budget has no room for it.
            FailedIndexError: the index cannot be written.
        """
        key, budget = str(row["key"]), self._settings.budget
        with self._index.writing() as connection:
            self._settle(connection)
            if cleared is not None and cleared != settings.cleared_in(connection):
                raise ClearedError(f"the store was cleared after segment {key} was computed")
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
            old_age = _old(connection, self.now, self._settings.max_age, keep)
            eviction.take_out(connection, old_age, Reason.AGE)
            victims = eviction.over_budget(connection, budget, self._settings.policy, keep)
            freed = sum(victim.bytes for victim in victims)
            if eviction.used(connection) - freed > budget:
                raise NoRoomError(eviction.no_room(budget))
            eviction.raise_inflation(connection, victims)
            eviction.take_out(connection, victims, Reason.BUDGET)
            victims = [*old_age, *victims]
            count(connection, "evicted", len(victims))
        self._owed = []
        for victim in victims:
            log.info("evicted segment %s (%d bytes)", victim.key, victim.bytes)
        if old is not None and old[0] != row["file"]:
            victims.append(Victim(key, old[0], 0))
        return eviction.files_of(victims)

    def refuse(self, key: str, label: tuple[str, str], size: int) -> None:
        """Records that the budget had no room for a segment.

        Raises:
            FailedIndexError: the index cannot be written.
        """
        with self._index.writing() as connection:
            eviction.refuse(connection, key, label, size)

    def strike(self, choose: Callable[[sqlite3.Connection], Chosen], counter: str = "") -> Chosen:
        """Deletes chosen rows in one transaction; the caller deletes the files.

        Raises:
            FailedIndexError: the index cannot be written.
        """
        with self._index.writing() as connection:
            self._settle(connection)
            chosen = choose(connection)
            for victims, reason in chosen:
                eviction.take_out(connection, victims, reason)
                if counter:
                    count(connection, counter, len(victims))
        self._owed = []
        return chosen

    def choose(self, choose: Callable[[sqlite3.Connection], Chosen]) -> Chosen:
        """Returns the chosen segments without deleting them.

        Raises:
            FailedIndexError: the index cannot be read.
        """
        with self._index.reading() as connection:
            return choose(connection)

    def owe(self, chosen: Chosen) -> None:
        """Schedules rows without files for deletion at the next write."""
        self._owed = [*self._owed, *chosen]

    def _settle(self, connection: sqlite3.Connection) -> None:
        """Deletes scheduled rows, unless their segments were stored again."""
        for victims, reason in self._owed:
            rows = dict(connection.execute("select key, file from segments").fetchall())
            deleted = [victim for victim in victims if rows.get(victim.key) == victim.file]
            eviction.take_out(connection, deleted, reason)

    def drop_odd(self) -> int:
        """Deletes rows that a store never writes; returns their number.

        Raises:
            FailedIndexError: the index cannot be read, or has such rows and cannot be written.
        """
        with self._index.reading() as connection:
            odd = int(connection.execute(f"select count(*) from segments where {_ODD}").fetchone()[0])
        if odd:
            with self._index.writing() as connection:
                connection.execute(f"delete from segments where {_ODD}")
        return odd

    def too_much(
        self, max_bytes: int | None, older_than: float | None
    ) -> Callable[[sqlite3.Connection], Chosen]:
        """Chooses segments by size and age in seconds, except pinned, retained and used ones."""
        keep = self._holds.keys()

        def choose(connection: sqlite3.Connection) -> Chosen:
            old = _old(connection, self.now, older_than, keep)
            more: list[Victim] = []
            if max_bytes is not None:
                room = max_bytes + sum(victim.bytes for victim in old)
                locked = keep | {victim.key for victim in old}
                more = eviction.over_budget(connection, room, self._settings.policy, locked)
            return [(old, Reason.AGE), (more, Reason.BUDGET)]

        return choose


def _old(
    connection: sqlite3.Connection, now: float, age: float | None, keep: Collection[str]
) -> list[Victim]:
    return [] if age is None else eviction.too_old(connection, now - age, keep)
