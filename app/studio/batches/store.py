"""The database of batches. Each row is written as it ends, so a crash loses none.

Beyond the limits the oldest batches are deleted, unnamed ones first. Deleted data is overwritten.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict

from app.studio.batches.batch import Batch, BatchMode, RowResult
from app.studio.batches.batch_locks import Answering
from app.studio.batches.migrations import MIGRATIONS
from app.studio.batches.record import (
    about,
    batch_of,
    result_json,
    result_of,
    row_json,
    row_of,
)
from app.studio.history.database import KeptFile, plain, put_text, used_bytes
from app.studio.history.record import contained, require_label
from engine.base.errors import PromptCacheError

MOST_BATCHES = 100
MOST_BYTES = 128 << 20
FILE = "batches.sqlite"
KeptState = Literal["working", "done", "stopped", "failed"]
_GONE = "That batch no longer exists. It was deleted, or newer batches replaced it."
_TAKEN = "A batch with this key already exists. Reload the page, then start it again."


class BatchKept(TypedDict):
    """A batch in a list.

    `passed` of `judged` rows pass on every side. `working` means that no end is stored: the batch runs here,
    or its studio ended first. `elsewhere` means that another studio runs it.
    """

    key: str
    name: str
    started: str
    state: KeptState | Literal["elsewhere"]
    schema: str
    model: str
    mode: BatchMode
    rows: int
    answered: int
    failed: int
    judged: int
    passed: int


class BatchesHeld(TypedDict):
    """The size and path of the database, and its problems."""

    bytes: int
    most_batches: int
    most_bytes: int
    file: str
    warnings: list[str]


class BatchStore:
    """The stored batches. Safe to use from several threads and several studios.

    Args:
        folder: the folder of the database; created if missing, readable by its owner only.
        most_batches: the maximum number of batches.
        most_bytes: the maximum bytes in use.

    Attributes:
        answering: the running batches, here or in another studio. They are never deleted.
    """

    def __init__(self, folder: Path, most_batches: int = MOST_BATCHES, most_bytes: int = MOST_BYTES) -> None:
        self._file = KeptFile(folder / FILE, MIGRATIONS, "stored batches")
        self._most_batches, self._most_bytes = most_batches, most_bytes
        self.answering = Answering(folder)

    def close(self) -> None:
        """Closes the database; the next call opens it again."""
        self._file.close()

    def require_new(self, key: str) -> None:
        """Checks that a batch with a key can start. An unreadable database does not prevent it.

        Raises:
            PromptCacheError: the key is in use, or is not text.
        """
        if not _is_text(key):
            raise PromptCacheError("The key of a batch must be valid Unicode. Reload the page.")
        known = None
        with contextlib.suppress(PromptCacheError), self._file.reading() as connection:
            known = _found(connection, key)
        if known is not None:
            raise PromptCacheError(_TAKEN)

    def begin(self, batch: Batch) -> None:
        """Adds a batch with unfinished rows; the oldest batches are deleted to make room.

        Raises:
            PromptCacheError: the batch cannot be written, is too large, or its key is in use.
        """
        whole = contained(batch.plan.schema)
        with self._file.changing() as connection:
            if _found(connection, batch.key) is not None:
                raise PromptCacheError(_TAKEN)
            texts = (batch.workspace.schema, whole, batch.plan.over or "")
            digests = [put_text(connection, text) for text in texts]
            number = connection.execute(
                "insert into batches (id, name, started, state, fault, about, schema_digest, whole_digest,"
                " prompt_digest, rows) values (?, ?, ?, 'working', '', ?, ?, ?, ?, ?)",
                [batch.key, plain(batch.name), batch.started, about(batch), *digests, len(batch.plan.rows)],
            ).lastrowid
            rows = ((number, at, row_json(row)) for at, row in enumerate(batch.plan.rows))
            connection.executemany("insert into rows (batch, number, row) values (?, ?, ?)", rows)
            self._make_room(connection, batch.key)

    def add(self, key: str, results: Sequence[tuple[int, int, RowResult]]) -> None:
        """Writes the results of rows.

        Args:
            key: the batch.
            results: each row's number, the number of rows that ended before it, and its result.

        Raises:
            PromptCacheError: the results cannot be written, there is no room, or the batch was deleted.
        """
        with self._file.changing() as connection:
            number = _number(connection, key)
            for at, ended, result in results:
                connection.execute(
                    "update rows set result = ?, ended = ? where batch = ? and number = ?",
                    [result_json(result), ended, number, at],
                )
                passed = [side.passed for side in result.sides.values() if side.passed is not None]
                connection.execute(
                    "update batches set answered = answered + ?, failed = failed + ?, judged = judged + ?,"
                    " passed = passed + ? where number = ?",
                    [
                        *(result.fault is None, result.fault is not None),
                        *(bool(passed), bool(passed) and all(passed), number),
                    ],
                )
            self._make_room(connection, key)

    def end(self, key: str, state: KeptState, fault: str = "") -> None:
        """Writes how a batch ended.

        Raises:
            PromptCacheError: the database cannot be written.
        """
        with self._file.changing() as connection:
            connection.execute(
                "update batches set state = ?, fault = ? where id = ?", [state, plain(fault), key]
            )

    def listed(self) -> list[BatchKept]:
        """Returns all batches, newest first."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "select id, name, started, state, about, rows, answered, failed, judged, passed from batches"
                " order by number desc"
            ).fetchall()
        return [_kept(*row) for row in rows]

    def load(self, key: str) -> tuple[Batch, KeptState, str]:
        """Returns a batch with its results, its final state and its error.

        Args:
            key: the batch; "" for the newest.

        Raises:
            PromptCacheError: there is no such batch.
        """
        if not _is_text(key):
            raise PromptCacheError(_GONE)
        with self._file.reading() as connection:
            row_found = connection.execute(
                "select b.number, b.id, b.name, b.started, b.state, b.fault, b.about, s.text, w.text, p.text"
                " from batches b join texts s on s.digest = b.schema_digest"
                " join texts w on w.digest = b.whole_digest join texts p on p.digest = b.prompt_digest"
                " where b.id = ? or ? = '' order by b.number desc limit 1",
                [key, key],
            ).fetchone()
            if row_found is None:
                raise PromptCacheError(_GONE)
            number, known, name, started, state, fault, about, *texts = row_found
            rows = connection.execute(
                "select number, row, result, ended from rows where batch = ? order by number", [number]
            ).fetchall()
        schema, whole, prompt = (text.decode("utf-8", "surrogatepass") for text in texts)
        batch = batch_of(known, name, started, about, schema, whole, prompt, [row_of(row[1]) for row in rows])
        ended = sorted((row for row in rows if row[2] is not None), key=lambda row: row[3])
        batch.results.update((at, result_of(result)) for at, _, result, _ in ended)
        return batch, state, fault

    def name(self, key: str) -> str | None:
        """Returns the user's name for a batch; None if there is no such batch.

        Raises:
            PromptCacheError: the database cannot be read.
        """
        with self._file.reading() as connection:
            number = _found(connection, key)
            row = connection.execute("select name from batches where number = ?", [number]).fetchone()
        return None if row is None else str(row[0])

    def rename(self, key: str, name: str) -> None:
        """Renames a batch; "" removes its name.

        Raises:
            PromptCacheError: the name is too long, or there is no such batch.
        """
        require_label(name, None)
        with self._file.changing() as connection:
            _number(connection, key)
            connection.execute("update batches set name = ? where id = ?", [plain(name), key])

    def delete(self, keys: Sequence[str]) -> int:
        """Deletes batches permanently; returns their number.

        Raises:
            PromptCacheError: one of them is running, or the database cannot be written.
        """
        with self._file.changing() as connection:
            for key in keys:
                if self._is_answered(connection, key):
                    raise PromptCacheError(
                        "Another studio is running one of these batches. Stop it there before you delete it."
                    )
            count = sum(_delete(connection, key) for key in keys)
        self._file.empty_log()
        return count

    def held(self) -> BatchesHeld:
        """Returns the size of the database; never fails."""
        used, warnings = 0, []
        try:
            with self._file.reading() as connection:
                used = used_bytes(connection)
        except PromptCacheError as error:
            warnings.append(str(error))
        return {
            "bytes": used,
            "most_batches": self._most_batches,
            "most_bytes": self._most_bytes,
            "file": str(self._file.path),
            "warnings": [*self._file.set_aside, *warnings],
        }

    def _make_room(self, connection: sqlite3.Connection, newest: str) -> None:
        oldest = connection.execute(
            "select id from batches where id != ? order by name != '', number", [newest]
        ).fetchall()
        for (key,) in oldest:
            if _count(connection) <= self._most_batches and used_bytes(connection) <= self._most_bytes:
                return
            if not self._is_answered(connection, key):
                _delete(connection, key)
        if used_bytes(connection) > self._most_bytes:
            raise PromptCacheError(
                f"It is larger than the {self._most_bytes >> 20} MiB limit of all batches together."
            )

    def _is_answered(self, connection: sqlite3.Connection, key: str) -> bool:
        number = _found(connection, key)
        row = connection.execute("select state from batches where number = ?", [number]).fetchone()
        return row is not None and row[0] == "working" and key in self.answering


