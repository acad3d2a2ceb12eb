"""What people have set for a store, for good: how much it takes, what goes first, what stays."""

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
    """The settings and pins of a store. One that cannot be read counts as none.

    Args:
        index: the index that holds them.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    @property
    def budget(self) -> int:
        """The most bytes of all files together."""
        found = self._number("budget")
        return DEFAULT_BUDGET if found is None else int(found)

    @property
    def policy(self) -> Policy:
        """What goes first: what is cheapest to compute again for its bytes, or the least recently used."""
        return "lru" if self._index.setting("policy") == "lru" else "cost"

    @property
    def max_age(self) -> float | None:
        """Seconds after which a segment that was not used goes; None for never."""
        return self._number("max_age")

    @property
    def scheme(self) -> Scheme:
        """How keys and values of new segments are stored."""
        found = self._index.setting("scheme")
        return next((scheme for scheme in SCHEMES if scheme == found), "plain")

    @property
    def cleared(self) -> str:
        """Another one after each time that the store was cleared: what is older may not come back.

        Raises:
            FailedIndexError: it cannot be read just now.
        """
        with self._index.reading_soon() as connection:
            return cleared_in(connection)

    def note_cleared(self) -> None:
        """Tells all programs at this store that it is being cleared.

        Raises:
            FailedIndexError: the index cannot be written.
        """
        self._index.set("cleared", secrets.token_hex(8))

    def _number(self, name: str) -> float | None:
        """A setting that is a number, None where it is none."""
        try:
            found = float(self._index.setting(name) or "none")
        except ValueError:
            return None
        return found if 0 <= found < math.inf else None

    def set_budget(self, size: int, policy: Policy | None = None) -> None:
        """Sets the budget, and what goes first.

        Raises:
            StoreError: the size is below 0, or there is no such policy.
        """
        if size < 0 or (policy is not None and policy not in POLICIES):
            raise StoreError(f"a budget of {size} bytes with policy {policy!r} cannot be kept.")
        self._index.set("budget", str(size))
        if policy is not None:
            self._index.set("policy", policy)

    def set_max_age(self, seconds: float | None) -> None:
        """Sets after how many seconds what was not used goes; None for never.

        Raises:
            StoreError: the age is not above 0.
        """
        if seconds is not None and not 0 < seconds < math.inf:
            raise StoreError(f"an age of {seconds} seconds cannot be kept; it must be above 0.")
        self._index.set("max_age", "" if seconds is None else repr(float(seconds)))

    def set_scheme(self, scheme: Scheme) -> None:
        """Sets how new segments are stored; those that are there stay, under other names.

        Raises:
            StoreError: there is no such scheme.
        """
        if scheme not in SCHEMES:
            raise StoreError(f"scheme is {scheme!r}; it must be one of {', '.join(SCHEMES)}.")
        self._index.set("scheme", scheme)

    def pins(self) -> list[str]:
        """Returns the schemas whose segments are not evicted."""
        rows = self._index.query(f"select schema from pins where {LASTING} order by schema")
        return [row["schema"] for row in rows]

    def pinned_until(self) -> dict[str, float]:
        """Returns when pins end, in seconds since 1970, by schema; of those that do."""
        rows = self._index.query("select schema, until from pins where until > now() order by schema")
        return {row["schema"]: row["until"] for row in rows}

    def pin(self, schema: str, seconds: float | None = None) -> None:
        """Keeps all segments of a schema from being evicted. Of a pinned one it changes how long.

        Args:
            schema: the schema's name.
            seconds: for how long from now on; None for good.

        Raises:
            StoreError: the schema has no segments, or the time is not above 0.
            CharacterError: the name holds half of a surrogate pair.
        """
        require_characters(schema)
        if seconds is not None:
            require_time(seconds)
        now = self._index.clock()
        with self._index.writing() as connection:
            there = connection.execute("select 1 from labels where schema = ? limit 1", [schema]).fetchone()
            if there is None:
                raise StoreError(
                    f"no stored segment is of a schema {schema!r}, so there is nothing to pin. Encode it "
                    "first (pml encode); pml cache list shows the names of what is there."
                )
            sweep(connection, now)
            connection.execute(
                "insert into pins (schema, since, until) values (?, ?, ?)"
                " on conflict (schema) do update set until = excluded.until",
                [schema, now, None if seconds is None else now + seconds],
            )

    def unpin(self, schema: str) -> bool:
        """Takes a pin away; returns whether there was one.

        Raises:
            CharacterError: the name holds half of a surrogate pair.
        """
        require_characters(schema)
        with self._index.writing() as connection:
            found = connection.execute(f"delete from pins where schema = ? and {LASTING}", [schema])
            return found.rowcount > 0

    @property
    def pinned_bytes(self) -> int:
        """The bytes of all files that pins keep."""
        with self._index.reading() as connection:
            return pinned(connection)

    @property
    def spared_bytes(self) -> int:
        """The bytes of all files that pins or times to live keep."""
        with self._index.reading() as connection:
            return spared(connection)

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
        if (staying := self.spared_bytes) > budget:
            return (
                f"Segments that are pinned or whose time to live has not ended take {staying:,} bytes and "
                f"the store may take {budget:,}: they stay for that time, and nothing else is stored. Raise "
                "the budget (pml cache budget), or wait.",
            )
        return ()


def cleared_in(connection: sqlite3.Connection) -> str:
    """`Settings.cleared`, as a connection sees it."""
    row = connection.execute("select value from settings where name = 'cleared'").fetchone()
    return str(row[0]) if row else ""
