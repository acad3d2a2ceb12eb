"""A private SQLite file that opens on first use. A damaged file is set aside and replaced."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from app.studio.history.migrations import Migration, migrate
from engine.base.errors import PromptCacheError
from engine.files.sqlite_journal import keep_journal
from engine.store.blobs.locks import network_kind

logger = logging.getLogger(__name__)

_BUSY_SECONDS = 5.0
_CHECKED_BYTES = 32 << 20  # larger files get no full check
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_NO_MEANS = frozenset({errno.EFBIG, errno.EDQUOT, errno.EIO})  # permissions would not help
_BESIDE = ("", "-wal", "-shm", "-journal")


class KeptFile:
    """One database, for several threads and several programs at once.

    Args:
        path: the file; created with its folder on first use, readable by its owner only.
        migrations: the migrations of its tables; see `migrate`.
        what: a name for its content, used in messages.

    Attributes:
        set_aside: messages about damaged files that were renamed.
    """

    def __init__(self, path: Path, migrations: Sequence[Migration], what: str) -> None:
        self.path, self._migrations, self._what = path, migrations, what
        self.set_aside: list[str] = []
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = None
        self._status: os.stat_result | None = None

    def close(self) -> None:
        """Closes the database; the next call opens it again."""
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._open = self._status = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yields the open database.

        Raises:
            PromptCacheError: it cannot be used; the message says why.
        """
        with self._lock:
            try:
                yield self._connection()
            except sqlite3.Error as error:
                if _is_damage(error):
                    self._put_aside()
                raise PromptCacheError(self._sentence(error)) from error
            except OSError as error:
                raise PromptCacheError(self._sentence(error)) from error

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Yields the open database in a transaction, rolled back on errors.

        Raises:
            PromptCacheError: it cannot be used; the message says why.
        """
        with self.reading() as connection:
            connection.execute("begin immediate")
            try:
                yield connection
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:  # a full disk rolled it back already
                    connection.execute("rollback")
                raise

    def empty_log(self) -> None:
        """Truncates the write-ahead log, so that it has no deleted data."""
        with contextlib.suppress(sqlite3.Error), self._lock:  # a later call truncates it
            if self._open is not None:
                self._open.execute("pragma wal_checkpoint(truncate)")

    def _connection(self) -> sqlite3.Connection:
        if self._open is not None and not self._is_there():
            self.close()
        if self._open is None:
            try:
                self._open = self._connected()
            except sqlite3.Error as error:
                if not _is_damage(error):
                    raise
                self._put_aside()
                self._open = self._connected()
        return self._open

    def _is_there(self) -> bool:
        """Whether the opened file is still in place. It may have been deleted or set aside."""
        try:
            return self._status is not None and os.path.samestat(self._status, self.path.stat())
        except OSError:
            return False

    def _connected(self) -> sqlite3.Connection:
        folder = self.path.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        self.path.chmod(0o600)
        self._status = self.path.stat()
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, check_same_thread=False)
        try:
            connection.isolation_level = None
            connection.execute("pragma secure_delete = on")
            connection.execute("pragma auto_vacuum = full")  # must precede the first table
            keep_journal(connection, "delete" if network_kind(folder) else "wal", _BUSY_SECONDS)
            connection.execute("pragma synchronous = normal")
            if self._status.st_size <= _CHECKED_BYTES:
                verdict = connection.execute("pragma quick_check(1)").fetchone()[0]
                if verdict != "ok":
                    raise _DamageError(verdict)
            migrate(connection, self.path, self._migrations, self._what)
        except BaseException:
            connection.close()
            raise
        return connection

    def _put_aside(self) -> None:
        """Renames the damaged file, unless another studio did."""
        mine = self._is_there()
        self.close()
        if not mine:
            return
        aside = f"{self.path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        for ending in _BESIDE:
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(self.path.name + ending).replace(self.path.with_name(aside + ending))
        self.set_aside.append(
            f"The file of {self._what} was damaged. It was renamed to {aside} in "
            f"{str(self.path.parent)!r}, and a new file was created."
        )
        logger.warning("%s", self.set_aside[-1])

    def _sentence(self, error: sqlite3.Error | OSError) -> str:
        code, where = _code(error), repr(str(self.path))
        if _is_damage(error):
            return f"The file of {self._what}, {where}, was damaged and is set aside. Try again."
        if code == sqlite3.SQLITE_FULL:
            return f"The disk is full, so {where} was not written. Free some space."
        if code == sqlite3.SQLITE_BUSY:
            return f"Another program has locked {where}. Try again."
        why = getattr(error, "strerror", None) or error
        if code == sqlite3.SQLITE_IOERR or getattr(error, "errno", None) in _NO_MEANS:
            return (
                f"The system could not read or write {where}: {why}. If the file size is limited "
                "(ulimit -f, or a quota), raise the limit or delete stored data. Otherwise check the "
                "disk."
            )
        return f"The {self._what} in {where} cannot be used: {why}. Make the folder and the file writable."


class _DamageError(sqlite3.DatabaseError):
    """The file is readable but inconsistent."""


def used_bytes(connection: sqlite3.Connection) -> int:
    """Returns the bytes of used pages."""
    pages, free, size = (
        int(connection.execute(f"pragma {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def put_text(connection: sqlite3.Connection, text: str) -> str:
    """Adds a text to the table `texts` if missing; returns its digest."""
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).hexdigest()
    connection.execute("insert or ignore into texts (digest, text) values (?, ?)", [digest, data])
    return digest


def plain(text: str) -> str:
    """Returns a text for SQLite: lone surrogates become question marks, control characters spaces."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(" " if ord(char) < 32 and char not in "\n\t" else char for char in whole)


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _is_damage(error: Exception) -> bool:
    return isinstance(error, _DamageError) or _code(error) in _DAMAGED