def _is_text(key: str) -> bool:
    """Whether a key has no lone surrogates."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _found(connection: sqlite3.Connection, key: str) -> int | None:
    """Returns the row id of a batch; None if there is no such batch."""
    if not _is_text(key):
        return None
    row = connection.execute("select number from batches where id = ?", [key]).fetchone()
    return None if row is None else int(row[0])


def _number(connection: sqlite3.Connection, key: str) -> int:
    number = _found(connection, key)
    if number is None:
        raise PromptCacheError(_GONE)
    return number


def _delete(connection: sqlite3.Connection, key: str) -> int:
    number = _found(connection, key)
    if number is None:
        return 0
    connection.execute("delete from rows where batch = ?", [number])
    connection.execute("delete from batches where number = ?", [number])
    connection.execute(
        "delete from texts where digest not in (select schema_digest from batches union"
        " select whole_digest from batches union select prompt_digest from batches)"
    )
    return 1


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("select count(*) from batches").fetchone()[0])


def _kept(
    key: str, name: str, started: str, state: KeptState, told: str, rows: int, *counts: int
) -> BatchKept:
    stored = json.loads(told)
    answered, failed, judged, passed = counts
    return {
        "key": key,
        "name": name,
        "started": started,
        "state": state,
        "schema": stored["schema"],
        "model": stored["model"],
        "mode": stored["mode"],
        "rows": rows,
        "answered": answered,
        "failed": failed,
        "judged": judged,
        "passed": passed,
    }
