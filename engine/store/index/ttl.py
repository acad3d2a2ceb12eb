"""Times to live: segments that no eviction may remove for some time."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from engine.base.errors import StoreError
from engine.base.tiers import Reason
from engine.store.index.database import FailedIndexError, Index

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 60.0  # between two searches for expired entries
_AMONG = "key in (select value from json_each(:keys))"
_LIVE = "exists (select 1 from keeps where keeps.key = evictions.key and keeps.until > now())"
_ENDED = "until <= :now and not exists (select 1 from segments where segments.key = keeps.key)"


@dataclass(frozen=True)
class Keep:
    """The time to live of a segment: `seconds`, which each read renews, and its end in seconds since 1970."""

    seconds: float
    until: float


class Keeps:
    """The times to live of a store's segments, by key, as the file may come later."""

    def __init__(self, index: Index) -> None:
        self._index, self._swept = index, -math.inf
        self._removed: set[str] = set()  # by this process, since the last call of `expired`
        self._seen: int | None = None  # the last row of evictions at that call

    def keep(self, keys: Iterable[str], seconds: float) -> None:
        """Sets the time to live of segments; logs a warning if it cannot be written.

        Raises:
            StoreError: the time is not above 0.
        """
        require_time(seconds)
        wanted, now = sorted(set(keys)), self._index.clock()
        if not wanted:
            return
        try:
            with self._index.writing() as connection:
                connection.executemany(
                    "insert into keeps (key, seconds, until) values (:key, :seconds, :until)"
                    " on conflict (key) do update set until = max(until, excluded.until),"
                    " seconds = iif(until > :now, max(seconds, excluded.seconds), excluded.seconds)",
                    [
                        {"key": key, "seconds": float(seconds), "until": now + seconds, "now": now}
                        for key in wanted
                    ],
                )
                if abs(now - self._swept) >= _SWEEP_SECONDS:
                    sweep(connection, now)
                    self._swept = now
        except FailedIndexError as error:
            log.warning("the time to live of %d segments could not be recorded: %s", len(wanted), error)

    def renew(self, keys: Iterable[str]) -> None:
        """Renews the times to live of segments that were read; expired and absent ones stay unchanged."""
        now = self._index.clock()
        values = {"keys": json.dumps([*set(keys)]), "now": now}
        live = f"{_AMONG} and until > :now"
        try:
            with self._index.reading() as connection:
                live_key = connection.execute(f"select 1 from keeps where {live} limit 1", values).fetchone()
            if live_key is not None:
                with self._index.writing() as connection:
                    connection.execute(
                        f"update keeps set until = max(until, :now + seconds) where {live}", values
                    )
        except FailedIndexError as error:
            level = logging.DEBUG if self._index.read_only else logging.WARNING
            log.log(level, "times to live were not renewed by a read: %s", error)

    def kept(self, keys: Iterable[str]) -> dict[str, Keep]:
        """Returns the retained ones of these keys; none if the index cannot be read."""
        values = {"keys": json.dumps([*set(keys)]), "now": self._index.clock()}
        try:
            with self._index.reading() as connection:
                rows = connection.execute(
                    f"select key, seconds, until from keeps where {_AMONG} and until > :now", values
                ).fetchall()
        except FailedIndexError as error:
            log.warning("%s", error)
            return {}
        return {key: Keep(seconds, until) for key, seconds, until in rows}

    def expired(self) -> set[str]:
        """Returns the stored segments whose time to live has ended, and those removed since the last call.

        Other processes removed the latter, but they may still be in memory here. Returns none if the index
        cannot be read.
        """
        try:
            with self._index.reading() as connection:
                rows = connection.execute(
                    "select key from keeps join segments using (key) where until <= ?", [self._index.clock()]
                ).fetchall()
                last = connection.execute("select coalesce(max(id), 0) from evictions").fetchone()[0]
                if self._seen is not None and last != self._seen:
                    removals = connection.execute(
                        f"select key from evictions where id > ? and reason = ? and not {_LIVE}",
                        [self._seen, Reason.EXPIRED],
                    ).fetchall()
                    rows += [row for row in removals if row[0] not in self._removed]
                self._seen, self._removed = last, set()
        except FailedIndexError as error:
            log.warning("%s", error)
            return set()
        return {row[0] for row in rows}

    def removed(self, keys: Iterable[str]) -> None:
        """Records the expired segments that this process removes."""
        self._removed = self._removed | set(keys)

    def totals(self) -> tuple[int, float | None]:
        """Returns the bytes of all retained files, and the end of the last time to live."""
        with self._index.reading() as connection:
            size, until = connection.execute(
                "select coalesce(sum(bytes), 0), max(until) from keeps join segments using (key)"
                " where until > ?",
                [self._index.clock()],
            ).fetchone()
        return int(size), until

    def tidy(self) -> None:
        """Deletes expired entries without use."""
        now = self._index.clock()
        with self._index.reading() as connection:
            pins = "exists (select 1 from pins where until <= :now)"
            ended = connection.execute(
                f"select {pins} or exists (select 1 from keeps where {_ENDED})", {"now": now}
            ).fetchone()[0]
        if ended:
            with self._index.writing() as connection:
                sweep(connection, now)
        self._swept = now


def sweep(connection: sqlite3.Connection, now: float) -> None:
    """Deletes expired pins, and expired times to live of removed segments."""
    connection.execute("delete from pins where until <= ?", [now])
    connection.execute(f"delete from keeps where {_ENDED}", {"now": now})


def require_time(seconds: float) -> None:
    """Raises StoreError for an invalid time to live."""
    if not 0 < seconds < math.inf:
        raise StoreError(f"a time of {seconds} seconds is invalid; it must be above 0.")
