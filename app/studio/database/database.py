"""Opens the user's database on first use. A damaged file is set aside and replaced."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlite_utils import Database
from sqlite_utils.db import Table

from app.studio.database.old_files import copy_old_files, copy_readable, read_only
from app.studio.database.tables import apply_migrations, is_current
from app.studio.database.texts import Stored, used_bytes
from engine.base.errors import PromptCacheError
from engine.files.places import broken_link
from engine.files.sqlite_journal import keep_journal
from engine.store.blobs.locks import network_kind

logger = logging.getLogger(__name__)

FILE = "studio.sqlite"
_BUSY_SECONDS = 10.0
_CHECKED_BYTES = 32 << 20  # larger files get no full check
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LIMITS = frozenset({errno.EFBIG, errno.EDQUOT, errno.EIO})  # permissions would not help
_ENDINGS = ("", "-wal", "-shm", "-journal")


class UserDatabase:
    """The database of one data folder. Safe to use from several threads and several studios.

    Args:
        folder: the data folder; created on first use, readable by its owner only.

    Attributes:
        notes: messages about damaged files that were renamed, and old files that were not copied.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / FILE
        self.notes: list[str] = []
        self._lock = threading.RLock()
        self._open: Database | None = None
        self._status: os.stat_result | None = None
        self._damaged: Path | None = None

    def close(self) -> None:
        """Closes the database; the next call opens it again."""
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._open = self._status = None

    @contextmanager
    def reading(self) -> Iterator[Database]:
        """Yields the database to one thread at a time; read-only if the disk is full or read-only.

        Raises:
            PromptCacheError: it cannot be read; the message says why.
        """
        with self._lock, self._in_words():
            try:
                db = self._connection()
            except (sqlite3.Error, OSError) as error:
                if _code(error) == sqlite3.SQLITE_BUSY:
                    raise
                with closing(self._read_only(error)) as db:
                    yield db
                return
            yield db

    @contextmanager
    def changing(self) -> Iterator[Database]:
        """Yields the database in a transaction, rolled back on errors.

        Raises:
            PromptCacheError: it cannot be written; the message says why.
        """
        with self._lock, self._in_words(), _transaction(self._connection()) as db:
            yield db

    def change_or_log(self, change: Callable[[Database], object]) -> None:
        """Calls a function with the database in a transaction; a failed write is only logged."""
        try:
            with self.changing() as db:
                change(db)
        except (PromptCacheError, UnicodeEncodeError) as error:
            logger.warning("%s", error)

    def empty_log(self) -> None:
        """Truncates the write-ahead log, so that it has no deleted data."""
        with contextlib.suppress(sqlite3.Error), self._lock:  # a later call truncates it
            if self._open is not None:
                self._open.execute("pragma wal_checkpoint(truncate)")

    def usage(self, table: Stored) -> tuple[int, int, list[str]]:
        """Returns the rows of a table, their bytes, and messages for the user; never fails."""
        try:
            with self.reading() as db:
                return db.table(table).count, used_bytes(db, table), [*self.notes]
        except PromptCacheError as error:
            return 0, 0, [*self.notes, str(error)]

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if _is_damage(error):
                self._set_aside()
            raise PromptCacheError(self._sentence(error)) from error

    def _connection(self) -> Database:
        if self._open is not None and not self._is_there():
            self.close()
        if self._open is None:
            try:
                self._open = self._connected()
            except sqlite3.Error as error:
                if not _is_damage(error):
                    raise
                self._set_aside()
                self._open = self._connected()
        return self._open

    def _is_there(self) -> bool:
        """Whether the opened file is still in place. It may have been deleted or set aside."""
        try:
            return self._status is not None and os.path.samestat(self._status, self.path.stat())
        except OSError:
            return False

    def _connected(self) -> Database:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        self.path.chmod(0o600)
        self._status = self.path.stat()
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, check_same_thread=False)
        try:
            connection.isolation_level = None
            connection.execute("pragma secure_delete = on")
            connection.execute("pragma auto_vacuum = full")  # must precede the first table
            connection.execute("pragma foreign_keys = on")
            connection.execute("pragma synchronous = full")  # a saved draft survives a power failure
            keep_journal(connection, "delete" if network_kind(self.folder) else "wal", _BUSY_SECONDS)
            if self._status.st_size <= _CHECKED_BYTES:
                verdict = connection.execute("pragma quick_check(1)").fetchone()[0]
                if verdict != "ok":
                    raise _DamageError(verdict)
            db = Database(connection, execute_plugins=False)
            self._prepare(db)
        except BaseException:
            connection.close()
            raise
        return db

    def _prepare(self, db: Database) -> None:
        """Creates the tables, and copies the rows of a damaged file or of an earlier version."""
        if self._damaged is None and is_current(db):
            return
        notes: list[str] = []
        with _transaction(db):
            new, copied = apply_migrations(db, str(self.path)), 0
            if self._damaged is not None:
                copied = copy_readable(db, self._damaged)
                notes.append(
                    "The new database has the drafts and versions that could be read from it."
                    if copied
                    else "No draft and no version could be read from it."
                )
            if new and not copied:  # never copied, or lost with the damaged file
                notes += copy_old_files(db, self.folder)
        for note in notes:
            self.notes.append(note)
            logger.warning("%s", note)
        self._damaged = None

    def _read_only(self, why: Exception) -> Database:
        """Opens the file on a full or read-only disk; raises `why` if that fails."""
        try:
            db = Database(read_only(self.path), execute_plugins=False)
            db.execute("select count(*) from workspaces").fetchone()
        except (sqlite3.Error, OSError):
            raise why from None
        return db

    def _set_aside(self) -> None:
        """Renames the damaged file, unless another studio did."""
        mine = self._is_there()
        self.close()
        if not mine:
            return
        aside = f"{FILE}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        for ending in _ENDINGS:
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(FILE + ending).replace(self.path.with_name(aside + ending))
        self._damaged = self.path.with_name(aside)
        self.notes.append(
            f"The studio's database was damaged. It was renamed to {aside} in {str(self.folder)!r}."
        )
        logger.warning("%s", self.notes[-1])

    def _sentence(self, error: sqlite3.Error | OSError) -> str:
        code, where = _code(error), repr(str(self.path))
        if _is_damage(error):
            return f"The database {where} was damaged and is set aside. Try again."
        if code == sqlite3.SQLITE_FULL:
            return f"The disk is full, so {where} was not written. Free some space."
        if code == sqlite3.SQLITE_TOOBIG:
            return f"The text is too large for {where}: at most 1 GB. Shorten it."
        if code == sqlite3.SQLITE_BUSY:
            return f"Another program has locked {where}. Try again."
        why = getattr(error, "strerror", None) or error
        if code == sqlite3.SQLITE_IOERR or getattr(error, "errno", None) in _LIMITS:
            return (
                f"The system could not read or write {where}: {why}. If the file size is limited "
                "(ulimit -f, or a quota), raise the limit or delete stored data. Otherwise check the "
                "disk."
            )
        link = broken_link(self.folder)
        fix = f"{link}. Connect that disk" if link else f"{why}. Make the folder and the file writable"
        return f"The database {where} cannot be used: {fix}."


class _DamageError(sqlite3.DatabaseError):
    """The file is readable but inconsistent."""


@contextmanager
def _transaction(db: Database) -> Iterator[Database]:
    db.execute("begin immediate")
    try:
        yield db
        db.commit()
    except BaseException:
        db.rollback()  # does nothing if a full disk rolled it back already
        raise


def put_first(table: Table, row: dict[str, str], most: int) -> None:
    """Makes a row of a list the latest one, and deletes the oldest beyond the limit."""
    table.insert(row, replace=True)
    table.delete_where(f"rowid not in (select rowid from {table.name} order by rowid desc limit ?)", [most])


def plain(text: str) -> str:
    """Returns a text for SQLite: lone surrogates become question marks, control characters spaces."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(" " if ord(char) < 32 and char not in "\n\t" else char for char in whole)


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _is_damage(error: Exception) -> bool:
    return isinstance(error, _DamageError) or _code(error) in _DAMAGED
