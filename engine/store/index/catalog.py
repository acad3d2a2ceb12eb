"""Which segments a store has, and in which files: the rows of its index, entered and taken out."""

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
_ODD = "typeof(key) <> 'text' or typeof(bytes) <> 'integer'"  # by which rows could not even be deleted
Chosen = list[tuple[list[Victim], Reason]]
"""Segments that go, and the reason why."""


@dataclass(frozen=True)
class Fault:
    """A segment whose file is not what the index says."""

    key: str
    file: str
    what: str


class UnfitRowError(Exception):
    """A row of the index cannot be right; the message says why.

    Attributes:
        file: the name of the file in it.
    """

    def __init__(self, file: str, words: str) -> None:
        super().__init__(words)
        self.file = file


class Catalog:
    """The rows of a store's segments.

    Args:
        index: the index that holds them.
        settings: the settings of the store.
        holds: the keys that nothing evicts.
    """

    def __init__(self, index: Index, settings: Settings, holds: Holds) -> None:
        self._index, self._settings, self._holds = index, settings, holds
        self._owed: Chosen = []  # files that are gone while their rows could not be deleted yet

    # Reading

    def contains(self, keys: Iterable[str]) -> set[str]:
        """Returns those of the keys that have a row; none where the index cannot be read."""
        wanted = list(keys)
        found: set[str] = set()
        try:
            with self._index.reading() as connection:
                for batch in (wanted[i : i + _BATCH] for i in range(0, len(wanted), _BATCH)):
                    marks = ",".join("?" * len(batch))
                    rows = connection.execute(f"select key from segments where key in ({marks})", batch)
                    found.update(row[0] for row in rows.fetchall())
        except FailedIndexError as error:
            log.warning("%s", error)
        return found - {victim.key for victims, _ in self._owed for victim in victims}

    def seconds(self, keys: Iterable[str]) -> dict[str, float]:
        """Returns what computing these took, of those of which it was written down."""
        wanted, found = list(keys), dict[str, float]()
        try:
            with self._index.reading() as connection:
                for batch in (wanted[i : i + _BATCH] for i in range(0, len(wanted), _BATCH)):
                    marks = ",".join("?" * len(batch))
                    rows = connection.execute(
                        f"select key, seconds from segments where seconds > 0 and key in ({marks})", batch
                    )
                    found.update(rows.fetchall())
        except FailedIndexError as error:
            log.warning("%s", error)
        return found

    def entry(self, key: str) -> tuple[Entry, bytes] | None:
        """What is said of a segment's file, and its tokens, 4 bytes each.

        Raises:
            UnfitRowError: the row cannot be right.
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
        """What is said of every file, and the rows by which nothing may be done."""
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
        """The files that have a row."""
        with self._index.reading() as connection:
            return {row[0] for row in connection.execute("select file from segments").fetchall()}

    @property
    def now(self) -> float:
        """What time it is, in seconds since 1970."""
        return self._index.clock()

    @property
    def bytes(self) -> int:
        """The bytes of all files that have a row."""
        with self._index.reading() as connection:
            return eviction.used(connection)

    # Writing

    def require_writable(self) -> None:
        """Goes over to the real index where it could only be read before.

        Raises:
            FailedIndexError: it still can only be read.
        """
        if self._index.read_only:
            self._index.set("written", f"{self.now:.6f}")

    def enter(
        self, row: dict[str, Any], labels: Sequence[tuple[str, str]], cleared: str | None = None
    ) -> list[str]:
        """Enters a row within the budget; returns the files that have no row any more.

        Args:
            row: values by the names of their columns.
            labels: schemas and paths of modules that it is of.
            cleared: the setting of that name when it was computed; None where that does not matter.

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
        """Writes down that the budget had no room for a segment.

        Raises:
            FailedIndexError: the index cannot be written.
        """
        with self._index.writing() as connection:
            eviction.refuse(connection, key, label, size)

    def strike(self, choose: Callable[[sqlite3.Connection], Chosen], counter: str = "") -> Chosen:
        """Takes out what is chosen, in one transaction; the files are left to the caller.

        Args:
            choose: a function that is given the connection inside the transaction and returns what goes.
            counter: the counter to which the number is added; "" for none.

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
        """Returns what would be taken out.

        Raises:
            FailedIndexError: the index cannot be read.
        """
        with self._index.reading() as connection:
            return choose(connection)

    def owe(self, chosen: Chosen) -> None:
        """Remembers rows to take out at the next write: their files are gone already."""
        self._owed = [*self._owed, *chosen]

    def _settle(self, connection: sqlite3.Connection) -> None:
        """Deletes rows whose files went before, unless somebody has stored them again."""
        for victims, reason in self._owed:
            rows = dict(connection.execute("select key, file from segments").fetchall())
            gone = [victim for victim in victims if rows.get(victim.key) == victim.file]
            eviction.take_out(connection, gone, reason)

    def drop_odd(self) -> int:
        """Deletes rows that no store writes; returns how many there were.

        Raises:
            FailedIndexError: the index cannot be read, or not be written though it has such rows.
        """
        with self._index.reading() as connection:
            odd = int(connection.execute(f"select count(*) from segments where {_ODD}").fetchone()[0])
        if odd:
            with self._index.writing() as connection:
                connection.execute(f"delete from segments where {_ODD}")
        return odd

    # Choosing what goes

    def too_much(
        self, max_bytes: int | None, older_than: float | None
    ) -> Callable[[sqlite3.Connection], Chosen]:
        """What goes for a size, and what for an age in seconds: not what is pinned, kept or in use."""
        keep = self._holds.keys()

        def choose(connection: sqlite3.Connection) -> Chosen:
            old = _old(connection, self.now, older_than, keep)
            more: list[Victim] = []
            if max_bytes is not None:
                room = max_bytes + sum(victim.bytes for victim in old)
                spared = keep | {victim.key for victim in old}
                more = eviction.over_budget(connection, room, self._settings.policy, spared)
            return [(old, Reason.AGE), (more, Reason.BUDGET)]

        return choose


def _old(
    connection: sqlite3.Connection, now: float, age: float | None, keep: Collection[str]
) -> list[Victim]:
    """What was not used for `age` seconds."""
    return [] if age is None else eviction.too_old(connection, now - age, keep)
