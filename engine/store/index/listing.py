"""The segments of a store for people to look through: found by words, sorted, page by page, and by module."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from engine.base.errors import StoreError
from engine.base.tiers import Tier
from engine.store.index.database import Index

Order = Literal["schema", "path", "scope", "model", "tokens", "bytes", "tier", "hits", "last_used"]


class Stored(NamedTuple):
    """A segment of the store.

    Attributes:
        key: the segment's name.
        tokens: how many it holds.
        bytes: size of its file.
        scope: the scope under which it was encoded.
        model: name of the model.
        seconds: how long computing it took.
        hits: how often it was found.
        last_used: when, in seconds since 1970.
        schema: names of the schemas that use it, with commas between them.
        path: paths of the modules that it is of, likewise.
        pinned: whether a pin keeps it.
        tier: where it is.
    """

    key: str
    tokens: int
    bytes: int
    scope: str
    model: str
    seconds: float
    hits: int
    last_used: float
    schema: str
    path: str
    pinned: bool
    tier: Tier


_BY: Final[dict[Order, str]] = {
    "schema": "folded(schema) {way}, folded(path) {way}",
    "path": "folded(path) {way}",
    "scope": "scope {way}",
    "model": "folded(model) {way}",
    "tokens": "tokens {way}",
    "bytes": "bytes {way}",
    "tier": "tier {way}",
    "hits": "hits {way}",
    "last_used": "last_used {way}",
}
_OWN: Final = frozenset({"scope", "model", "tokens", "bytes", "hits", "last_used"})
"""What a segment's own row is sorted by, without its labels."""
_SAID: Final = "has_words(schema || ' ' || path || ' ' || scope || ' ' || model || ' ' || tier)"
_LARGEST: Final = 2**63 - 1  # number of SQLite
_KEYS: Final = "select value from json_each(:keys)"
_PINNED: Final = (
    "select key from labels where schema in (select schema from pins where until is null or until > now())"
)
_SUMS: Final = "count(*), coalesce(sum(bytes), 0), coalesce(sum(tokens), 0), coalesce(sum(seconds), 0.0)"


def _segments(*, chosen: bool = False) -> str:
    """The query of `Stored`, in its order; of the segments of `:keys` only where they are chosen.

    Schemas are in their order, modules in that of their schemas. `:held` are the keys of those in memory.
    """
    few = f"where key in ({_KEYS})" if chosen else ""
    more = f"select key from labels {few} group by key having count(*) > 1"
    several = f"(select * from labels where key in ({more}))"
    return f"""
    select s.key, s.tokens, s.bytes, s.scope, s.model, s.seconds, s.hits, s.last_used,
        coalesce(l.schema, '') as schema, coalesce(l.path, '') as path, s.key in ({_PINNED}) as pinned,
        iif(s.key in (select value from json_each(:held)), '{Tier.MEMORY.value}', '{Tier.DISK.value}') as tier
    from segments s left join (
        select key, min(schema) as schema, min(path) as path from labels {few}
            group by key having count(*) = 1
        union all
        select key, n.schema, p.path from
            (select key, group_concat(schema) as schema
                from (select distinct key, schema from {several} order by key, schema) group by key) n
            join (select key, group_concat(path) as path
                from (select key, path from {several} group by key, path order by key, min(schema), path)
                group by key) p using (key)
    ) l on l.key = s.key
    {f"where s.key in ({_KEYS})" if chosen else ""}"""


@dataclass(frozen=True)
class Wanted:
    """Which segments are looked at.

    Attributes:
        words: each stands somewhere in a segment's schema, module, scope, model or tier.
        schema: `Stored.schema`, None for any.
        path: `Stored.path`, "" for text outside of modules, None for any.
    """

    words: tuple[str, ...] = ()
    schema: str | None = None
    path: str | None = None

    def clause(self) -> tuple[str, dict[str, str | None]]:
        """Returns the condition of SQL that takes them, "" where it takes all, and the values in it.

        It calls `has_words`, which is `said`.
        """
        values: dict[str, str | None] = {}
        parts = [_SAID] if self.words else []
        for name, value in (("schema", self.schema), ("path", self.path)):
            if value is not None:
                parts.append(f"{name} = :{name}")
                values[name] = value if _has_bytes(value) else None  # which nothing equals
        return " and ".join(parts), values

    def said(self, text: str) -> bool:
        """Whether all words stand in what is said of a segment."""
        folded = text.casefold()
        return all(word.casefold() in folded for word in self.words)


@dataclass(frozen=True)
class Sums:
    """What segments come to.

    Attributes:
        segments: how many there are.
        bytes: size of their files.
        tokens: how many they hold.
        seconds: how long computing them took.
        pinned: how many of them a pin keeps.
    """

    segments: int
    bytes: int
    tokens: int
    seconds: float
    pinned: int

    @classmethod
    def of(cls, rows: Sequence[Stored]) -> Sums:
        """Adds segments up."""
        return cls(
            len(rows),
            sum(row.bytes for row in rows),
            sum(row.tokens for row in rows),
            sum(row.seconds for row in rows),
            sum(row.pinned for row in rows),
        )


