"""The tables of the index, and the version of its format, which is SQLite's `user_version`.

`sqlite_utils.Migrations` is not used: it accepts an index of a newer version and writes a table of its own.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from engine.base.errors import StoreError

VERSION = 6
UNFILLED = "unfilled"  # a setting of a new index over existing files, until they are entered
TABLES = """
create table segments (
    key text primary key, file text, bytes integer, digest text, tokens integer, token_ids blob, dtype text,
    fingerprint text, model text, scope text, created float, last_used float, hits integer,
    seconds float not null default 0, worth float not null default 0, scheme text not null default 'plain',
    shape text not null default '');
create index segments_by_use on segments (last_used, bytes);
create table labels (key text, schema text, path text, primary key (key, schema, path));
create table counters (name text primary key, value integer);
create table settings (name text primary key, value text not null);
create table pins (schema text primary key, since float not null, until float);
create table keeps (key text primary key, seconds float not null, until float not null);
create index keeps_by_end on keeps (until);
create table evictions (
    id integer primary key, at float not null, key text not null, schema text not null, path text not null,
    bytes integer not null, reason text not null);
create index evictions_by_key on evictions (key);
create table served (
    tier text not null, outcome text not null, reason text not null, count integer not null,
    bytes integer not null, ms float not null, primary key (tier, outcome, reason));
create table misses (
    id integer primary key, at float not null, key text not null, schema text not null, path text not null,
    bytes integer not null, ms float not null, reason text not null);
create table combinations (
    name text primary key, schema text not null, runs integer not null, used float not null);
create index combinations_by_use on combinations (used);
create table measurements (
    id integer primary key, combination text not null, rung integer not null, at float not null,
    kl float not null);
create index measurements_by_rung on measurements (combination, rung)
"""


def prepare(folder: Path, connection: sqlite3.Connection, *, unfilled: bool = False) -> None:
    """Creates the tables of a new index, or checks the version of an existing one.

    Args:
        folder: the folder of the store, for messages.
        connection: the connection to the index.
        unfilled: marks a new index as one whose files are not entered yet.

    Raises:
        StoreError: it is of another version.
        sqlite3.Error: it is no index.
    """
    connection.execute("begin immediate")  # of two processes that open a new store, one creates the tables
    try:
        found = int(connection.execute("pragma user_version").fetchone()[0])
        if found not in (0, VERSION):
            age = "a newer" if found > VERSION else "an older"
            raise StoreError(
                f"the cache folder {str(folder)!r} was written by {age} version (format {found}; this one "
                f"reads {VERSION}). Use that version, or choose another folder (--cache-dir, cache_dir)."
            )
        if found == 0:
            for statement in TABLES.split(";"):
                connection.execute(statement)
            if unfilled:  # in one transaction with the tables, so that a crash leaves both or neither
                connection.execute("insert into settings (name, value) values (?, '1')", [UNFILLED])
            connection.execute(f"pragma user_version = {VERSION}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:  # a full disk has rolled it back already
            connection.execute("rollback")
        raise
