"""The index: one SQLite database, used by several threads and several processes."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlite_utils

from engine.store import locks
from engine.store.migrations import migrate

log = logging.getLogger(__name__)

INDEX = "index.sqlite"
_BUSY_SECONDS = 30


class Index:
    """The open database of a store.

    Args:
        folder: of the store.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = threading.RLock()
        connection = sqlite3.connect(folder / INDEX, timeout=_BUSY_SECONDS, check_same_thread=False)
        try:
            connection.isolation_level = None
            kind = locks.network_kind(folder)
            if kind is not None:
                log.warning(
                    "the cache folder %s lies on a network (%s): it is used more carefully and slowly, and "
                    "only one machine should use it at a time; --cache-dir names another",
                    folder,
                    kind,
                )
            connection.execute(f"pragma journal_mode = {'wal' if kind is None else 'delete'}")
            connection.execute(f"pragma synchronous = {'normal' if kind is None else 'full'}")
            migrate(folder, connection)
        except BaseException:
            connection.close()
            raise
        self.database = sqlite_utils.Database(connection)
        self._connection = connection

    def close(self) -> None:
        """Closes the database."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, held by one thread at a time."""
        with self._lock:
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection inside one transaction, which is undone on failure."""
        with self._lock:
            self._connection.execute("begin immediate")
            try:
                yield self._connection
                self._connection.execute("commit")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise

    def setting(self, name: str) -> str | None:
        """A setting of the store."""
        with self.reading() as connection:
            row = connection.execute("select value from settings where name = ?", [name]).fetchone()
        return row[0] if row else None

    def set(self, name: str, value: str) -> None:
        """Changes a setting of the store."""
        with self.writing() as connection:
            connection.execute("insert or replace into settings (name, value) values (?, ?)", [name, value])
