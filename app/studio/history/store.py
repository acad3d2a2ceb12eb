"""The runs of this user: added, found, named and deleted, within bounds.

Beyond the bounds the oldest runs go, first those that have no name and no note. Documents that several runs
share are kept once. What is deleted is overwritten.
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
    """How full the file is, and where it lies; sentences about what is wrong with it."""

    runs: int
    bytes: int
    most_runs: int
    most_bytes: int
    file: str
    warnings: list[str]


class RunStore:
    """The runs of this user, on disk. Safe to use from several threads and several studios.

    Args:
        folder: holds the file; made if it is missing, for its owner alone.
        most_runs: runs that are kept at most.
        most_bytes: bytes of the file that hold something, at most.
    """

    def __init__(self, folder: Path, most_runs: int = MOST_RUNS, most_bytes: int = MOST_BYTES) -> None:
        self._file = KeptFile(folder / FILE, MIGRATIONS, "kept runs")
        self._most_runs, self._most_bytes = most_runs, most_bytes

    def close(self) -> None:
        """Closes the file; the next question opens it again."""
        self._file.close()

    def keep(self, record: Record) -> None:
        """Adds a run, with what was measured of it, and lets the oldest go where there is no room.

        Raises:
            PromptCacheError: it cannot be written, or is too large.
        """
        with self._file.changing() as connection:
            _insert(connection, _with_measurement(connection, record))
            self._make_room(connection, record.id)

    def keep_fidelity(self, record: Record) -> None:
        """Keeps a measurement: with the newest run that belongs to the same, or as a run of its own.

        Args:
            record: what was measured; its frame has the state "measured".

        Raises:
            PromptCacheError: it cannot be written, or is too large.
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
        """Writes what a check has found of a run's answer; nothing where it is not kept any more.

        Raises:
            PromptCacheError: it cannot be written.
        """
        with self._file.changing() as connection:
            row = connection.execute(f"{_WHOLE} where id = ?", [run]).fetchone()
            if row is not None:
                known = _record(row)
                _replace(connection, replace(known, frame={**known.frame, "reuse": reuse}))

    def measured(self, of: Belongs) -> RunFrame | None:
        """The run with the latest measurement of these texts, settings and model; None where there is none.

        Raises:
            PromptCacheError: the file cannot be read.
        """
        with self._file.reading() as connection:
            row = _measured(connection, of)
            return None if row is None else read_frame(_read(row[3]))

    def bring(self, records: Sequence[Record]) -> int:
        """Adds runs of a file, all or none; those that are here already stay as they are.

        Returns:
            How many were added.

        Raises:
            PromptCacheError: there is no room for them, or they cannot be written.
        """
        with self._file.changing() as connection:
            before = _count(connection)
            for record in records:
                _insert(connection, record)
            _drop_orphans(connection)
            after = _count(connection)
            if after > self._most_runs or used_bytes(connection) > self._most_bytes:
                raise PromptCacheError(
                    f"There is no room for {after - before} more runs beside the {before} that are kept: "
                    f"{self._bounds()} Delete some, then import the file again. Nothing was imported."
                )
            return after - before

    def summaries(self) -> list[RunSummary]:
        """All runs, the newest first."""
        with self._file.reading() as connection:
            rows = connection.execute("select id, name, note, summary from runs order by number desc")
            found = [_summary(*row) for row in rows]
        return sorted(found, key=lambda one: _moment(one["started"]), reverse=True)

    def find(self, ids: Sequence[str]) -> list[Record]:
        """Runs by their ids, in that order.

        Raises:
            PromptCacheError: one is not kept any more.
        """
        with self._file.reading() as connection:
            found = []
            for one in ids:
                row = connection.execute(
                    f"{_WHOLE} where id = ?",
                    [plain(one)],
                ).fetchone()
                if row is None:
                    raise PromptCacheError(
                        "That run is not kept any more. It was deleted, or newer ones took its place."
                    )
                found.append(_record(row))
            return found

    def holding(self, words: Sequence[str]) -> list[str]:
        """The ids of runs in whose documents or answers all words stand, in upper or lower case."""
        wanted = [word.lower() for word in words if word]
        with self._file.reading() as connection:
            rows = connection.execute(f"select id, frame, s.text, p.text, c.text{_WITH_TEXTS}")
            return [row[0] for row in rows if _holds(wanted, *row[1:])]

    def label(self, run: str, *, name: str | None = None, note: str | None = None) -> None:
        """Gives a run a name, a note, or both; None leaves what is there.

        Raises:
            PromptCacheError: the words are too long, or it is not kept any more.
        """
        require_label(name, note)
        with self._file.changing() as connection:
            changed = connection.execute(
                "update runs set name = coalesce(?, name), note = coalesce(?, note) where id = ?",
                [_plain(name), _plain(note), plain(run)],
            ).rowcount
        if not changed:
            raise PromptCacheError("That run is not kept any more, so nothing was written.")

    def delete(self, ids: Sequence[str]) -> int:
        """Deletes runs, for good; returns how many there were."""
        with self._file.changing() as connection:
            found = (connection.execute("delete from runs where id = ?", [plain(one)]) for one in ids)
            gone = sum(one.rowcount for one in found)
            _drop_orphans(connection)
        self._file.empty_log()
        return gone

    def held(self) -> RunsHeld:
        """How full the file is; never fails."""
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
        return f"{self._most_runs} runs and {self._most_bytes >> 20} MiB are kept at most."

    def _make_room(self, connection: sqlite3.Connection, newest: str) -> None:
        while _count(connection) > self._most_runs or used_bytes(connection) > self._most_bytes:
            row = connection.execute(
                f"select id from runs where id != ? order by {_LEAST_FIRST} limit 1", [newest]
            ).fetchone()
            if row is None:
                raise PromptCacheError(f"It is larger than all that may be kept: {self._bounds()}")
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
    """Id, name, note and frame of the run with the latest measurement that belongs to the same."""
    found: tuple[Any, ...] | None = connection.execute(
        "select id, name, note, frame from runs where belongs != '' and belongs = ? and measured != ''"
        " order by measured desc limit 1",
        [name_of(of)],
    ).fetchone()
    return found


