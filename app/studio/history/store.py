"""The database of runs: adds, finds, names and deletes runs.

Beyond the limits the oldest runs are deleted, those without name and note first. Shared documents are stored
once. Deleted data is overwritten.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from app.studio.history.database import KeptFile, plain, put_text, used_bytes
from app.studio.history.frames import as_mapping, read_frame
from app.studio.history.migrations import MIGRATIONS, name_of
from app.studio.history.record import Record, RunSummary, read_summary, require_label
from app.studio.runs.run_frame import Belongs, ReuseFrame, RunFrame
from engine.base.errors import PromptCacheError

MOST_RUNS = 1000
MOST_BYTES = 128 << 20
FILE = "runs.sqlite"
_LEAST_FIRST = "(name != '' or note != ''), number"
_WITH_TEXTS = (
    " from runs join texts s on s.digest = schema_digest join texts p on p.digest = prompt_digest"
    " left join texts c on c.digest = contained_digest"
)
_WHOLE = f"select id, name, note, origin, frame, s.text, p.text, c.text{_WITH_TEXTS}"


class RunsHeld(TypedDict):
    """The size and path of the database, and its problems."""

    runs: int
    bytes: int
    most_runs: int
    most_bytes: int
    file: str
    warnings: list[str]


class RunStore:
    """The stored runs. Safe to use from several threads and several studios.

    Args:
        folder: the folder of the database; created if missing, readable by its owner only.
        most_runs: the maximum number of runs.
        most_bytes: the maximum bytes in use.
    """

    def __init__(self, folder: Path, most_runs: int = MOST_RUNS, most_bytes: int = MOST_BYTES) -> None:
        self._file = KeptFile(folder / FILE, MIGRATIONS, "stored runs")
        self._most_runs, self._most_bytes = most_runs, most_bytes

    def close(self) -> None:
        """Closes the database; the next call opens it again."""
        self._file.close()

    def keep(self, record: Record) -> None:
        """Adds a run with its measurement; deletes the oldest runs to make room.

        Raises:
            PromptCacheError: the run cannot be written, or is too large.
        """
        with self._file.changing() as connection:
            _insert(connection, _with_measurement(connection, record))
            self._make_room(connection, record.id)

    def keep_fidelity(self, record: Record) -> None:
        """Stores a measurement with the newest matching run, or as a run of its own.

        Args:
            record: the measurement; its frame has the state "measured".

        Raises:
            PromptCacheError: the record cannot be written, or is too large.
        """
        with self._file.changing() as connection:
            row = connection.execute(
                f"{_WHOLE} where belongs != '' and belongs = ? order by number desc limit 1",
                [name_of(record.frame.get("of"))],
            ).fetchone()
            if row is None:
                _insert(connection, record)
                newest = record.id
            else:
                known = _record(row)
                known = replace(known, frame={**known.frame, "fidelity": record.frame["fidelity"]})
                _replace(connection, known)
                newest = known.id
            self._make_room(connection, newest)

    def note_reuse(self, run: str, reuse: ReuseFrame) -> None:
        """Adds a check's result to a run, if the run is still stored.

        Raises:
            PromptCacheError: the database cannot be written.
        """
        with self._file.changing() as connection:
            row = connection.execute(f"{_WHOLE} where id = ?", [run]).fetchone()
            if row is not None:
                known = _record(row)
                _replace(connection, replace(known, frame={**known.frame, "reuse": reuse}))

    def measured(self, of: Belongs) -> RunFrame | None:
        """Returns the run with the latest measurement of these texts, settings and model, or None.

        Raises:
            PromptCacheError: the database cannot be read.
        """
        with self._file.reading() as connection:
            row = _measured(connection, of)
            return None if row is None else read_frame(_read(row[3]))

    def bring(self, records: Sequence[Record]) -> int:
        """Imports runs, all or none; existing runs are left unchanged.

        Returns:
            The number of new runs.

        Raises:
            PromptCacheError: there is no room, or the database cannot be written.
        """
        with self._file.changing() as connection:
            before = _count(connection)
            for record in records:
                _insert(connection, record)
            _drop_orphans(connection)
            after = _count(connection)
            if after > self._most_runs or used_bytes(connection) > self._most_bytes:
                raise PromptCacheError(
                    f"There is no room for {after - before} more runs besides the {before} stored "
                    f"ones: {self._bounds()} Delete some, then import the file again. Nothing was "
                    "imported."
                )
            return after - before

    def summaries(self) -> list[RunSummary]:
        """Returns all runs, newest first."""
        with self._file.reading() as connection:
            rows = connection.execute("select id, name, note, summary from runs order by number desc")
            runs = [_summary(*row) for row in rows]
        return sorted(runs, key=lambda run: _moment(run["started"]), reverse=True)

    def find(self, ids: Sequence[str]) -> list[Record]:
        """Returns runs by their ids, in that order.

        Raises:
            PromptCacheError: there is no such run.
        """
        with self._file.reading() as connection:
            records = []
            for run in ids:
                row = connection.execute(
                    f"{_WHOLE} where id = ?",
                    [plain(run)],
                ).fetchone()
                if row is None:
                    raise PromptCacheError(
                        "That run no longer exists. It was deleted, or newer runs replaced it."
                    )
                records.append(_record(row))
            return records

    def holding(self, words: Sequence[str]) -> list[str]:
        """Returns the ids of runs whose documents or answers contain all words, in any case."""
        needles = [word.lower() for word in words if word]
        with self._file.reading() as connection:
            rows = connection.execute(f"select id, frame, s.text, p.text, c.text{_WITH_TEXTS}")
            return [row[0] for row in rows if _holds(needles, *row[1:])]

    def label(self, run: str, *, name: str | None = None, note: str | None = None) -> None:
        """Sets a run's name, note, or both; None leaves the current value.

        Raises:
            PromptCacheError: a text is too long, or there is no such run.
        """
        require_label(name, note)
        with self._file.changing() as connection:
            changed = connection.execute(
                "update runs set name = coalesce(?, name), note = coalesce(?, note) where id = ?",
                [_plain(name), _plain(note), plain(run)],
            ).rowcount
        if not changed:
            raise PromptCacheError("That run no longer exists, so nothing was written.")

    def delete(self, ids: Sequence[str]) -> int:
        """Deletes runs permanently; returns their number."""
        with self._file.changing() as connection:
            cursors = (connection.execute("delete from runs where id = ?", [plain(item)]) for item in ids)
            count = sum(item.rowcount for item in cursors)
            _drop_orphans(connection)
        self._file.empty_log()
        return count

    def held(self) -> RunsHeld:
        """Returns the size of the database; never fails."""
        runs, used, warnings = 0, 0, []
        try:
            with self._file.reading() as connection:
                runs, used = _count(connection), used_bytes(connection)
        except PromptCacheError as error:
            warnings.append(str(error))
        return {
            "runs": runs,
            "bytes": used,
            "most_runs": self._most_runs,
            "most_bytes": self._most_bytes,
            "file": str(self._file.path),
            "warnings": [*self._file.set_aside, *warnings],
        }

    def _bounds(self) -> str:
        return f"{self._most_runs} runs and {self._most_bytes >> 20} MiB are stored at most."

    def _make_room(self, connection: sqlite3.Connection, newest: str) -> None:
        while _count(connection) > self._most_runs or used_bytes(connection) > self._most_bytes:
            row = connection.execute(
                f"select id from runs where id != ? order by {_LEAST_FIRST} limit 1", [newest]
            ).fetchone()
            if row is None:
                raise PromptCacheError(f"It is larger than the limit: {self._bounds()}")
            connection.execute("delete from runs where id = ?", row)
            _drop_orphans(connection)


def _insert(connection: sqlite3.Connection, record: Record) -> None:
    digests = [put_text(connection, text) for text in (record.schema, record.prompt)]
    digests.append(put_text(connection, record.contained) if record.contained else "")
    connection.execute(
        "insert or ignore into runs (id, name, note, origin, schema_digest, prompt_digest,"
        " contained_digest, frame, summary, belongs, measured) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            *(record.id, _plain(record.name), _plain(record.note), _plain(record.origin)),
            *(*digests, *_told(record)),
        ],
    )


def _measured(connection: sqlite3.Connection, of: object) -> tuple[Any, ...] | None:
    """Returns id, name, note and frame of the matching run with the latest measurement."""
    rows: tuple[Any, ...] | None = connection.execute(
        "select id, name, note, frame from runs where belongs != '' and belongs = ? and measured != ''"
        " order by measured desc limit 1",
        [name_of(of)],
    ).fetchone()
    return rows


def _with_measurement(connection: sqlite3.Connection, record: Record) -> Record:
    """Returns a new run with its stored measurement; a measurement of its own is merged into it."""
    row = _measured(connection, record.frame.get("of"))
    if row is None or record.frame.get("fidelity"):
        return record
    run, name, note, frame = row
    measurement = read_frame(_read(frame))
    if measurement["state"] == "measured" and not name and not note:
        connection.execute("delete from runs where id = ?", [run])
    return replace(record, frame={**record.frame, "fidelity": measurement["fidelity"]})


def _replace(connection: sqlite3.Connection, record: Record) -> None:
    """Updates a run's row."""
    connection.execute(
        "update runs set frame = ?, summary = ?, belongs = ?, measured = ? where id = ?",
        [*_told(record), record.id],
    )


