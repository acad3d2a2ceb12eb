"""How an index of an earlier version becomes one of this version: one function each, in one transaction.

Not `sqlite_utils.Migrations`: that lets an index of a newer version pass, takes one of ours, which lacks its
table, for a new one, and would write that table into every index.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from engine.base.errors import StoreError


def create_tables(connection: sqlite3.Connection) -> None:
    """Version 1: segments, the schemas and modules that use them, and counters."""
    connection.execute(
        "create table if not exists segments (key text primary key, file text, bytes integer, digest text,"
        " tokens integer, token_ids blob, dtype text, fingerprint text, model text, scope text,"
        " created float, last_used float, hits integer)"
    )
    connection.execute(
        "create table if not exists labels (key text, schema text, path text,"
        " primary key (key, schema, path))"
    )
    connection.execute("create table if not exists counters (name text primary key, value integer)")


def name_by_recipe(connection: sqlite3.Connection) -> None:
    """Version 2: names of segments say all that a segment saw, so those of version 1 can never be found."""
    connection.execute("delete from segments")
    connection.execute("delete from labels")


def bound_and_explain(connection: sqlite3.Connection) -> None:
    """Version 2: what eviction weighs, what it did, pins, settings, and what was served from where."""
    connection.execute("alter table segments add column seconds float not null default 0")
    connection.execute("alter table segments add column worth float not null default 0")
    connection.execute("alter table segments add column scheme text not null default 'plain'")
    connection.execute("alter table segments add column shape text not null default ''")
    connection.execute("create index segments_by_use on segments (last_used, bytes)")
    connection.execute("create table settings (name text primary key, value text not null)")
    connection.execute("create table pins (schema text primary key, since float not null)")
    connection.execute(
        "create table evictions (id integer primary key, at float not null, key text not null,"
        " schema text not null, path text not null, bytes integer not null, reason text not null)"
    )
    connection.execute("create index evictions_by_key on evictions (key)")
    connection.execute(
        "create table served (tier text not null, outcome text not null, reason text not null,"
        " count integer not null, bytes integer not null, ms float not null,"
        " primary key (tier, outcome, reason))"
    )


def note_outdated(connection: sqlite3.Connection) -> None:
    """Version 3: the schemas whose segments are from before texts kept line breaks between modules."""
    connection.execute("create table outdated (schema text primary key, since float not null)")
    connection.execute("insert into outdated select distinct schema, ? from labels", [time.time()])


def note_misses(connection: sqlite3.Connection) -> None:
    """Version 4: the latest segments that were asked for and not there, each with its reason."""
    connection.execute(
        "create table misses (id integer primary key, at float not null, key text not null,"
        " schema text not null, path text not null, bytes integer not null, ms float not null,"
        " reason text not null)"
    )


def keep_for_a_time(connection: sqlite3.Connection) -> None:
    """Version 5: times to live, by key, since the file may come later; and pins that end."""
    connection.execute(
        "create table keeps (key text primary key, seconds float not null, until float not null)"
    )
    connection.execute("create index keeps_by_end on keeps (until)")
    connection.execute("alter table pins add column until float")


def measure_reuse(connection: sqlite3.Connection) -> None:
    """Version 6: how far answers over combinations of segments were from uncached ones."""
    connection.execute(
        "create table combinations (name text primary key, schema text not null, runs integer not null,"
        " used float not null)"
    )
    connection.execute("create index combinations_by_use on combinations (used)")
    connection.execute(
        "create table measurements (id integer primary key, combination text not null,"
        " rung integer not null, at float not null, kl float not null)"
    )
    connection.execute("create index measurements_by_rung on measurements (combination, rung)")


MIGRATIONS: tuple[tuple[Callable[[sqlite3.Connection], None], ...], ...] = (
    (create_tables,),
    (name_by_recipe, bound_and_explain),
    (note_outdated,),
    (note_misses,),
    (keep_for_a_time,),
    (measure_reuse,),
)
"""What leads from version n to n + 1, at place n. The version stands in SQLite's own user_version."""

VERSION = len(MIGRATIONS)


UNFILLED = "unfilled"  # a setting of an index that was made anew where files lay, until they are in it


def migrate(folder: Path, connection: sqlite3.Connection, *, unfilled: bool = False) -> int:
    """Brings an index to this version; returns the version that it had.

    Args:
        folder: the folder of the store, for messages.
        connection: the connection to the index.
        unfilled: an index that is made now has files without a row, which it says of itself.

    Raises:
        StoreError: it is of a newer version.
        sqlite3.Error: it is no index.
    """
    connection.execute("begin immediate")  # two processes that open an old store: one migrates
    try:
        found = int(connection.execute("pragma user_version").fetchone()[0])
        if found > VERSION:
            raise StoreError(
                f"the cache folder {str(folder)!r} was written by a newer version (format {found}, this one "
                f"knows {VERSION}). Upgrade, or choose another folder (--cache-dir, cache_dir)."
            )
        for steps in MIGRATIONS[found:]:
            for step in steps:
                step(connection)
        if found == 0 and unfilled:  # in one transaction with the tables: a crash must not part them
            connection.execute("insert or replace into settings (name, value) values (?, '1')", [UNFILLED])
        if found < VERSION:
            connection.execute(f"pragma user_version = {VERSION}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:  # a full disk has rolled it back already
            connection.execute("rollback")
        raise
    return found
