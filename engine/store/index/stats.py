"""The ledger of a store: what was asked for and found, why something is missing, and what went."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.base.tiers import Outcome, Reason, Tier
from engine.store.blobs.codec import Scheme
from engine.store.index.database import FailedIndexError, Index
from engine.store.index.eviction import WORTH, Policy, inflation
from engine.store.index.reasons import Sought, reason

log = logging.getLogger(__name__)

_MISSES_KEPT = 1000


@dataclass(frozen=True)
class StoreStats:
    """Totals of a store.

    Attributes:
        segments: how many segments there are.
        bytes: size of their files.
        hits: segments that were found, since the store was made.
        misses: segments that had to be computed.
        corrupt: files that were set aside.
        evicted: segments that went for the budget or for their age.
        budget: the most bytes of all files together.
        pinned: how many bytes pins keep.
        kept: how many bytes times to live keep, also of what is pinned.
        kept_until: when the last of these times ends, in seconds since 1970; None where there is none.
        max_age: seconds after which a segment that was not used goes; None for never.
        policy: what goes first.
        scheme: how keys and values are stored.
        disk_free: how many bytes the disk has left.
        served: rows of tier, outcome, reason, count, bytes and ms.
    """

    segments: int
    bytes: int
    hits: int
    misses: int
    corrupt: int
    evicted: int
    budget: int
    pinned: int
    kept: int
    kept_until: float | None
    max_age: float | None
    policy: Policy
    scheme: Scheme
    disk_free: int
    served: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Origin:
    """What a segment was made from; kept beside it for people to read.

    Attributes:
        schema: name of the schema.
        path: path of the module, "" for the anonymous one.
        scope: the scope under which it was encoded.
        model: name of the model.
        fingerprint: fingerprint of the model.
    """

    schema: str
    path: str
    scope: str
    model: str
    fingerprint: str


@dataclass(frozen=True)
class Lookup:
    """One segment that was asked for, as the ledger counts it.

    Attributes:
        key: name of the segment.
        tier: the tier where it was found.
        outcome: whether it was found.
        reason: the reason of a miss, "" of a hit.
        bytes: size of its keys and values.
        ms: milliseconds that finding or computing it took.
        schema: name of the schema it was asked for, "" for none.
        path: path of the module.
    """

    key: str
    tier: Tier
    outcome: Outcome
    reason: str = ""
    bytes: int = 0
    ms: float = 0.0
    schema: str = ""
    path: str = ""


class Ledger:
    """What was asked for and found, and what went.

    Args:
        index: the index that holds it.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def totals(self) -> tuple[int, int, dict[str, int]]:
        """Returns how many segments there are, the bytes of their files, and the counters by name."""
        with self._index.reading() as connection:
            number, size = connection.execute(
                "select count(*), coalesce(sum(bytes), 0) from segments"
            ).fetchone()
            counted = dict(connection.execute("select name, value from counters").fetchall())
        return number, size, counted

    def served(self) -> tuple[dict[str, Any], ...]:
        """Returns rows of tier, outcome, reason, count, bytes and ms."""
        return tuple(self._index.query("select * from served order by tier, outcome, reason"))

    def segments(self) -> list[dict[str, Any]]:
        """Returns one row per segment, the last used first."""
        rows = self._index.query(
            "select s.key, group_concat(distinct l.schema) as schema, group_concat(distinct l.path) as path,"
            " s.tokens, s.bytes, s.scope, s.model, s.dtype, s.scheme, s.seconds, s.hits, s.created,"
            " s.last_used, max(p.schema is not null) as pinned,"
            " (select k.until from keeps k where k.key = s.key and k.until > now()) as kept_until"
            " from segments s left join labels l on l.key = s.key"
            " left join (select schema from pins where until is null or until > now()) p"
            " on p.schema = l.schema group by s.key order by s.last_used desc"
        )
        return [{**row, "pinned": bool(row["pinned"])} for row in rows]

    def evictions(self, limit: int = 100) -> list[dict[str, Any]]:
        """Returns what went and why, the latest first."""
        return self._index.query(
            "select at, key, schema, path, bytes, reason from evictions order by id desc limit ?", [limit]
        )

    def misses(self, limit: int = 100) -> list[dict[str, Any]]:
        """Returns what was asked for and not there, the latest first, with the reason.

        `gone_at` is when it was removed, in seconds since 1970, where the list of evictions still says so.
        """
        return self._index.query(
            "select m.at, m.key, m.schema, m.path, m.bytes, m.ms, m.reason,"
            " (select max(e.at) from evictions e where e.key = m.key and e.reason = m.reason"
            " and e.at <= m.at) as gone_at"
            " from misses m order by m.id desc limit ?",
            [limit],
        )

    def record(self, served: Sequence[Lookup]) -> None:
        """Writes an answer into the ledger. What cannot be written is left out, with a log line."""
        now = self._index.clock()
        hits = [one.key for one in served if one.outcome == Outcome.HIT]
        try:
            with self._index.writing() as connection:
                worth = inflation(connection)
                connection.executemany(
                    f"update segments set hits = hits + 1, last_used = ?, worth = ? + {WORTH} where key = ?",
                    [(now, worth, key) for key in hits],
                )
                self._label(connection, served)
                count(connection, "hits", len(hits))
                count(connection, "misses", len(served) - len(hits))
                connection.executemany(
                    "insert into served (tier, outcome, reason, count, bytes, ms) values (?, ?, ?, 1, ?, ?)"
                    " on conflict (tier, outcome, reason) do update set count = count + 1,"
                    " bytes = bytes + excluded.bytes, ms = ms + excluded.ms",
                    [(one.tier, one.outcome, one.reason, one.bytes, one.ms) for one in served],
                )
                _note_misses(connection, [one for one in served if one.outcome == Outcome.MISS], now)
        except FailedIndexError as error:
            level = logging.DEBUG if self._index.read_only else logging.WARNING
            log.log(level, "hits and misses of an answer were not counted: %s", error)

    def label(self, served: Sequence[Lookup]) -> None:
        """Enters which schemas use what they have found; so a pin of one keeps what another has stored."""
        try:
            with self._index.writing() as connection:
                self._label(connection, served)
        except FailedIndexError as error:
            level = logging.DEBUG if self._index.read_only else logging.WARNING
            log.log(level, "who uses which segment was not written down: %s", error)

    @staticmethod
    def _label(connection: sqlite3.Connection, served: Sequence[Lookup]) -> None:
        connection.executemany(
            "insert or ignore into labels (key, schema, path) select key, ?, ? from segments where key = ?",
            [(one.schema, one.path, one.key) for one in served if one.schema],
        )

    def reason(self, sought: Sought, unwritten: Sequence[Sought] = ()) -> str:
        """Says why a segment is not there, knowing of others that are about to be."""
        try:
            with self._index.reading() as connection:
                return reason(connection, sought, unwritten)
        except FailedIndexError as error:
            log.warning("%s", error)
            return Reason.UNREADABLE


def _note_misses(connection: sqlite3.Connection, missed: Sequence[Lookup], now: float) -> None:
    connection.executemany(
        "insert into misses (at, key, schema, path, bytes, ms, reason) values (?, ?, ?, ?, ?, ?, ?)",
        [(now, one.key, one.schema, one.path, one.bytes, one.ms, one.reason) for one in missed],
    )
    connection.execute("delete from misses where id <= (select max(id) from misses) - ?", [_MISSES_KEPT])


def count(connection: sqlite3.Connection, name: str, by: int) -> None:
    """Adds to a counter, inside a transaction."""
    connection.execute(
        "insert into counters (name, value) values (?, ?)"
        " on conflict (name) do update set value = value + excluded.value",
        [name, by],
    )
