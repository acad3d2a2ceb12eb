"""The index: one SQLite database for several threads and processes.

If it cannot be written, on a full disk or in a read-only folder, a copy in memory replaces it for reading.
Each write tries the real one again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import sqlite_utils

from engine.base.errors import StoreError
from engine.files.directory import is_loose
from engine.files.sqlite_journal import keep_journal
from engine.store.blobs import locks
from engine.store.blobs.claim import APPLICATION_ID, INDEX, SEGMENT
from engine.store.blobs.folder import Folder
from engine.store.index.tables import UNFILLED, prepare

log = logging.getLogger(__name__)

_SOON_SECONDS = 0.05  # that an answer waits for data that can also be read next time
_BUSY_SECONDS = 10.0
_CHECKED_BYTES = 32 << 20  # the largest index that is checked completely at every opening
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_REFUSED = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
}
_NO_WAY = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}
TABLES = {
    "segments": {
        *("key", "file", "bytes", "digest", "tokens", "token_ids", "dtype", "fingerprint", "model", "scope"),
        *("created", "last_used", "hits", "seconds", "worth", "scheme", "shape"),
    },
    "labels": {"key", "schema", "path"},
    "counters": {"name", "value"},
    "settings": {"name", "value"},
    "pins": {"schema", "since", "until"},
    "keeps": {"key", "seconds", "until"},
    "evictions": {"id", "at", "key", "schema", "path", "bytes", "reason"},
    "served": {"tier", "outcome", "reason", "count", "bytes", "ms"},
    "misses": {"id", "at", "key", "schema", "path", "bytes", "ms", "reason"},
    "combinations": {"name", "schema", "runs", "used"},
    "measurements": {"id", "combination", "rung", "at", "kl"},
}


class FailedIndexError(StoreError):
    """The index could not be read or written; `code` is SQLite's error code, 0 for none."""

    def __init__(self, words: str, code: int = 0) -> None:
        super().__init__(words)
        self.code = code

    @property
    def damaged(self) -> bool:
        """Whether its content is invalid."""
        return self.code in _DAMAGED

    @property
    def refused(self) -> bool:
        """Whether there is no space or no permission to write it."""
        return self.code in _REFUSED

    @property
    def busy(self) -> bool:
        """Whether another process locked it for longer than the timeout."""
        return self.code == sqlite3.SQLITE_BUSY


