"""Migrations of the batch database; see `app.studio.history.migrations`."""

from __future__ import annotations

import sqlite3

from app.studio.history.migrations import Migration


def create_tables(connection: sqlite3.Connection) -> None:
    """Version 1: batches with counts, their rows, and shared documents."""
    connection.execute("create table texts (digest text primary key, text blob not null)")
    connection.execute(
        "create table batches (number integer primary key autoincrement, id text unique not null,"
        " name text not null, started text not null, state text not null, fault text not null,"
        " about text not null, schema_digest text not null, whole_digest text not null,"
        " prompt_digest text not null, rows integer not null, answered integer not null default 0,"
        " failed integer not null default 0, judged integer not null default 0,"
        " passed integer not null default 0)"
    )
    connection.execute(
        "create table rows (batch integer not null, number integer not null, row text not null,"
        " result text, ended integer, primary key (batch, number)) without rowid"
    )


MIGRATIONS: tuple[Migration, ...] = (create_tables,)
"""The migration from version n to n + 1 is at index n."""
