"""The texts of runs and batches, each stored once, and the space that runs or batches take."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Literal

from sqlite_utils import Database

Stored = Literal["runs", "batches"]
_USED = "select schema_digest from {0} union select prompt_digest from {0} union select whole_digest from {0}"
TEXTS = "s.text as schema, p.text as prompt, w.text as whole"
WITH_TEXTS = (
    "join texts s on s.digest = schema_digest join texts p on p.digest = prompt_digest"
    " join texts w on w.digest = whole_digest"
)


def put_text(db: Database, text: str) -> str:
    """Adds a text unless it is stored; returns its digest."""
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).hexdigest()
    db.table("texts").insert({"digest": digest, "text": data}, ignore=True)
    return digest


def as_text(data: bytes) -> str:
    """Returns a stored text."""
    return data.decode("utf-8", "surrogatepass")


def delete_unused(db: Database) -> None:
    """Deletes the texts that no run and no batch uses."""
    used = " union ".join(_USED.format(table) for table in ("runs", "batches"))
    db.table("texts").delete_where(f"digest not in ({used})")


def used_bytes(db: Database, table: Stored) -> int:
    """Returns the bytes of all rows of a table with their texts."""
    texts = f"select coalesce(sum(length(text)), 0) from texts where digest in ({_USED.format(table)})"
    return int(db.execute(f"select coalesce(sum(bytes), 0) + ({texts}) from {table}").fetchone()[0])


def make_room(
    db: Database, table: Stored, most: int, most_bytes: int, stays: Callable[[str], bool], labelled: str
) -> bool:
    """Deletes the oldest rows until the others fit, rows without a label first.

    Args:
        db: the database, in a transaction.
        table: the table.
        most: the maximum number of rows.
        most_bytes: the maximum of `used_bytes`.
        stays: whether a row must not be deleted, by its id.
        labelled: an SQL condition on rows that the user named.

    Returns:
        Whether the bytes fit.
    """
    oldest = iter(db.execute(f"select id from {table} order by {labelled}, rowid").fetchall())
    while db.table(table).count > most or used_bytes(db, table) > most_bytes:
        row = next((row for row in oldest if not stays(row[0])), None)
        if row is None:
            break
        db.table(table).delete(row[0])
        delete_unused(db)
    return used_bytes(db, table) <= most_bytes
