"""What goes when the store is over its budget or things are too old.

`cost` is GreedyDual-Size (Cao and Irani, 1997): a segment is worth the seconds that computing it again takes
by its bytes, on top of the worth of what was evicted last when it was used. `lru` evicts the least recently
used.
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
_KEPT_LINES = 1000  # of what was evicted
_ORDER = {"lru": "last_used, created", "cost": "worth, last_used"}
WORTH = "seconds * 1e9 / max(bytes, 1)"  # of computing a segment again, for what it takes
_INFLATION = "inflation"  # the worth of what was evicted last: what comes now is worth that much more


class NoRoomError(OSError):
    """The budget has no room for a segment, even after all that may go has gone."""


class ClearedError(StoreError):
    """The store was cleared after a segment was computed, so that it is not to be stored."""


def no_room(budget: int) -> str:
    """What is said where a budget has no room."""
    return (
        f"the store's budget of {budget:,} bytes has no room left beside what is pinned, kept for its time "
        "to live, or in use"
    )


@dataclass(frozen=True)
class Removed:
    """Segments that were removed.

    Attributes:
        segments: how many segments were removed.
        bytes: size of their files.
    """

    segments: int
    bytes: int

    def to_json(self) -> dict[str, int]:
        """Returns the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Victim:
    """A segment that goes, as its row says."""

    key: str
    file: str
    bytes: int


def files_of(victims: Collection[Victim]) -> list[str]:
    """Names of the victims' own files: a row may lie, and must not take another segment's file along."""
    return [victim.file for victim in victims if is_own(victim.key, victim.file)]


def used(connection: sqlite3.Connection) -> int:
    """The bytes of all files that the index lists."""
    return int(connection.execute("select coalesce(sum(bytes), 0) from segments").fetchone()[0])


def pinned(connection: sqlite3.Connection) -> int:
    """The bytes of files that pins keep."""
    return int(
        connection.execute(f"select coalesce(sum(bytes), 0) from segments where {_PINNED}").fetchone()[0]
    )


def spared(connection: sqlite3.Connection) -> int:
    """The bytes of files that no eviction removes: what is pinned, or kept for a time."""
    return used(connection) - int(
        connection.execute(f"select coalesce(sum(bytes), 0) from segments where {FREE}").fetchone()[0]
    )


def over_budget(
    connection: sqlite3.Connection, budget: int, policy: Policy, keep: Collection[str]
) -> list[Victim]:
    """The segments that have to go for the rest to fit, the least worth keeping first.

    Pinned schemas' segments stay, those whose time to live has not ended, and those in `keep`, even where the
    budget is exceeded for it.
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
    """Returns what is known of the first of some victims, in their order."""
    found = []
    for victim in list(victims)[:limit]:
        row = connection.execute(
            "select group_concat(distinct l.schema), group_concat(distinct l.path), s.tokens, s.bytes,"
            " s.seconds, s.last_used from segments s left join labels l on l.key = s.key where s.key = ?",
            [victim.key],
        ).fetchone()
        names = ("schema", "path", "tokens", "bytes", "seconds", "last_used")
        found.append({"key": victim.key, **dict(zip(names, row, strict=True))})
    return found


def inflation(connection: sqlite3.Connection) -> float:
    """The worth of what was evicted last."""
    row = connection.execute("select value from settings where name = ?", [_INFLATION]).fetchone()
    return float(row[0]) if row else 0.0


def raise_inflation(connection: sqlite3.Connection, victims: Collection[Victim]) -> None:
    """Remembers the worth of what is about to be evicted."""
    marks = ",".join("?" * len(victims))
    keys = [victim.key for victim in victims]
    worth = connection.execute(f"select max(worth) from segments where key in ({marks})", keys).fetchone()[0]
    if worth is not None:
        connection.execute(
            "insert or replace into settings (name, value) values (?, ?)", [_INFLATION, repr(float(worth))]
        )


def too_old(connection: sqlite3.Connection, before: float, keep: Collection[str]) -> list[Victim]:
    """The segments that were last used before a time, but for pinned and kept ones and those in `keep`."""
    rows = connection.execute(
        f"select key, file, bytes from segments where {FREE} and last_used < :before", {"before": before}
    )
    return [Victim(*row) for row in rows.fetchall() if row[0] not in keep]


def refuse(connection: sqlite3.Connection, key: str, label: tuple[str, str], size: int) -> None:
    """Writes down that a segment was not stored, once in a row; so the next miss knows why."""
    last = connection.execute(
        "select reason from evictions where key = ? order by id desc limit 1", [key]
    ).fetchone()
    if last is None or last[0] != Reason.REFUSED:
        connection.execute(
            "insert into evictions (at, key, schema, path, bytes, reason) values (?, ?, ?, ?, ?, ?)",
            [_now(connection), key, *label, size, Reason.REFUSED],
        )


def take_out(connection: sqlite3.Connection, victims: Collection[Victim], reason: str) -> None:
    """Deletes rows, and writes down what went and why; the files are left to who commits.

    What was damaged comes again, and is still kept for as long as was said of it.
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
"""Of the rows that an eviction may take."""
