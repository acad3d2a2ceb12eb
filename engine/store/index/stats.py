"""Statistics of a store: hits, misses with reasons, and evictions."""

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
    """Totals of a store; `served` are rows of tier, outcome, reason, count, bytes and ms.

    `kept` is the bytes of files with a time to live, pinned ones included, and `kept_until` its last end.
    `max_age` is in seconds, None for no limit.
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
    """The origin of a segment, stored with it for listings; `path` is "" for text outside of modules."""

    schema: str
    path: str
    scope: str
    model: str
    fingerprint: str


@dataclass(frozen=True)
class Lookup:
    """A lookup of a segment, for the statistics; `ms` is the time to find or compute it."""

    key: str
    tier: Tier
    outcome: Outcome
    reason: str = ""
    bytes: int = 0
    ms: float = 0.0
    schema: str = ""
    path: str = ""


class Ledger:
    """Counts hits, misses and evictions in an index."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def totals(self) -> tuple[int, int, dict[str, int]]:
        """Returns the number of segments, the bytes of their files, and the counters by name."""
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
        """Returns removed segments with reasons, the latest first."""
        return self._index.query(
            "select at, key, schema, path, bytes, reason from evictions order by id desc limit ?", [limit]
        )

    def misses(self, limit: int = 100) -> list[dict[str, Any]]:
        """Returns misses with reasons, the latest first.

        `gone_at` is the time of removal in seconds since 1970, if still recorded. `bytes` is the size of the
        stored file, or of the keys and values if it is not stored.
        """
        return self._index.query(
            "select m.at, m.key, m.schema, m.path, m.ms, m.reason,"
            " coalesce((select s.bytes from segments s where s.key = m.key), m.bytes) as bytes,"
            " (select max(e.at) from evictions e where e.key = m.key and e.reason = m.reason"
            " and e.at <= m.at) as gone_at"
            " from misses m order by m.id desc limit ?",
            [limit],
        )

    def record(self, served: Sequence[Lookup]) -> None:
        """Counts an answer's lookups; logs a failure."""
        now = self._index.clock()
        hits = [lookup.key for lookup in served if lookup.outcome == Outcome.HIT]
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
                    [
                        (lookup.tier, lookup.outcome, lookup.reason, lookup.bytes, lookup.ms)
                        for lookup in served
                    ],
                )
                _note_misses(connection, [lookup for lookup in served if lookup.outcome == Outcome.MISS], now)
        except FailedIndexError as error:
            level = logging.DEBUG if self._index.read_only else logging.WARNING
            log.log(level, "hits and misses of an answer were not counted: %s", error)

    def label(self, served: Sequence[Lookup]) -> None:
        """Records which schemas use these segments, so that each schema's pin protects them."""
        try:
            with self._index.writing() as connection:
                self._label(connection, served)
        except FailedIndexError as error:
            level = logging.DEBUG if self._index.read_only else logging.WARNING
            log.log(level, "the schemas of segments were not recorded: %s", error)

    @staticmethod
    def _label(connection: sqlite3.Connection, served: Sequence[Lookup]) -> None:
        connection.executemany(
            "insert or ignore into labels (key, schema, path) select key, ?, ? from segments where key = ?",
            [(lookup.schema, lookup.path, lookup.key) for lookup in served if lookup.schema],
        )

    def reason(self, sought: Sought, unwritten: Sequence[Sought] = ()) -> str:
        """Returns why a segment is missing; `unwritten` are segments with delayed writes."""
        try:
            with self._index.reading() as connection:
                return reason(connection, sought, unwritten)
        except FailedIndexError as error:
            log.warning("%s", error)
            return Reason.UNREADABLE


def _note_misses(connection: sqlite3.Connection, missed: Sequence[Lookup], now: float) -> None:
    connection.executemany(
        "insert into misses (at, key, schema, path, bytes, ms, reason) values (?, ?, ?, ?, ?, ?, ?)",
        [
            (now, lookup.key, lookup.schema, lookup.path, lookup.bytes, lookup.ms, lookup.reason)
            for lookup in missed
        ],
    )
    connection.execute("delete from misses where id <= (select max(id) from misses) - ?", [_MISSES_KEPT])


def count(connection: sqlite3.Connection, name: str, by: int) -> None:
    """Increases a counter, inside a transaction."""
    connection.execute(
        "insert into counters (name, value) values (?, ?)"
        " on conflict (name) do update set value = value + excluded.value",
        [name, by],
    )
