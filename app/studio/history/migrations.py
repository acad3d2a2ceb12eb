"""How a file of what is kept becomes one of this version: one function each, all in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.base.errors import PromptCacheError

Migration = Callable[[sqlite3.Connection], None]


def create_tables(connection: sqlite3.Connection) -> None:
    """Version 1: runs, and the documents that they share."""
    connection.execute("create table texts (digest text primary key, text blob not null)")
    connection.execute(
        "create table runs (number integer primary key autoincrement, id text unique not null,"
        " name text not null, note text not null, origin text not null, schema_digest text not null,"
        " prompt_digest text not null, frame text not null, summary text not null)"
    )
    connection.execute("create index runs_by_schema on runs (schema_digest)")
    connection.execute("create index runs_by_prompt on runs (prompt_digest)")


def add_contained(connection: sqlite3.Connection) -> None:
    """Version 2: schemas with what their files said; "" is the digest of none, as of all runs before."""
    connection.execute("alter table runs add column contained_digest text not null default ''")
    connection.execute("create index runs_by_contained on runs (contained_digest)")


def add_measured(connection: sqlite3.Connection) -> None:
    """Version 3: what a run belongs to, to find it by, and when its fidelity was measured; "" of none."""
    connection.execute("alter table runs add column belongs text not null default ''")
    connection.execute("alter table runs add column measured text not null default ''")
    connection.execute("create index runs_by_belongs on runs (belongs)")
    for number, frame in connection.execute("select number, frame from runs").fetchall():
        belongs = name_of(json.loads(frame).get("of")) if _is_object(frame) else ""
        connection.execute("update runs set belongs = ? where number = ?", [belongs, number])


def name_of(of: object) -> str:
    """One name for all that a run belongs to; "" where it does not say all of it."""
    parts = (
        [of.get(part) for part in ("schema", "prompt", "settings", "model")] if isinstance(of, dict) else []
    )
    named = [part for part in parts if isinstance(part, str) and part]
    return " ".join(named) if len(named) == 4 else ""


def _is_object(frame: str) -> bool:
    try:
        return isinstance(json.loads(frame), dict)
    except (ValueError, TypeError, RecursionError):  # damaged on the disk, and told so where it is read
        return False


MIGRATIONS: tuple[Migration, ...] = (create_tables, add_contained, add_measured)
"""What leads from version n to n + 1, at place n. The version stands in SQLite's own user_version."""

VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration], what: str) -> None:
    """Brings a file to the version that all its migrations lead to.

    Args:
        connection: the connection to it.
        path: the file, for messages.
        migrations: what leads from version n to n + 1, at place n.
        what: what it holds, for messages.

    Raises:
        PromptCacheError: it is of a newer version, and stays as it is.
    """
    version = len(migrations)
    if _version(connection) == version:
        return
    connection.execute("begin immediate")
    try:
        found = _version(connection)  # another studio may have been faster
        if found > version:
            raise PromptCacheError(
                f"The {what} in {str(path)!r} were written by a newer version of the studio. Use that "
                "one, or move the file away; it is left as it is, and nothing is kept meanwhile."
            )
        for migration in migrations[found:]:
            migration(connection)
        connection.execute(f"pragma user_version = {version}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])
