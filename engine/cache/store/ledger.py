"""The books of a store: what there is, what was asked for, why something is missing, and the settings."""

from __future__ import annotations

import logging
import math
import shutil
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.cache.store.codec import SCHEMES, Scheme
from engine.cache.store.eviction import WORTH, Policy, inflation, pinned
from engine.cache.store.index import FailedIndexError, Index
from engine.cache.store.reasons import Sought, reason
from engine.errors import StoreError
from engine.tiers import Outcome, Reason, Tier

log = logging.getLogger(__name__)

DEFAULT_BUDGET = 20 << 30  # bytes


@dataclass(frozen=True)
class StoreStats:
    """Totals of a store.

    Attributes:
        segments: how many there are.
        bytes: size of their files.
        hits: segments that were found, since the store was made.
        misses: segments that had to be computed.
        corrupt: files that were set aside.
        evicted: segments that went for the budget or for their age.
        budget: the most bytes.
        pinned: bytes that pins keep.
        max_age: seconds after which a segment that was not used goes; None for never.
        policy: what goes first.
        scheme: how keys and values are stored.
        disk_free: bytes that the disk has left.
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
        path: of the module, "" for the anonymous one.
        scope: under which it was encoded.
        model: name of the model.
        fingerprint: of the model.
    """

    schema: str
    path: str
    scope: str
    model: str
    fingerprint: str


