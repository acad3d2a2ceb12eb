"""Removes segments by size, by age or by schema: rows first, then files."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from engine.base.tiers import Reason
from engine.prompt.recipe import TURN
from engine.store.index import eviction
from engine.store.index.catalog import Catalog, Chosen
from engine.store.index.database import FailedIndexError, Index
from engine.store.index.eviction import Policy, Removed, Victim
from engine.store.index.settings import Settings
from engine.store.reading import Reader

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Queue:
    """The segments that would be evicted.

    Attributes:
        total: all of them.
        first: the first ones in order, up to a limit: rows of key, schema, path, tokens, bytes, seconds (to
            compute them) and last_used.
        budget: the most bytes of all files together.
        spare: free bytes of the budget.
        missing: bytes that are still missing after evictions: the rest is pinned, retained or in use.
        policy: the order of eviction.
    """

    total: Removed
    first: tuple[dict[str, Any], ...]
    budget: int
    spare: int
    missing: int
    policy: Policy

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return {**asdict(self), "first": list(self.first)}


class Remover:
    """Removes segments from a store."""

    def __init__(self, index: Index, catalog: Catalog, settings: Settings, reader: Reader) -> None:
        self._index, self._catalog, self._settings, self._reader = index, catalog, settings, reader

    def prune(self, *, max_bytes: int | None = None, older_than: float | None = None) -> Removed:
        """Evicts down to a size, or segments unused for some seconds; never pinned, retained or used ones."""
        return self._take_out(self._catalog.too_much(max_bytes, older_than), "evicted")

    def surplus(self, max_bytes: int) -> Removed:
        """Returns what `prune` would evict for a size; removes nothing."""
        return _total(self._catalog.choose(self._catalog.too_much(max_bytes, None)))

    def next_out(self, free: int, limit: int) -> Queue:
        """Returns what the budget would evict for `free` more bytes, in order; removes nothing."""
        budget, policy, age = self._settings.budget, self._settings.policy, self._settings.max_age
        with self._index.reading() as connection:
            used = eviction.used(connection)
            chosen = self._catalog.too_much(budget - free, age)(connection)
            victims = [victim for group, _ in chosen for victim in group]
            first, total = tuple(eviction.in_order(connection, victims, limit)), _total(chosen)
        missing = max(0, used - total.bytes + free - budget)
        return Queue(total, first, budget, max(0, budget - used), missing, policy)

    def expire(self) -> None:
        """Evicts segments beyond the age limit, if there is one."""
        if self._settings.max_age is not None:
            self.prune(older_than=self._settings.max_age)

    def remove(self, keys: Iterable[str], reason: Reason = Reason.DELETED) -> Removed:
        """Removes segments, pinned and retained ones too; an expired one only if it was not retained anew."""
        wanted = set(keys)
        free = f" where not {eviction.KEPT}" if reason == Reason.EXPIRED else ""

        def choose(connection: sqlite3.Connection) -> Chosen:
            rows = connection.execute(f"select key, file, bytes from segments{free}").fetchall()
            return [([Victim(*row) for row in rows if row[0] in wanted], reason)]

        return self._take_out(choose)

    def clear(self, schema: str | None = None, *, pinned: bool = False, conversation: bool = False) -> int:
        """Removes all segments, or those that only this schema uses; returns their number.

        Pinned ones stay by default. `conversation` removes only earlier turns of conversations.
        """
        noted = self._note_cleared()  # first, so that segments which others enter from now on are refused
        with self._index.reading() as connection:
            keys = {row[0] for row in connection.execute("select key from segments")}
            labels = connection.execute("select key, schema from labels").fetchall()
            turns = connection.execute("select key from labels where path = ?", [TURN]).fetchall()
        if conversation:
            keys = {row[0] for row in turns}
        if schema is not None:
            keys &= {key for key, name in labels if name == schema}
            keys -= {key for key, name in labels if name != schema}
        if not pinned:
            pins = set(self._settings.pins())
            keys -= {key for key, name in labels if name in pins}
        removed = self.remove(keys, Reason.CLEARED).segments
        if not noted:  # the disk was full, and has room now
            self._note_cleared()
        return removed

    def _note_cleared(self) -> bool:
        try:
            self._settings.note_cleared()
        except FailedIndexError:
            return False
        return True

    def _take_out(self, choose: Callable[[sqlite3.Connection], Chosen], counter: str = "") -> Removed:
        """Removes rows, then files; on a full disk files first, as the index needs their space."""
        try:
            chosen = self._catalog.strike(choose, counter)
            victims = [victim for group, _ in chosen for victim in group]
            self._reader.discard(eviction.files_of(victims))
        except FailedIndexError as error:
            if not error.refused:
                raise
            chosen = self._catalog.choose(choose)
            victims = [victim for group, _ in chosen for victim in group]
            if victims and not self._reader.discard(eviction.files_of(victims)):
                raise
            try:
                self._catalog.strike(lambda _: chosen, counter)
            except FailedIndexError as still:
                self._catalog.owe(chosen)
                log.warning("the files are deleted, and leave the index when there is room: %s", still)
        for victim in victims:
            log.info("removed segment %s (%d bytes)", victim.key, victim.bytes)
        return _total(chosen)


def _total(chosen: Chosen) -> Removed:
    victims = [victim for group, _ in chosen for victim in group]
    return Removed(len(victims), sum(victim.bytes for victim in victims))
