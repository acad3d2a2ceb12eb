"""Schemas with segments from before texts kept line breaks between modules: each is told of once per store.

It looks into the index by itself: nobody who only reads documents opens a store, loads torch, or waits.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from engine.base.errors import StoreError
from engine.store.blobs.claim import APPLICATION_ID, INDEX, default_folder, require_ours
from engine.store.index.migrations import VERSION, migrate

_BEFORE = 2  # the version of an index whose segments all have the former texts
_PATIENCE_SECONDS = 0.2


def take_note(folder: Path | None, schema: str) -> int:
    """Returns how many segments of a schema have lain unused since before this version, and forgets of it.

    Of several processes that ask at once, one is told. Nothing is made where there is no store. One that
    cannot be read or written just now, or is of a newer version, says nothing, and may do so later.

    Args:
        folder: the folder of the store; None for the user's cache folder.
        schema: name of the schema.

    Returns:
        The number of segments; 0 where there is nothing to tell.
    """
    folder = default_folder() if folder is None else folder
    try:
        if require_ours(folder) != "store":
            return 0
        uri = f"{(folder / INDEX).absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE_SECONDS)) as connection:
            connection.isolation_level = None
            return _taken(folder, connection, schema)
    except (StoreError, sqlite3.Error, OSError):
        return 0


def _taken(folder: Path, connection: sqlite3.Connection, schema: str) -> int:
    (application,) = connection.execute("pragma application_id").fetchone()
    (version,) = connection.execute("pragma user_version").fetchone()
    if application != APPLICATION_ID or not _BEFORE <= version <= VERSION:
        return 0
    if version < VERSION:
        migrate(folder, connection)
    if connection.execute("select 1 from outdated where schema = ?", [schema]).fetchone() is None:
        return 0
    connection.execute("pragma secure_delete = on")
    connection.execute("begin immediate")  # whoever comes second finds no row
    found = connection.execute(
        "select count(distinct s.key) from outdated o join labels l on l.schema = o.schema"
        " join segments s on s.key = l.key and s.last_used <= o.since where o.schema = ?",
        [schema],
    ).fetchone()
    connection.execute("delete from outdated where schema = ?", [schema])
    connection.execute("commit")
    return int(found[0])
