"""Lists a store's segments for browsing: search, order, pages, and sums by module."""

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
    """A segment of the store; `schema` and `path` are comma-separated names of its schemas and modules.

    `seconds` is the time to compute it, and `last_used` in seconds since 1970.
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
"""Columns of the segment's own row, which need no labels to sort."""
_SAID: Final = "has_words(schema || ' ' || path || ' ' || scope || ' ' || model || ' ' || tier)"
_LARGEST: Final = 2**63 - 1  # the largest integer of SQLite
_KEYS: Final = "select value from json_each(:keys)"
_PINNED: Final = (
    "select key from labels where schema in (select schema from pins where until is null or until > now())"
)
_SUMS: Final = "count(*), coalesce(sum(bytes), 0), coalesce(sum(tokens), 0), coalesce(sum(seconds), 0.0)"


def _segments(*, chosen: bool = False) -> str:
    """The query for `Stored` rows, of all segments or only those in `:keys`.

    Schemas are in order, modules in the order of their schemas. `:held` are the keys in memory.
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
    """A filter of segments.

    Attributes:
        words: words that must appear in a segment's schema, module, scope, model or tier.
        schema: `Stored.schema`; None for any.
        path: `Stored.path`; "" for text outside of modules, None for any.
    """

    words: tuple[str, ...] = ()
    schema: str | None = None
    path: str | None = None

    def clause(self) -> tuple[str, dict[str, str | None]]:
        """Returns the SQL condition, "" for none, and its values; `has_words` in it is `said`."""
        values: dict[str, str | None] = {}
        parts = [_SAID] if self.words else []
        for name, value in (("schema", self.schema), ("path", self.path)):
            if value is not None:
                parts.append(f"{name} = :{name}")
                values[name] = value if _has_bytes(value) else None  # equals nothing
        return " and ".join(parts), values

    def said(self, text: str) -> bool:
        """Whether a segment's text has all words."""
        folded = text.casefold()
        return all(word.casefold() in folded for word in self.words)


@dataclass(frozen=True)
class Sums:
    """Sums over segments; `bytes` are those of their files, `seconds` the time to compute them."""

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
    """The segments of a page, and the sums of all pages."""

    rows: tuple[Stored, ...]
    all: Sums


class Listing:
    """Lists the segments of an index."""

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
        """Returns a page of segments from offset `start`; `held` are the keys in memory.

        Raises:
            StoreError: there is no such order, or the index cannot be read.
        """
        if order not in _BY:
            raise StoreError(f"segments cannot be sorted by {order!r}; the orders are {', '.join(_BY)}.")
        by = f"{_BY[order].format(way='desc' if down else 'asc')}, key"
        where, values = wanted.clause()
        values_by_name = {
            **values,
            "held": json.dumps([*held]),
            "limit": limit,
            "start": min(start, _LARGEST),
        }
        with self._reading(wanted) as connection:
            if not where and order in _OWN:
                rows = f"select key from segments order by {by} limit :limit offset :start"
                keys = [row[0] for row in connection.execute(rows, values_by_name)]
                row_by_key = {row.key: row for row in self._chosen(connection, keys, held)}
                pinned = f"(select count(*) from segments where key in ({_PINNED}))"
                sums = connection.execute(f"select {_SUMS}, {pinned} from segments").fetchone()
                return Listed(tuple(row_by_key[key] for key in keys), Sums(*sums))
            rows_and_sums = connection.execute(
                f"with listed as materialized (select * from ({_segments()}) where {where or 1}),"
                f" sums as (select {_SUMS}, coalesce(sum(pinned), 0) from listed),"
                f" page as (select * from listed order by {by} limit :limit offset :start)"
                " select * from sums left join page",
                values_by_name,
            ).fetchall()
        several = len(Sums.__dataclass_fields__)
        page = tuple(_stored(row[several:]) for row in rows_and_sums if row[several] is not None)
        return Listed(page, Sums(*rows_and_sums[0][:several]))

    def keys(self, wanted: Wanted, held: Collection[str] = ()) -> list[str]:
        """Returns the keys of all filtered segments; `held` are the keys in memory.

        Raises:
            StoreError: the index cannot be read.
        """
        where, values = wanted.clause()
        query = f"select key from ({_segments()}) where {where}" if where else "select key from segments"
        with self._reading(wanted) as connection:
            return [row[0] for row in connection.execute(query, {**values, "held": json.dumps([*held])})]

    def chosen(self, keys: Iterable[str]) -> list[Stored]:
        """Returns the existing segments of these keys."""
        with self._reading() as connection:
            return self._chosen(connection, keys, ())

    @staticmethod
    def _chosen(connection: sqlite3.Connection, keys: Iterable[str], held: Iterable[str]) -> list[Stored]:
        values = {"keys": json.dumps([*keys]), "held": json.dumps([*held])}
        return [_stored(row) for row in connection.execute(_segments(chosen=True), values)]

    @contextmanager
    def _reading(self, wanted: Wanted | None = None) -> Iterator[sqlite3.Connection]:
        with self._index.reading() as connection:
            if wanted is not None:
                connection.create_function("has_words", 1, wanted.said)
            connection.create_function("folded", 1, _folded, deterministic=True)
            yield connection

    def modules(self, limit: int) -> list[dict[str, Any]]:
        """Returns rows of schema, path, segments and bytes, the largest first.

        Modules beyond `limit` share one row per schema, with None as path.
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
        """Returns all segments; `held` are the keys in memory.

        Raises:
            StoreError: the index cannot be read.
        """
        with self._reading() as connection:
            return [_stored(row) for row in connection.execute(_segments(), {"held": json.dumps([*held])})]


def _stored(row: Sequence[Any]) -> Stored:
    *fields, pinned, tier = row
    where = Tier.MEMORY if tier == Tier.MEMORY.value else Tier.DISK
    return Stored._make((*fields, bool(pinned), where))


def _has_bytes(text: str) -> bool:
    """Whether a text can be encoded; half of a surrogate pair cannot."""
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
