"""Persistent settings of a store: budget, eviction policy, pins."""

from __future__ import annotations

import math
import secrets
import sqlite3

from engine.base.errors import StoreError, require_characters
from engine.store.blobs.codec import SCHEMES, Scheme
from engine.store.index.database import Index
from engine.store.index.eviction import LASTING, POLICIES, Policy, pinned, spared
from engine.store.index.ttl import require_time, sweep

DEFAULT_BUDGET = 20 << 30  # bytes


class Settings:
    """The settings and pins of a store. An unreadable setting counts as not set."""

    def __init__(self, index: Index) -> None:
        self._index = index

    @property
    def budget(self) -> int:
        """The most bytes of all files together."""
        number = self._number("budget")
        return DEFAULT_BUDGET if number is None else int(number)

    @property
    def policy(self) -> Policy:
        """Eviction order: cheapest to recompute per byte, or least recently used."""
        return "lru" if self._index.setting("policy") == "lru" else "cost"

    @property
    def max_age(self) -> float | None:
        """Seconds after which an unused segment is evicted; None for never."""
        return self._number("max_age")

    @property
    def scheme(self) -> Scheme:
        """The storage format of new segments."""
        name = self._index.setting("scheme")
        return next((scheme for scheme in SCHEMES if scheme == name), "plain")

    @property
    def cleared(self) -> str:
        """A value that changes each time the store is cleared; older segments must not be stored.

        Raises:
            FailedIndexError: it cannot be read now.
        """
        with self._index.reading_soon() as connection:
            return cleared_in(connection)

    def note_cleared(self) -> None:
        """Announces a clearing to all processes that use this store.

        Raises:
            FailedIndexError: the index cannot be written.
        """
        self._index.set("cleared", secrets.token_hex(8))

    def _number(self, name: str) -> float | None:
        """A setting as a number; None if it is not one."""
        try:
            number = float(self._index.setting(name) or "none")
        except ValueError:
            return None
        return number if 0 <= number < math.inf else None

    def set_budget(self, size: int, policy: Policy | None = None) -> None:
        """Sets the budget and the eviction policy.

        Raises:
            StoreError: the size is below 0, or there is no such policy.
        """
        if size < 0 or (policy is not None and policy not in POLICIES):
            raise StoreError(f"a budget of {size} bytes with policy {policy!r} is invalid.")
        self._index.set("budget", str(size))
        if policy is not None:
            self._index.set("policy", policy)

    def set_max_age(self, seconds: float | None) -> None:
        """Sets after how many seconds unused segments are evicted; None for never.

        Raises:
            StoreError: the age is not above 0.
        """
        if seconds is not None and not 0 < seconds < math.inf:
            raise StoreError(f"an age of {seconds} seconds is invalid; it must be above 0.")
        self._index.set("max_age", "" if seconds is None else repr(float(seconds)))

    def set_scheme(self, scheme: Scheme) -> None:
        """Sets the storage format of new segments; existing ones stay, under other names.

        Raises:
            StoreError: there is no such scheme.
        """
        if scheme not in SCHEMES:
            raise StoreError(f"scheme is {scheme!r}; it must be one of {', '.join(SCHEMES)}.")
        self._index.set("scheme", scheme)

    def pins(self) -> list[str]:
        """Returns the pinned schemas."""
        rows = self._index.query(f"select schema from pins where {LASTING} order by schema")
        return [row["schema"] for row in rows]

    def pinned_until(self) -> dict[str, float]:
        """Returns the ends of pins by schema, in seconds since 1970, without permanent ones."""
        rows = self._index.query("select schema, until from pins where until > now() order by schema")
        return {row["schema"]: row["until"] for row in rows}

    def pin(self, schema: str, seconds: float | None = None) -> None:
        """Pins all segments of a schema for `seconds` (None: permanently), or changes its pin.

        Raises:
            StoreError: the schema has no segments, or the time is not above 0.
            CharacterError: the name has half of a surrogate pair.
        """
        require_characters(schema)
        if seconds is not None:
            require_time(seconds)
        now = self._index.clock()
        with self._index.writing() as connection:
            label = connection.execute("select 1 from labels where schema = ? limit 1", [schema]).fetchone()
            if label is None:
                raise StoreError(
                    f"schema {schema!r} has no stored segments to pin. Encode it first (pml encode); pml "
                    "cache list shows the stored schemas."
                )
            sweep(connection, now)
            connection.execute(
                "insert into pins (schema, since, until) values (?, ?, ?)"
                " on conflict (schema) do update set until = excluded.until",
                [schema, now, None if seconds is None else now + seconds],
            )

    def unpin(self, schema: str) -> bool:
        """Removes a pin; returns whether there was one.

        Raises:
            CharacterError: the name has half of a surrogate pair.
        """
        require_characters(schema)
        with self._index.writing() as connection:
            deleted = connection.execute(f"delete from pins where schema = ? and {LASTING}", [schema])
            return deleted.rowcount > 0

    @property
    def pinned_bytes(self) -> int:
        """The bytes of files of pinned schemas."""
        with self._index.reading() as connection:
            return pinned(connection)

    @property
    def spared_bytes(self) -> int:
        """The bytes of pinned or retained files."""
        with self._index.reading() as connection:
            return spared(connection)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Conflicts of the settings, as sentences."""
        size, budget = self.pinned_bytes, self.budget
        if budget == 0:
            return ("The budget is 0 bytes: nothing new is stored, and runs compute what they need.",)
        if size > budget:
            return (
                f"Pinned segments take {size:,} bytes, and the budget is {budget:,}: nothing else is "
                "stored. Raise the budget (pml cache budget) or unpin a schema.",
            )
        if (staying := self.spared_bytes) > budget:
            return (
                f"Segments that are pinned or in their time to live take {staying:,} bytes, and the budget "
                f"is {budget:,}: nothing else is stored. Raise the budget (pml cache budget), or wait.",
            )
        return ()


def cleared_in(connection: sqlite3.Connection) -> str:
    """Returns `Settings.cleared` of a connection."""
    row = connection.execute("select value from settings where name = 'cleared'").fetchone()
    return str(row[0]) if row else ""