@dataclass(frozen=True)
class Lookup:
    """One segment that was asked for, for the books.

    Attributes:
        key: of it.
        tier: where it was found.
        outcome: whether it was found.
        reason: of a miss, "" of a hit.
        bytes: of its keys and values.
        ms: milliseconds that finding or computing it took.
        schema: name of the schema it was asked for, "" for none.
        path: of the module.
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
    """What a store's index says besides where its files are.

    Args:
        folder: of the store.
        index: the open index.
    """

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder = folder
        self._index = index

    def close(self) -> None:
        """Closes the index. The store must not be used afterwards."""
        self._index.close()

    def stats(self) -> StoreStats:
        """Returns the totals."""
        with self._index.reading() as connection:
            count, size = connection.execute(
                "select count(*), coalesce(sum(bytes), 0) from segments"
            ).fetchone()
            counted = dict(connection.execute("select name, value from counters").fetchall())
        return StoreStats(
            segments=count,
            bytes=size,
            hits=counted.get("hits", 0),
            misses=counted.get("misses", 0),
            corrupt=counted.get("corrupt", 0),
            evicted=counted.get("evicted", 0),
            budget=self.budget,
            pinned=self.pinned_bytes,
            max_age=self.max_age,
            policy=self.policy,
            scheme=self.scheme,
            disk_free=shutil.disk_usage(self.folder).free,
            served=tuple(self.query("select * from served order by tier, outcome, reason")),
        )

    def segments(self) -> list[dict[str, Any]]:
        """Returns one row per segment, the last used first."""
        rows = self.query(
            "select s.key, group_concat(distinct l.schema) as schema, group_concat(distinct l.path) as path,"
            " s.tokens, s.bytes, s.scope, s.model, s.dtype, s.scheme, s.seconds, s.hits, s.created,"
            " s.last_used, max(p.schema is not null) as pinned"
            " from segments s left join labels l on l.key = s.key"
            " left join pins p on p.schema = l.schema group by s.key order by s.last_used desc"
        )
        return [{**row, "pinned": bool(row["pinned"])} for row in rows]

    def evictions(self, limit: int = 100) -> list[dict[str, Any]]:
        """Returns what went and why, the latest first."""
        return self.query(
            "select at, key, schema, path, bytes, reason from evictions order by id desc limit ?", [limit]
        )

    def pins(self) -> list[str]:
        """Returns the schemas whose segments are not evicted."""
        return [row["schema"] for row in self.query("select schema from pins order by schema")]

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Returns the rows of a query by the names of their columns."""
        with self._index.reading():
            return list(self._index.database.query(sql, list(values)))

    def record(self, served: Sequence[Lookup]) -> None:
        """Writes an answer into the books. What cannot be written is left out, with a log line."""
        now = time.time()
        hits = [one.key for one in served if one.outcome == Outcome.HIT]
        try:
            with self._index.writing() as connection:
                worth = inflation(connection)
                connection.executemany(
                    f"update segments set hits = hits + 1, last_used = ?, worth = ? + {WORTH} where key = ?",
                    [(now, worth, key) for key in hits],
                )
                self._label(connection, served)
                self.count(connection, "hits", len(hits))
                self.count(connection, "misses", len(served) - len(hits))
                connection.executemany(
                    "insert into served (tier, outcome, reason, count, bytes, ms) values (?, ?, ?, 1, ?, ?)"
                    " on conflict (tier, outcome, reason) do update set count = count + 1,"
                    " bytes = bytes + excluded.bytes, ms = ms + excluded.ms",
                    [(one.tier, one.outcome, one.reason, one.bytes, one.ms) for one in served],
                )
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

    def reason(self, sought: Sought) -> str:
        """Says why a segment is not there."""
        try:
            with self._index.reading() as connection:
                return reason(connection, sought)
        except FailedIndexError as error:
            log.warning("%s", error)
            return Reason.UNREADABLE

    @property
    def budget(self) -> int:
        """The most bytes of all files together."""
        found = self._number("budget")
        return DEFAULT_BUDGET if found is None else int(found)

    @property
    def pinned_bytes(self) -> int:
        """The bytes of all files that pins keep."""
        with self._index.reading() as connection:
            return pinned(connection)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What of the settings does not go together, in sentences."""
        kept, budget = self.pinned_bytes, self.budget
        if budget == 0:
            return ("The budget is 0 bytes: nothing new is stored, and runs compute what they need.",)
        if kept > budget:
            return (
                f"Pinned segments take {kept:,} bytes and the store may take {budget:,}: they stay, and "
                "nothing else is stored. Raise the budget (pml cache budget) or unpin a schema.",
            )
        return ()

    @property
    def max_age(self) -> float | None:
        """Seconds after which a segment that was not used goes; None for never."""
        return self._number("max_age")

    def _number(self, name: str) -> float | None:
        """A setting that is a number, None where it is none."""
        try:
            found = float(self._index.setting(name) or "none")
        except ValueError:
            return None
        return found if 0 <= found < math.inf else None

    @property
    def policy(self) -> Policy:
        """What goes first: what is cheapest to compute again for its bytes, or the least recently used."""
        return "lru" if self._index.setting("policy") == "lru" else "cost"

    @property
    def scheme(self) -> Scheme:
        """How keys and values of new segments are stored."""
        found = self._index.setting("scheme")
        return next((scheme for scheme in SCHEMES if scheme == found), "plain")

    def set_scheme(self, scheme: Scheme) -> None:
        """Sets how new segments are stored; those that are there stay, under other names.

        Raises:
            StoreError: it is none.
        """
        if scheme not in SCHEMES:
            raise StoreError(f"scheme is {scheme!r}; it must be one of {', '.join(SCHEMES)}.")
        self._index.set("scheme", scheme)

    def pin(self, schema: str) -> None:
        """Keeps all segments of a schema from being evicted.

        Raises:
            StoreError: there are none.
        """
        with self._index.writing() as connection:
            there = connection.execute("select 1 from labels where schema = ? limit 1", [schema]).fetchone()
            if there is None:
                raise StoreError(
                    f"no stored segment is of a schema {schema!r}, so there is nothing to pin. Encode it "
                    "first (pml encode); pml cache list shows the names of what is there."
                )
            connection.execute(
                "insert or ignore into pins (schema, since) values (?, ?)", [schema, time.time()]
            )

    def unpin(self, schema: str) -> bool:
        """Takes a pin away; returns whether there was one."""
        with self._index.writing() as connection:
            return connection.execute("delete from pins where schema = ?", [schema]).rowcount > 0

    @staticmethod
    def count(connection: sqlite3.Connection, name: str, by: int) -> None:
        """Adds to a counter, inside a transaction."""
        connection.execute(
            "insert into counters (name, value) values (?, ?)"
            " on conflict (name) do update set value = value + excluded.value",
            [name, by],
        )
