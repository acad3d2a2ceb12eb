"""Copies rows into a new database: once from the files of a former version, or from a damaged database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from app.studio.database.texts import put_text

_TEXTS = "select digest, cast(text as blob) as text from texts"
_OLD = {  # by file and version: the rows of each table
    ("runs.sqlite", 3): {
        "texts": _TEXTS,
        "runs": """select id, name, note, origin, schema_digest, prompt_digest, belongs, measured, summary,
            contained_digest as whole_digest, frame, length(frame) + length(summary) as bytes
            from runs order by number""",
    },
    ("batches.sqlite", 1): {
        "texts": _TEXTS,
        "batches": """select id, name, started, state, fault, schema_digest, prompt_digest, whole_digest,
            rows, answered, failed, judged, passed, about, (select total(length(row) +
            coalesce(length(result), 0)) from rows where batch = batches.number) as bytes
            from batches order by number""",
        "batch_rows": """select b.id as batch, r.number, r.row, r.result, r.ended
            from rows r join batches b on b.number = r.batch""",
    },
}
_OF_THE_NEW = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_NOMEM}
_DOCUMENT = {"origin", "name", "kind", "used"}


def copy_old_files(db: Database, folder: Path) -> list[str]:
    """Copies the old files of a data folder and leaves them unchanged.

    Returns:
        A message for each file that could not be copied.

    Raises:
        sqlite3.Error: the disk is full or fails; nothing was copied.
    """
    notes: list[str] = []
    for (name, version), tables in _OLD.items():
        with _noting(folder / name, notes), db.atomic(), _opened(folder / name) as old:
            if next(_rows(old, "pragma user_version"))["user_version"] != version:
                raise ValueError("another version wrote it")
            for table, rows in tables.items():
                db.table(table).insert_all(_rows(old, rows), ignore=table == "texts")
    db.execute("update runs set whole_digest = ? where whole_digest = ''", [put_text(db, "")])
    lost = {table: _without_texts(db, table) for table in ("runs", "batches")}
    notes += [
        f"Not copied, because their texts are missing: {count} of the {table} of a former version."
        for table, count in lost.items()
        if count
    ]
    for number, path in enumerate([folder / "workspace.json", *sorted((folder / "shelf").glob("*.json"))]):
        with _noting(path, notes):
            db.table("workspaces").insert({"number": number, "workspace": json.dumps(_json(path, dict))})
    for table, paths in (("forms", "form-*.json"), ("sweeps", "benchmarks/[0-9]*T[0-9]*-*.json")):
        for path in sorted(folder.glob(paths)):
            with _noting(path, notes):
                row = path.stem.removeprefix("form-"), json.dumps(_json(path, dict))
                db.execute(f"insert into {table} values (?, ?)", row)
    with _noting(folder / "models.json", notes), db.atomic():
        for choice in reversed(_json(folder / "models.json", dict)["models"]):
            db.table("recent_models").insert({"name": choice["name"], "choice": json.dumps(choice)})
    with _noting(folder / "recent.json", notes), db.atomic():
        documents = reversed(_json(folder / "recent.json", list))
        db.table("recent_documents").insert_all(filter(_is_document, documents))
    return notes


def _rows(old: sqlite3.Connection, sql: str) -> Iterator[dict[str, Any]]:
    """Yields rows of an old file; its errors are ValueErrors, unlike those of the new database."""
    try:
        yield from map(dict, old.execute(sql))
    except sqlite3.Error as error:
        raise ValueError(error) from error


def _without_texts(db: Database, table: str) -> int:
    """Deletes rows that no page could show; returns their number."""
    missing = " or ".join(
        f"{digest} not in (select digest from texts)"
        for digest in ("schema_digest", "prompt_digest", "whole_digest")
    )
    return int(db.execute(f"delete from {table} where {missing}").rowcount)


def _is_document(row: object) -> bool:
    return isinstance(row, dict) and row.keys() == _DOCUMENT and all(isinstance(x, str) for x in row.values())


def copy_readable(db: Database, damaged: Path) -> int:
    """Copies the readable rows of a damaged database, except runs and batches; returns their number."""
    copied = 0
    for table in ("workspaces", "forms", "sweeps", "chats", "recent_models", "recent_documents"):
        rows: list[dict[str, Any]] = []
        with suppress(sqlite3.Error, ValueError), _opened(damaged) as old:
            rows.extend(map(dict, old.execute(f"select * from {table}")))
        db.table(table).insert_all(rows, ignore=True)
        copied += len(rows)
    return copied


def read_only(path: Path) -> sqlite3.Connection:
    """Opens a database without writing to its folder, unless a crash left a log that must be read."""
    logs = [path.with_name(path.name + ending) for ending in ("-wal", "-journal")]
    options = "mode=ro" if any(log.exists() and log.stat().st_size for log in logs) else "mode=ro&immutable=1"
    uri = f"{path.absolute().as_uri()}?{options}"
    return sqlite3.connect(uri, uri=True, check_same_thread=False)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        opened = read_only(path)
    except sqlite3.Error as error:
        raise ValueError(error) from error
    with closing(opened) as old:
        old.row_factory = sqlite3.Row
        yield old


@contextmanager
def _noting(path: Path, notes: list[str]) -> Iterator[None]:
    """Adds a message for any error of an old file, unless it is missing or empty."""
    try:
        yield
    except Exception as error:  # a file of any content must not stop the studio
        if isinstance(error, sqlite3.Error) and error.sqlite_errorcode & 0xFF in _OF_THE_NEW:
            raise
        if path.is_dir() or (path.exists() and path.stat().st_size):
            notes.append(f"{str(path)!r} of a former version was not copied: {error}. The file is unchanged.")


def _json(path: Path, kind: type) -> Any:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, kind):
        raise ValueError("it has other content")
    return content
