"""The journal mode of a SQLite file that several programs open for the first time at once."""

from __future__ import annotations

import sqlite3
import time
from typing import Literal

_STEP_SECONDS = 0.01


def keep_journal(connection: sqlite3.Connection, mode: Literal["wal", "delete"], patience: float) -> None:
    """Sets the journal mode of a file, unless it has it already.

    SQLite ignores the connection's timeout when it changes the mode, and reports a locked file at once. So
    this function retries for `patience` seconds. The connection must not be in a transaction.

    Raises:
        sqlite3.Error: the file stays locked, or is not a database.
    """
    until = time.monotonic() + patience
    while True:
        try:
            if connection.execute("pragma journal_mode").fetchone()[0] != mode:
                connection.execute(f"pragma journal_mode = {mode}")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(_STEP_SECONDS)
        else:
            return
