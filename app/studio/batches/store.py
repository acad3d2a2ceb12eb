"""The stored batches. Each row is written as it ends, so a crash loses none.

Beyond the limits the oldest batches are deleted, unnamed ones first. Deleted data is overwritten.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Literal, cast

from sqlite_utils import Database
from typing_extensions import TypedDict

from app.studio.batches.batch import Batch, BatchMode, RowResult
from app.studio.batches.batch_locks import Answering
from app.studio.batches.record import about, batch_of, result_json, result_of, row_json, row_of
from app.studio.database import UserDatabase, plain
from app.studio.database.texts import TEXTS, WITH_TEXTS, as_text, delete_unused, make_room, put_text
from app.studio.history.record import contained, require_label
from engine.base.errors import PromptCacheError

MOST_BATCHES = 100
MOST_BYTES = 128 << 20
KeptState = Literal["working", "done", "stopped", "failed"]
_LISTED = """
    select id as key, name, started, state, json_extract(about, '$.schema') as schema,
    json_extract(about, '$.model') as model, json_extract(about, '$.mode') as mode,
    json_extract(about, '$.deciding') is not null as decides,
    rows, answered, failed, judged, passed from batches order by rowid desc
"""
_GONE = "That batch no longer exists. It was deleted, or newer batches replaced it."
_TAKEN = "A batch with this key already exists. Reload the page, then start it again."


class BatchKept(TypedDict):
    """A batch in a list.

    `passed` of `judged` rows pass on every side. `working` means that no end is stored: the batch runs here,
    or its studio ended first. `elsewhere` means that another studio runs it. `decides` means that its rows
    have decisions instead of answers.
    """

    key: str
    name: str
    started: str
    state: KeptState | Literal["elsewhere"]
    schema: str
    model: str
    mode: BatchMode
    decides: bool
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
        database: the user's database.
        most_batches: the maximum number of batches.
        most_bytes: the maximum bytes of all batches.

    Attributes:
        answering: the running batches, here or in another studio. They are never deleted.
    """

    def __init__(
        self, database: UserDatabase, most_batches: int = MOST_BATCHES, most_bytes: int = MOST_BYTES
    ) -> None:
        self._database, self._most_batches, self._most_bytes = database, most_batches, most_bytes
        self.answering = Answering(database.folder)

    def require_new(self, key: str) -> None:
        """Checks that a batch with a key can start. An unreadable database does not prevent it.

        Raises:
            PromptCacheError: the key is in use, or is not text.
        """
        if plain(key) != key:
            raise PromptCacheError("The key of a batch must be valid Unicode. Reload the page.")
        known = None
        with contextlib.suppress(PromptCacheError):
            known = self.name(key)
        if known is not None:
            raise PromptCacheError(_TAKEN)

    def begin(self, batch: Batch) -> None:
        """Adds a batch with unfinished rows; the oldest batches are deleted to make room.

        Raises:
            PromptCacheError: the batch cannot be written, is too large, or its key is in use.
        """
        whole = contained(batch.plan.schema)
        rows = [row_json(row) for row in batch.plan.rows]
        with self._database.changing() as db:
            if _find(db, batch.key) is not None:
                raise PromptCacheError(_TAKEN)
            made: dict[str, object] = {
                "id": batch.key,
                "name": plain(batch.name),
                "started": batch.started,
                "state": "working",
                "fault": "",
                "schema_digest": put_text(db, batch.workspace.schema),
                "prompt_digest": put_text(db, batch.plan.over or ""),
                "whole_digest": put_text(db, whole),
                "rows": len(rows),
                **dict.fromkeys(("answered", "failed", "judged", "passed"), 0),
                "bytes": sum(map(len, rows)),
                "about": about(batch),
            }
            db.table("batches").insert(made)
            db.table("batch_rows").insert_all(
                {"batch": batch.key, "number": number, "row": row} for number, row in enumerate(rows)
            )
            self._make_room(db, batch.key)

    def add(self, key: str, results: Sequence[tuple[int, int, RowResult]]) -> None:
        """Writes the results of rows.

        Args:
            key: the batch.
            results: each row's number, the number of rows that ended before it, and its result.

        Raises:
            PromptCacheError: the results cannot be written, there is no room, or the batch was deleted.
        """
        with self._database.changing() as db:
            _require(db, key)
            for number, ended, result in results:
                text = result_json(result)
                db.execute(
                    "update batch_rows set result = ?, ended = ? where batch = ? and number = ?",
                    [text, ended, key, number],
                )
                passed = [side.passed for side in result.sides.values() if side.passed is not None]
                counts = [result.fault is None, result.fault is not None, bool(passed)]
                db.execute(
                    "update batches set answered = answered + ?, failed = failed + ?, judged = judged + ?,"
                    " passed = passed + ?, bytes = bytes + ? where id = ?",
                    [*counts, bool(passed) and all(passed), len(text), key],
                )
            self._make_room(db, key)

    def change(self, key: str, number: int, result: RowResult) -> None:
        """Writes the scores and grades of a row that has ended.

        Raises:
            PromptCacheError: they cannot be written, or the batch was deleted.
        """
        with self._database.changing() as db:
            _require(db, key)
            row = [key, number]
            sql = "update batch_rows set result = ? where batch = ? and number = ? and result is not null"
            db.execute(sql, [result_json(result), *row])

    def mark(self, key: str, state: KeptState, fault: str = "") -> None:
        """Writes how a batch ended, or that it works again.

        Raises:
            PromptCacheError: the database cannot be written.
        """
        with self._database.changing() as db:
            db.execute("update batches set state = ?, fault = ? where id = ?", [state, plain(fault), key])

    def listed(self) -> list[BatchKept]:
        """Returns all batches, newest first."""
        with self._database.reading() as db:
            listed = [{**row, "decides": bool(row["decides"])} for row in db.query(_LISTED)]
        return cast(list[BatchKept], listed)

    def load(self, key: str) -> tuple[Batch, KeptState, str]:
        """Returns a batch with its results, its final state and its error.

        Args:
            key: the batch; "" for the newest.

        Raises:
            PromptCacheError: there is no such batch.
        """
        sql = (
            f"select batches.*, {TEXTS} from batches {WITH_TEXTS}"
            " where id = ? or ? = '' order by batches.rowid desc limit 1"
        )
        with self._database.reading() as db:
            found = next(db.query(sql, [plain(key), plain(key)]), None)
            if found is None:
                raise PromptCacheError(_GONE)
            rows = list(db.table("batch_rows").rows_where("batch = ?", [found["id"]], order_by="number"))
        schema, whole, prompt = (as_text(found[text]) for text in ("schema", "whole", "prompt"))
        known = found["id"], found["name"], found["started"], found["about"]
        batch = batch_of(*known, schema, whole, prompt, [row_of(row["row"]) for row in rows])
        ended = sorted((row for row in rows if row["result"] is not None), key=lambda row: row["ended"])
        batch.results.update((row["number"], result_of(row["result"])) for row in ended)
        return batch, found["state"], found["fault"]

    def name(self, key: str) -> str | None:
        """Returns the user's name for a batch; None if there is no such batch.

        Raises:
            PromptCacheError: the database cannot be read.
        """
        with self._database.reading() as db:
            found = _find(db, key)
        return None if found is None else found["name"]

    def rename(self, key: str, name: str) -> None:
        """Renames a batch; "" removes its name.

        Raises:
            PromptCacheError: the name is too long, or there is no such batch.
        """
        require_label(name, None)
        with self._database.changing() as db:
            _require(db, key)
            db.table("batches").update(key, {"name": plain(name)})

    def delete(self, keys: Sequence[str]) -> int:
        """Deletes batches permanently; returns their number.

        Raises:
            PromptCacheError: one of them is running, or the database cannot be written.
        """
        with self._database.changing() as db:
            before = db.table("batches").count
            for key in keys:
                if self._is_answered(db, key):
                    raise PromptCacheError(
                        "Another studio is running one of these batches. Stop it there before you delete it."
                    )
                db.table("batches").delete_where("id = ?", [plain(key)])
            delete_unused(db)
            count = before - db.table("batches").count
        self._database.empty_log()
        return count

    def held(self) -> BatchesHeld:
        """Returns the size of the database; never fails."""
        _, used, warnings = self._database.usage("batches")
        return {
            "bytes": used,
            "most_batches": self._most_batches,
            "most_bytes": self._most_bytes,
            "file": str(self._database.path),
            "warnings": warnings,
        }

    def _make_room(self, db: Database, newest: str) -> None:
        def stays(key: str) -> bool:
            return key == newest or self._is_answered(db, key)

        if not make_room(db, "batches", self._most_batches, self._most_bytes, stays, "name != ''"):
            raise PromptCacheError(
                f"It is larger than the {self._most_bytes >> 20} MiB limit of all batches together."
            )

    def _is_answered(self, db: Database, key: str) -> bool:
        found = _find(db, key)
        return found is not None and found["state"] == "working" and key in self.answering


def _find(db: Database, key: str) -> dict[str, Any] | None:
    """Returns the row of a batch; None if there is no such batch."""
    return next(db.table("batches").rows_where("id = ?", [plain(key)]), None)


def _require(db: Database, key: str) -> None:
    if _find(db, key) is None:
        raise PromptCacheError(_GONE)