class Index:
    """The open database of a store.

    Args:
        folder: the folder of the store.
        without: why the file must not be used, or ""; the index then begins empty, in memory.
        clock: returns the seconds since 1970.

    Attributes:
        clock: the clock; `now()` in SQL.
        read_only: why nothing can be written, or "".
        held: nothing can be written because another process has the lock.
        unread: why the file could not be read either, or "".
        version: the index version before migration; 0 if it was created.

    Raises:
        FailedIndexError: it is damaged.
        StoreError: it is of a newer version.
    """

    def __init__(self, folder: Folder, without: str = "", clock: Callable[[], float] = time.time) -> None:
        self._folder, self._path, self.clock = folder, folder.path / INDEX, clock
        self._lock = threading.RLock()
        self.read_only, self.unread = without, ""
        self._without, self.held = without, False
        self._patience = _BUSY_SECONDS
        kind = locks.network_kind(folder.path)
        self._kind = kind
        if kind is not None:
            log.warning(
                "the cache folder %s is on a network (%s): it is slower, and only one machine should use "
                "it at a time; choose another one with --cache-dir",
                folder.path,
                kind,
            )
        if without:
            self._use(self._in_memory())
            return
        try:
            self._use(self._writable())
        except FailedIndexError as error:
            if not (error.refused or error.busy):
                raise
            self._use(self._copy(error))

    def _use(self, connection: sqlite3.Connection) -> None:
        connection.create_function("now", 0, self.clock)
        self._connection = connection
        self._database = sqlite_utils.Database(connection)

    def close(self) -> None:
        """Closes the database."""
        with self._lock:
            self._connection.close()

    def _writable(self) -> sqlite3.Connection:
        """Opens the database for writing; checks and migrates it.

        Raises:
            FailedIndexError: that fails.
        """
        with self._impatient_later(), _in_words(self._path):
            self._make()
            connection = sqlite3.connect(self._path, timeout=self._patience, check_same_thread=False)
            try:
                connection.isolation_level = None
                keep_journal(connection, "wal" if self._kind is None else "delete", self._patience)
                connection.execute(f"pragma synchronous = {'normal' if self._kind is None else 'full'}")
                connection.execute("pragma secure_delete = on")  # overwrites deleted token ids
                self._require_whole(connection)
                prepare(self._folder.path, connection, unfilled=self._has_files())
                _require_tables(connection)
                if connection.execute("pragma application_id").fetchone()[0] != APPLICATION_ID:
                    connection.execute(f"pragma application_id = {APPLICATION_ID}")
                connection.execute("begin immediate")  # fails if the folder is read-only
                connection.execute("rollback")
            except BaseException:
                connection.close()
                raise
        return connection

    @contextmanager
    def _impatient_later(self) -> Iterator[None]:
        """After a timeout the next calls do not wait, until the index is free again."""
        try:
            yield
        except FailedIndexError as error:
            if error.busy:
                self._patience = 0.0
            raise
        self._patience = _BUSY_SECONDS

    def _make(self) -> None:
        """Creates the file, private and following no link.

        An existing one is not opened, since closing a descriptor would release SQLite's locks.
        """
        root = self._folder.root
        try:
            try:
                os.close(root.open(INDEX, os.O_RDWR | os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                status = root.stat(INDEX)
                if stat.S_ISREG(status.st_mode) and is_loose(status):
                    root.tighten(INDEX)
                if not os.access(self._path, os.W_OK):  # SQLite would report it at the first write only
                    raise PermissionError(errno.EACCES, "it is read-only", INDEX) from None
        except OSError as error:
            code = sqlite3.SQLITE_CANTOPEN if error.errno in _NO_WAY else sqlite3.SQLITE_ERROR
            raise FailedIndexError(_sentence(self._path, error, code), code) from error
        if not stat.S_ISREG(root.stat(INDEX).st_mode):
            raise StoreError(
                f"{str(self._path)!r} is not a plain file. Choose another folder (--cache-dir, cache_dir)."
            )

    def _require_whole(self, connection: sqlite3.Connection) -> None:
        """Raises if the database is damaged; checks a large one only briefly."""
        connection.execute("select count(*) from sqlite_master").fetchone()
        if self._path.stat().st_size <= _CHECKED_BYTES:
            _raise_damaged(connection.execute("pragma quick_check(1)").fetchone()[0])

    def _has_files(self) -> bool:
        return any(SEGMENT.fullmatch(name) for name in self._folder.ours())

    def _copy(self, why: FailedIndexError) -> sqlite3.Connection:
        """Returns a copy of the index in memory, without writing anything.

        Raises:
            FailedIndexError: it is damaged.
        """
        memory, read = sqlite3.connect(":memory:", check_same_thread=False), False
        memory.isolation_level = None
        uri = self._path.absolute().as_uri()
        for options, before in (
            ("?mode=ro", ""),
            ("?mode=rw", "pragma locking_mode = exclusive"),  # needs no shared memory on disk
            ("?mode=ro&immutable=1", ""),  # needs no write-ahead log
        ):
            if why.busy and "immutable" in options:  # another process writes to it
                continue
            with (
                contextlib.suppress(sqlite3.Error),
                closing(sqlite3.connect(uri + options, uri=True, timeout=0)) as source,
            ):
                if before:
                    source.execute(before)
                source.execute("select count(*) from sqlite_master").fetchone()
                source.backup(memory)
                read = True
                break
        with _in_words(self._path):
            prepare(self._folder.path, memory, unfilled=self._has_files())
            _require_tables(memory)
            memory.execute("pragma query_only = on")
        self.read_only, self.unread, self.held = str(why), "" if read else str(why), why.busy
        return memory

    def _in_memory(self) -> sqlite3.Connection:
        memory = sqlite3.connect(":memory:", check_same_thread=False)
        memory.isolation_level = None
        prepare(self._folder.path, memory)
        return memory

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection to one thread at a time.

        Raises:
            FailedIndexError: the index cannot be read.
        """
        with self._lock, _in_words(self._path):
            yield self._connection

    @contextmanager
    def reading_soon(self) -> Iterator[sqlite3.Connection]:
        """Like `reading`, but fails if another thread has the connection for long.

        Raises:
            FailedIndexError: another thread has it, or the index cannot be read.
        """
        if not self._lock.acquire(timeout=_SOON_SECONDS):
            raise FailedIndexError(f"the index {str(self._path)!r} is being written to", sqlite3.SQLITE_BUSY)
        try:
            with _in_words(self._path):
                yield self._connection
        finally:
            self._lock.release()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection in a transaction, which is rolled back on failure.

        Raises:
            FailedIndexError: the index cannot be written.
        """
        with self._lock:
            if self.read_only:
                self._try_again()
            with self._impatient_later(), _in_words(self._path):
                self._connection.execute(f"pragma busy_timeout = {int(self._patience * 1000)}")
                self._connection.execute("begin immediate")
                try:
                    yield self._connection
                    self._connection.execute("commit")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("rollback")
                    raise

    @contextmanager
    def memory_or_writing(self) -> Iterator[sqlite3.Connection]:
        """Like `writing`, or into the copy in memory if there is only that."""
        with self._lock:
            read_only, self.read_only = self.read_only, ""
            try:
                self._connection.execute("pragma query_only = off")
                with self.writing() as connection:
                    yield connection
            finally:
                self.read_only = read_only
                if read_only:
                    self._connection.execute("pragma query_only = on")

    def _try_again(self) -> None:
        """Switches to the index on disk, if it is writable now."""
        connection = self._writable()
        self._connection.close()
        self._use(connection)
        self.read_only = self.unread = self._without = ""
        log.warning("the segment store in %s can be written again", self._folder.path)

    def refresh(self) -> None:
        """Switches to the index on disk if it is writable now, else reads it again."""
        with self._lock:
            if not self.read_only:
                return
            try:
                self._try_again()
            except FailedIndexError as error:
                if error.refused or error.busy:
                    with contextlib.suppress(FailedIndexError):
                        self._replace(self._copy(error))

    def _replace(self, connection: sqlite3.Connection) -> None:
        self._connection.close()
        self._use(connection)

    @property
    def unfilled(self) -> bool:
        """Whether it was created in a folder with files, and some may still lack a row."""
        return self.setting(UNFILLED) is not None

    def fault(self) -> str | None:
        """Checks the whole database; returns its error or None."""
        if self._without or self.unread:
            return self._without or self.unread
        try:
            with self.reading() as connection:
                _raise_damaged(connection.execute("pragma integrity_check(1)").fetchone()[0])
                _require_tables(connection)
        except FailedIndexError as error:
            return str(error)
        return None

    def renew(self, make: Callable[[], None]) -> None:
        """Sets the database aside and opens a new one; if there is no space, one in memory.

        Raises:
            FailedIndexError: it cannot be set aside; its content then counts as unknown.
        """
        with self._lock:
            self._connection.close()  # first: closing it later would delete the new one's write-ahead log
            try:
                make()
            except OSError as error:
                words = f"the index {str(self._path)!r} is damaged and cannot be set aside: {error}"
                self.read_only = self._without = words
                self._use(self._in_memory())
                raise FailedIndexError(f"{words}. Make the folder writable, and repair it again.") from error
            self._without = ""
            try:
                self._use(self._writable())
                self.read_only = self.unread = ""
            except FailedIndexError as error:
                self._use(self._copy(error))

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Returns the rows of a query by column name.

        Raises:
            FailedIndexError: the index cannot be read.
        """
        with self.reading():
            return list(self._database.query(sql, list(values)))

    def setting(self, name: str) -> str | None:
        """Returns a setting of the store."""
        with self.reading() as connection:
            row = connection.execute("select value from settings where name = ?", [name]).fetchone()
        return row[0] if row else None

    def set(self, name: str, value: str) -> None:
        """Changes a setting of the store."""
        with self.writing() as connection:
            connection.execute("insert or replace into settings (name, value) values (?, ?)", [name, value])


@contextmanager
def _in_words(path: os.PathLike[str]) -> Iterator[None]:
    """Turns errors of SQLite and the disk into sentences with the path and a fix."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        raise FailedIndexError(_sentence(path, error, code), code) from error


def _sentence(path: os.PathLike[str], error: Exception, code: int) -> str:
    if code in _DAMAGED:
        return f"the index {str(path)!r} is damaged ({error}); pml cache verify --repair rebuilds it"
    if code == sqlite3.SQLITE_BUSY:
        return f"the index {str(path)!r} is locked by another program ({error})"
    return f"the index {str(path)!r} cannot be used: {error}"


def _raise_damaged(found: str) -> None:
    if found != "ok":
        error = sqlite3.DatabaseError(found.splitlines()[0])
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def _require_tables(connection: sqlite3.Connection) -> None:
    for table, columns in TABLES.items():
        existing = {row[1] for row in connection.execute(f"pragma table_info({table})")}
        if not columns <= existing:
            _raise_damaged(f"its table {table} lacks {', '.join(sorted(columns - existing))}")
