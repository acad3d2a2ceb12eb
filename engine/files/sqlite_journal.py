"""How a SQLite file keeps its journal, where several programs open it at once for the first time."""

from __future__ import annotations

import sqlite3
import time
from typing import Literal

_STEP_SECONDS = 0.01


def keep_journal(connection: sqlite3.Connection, mode: Literal["wal", "delete"], patience: float) -> None:
    """Sets the way in which a file keeps its journal, unless it has it already.

    SQLite waits for no other program while it changes from one way to the other, whatever the connection's
    timeout is: it says at once that the file is locked. So it is asked again.

    Args:
        connection: to the file, in no transaction.
        mode: a log beside the file, or a journal that is deleted after each transaction.
        patience: how many seconds another program is waited for.

    Raises:
        sqlite3.Error: the file is kept busy for longer, or is none.
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