def _with_measurement(connection: sqlite3.Connection, record: Record) -> Record:
    """A new run with the measurement that there is of it; one that was kept by itself becomes part of it."""
    row = _measured(connection, record.frame.get("of"))
    if row is None or record.frame.get("fidelity"):
        return record
    run, name, note, frame = row
    told = read_frame(_read(frame))
    if told["state"] == "measured" and not name and not note:
        connection.execute("delete from runs where id = ?", [run])
    return replace(record, frame={**record.frame, "fidelity": told["fidelity"]})


def _replace(connection: sqlite3.Connection, record: Record) -> None:
    """Writes what a kept run tells by now."""
    connection.execute(
        "update runs set frame = ?, summary = ?, belongs = ?, measured = ? where id = ?",
        [*_told(record), record.id],
    )


def _told(record: Record) -> list[str]:
    """What a row says of a run: its frame, its summary, what it belongs to, and when it was measured."""
    summary, frame = record.summary(), dict(record.frame)
    frame.pop("difference", None)  # follows from the texts
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
    told = _read(frame)
    if not isinstance(told, dict):
        raise PromptCacheError(
            f"The run {name or run!r} was damaged on the disk and cannot be read. Delete it."
        )
    schema, prompt, contained = ((text or b"").decode("utf-8", "surrogatepass") for text in texts)
    return Record(schema, prompt, told, name, note, origin, contained, run)


def _summary(run: str, name: str, note: str, summary: str) -> RunSummary:
    return read_summary(_read(summary), run, name, note)


def _read(text: str) -> object:
    """What a row says; None where it was damaged."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


def _holds(words: Sequence[str], frame: str, *documents: bytes | None) -> bool:
    sides = as_mapping(as_mapping(_read(frame)).get("sides")).values()
    answers = [str(as_mapping(side).get("text", "")) for side in sides]
    texts = [(document or b"").decode("utf-8", "replace") for document in documents]
    found = "\n".join([*texts, *answers]).lower()
    return all(word in found for word in words)


def _moment(started: str) -> datetime:
    """When a run began; what is no time is long ago."""
    try:
        found = datetime.fromisoformat(started)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("select count(*) from runs").fetchone()[0])


def _plain(text: str | None) -> str | None:
    return None if text is None else plain(text)
