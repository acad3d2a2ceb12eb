"""A SQLite file of what is kept: opened when it is needed, private, and begun anew where it is damaged.

Knows nothing about what it holds.
"""

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
_CHECKED_BYTES = 32 << 20  # the largest file that is read wholly when it is opened
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_NO_MEANS = frozenset({errno.EFBIG, errno.EDQUOT, errno.EIO})  # no permission would help
_BESIDE = ("", "-wal", "-shm", "-journal")


class KeptFile:
    """One database, for several threads, beside other programs that have it open.

    Args:
        path: the file; it is made when it is first needed, with its folder, for their owner alone.
        migrations: what makes its tables; see `migrate`.
        what: what it holds, in words.

    Attributes:
        set_aside: sentences on damaged files that were given another name.
    """

    def __init__(self, path: Path, migrations: Sequence[Migration], what: str) -> None:
        self.path, self._migrations, self._what = path, migrations, what
        self.set_aside: list[str] = []
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = None
        self._status: os.stat_result | None = None

    def close(self) -> None:
        """Closes the file; the next question opens it again."""
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._open = self._status = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yields the open database.

        Raises:
            PromptCacheError: it cannot be used; the sentence says why.
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
        """Yields the open database in a transaction, which is taken back where something fails.

        Raises:
            PromptCacheError: it cannot be used; the sentence says why.
        """
        with self.reading() as connection:
            connection.execute("begin immediate")
            try:
                yield connection
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:  # a full disk has rolled it back already
                    connection.execute("rollback")
                raise

    def empty_log(self) -> None:
        """Writes what the log has to the file, so that nothing that was deleted stays in the log."""
        with contextlib.suppress(sqlite3.Error), self._lock:  # then the next one to do so empties it
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
        """Whether the file that was opened lies there: somebody may have deleted it, or set it aside."""
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
            connection.execute("pragma auto_vacuum = full")  # set before there is a table
            keep_journal(connection, "delete" if network_kind(folder) else "wal", _BUSY_SECONDS)
            connection.execute("pragma synchronous = normal")
            if self._status.st_size <= _CHECKED_BYTES:
                found = connection.execute("pragma quick_check(1)").fetchone()[0]
                if found != "ok":
                    raise _DamageError(found)
            migrate(connection, self.path, self._migrations, self._what)
        except BaseException:
            connection.close()
            raise
        return connection

    def _put_aside(self) -> None:
        """Gives the damaged file another name, unless another studio has done so; nothing is deleted."""
        mine = self._is_there()
        self.close()
        if not mine:
            return
        aside = f"{self.path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        for ending in _BESIDE:
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(self.path.name + ending).replace(self.path.with_name(aside + ending))
        self.set_aside.append(
            f"The file of {self._what} was damaged. It is set aside as {aside} in {str(self.path.parent)!r}, "
            "and a new one was begun."
        )
        logger.warning("%s", self.set_aside[-1])

    def _sentence(self, error: sqlite3.Error | OSError) -> str:
        code, where = _code(error), repr(str(self.path))
        if _is_damage(error):
            return f"The file of {self._what}, {where}, was damaged and is set aside. Try again."
        if code == sqlite3.SQLITE_FULL:
            return f"The disk is full, so {where} was not written. Free some space."
        if code == sqlite3.SQLITE_BUSY:
            return f"Another program kept {where} busy. Try again."
        why = getattr(error, "strerror", None) or error
        if code == sqlite3.SQLITE_IOERR or getattr(error, "errno", None) in _NO_MEANS:
            return (
                f"The system could not read or write {where}: {why}. Either files may not be larger here "
                "(ulimit -f, or a quota): allow more, or delete what is kept. Or the disk has a fault."
            )
        return f"The {self._what} in {where} cannot be used: {why}. Make the folder and the file writable."


class _DamageError(sqlite3.DatabaseError):
    """The file was read, and does not hold together."""


def used_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of the pages that hold something."""
    pages, free, size = (
        int(connection.execute(f"pragma {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def put_text(connection: sqlite3.Connection, text: str) -> str:
    """Writes a text into the table `texts`, once; returns its digest."""
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).hexdigest()
    connection.execute("insert or ignore into texts (digest, text) values (?, ?)", [digest, data])
    return digest


def plain(text: str) -> str:
    """A text that SQLite takes: half of a surrogate pair becomes a question mark, what controls a space."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(" " if ord(one) < 32 and one not in "\n\t" else one for one in whole)


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _is_damage(error: Exception) -> bool:
    return isinstance(error, _DamageError) or _code(error) in _DAMAGED
