"""The stored runs: adds, finds, names and deletes them.

Beyond the limits the oldest runs are deleted, those without name and note first. Deleted data is overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlite_utils import Database
from sqlite_utils.db import NotFoundError
from typing_extensions import TypedDict

from app.studio.database import UserDatabase, plain
from app.studio.database.texts import (
    TEXTS,
    WITH_TEXTS,
    as_text,
    delete_unused,
    make_room,
    put_text,
    used_bytes,
)
from app.studio.history.frames import as_mapping, read_frame
from app.studio.history.ratings import Thumb, as_column, rated, ratings_of
from app.studio.history.record import Record, RunSummary, read_summaries, require_label
from app.studio.runs.run_frame import Belongs, RunFrame, Side
from engine.base.errors import PromptCacheError

MOST_RUNS = 1000
MOST_BYTES = 128 << 20
_LABELLED = "(name != '' or note != '' or ratings != '')"
_GONE = "That run no longer exists. It was deleted, or newer runs replaced it."
_WHOLE = f"select id, name, note, origin, ratings, linked, frame, {TEXTS} from runs {WITH_TEXTS}"


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
        database: the user's database.
        most_runs: the maximum number of runs.
        most_bytes: the maximum bytes of all runs.
    """

    def __init__(
        self, database: UserDatabase, most_runs: int = MOST_RUNS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._database, self._most_runs, self._most_bytes = database, most_runs, most_bytes

    def keep(self, record: Record) -> None:
        """Adds a run with its measurement; deletes the oldest runs to make room.

        Raises:
            PromptCacheError: the run cannot be written, or is too large.
        """
        with self._database.changing() as db:
            _insert(db, _with_measurement(db, record))
            self._make_room(db, record.id)

    def keep_fidelity(self, record: Record) -> None:
        """Stores a measurement with the newest matching run, or as a run of its own.

        Args:
            record: the measurement; its frame has the state "measured".

        Raises:
            PromptCacheError: the record cannot be written, or is too large.
        """
        with self._database.changing() as db:
            of = name_of(record.frame.get("of"))
            known = next(_records(db, "belongs != '' and belongs = ? order by runs.rowid desc", of), None)
            if known is None:
                _insert(db, record)
            else:
                _update(db, known, fidelity=record.frame["fidelity"])
            self._make_room(db, (known or record).id)

    def note(self, run: str, **changed: Any) -> None:
        """Changes fields of a run's frame, if the run is still stored.

        Raises:
            PromptCacheError: the database cannot be written.
        """
        with self._database.changing() as db:
            for known in _records(db, "id = ?", run):
                _update(db, known, **changed)

    def measured(self, of: Belongs) -> RunFrame | None:
        """Returns the run with the latest measurement of these texts, settings and model, or None.

        Raises:
            PromptCacheError: the database cannot be read.
        """
        with self._database.reading() as db:
            row = _measured(db, of)
            return None if row is None else read_frame(_read(row["frame"]))

    def import_runs(self, records: Sequence[Record]) -> int:
        """Imports runs, all or none; existing runs are left unchanged.

        Returns:
            The number of new runs.

        Raises:
            PromptCacheError: there is no room, or the database cannot be written.
        """
        with self._database.changing() as db:
            before = db.table("runs").count
            for record in records:
                _insert(db, record)
            delete_unused(db)
            after = db.table("runs").count
            if after > self._most_runs or used_bytes(db, "runs") > self._most_bytes:
                raise PromptCacheError(
                    f"There is no room for {after - before} more runs besides the {before} stored "
                    f"ones: {self._bounds()} Delete some, then import the file again. Nothing was "
                    "imported."
                )
            return after - before

    def summaries(self) -> list[RunSummary]:
        """Returns all runs, newest first."""
        with self._database.reading() as db:
            rows = db.table("runs").rows_where(
                select="id, name, note, ratings, linked, summary", order_by="rowid desc"
            )
            runs = read_summaries(rows)
        return sorted(runs, key=lambda run: _moment(run["started"]), reverse=True)

    def find(self, ids: Sequence[str]) -> list[Record]:
        """Returns runs by their ids, in that order.

        Raises:
            PromptCacheError: there is no such run.
        """
        with self._database.reading() as db:
            records = [next(_records(db, "id = ?", plain(run)), None) for run in ids]
        if None in records:
            raise PromptCacheError(_GONE)
        return [record for record in records if record is not None]

    def search(self, words: Sequence[str]) -> list[str]:
        """Returns the ids of runs whose documents or answers contain all words, in any case."""
        needles = [word.lower() for word in words if word]
        with self._database.reading() as db:
            ids = [row["id"] for row in db.table("runs").rows_where(select="id")]
        found = []
        for run in ids:
            with self._database.reading() as db:  # each by itself: a draft is saved meanwhile
                rows = db.query(f"{_WHOLE} where id = ?", [run])
                found += [row["id"] for row in rows if _holds(needles, row)]
        return found

    def label(self, run: str, *, name: str | None = None, note: str | None = None) -> None:
        """Sets a run's name, note, or both; None leaves the current value.

        Raises:
            PromptCacheError: a text is too long, or there is no such run.
        """
        require_label(name, note)
        labels = {field: plain(text) for field, text in (("name", name), ("note", note)) if text is not None}
        with self._database.changing() as db:
            try:
                db.table("runs").update(plain(run), labels)
            except NotFoundError:
                raise PromptCacheError("That run no longer exists, so nothing was written.") from None

    def rate(self, run: str, side: Side, *, thumb: Thumb | None = None, note: str | None = None) -> None:
        """Rates an answer; None leaves the current value.

        Raises:
            PromptCacheError: the note is too long, or there is no such run.
        """
        require_label(None, note)
        with self._database.changing() as db:
            known = next(_records(db, "id = ?", plain(run)), None)
            if known is None:
                raise PromptCacheError("That run no longer exists, so nothing was written.")
            ratings = rated(known.ratings, side, thumb, None if note is None else plain(note))
            db.table("runs").update(known.id, {"ratings": as_column(ratings)})

    def delete(self, ids: Sequence[str]) -> int:
        """Deletes runs permanently; returns their number."""
        with self._database.changing() as db:
            before = db.table("runs").count
            for run in ids:
                db.table("runs").delete_where("id = ?", [plain(run)])
            delete_unused(db)
            count = before - db.table("runs").count
        self._database.empty_log()
        return count

    def held(self) -> RunsHeld:
        """Returns the size of the database; never fails."""
        runs, used, warnings = self._database.usage("runs")
        return {
            "runs": runs,
            "bytes": used,
            "most_runs": self._most_runs,
            "most_bytes": self._most_bytes,
            "file": str(self._database.path),
            "warnings": warnings,
        }

    def _bounds(self) -> str:
        return f"{self._most_runs} runs and {self._most_bytes >> 20} MiB are stored at most."

    def _make_room(self, db: Database, newest: str) -> None:
        if not make_room(db, "runs", self._most_runs, self._most_bytes, newest.__eq__, _LABELLED):
            raise PromptCacheError(f"It is larger than the limit: {self._bounds()}")


def name_of(of: object) -> str:
    """Returns one name for what a run belongs to; "" if incomplete."""
    parts = (
        [of.get(part) for part in ("schema", "prompt", "settings", "model")] if isinstance(of, dict) else []
    )
    named = [part for part in parts if isinstance(part, str) and part]
    return plain(" ".join(named)) if len(named) == 4 else ""


def _insert(db: Database, record: Record) -> None:
    row = {
        "id": record.id,
        "name": plain(record.name),
        "note": plain(record.note),
        "origin": plain(record.origin),
        "ratings": as_column(record.ratings),
        "linked": plain(record.linked),
        "schema_digest": put_text(db, record.schema),
        "prompt_digest": put_text(db, record.prompt),
        "whole_digest": put_text(db, record.contained),
    }
    db.table("runs").insert({**row, **_derived(record)}, ignore=True)


def _update(db: Database, record: Record, **changed: Any) -> None:
    """Changes fields of a stored run's frame."""
    db.table("runs").update(record.id, _derived(replace(record, frame={**record.frame, **changed})))


def _derived(record: Record) -> dict[str, str | int]:
    """Returns the columns of a run that follow from its frame."""
    summary = record.summary()
    frame = json.dumps({name: value for name, value in record.frame.items() if name != "difference"})
    listed = json.dumps(summary, allow_nan=False)
    return {
        "belongs": name_of(record.frame.get("of")),
        "measured": summary["fidelity"]["measured"] if summary["fidelity"] else "",
        "bytes": len(frame) + len(listed),
        "summary": listed,
        "frame": frame,
    }


def _measured(db: Database, of: object) -> dict[str, Any] | None:
    """Returns the row of the matching run with the latest measurement."""
    where = "belongs != '' and belongs = ? and measured != ''"
    return next(db.table("runs").rows_where(where, [name_of(of)], order_by="measured desc", limit=1), None)


def _with_measurement(db: Database, record: Record) -> Record:
    """Returns a new run with its stored measurement; a measurement of its own is merged into it."""
    row = _measured(db, record.frame.get("of"))
    if row is None or record.frame.get("fidelity"):
        return record
    measurement = read_frame(_read(row["frame"]))
    if measurement["state"] == "measured" and not row["name"] and not row["note"]:
        db.table("runs").delete(row["id"])
    return replace(record, frame={**record.frame, "fidelity": measurement["fidelity"]})


def _records(db: Database, where: str, value: str) -> Iterator[Record]:
    return map(_record, db.query(f"{_WHOLE} where {where}", [value]))


def _record(row: Mapping[str, Any]) -> Record:
    content = _read(row["frame"])
    if not isinstance(content, dict):
        name = row["name"] or repr(row["id"])
        raise PromptCacheError(f"The run {name} was damaged on the disk and cannot be read. Delete it.")
    schema, prompt, whole = (as_text(row[text]) for text in ("schema", "prompt", "whole"))
    labels = row["name"], row["note"], row["origin"], whole
    return Record(schema, prompt, content, *labels, ratings_of(row["ratings"]), row["linked"], row["id"])


def _read(text: str) -> object:
    """Parses a row; None if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


def _holds(words: Sequence[str], row: Mapping[str, Any]) -> bool:
    sides = as_mapping(as_mapping(_read(row["frame"])).get("sides")).values()
    answers = [str(as_mapping(side).get("text", "")) for side in sides]
    texts = [row[text].decode("utf-8", "replace") for text in ("schema", "prompt", "whole")]
    text = "\n".join([*texts, *answers]).lower()
    return all(word in text for word in words)


def _moment(started: str) -> datetime:
    """Returns a run's start; an invalid time counts as long ago."""
    try:
        moment = datetime.fromisoformat(started)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
