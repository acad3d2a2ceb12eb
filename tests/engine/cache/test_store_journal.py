"""The way in which SQLite files keep their journal: changed beside other programs, which are waited for."""

from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.files.sqlite_journal import keep_journal


def opened(path: Path, timeout: float = 0.0) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)


def mode(connection: sqlite3.Connection) -> str:
    return str(connection.execute("pragma journal_mode").fetchone()[0])


@pytest.fixture
def busy(tmp_path: Path) -> sqlite3.Connection:
    """A connection in the middle of a change of a new file."""
    connection = opened(tmp_path / "file.sqlite")
    connection.execute("create table t (n)")
    connection.execute("begin immediate")
    return connection


def test_a_program_that_is_writing_is_waited_for(busy: sqlite3.Connection, tmp_path: Path) -> None:
    connection = opened(tmp_path / "file.sqlite", timeout=5.0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        connection.execute("pragma journal_mode = wal")  # whatever the timeout is
    timer = threading.Timer(0.2, lambda: busy.execute("commit"))
    timer.start()
    keep_journal(connection, "wal", 5.0)
    timer.join()
    assert mode(connection) == "wal"


def test_it_is_not_waited_for_without_end(busy: sqlite3.Connection, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        keep_journal(opened(tmp_path / "file.sqlite"), "wal", 0.1)
    assert 0.1 <= time.monotonic() - started < 5


def test_a_file_that_has_it_already_is_left_alone(busy: sqlite3.Connection, tmp_path: Path) -> None:
    keep_journal(opened(tmp_path / "file.sqlite"), "delete", 0.0)


def test_what_is_no_database_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file.sqlite"
    path.write_bytes(b"no database, and long enough to be read as one" * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        keep_journal(opened(path), "wal", 5.0)


def test_many_open_a_new_file_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def begin(path: Path) -> str:
        connection = opened(path, timeout=5.0)
        together.wait()
        keep_journal(connection, "wal", 5.0)
        connection.execute("create table if not exists t (n)")
        connection.execute("insert into t values (1)")
        found = mode(connection)
        connection.close()
        return found

    with ThreadPoolExecutor(8) as threads:
        for turn in range(5):
            path = tmp_path / f"{turn}.sqlite"
            assert list(threads.map(begin, [path] * 8)) == ["wal"] * 8
            assert opened(path).execute("select count(*) from t").fetchone() == (8,)