def _told(record: Record) -> list[str]:
    """Returns a row's values: frame, summary, what it belongs to, and the time of measurement."""
    summary, frame = record.summary(), dict(record.frame)
    frame.pop("difference", None)  # derived from the texts
    measured = summary["fidelity"]["measured"] if summary["fidelity"] else ""
    return [
        *(json.dumps(frame), json.dumps(summary, allow_nan=False)),
        *(plain(name_of(frame.get("of"))), measured),
    ]


def _drop_orphans(connection: sqlite3.Connection) -> None:
    connection.execute(
        "delete from texts where not exists (select 1 from runs where schema_digest = digest)"
        " and not exists (select 1 from runs where prompt_digest = digest)"
        " and not exists (select 1 from runs where contained_digest = digest)"
    )


def _record(row: tuple[Any, ...]) -> Record:
    run, name, note, origin, frame, *texts = row
    content = _read(frame)
    if not isinstance(content, dict):
        raise PromptCacheError(
            f"The run {name or run!r} was damaged on the disk and cannot be read. Delete it."
        )
    schema, prompt, contained = ((text or b"").decode("utf-8", "surrogatepass") for text in texts)
    return Record(schema, prompt, content, name, note, origin, contained, run)


def _summary(run: str, name: str, note: str, summary: str) -> RunSummary:
    return read_summary(_read(summary), run, name, note)


def _read(text: str) -> object:
    """Parses a row; None if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


def _holds(words: Sequence[str], frame: str, *documents: bytes | None) -> bool:
    sides = as_mapping(as_mapping(_read(frame)).get("sides")).values()
    answers = [str(as_mapping(side).get("text", "")) for side in sides]
    texts = [(document or b"").decode("utf-8", "replace") for document in documents]
    text = "\n".join([*texts, *answers]).lower()
    return all(word in text for word in words)


def _moment(started: str) -> datetime:
    """Returns a run's start; an invalid time counts as long ago."""
    try:
        moment = datetime.fromisoformat(started)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("select count(*) from runs").fetchone()[0])


def _plain(text: str | None) -> str | None:
    return None if text is None else plain(text)