@dataclass(frozen=True)
class Listed:
    """A page of a list.

    Attributes:
        rows: its segments.
        all: what all of the list come to, the other pages too.
    """

    rows: tuple[Stored, ...]
    all: Sums


class Listing:
    """The segments that an index lists.

    Args:
        index: the index that holds them.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def page(
        self,
        wanted: Wanted,
        order: Order = "last_used",
        *,
        down: bool = True,
        start: int = 0,
        limit: int = 100,
        held: Collection[str] = (),
    ) -> Listed:
        """Returns a page of the segments that are wanted.

        Args:
            wanted: which segments.
            order: what they are sorted by; where that is the same, by key.
            down: the greatest first.
            start: how many come before.
            limit: how many there are on it.
            held: keys of those in memory.

        Raises:
            StoreError: there is no such order, or the index cannot be read.
        """
        if order not in _BY:
            raise StoreError(f"segments cannot be sorted by {order!r}; by {', '.join(_BY)} they can.")
        by = f"{_BY[order].format(way='desc' if down else 'asc')}, key"
        where, values = wanted.clause()
        given = {**values, "held": json.dumps([*held]), "limit": limit, "start": min(start, _LARGEST)}
        with self._reading(wanted) as connection:
            if not where and order in _OWN:
                rows = f"select key from segments order by {by} limit :limit offset :start"
                keys = [row[0] for row in connection.execute(rows, given)]
                found = {row.key: row for row in self._chosen(connection, keys, held)}
                pinned = f"(select count(*) from segments where key in ({_PINNED}))"
                sums = connection.execute(f"select {_SUMS}, {pinned} from segments").fetchone()
                return Listed(tuple(found[key] for key in keys), Sums(*sums))
            told = connection.execute(
                f"with listed as materialized (select * from ({_segments()}) where {where or 1}),"
                f" sums as (select {_SUMS}, coalesce(sum(pinned), 0) from listed),"
                f" page as (select * from listed order by {by} limit :limit offset :start)"
                " select * from sums left join page",
                given,
            ).fetchall()
        several = len(Sums.__dataclass_fields__)
        page = tuple(_stored(row[several:]) for row in told if row[several] is not None)
        return Listed(page, Sums(*told[0][:several]))

    def keys(self, wanted: Wanted, held: Collection[str] = ()) -> list[str]:
        """Returns the keys of all segments that are wanted.

        Args:
            wanted: which segments.
            held: keys of those in memory.

        Raises:
            StoreError: the index cannot be read.
        """
        where, values = wanted.clause()
        query = f"select key from ({_segments()}) where {where}" if where else "select key from segments"
        with self._reading(wanted) as connection:
            return [row[0] for row in connection.execute(query, {**values, "held": json.dumps([*held])})]

    def chosen(self, keys: Iterable[str]) -> list[Stored]:
        """Returns the segments of these keys that are there."""
        with self._reading() as connection:
            return self._chosen(connection, keys, ())

    @staticmethod
    def _chosen(connection: sqlite3.Connection, keys: Iterable[str], held: Iterable[str]) -> list[Stored]:
        given = {"keys": json.dumps([*keys]), "held": json.dumps([*held])}
        return [_stored(row) for row in connection.execute(_segments(chosen=True), given)]

    @contextmanager
    def _reading(self, wanted: Wanted | None = None) -> Iterator[sqlite3.Connection]:
        with self._index.reading() as connection:
            if wanted is not None:
                connection.create_function("has_words", 1, wanted.said)
            connection.create_function("folded", 1, _folded, deterministic=True)
            yield connection

    def modules(self, limit: int) -> list[dict[str, Any]]:
        """Returns rows of schema, path, segments and bytes, the largest first.

        Args:
            limit: the most modules; those beyond are one row to a schema, whose path is None.
        """
        sums: defaultdict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0, 0])
        query = f"select schema, path, count(*), sum(bytes) from ({_segments()}) group by schema, path"
        with self._reading() as connection:
            for schema, path, segments, size in connection.execute(query, {"held": "[]"}):
                _add(sums[schema, path], segments, size)
        ordered = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
        beyond: defaultdict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0, 0])
        for (schema, _), (segments, size) in ordered[limit:]:
            _add(beyond[schema, None], segments, size)
        return [
            {"schema": schema, "path": path, "segments": segments, "bytes": size}
            for (schema, path), (segments, size) in (*ordered[:limit], *beyond.items())
        ]

    def rows(self, held: Collection[str] = ()) -> list[Stored]:
        """Returns all segments.

        Args:
            held: keys of those in memory.

        Raises:
            StoreError: the index cannot be read.
        """
        with self._reading() as connection:
            return [_stored(row) for row in connection.execute(_segments(), {"held": json.dumps([*held])})]


def _stored(row: Sequence[Any]) -> Stored:
    *told, pinned, tier = row
    where = Tier.MEMORY if tier == Tier.MEMORY.value else Tier.DISK
    return Stored._make((*told, bool(pinned), where))


def _has_bytes(text: str) -> bool:
    """Whether a text can be written at all: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _folded(text: str | None) -> str:
    return (text or "").casefold()


def _add(sums: list[int], segments: int, size: int) -> None:
    sums[0] += segments
    sums[1] += size
