"""Migrates a database to the current version: one function each, all in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.base.errors import PromptCacheError

Migration = Callable[[sqlite3.Connection], None]


def create_tables(connection: sqlite3.Connection) -> None:
    """Version 1: runs, and shared documents."""
    connection.execute("create table texts (digest text primary key, text blob not null)")
    connection.execute(
        "create table runs (number integer primary key autoincrement, id text unique not null,"
        " name text not null, note text not null, origin text not null, schema_digest text not null,"
        " prompt_digest text not null, frame text not null, summary text not null)"
    )
    connection.execute("create index runs_by_schema on runs (schema_digest)")
    connection.execute("create index runs_by_prompt on runs (prompt_digest)")


def add_contained(connection: sqlite3.Connection) -> None:
    """Version 2: schemas with the files that they read; "" for schemas without, and for older runs."""
    connection.execute("alter table runs add column contained_digest text not null default ''")
    connection.execute("create index runs_by_contained on runs (contained_digest)")


def add_measured(connection: sqlite3.Connection) -> None:
    """Version 3: what a run belongs to, for lookups, and when its fidelity was measured; "" if never."""
    connection.execute("alter table runs add column belongs text not null default ''")
    connection.execute("alter table runs add column measured text not null default ''")
    connection.execute("create index runs_by_belongs on runs (belongs)")
    for number, frame in connection.execute("select number, frame from runs").fetchall():
        belongs = name_of(json.loads(frame).get("of")) if _is_object(frame) else ""
        connection.execute("update runs set belongs = ? where number = ?", [belongs, number])


def name_of(of: object) -> str:
    """Returns one name for what a run belongs to; "" if incomplete."""
    parts = (
        [of.get(part) for part in ("schema", "prompt", "settings", "model")] if isinstance(of, dict) else []
    )
    named = [part for part in parts if isinstance(part, str) and part]
    return " ".join(named) if len(named) == 4 else ""


def _is_object(frame: str) -> bool:
    try:
        return isinstance(json.loads(frame), dict)
    except (ValueError, TypeError, RecursionError):  # damaged; reported by its reader
        return False


MIGRATIONS: tuple[Migration, ...] = (create_tables, add_contained, add_measured)
"""The migration from version n to n + 1 is at index n. SQLite's user_version stores the version."""

VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration], what: str) -> None:
    """Migrates a database to the latest version.

    Args:
        connection: the open database.
        path: the file, for messages.
        migrations: the migration from version n to n + 1 is at index n.
        what: a name for its content, for messages.

    Raises:
        PromptCacheError: the database is of a newer version; it is left unchanged.
    """
    version = len(migrations)
    if _version(connection) == version:
        return
    connection.execute("begin immediate")
    try:
        current = _version(connection)  # another studio may have migrated it
        if current > version:
            raise PromptCacheError(
                f"A newer version of the studio wrote the {what} in {str(path)!r}. Use that version, "
                "or move the file away. The file is unchanged, and nothing is stored meanwhile."
            )
        for migration in migrations[current:]:
            migration(connection)
        connection.execute(f"pragma user_version = {version}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])
