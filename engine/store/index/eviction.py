"""Chooses segments to evict by budget and age.

`cost` is GreedyDual-Size (Cao and Irani, 1997): the worth of a segment is its compute seconds per byte, plus
the worth of the last evicted segment at the time of its use. `lru` evicts the least recently used.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Literal

from engine.base.errors import StoreError
from engine.base.tiers import Reason
from engine.store.blobs.claim import is_own

Policy = Literal["lru", "cost"]
POLICIES: tuple[Policy, ...] = ("cost", "lru")
_KEPT_LINES = 1000  # rows of evictions
_ORDER = {"lru": "last_used, created", "cost": "worth, last_used"}
WORTH = "seconds * 1e9 / max(bytes, 1)"  # seconds to compute it again, per byte
_INFLATION = "inflation"  # the worth of the last evicted segment, added to the worth of new ones


class NoRoomError(OSError):
    """The budget has no room for a segment, even after evictions."""


class ClearedError(StoreError):
    """The store was cleared after a segment was computed, so the segment must not be stored."""


def no_room(budget: int) -> str:
    """Returns the message for a full budget."""
    return (
        f"the store's budget of {budget:,} bytes has no room left besides segments that are pinned, in their "
        "time to live, or in use"
    )


@dataclass(frozen=True)
class Removed:
    """The number of removed segments, and the bytes of their files."""

    segments: int
    bytes: int

    def to_json(self) -> dict[str, int]:
        """Returns the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Victim:
    """The row of a segment to evict."""

    key: str
    file: str
    bytes: int


def files_of(victims: Collection[Victim]) -> list[str]:
    """Returns the victims' own files; an invalid row must not delete another segment's file."""
    return [victim.file for victim in victims if is_own(victim.key, victim.file)]


def used(connection: sqlite3.Connection) -> int:
    """Returns the bytes of all files in the index."""
    return int(connection.execute("select coalesce(sum(bytes), 0) from segments").fetchone()[0])


def pinned(connection: sqlite3.Connection) -> int:
    """Returns the bytes of files of pinned schemas."""
    return int(
        connection.execute(f"select coalesce(sum(bytes), 0) from segments where {_PINNED}").fetchone()[0]
    )


def spared(connection: sqlite3.Connection) -> int:
    """Returns the bytes of files that no eviction removes: pinned or retained ones."""
    return used(connection) - int(
        connection.execute(f"select coalesce(sum(bytes), 0) from segments where {FREE}").fetchone()[0]
    )


def over_budget(
    connection: sqlite3.Connection, budget: int, policy: Policy, keep: Collection[str]
) -> list[Victim]:
    """Returns the segments to evict so that the rest fits, least worth first.

    Pinned and retained segments and those in `keep` stay, even over the budget.
    """
    excess = used(connection) - budget
    victims: list[Victim] = []
    if excess <= 0:
        return victims
    rows = connection.execute(f"select key, file, bytes from segments where {FREE} order by {_ORDER[policy]}")
    for key, file, size in rows:
        if excess <= 0:
            break
        if key not in keep:
            victims.append(Victim(key, file, size))
            excess -= size
    rows.close()
    return victims


def in_order(connection: sqlite3.Connection, victims: Collection[Victim], limit: int) -> list[dict[str, Any]]:
    """Returns details of the first victims, in order."""
    details = []
    for victim in list(victims)[:limit]:
        row = connection.execute(
            "select group_concat(distinct l.schema), group_concat(distinct l.path), s.tokens, s.bytes,"
            " s.seconds, s.last_used from segments s left join labels l on l.key = s.key where s.key = ?",
            [victim.key],
        ).fetchone()
        names = ("schema", "path", "tokens", "bytes", "seconds", "last_used")
        details.append({"key": victim.key, **dict(zip(names, row, strict=True))})
    return details


def inflation(connection: sqlite3.Connection) -> float:
    """Returns the worth of the last evicted segment."""
    row = connection.execute("select value from settings where name = ?", [_INFLATION]).fetchone()
    return float(row[0]) if row else 0.0


def raise_inflation(connection: sqlite3.Connection, victims: Collection[Victim]) -> None:
    """Records the worth of segments that are about to be evicted."""
    marks = ",".join("?" * len(victims))
    keys = [victim.key for victim in victims]
    worth = connection.execute(f"select max(worth) from segments where key in ({marks})", keys).fetchone()[0]
    if worth is not None:
        connection.execute(
            "insert or replace into settings (name, value) values (?, ?)", [_INFLATION, repr(float(worth))]
        )


def too_old(connection: sqlite3.Connection, before: float, keep: Collection[str]) -> list[Victim]:
    """Returns the segments last used before a time, except pinned and retained ones and those in `keep`."""
    rows = connection.execute(
        f"select key, file, bytes from segments where {FREE} and last_used < :before", {"before": before}
    )
    return [Victim(*row) for row in rows.fetchall() if row[0] not in keep]


def refuse(connection: sqlite3.Connection, key: str, label: tuple[str, str], size: int) -> None:
    """Records that a segment was refused, once in a row, as the reason of the next miss."""
    last = connection.execute(
        "select reason from evictions where key = ? order by id desc limit 1", [key]
    ).fetchone()
    if last is None or last[0] != Reason.REFUSED:
        connection.execute(
            "insert into evictions (at, key, schema, path, bytes, reason) values (?, ?, ?, ?, ?, ?)",
            [_now(connection), key, *label, size, Reason.REFUSED],
        )


def take_out(connection: sqlite3.Connection, victims: Collection[Victim], reason: str) -> None:
    """Deletes rows and records the reason; the caller deletes the files after the commit.

    A damaged segment keeps its time to live, as it will be stored again.
    """
    now = _now(connection)
    for victim in victims:
        label = connection.execute(
            "select schema, path from labels where key = ? limit 1", [victim.key]
        ).fetchone()
        schema, path = label or ("", "")
        connection.execute(
            "insert into evictions (at, key, schema, path, bytes, reason) values (?, ?, ?, ?, ?, ?)",
            [now, victim.key, schema, path, victim.bytes, reason],
        )
        connection.execute("delete from segments where key = ?", [victim.key])
        connection.execute("delete from labels where key = ?", [victim.key])
        if reason != Reason.DAMAGED:
            connection.execute("delete from keeps where key = ?", [victim.key])
    connection.execute("delete from evictions where id <= (select max(id) from evictions) - ?", [_KEPT_LINES])


def _now(connection: sqlite3.Connection) -> float:
    return float(connection.execute("select now()").fetchone()[0])


LASTING = "(pins.until is null or pins.until > now())"  # a pin that has not ended
_PINNED = (
    "exists (select 1 from labels join pins on pins.schema = labels.schema"
    f" where labels.key = segments.key and {LASTING})"
)
KEPT = "exists (select 1 from keeps where keeps.key = segments.key and keeps.until > now())"
FREE = f"not {_PINNED} and not {KEPT}"
"""The condition for rows that may be evicted."""
