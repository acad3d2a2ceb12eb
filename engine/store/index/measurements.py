"""Measured differences of answers over combinations of segments from uncached answers."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.store.index.database import FailedIndexError, Index

log = logging.getLogger(__name__)

MOST_COMBINATIONS: Final = 2000
LAST: Final = 8  # measurements per combination and rung


@dataclass(frozen=True)
class Known:
    """The measurements of a combination.

    Attributes:
        runs: number of answers that read it.
        kl: the maximum of the last measurements by rung, in nats per answer token.
    """

    runs: int = 0
    kl: Mapping[int, float] = field(default_factory=dict)


class Measured:
    """The measurements of a store for the last used combinations.

    A digest names a combination. An unreadable measurement counts as unknown, and a failed write is only
    logged.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def of(self, combination: str) -> Known:
        """Returns the measurements of a combination; does not wait long for the index."""
        try:
            with self._index.reading_soon() as connection:
                row = connection.execute(
                    "select runs from combinations where name = ?", [combination]
                ).fetchone()
                means = connection.execute(
                    "select rung, max(kl) from measurements where combination = ? group by rung",
                    [combination],
                ).fetchall()
        except FailedIndexError as error:
            log.info("measurements of reuse could not be read: %s", error)
            return Known()
        return Known(row[0] if row else 0, {int(rung): float(mean) for rung, mean in means})

    def count(self, combination: str, schema: str) -> int:
        """Counts one more answer; returns the new count, or 0 if it could not be written."""
        try:
            with self._index.writing() as connection:
                connection.execute(
                    "insert into combinations (name, schema, runs, used) values (?, ?, 1, now())"
                    " on conflict (name) do update set runs = runs + 1, used = now()",
                    [combination, schema],
                )
                _bound(connection)
                row = connection.execute(
                    "select runs from combinations where name = ?", [combination]
                ).fetchone()
        except FailedIndexError as error:
            log.info("an answer was not counted: %s", error)
            return 0
        return int(row[0]) if row else 0

    def note(self, combination: str, kl: Mapping[int, float]) -> None:
        """Adds a measurement of each rung, and deletes all but the last ones.

        A combination that was cleared meanwhile stays unknown.
        """
        try:
            with self._index.writing() as connection:
                for rung, value in kl.items():
                    connection.execute(
                        "insert into measurements (combination, rung, at, kl)"
                        " select name, ?, now(), ? from combinations where name = ?",
                        [rung, value, combination],
                    )
                    connection.execute(
                        "delete from measurements where combination = :name and rung = :rung and id not in"
                        " (select id from measurements where combination = :name and rung = :rung"
                        " order by id desc limit :last)",
                        {"name": combination, "rung": rung, "last": LAST},
                    )
        except FailedIndexError as error:
            log.info("a measurement of reuse was not stored: %s", error)

    def clear(self, schema: str | None = None) -> None:
        """Deletes all measurements, or those of one schema.

        Raises:
            FailedIndexError: the index cannot be written.
        """
        with self._index.writing() as connection:
            connection.execute("delete from combinations where ?1 is null or schema = ?1", [schema])
            _drop_orphans(connection)


def _bound(connection: sqlite3.Connection) -> None:
    """Deletes the least recently used combinations beyond the limit."""
    over = connection.execute("select count(*) from combinations").fetchone()[0] - MOST_COMBINATIONS
    if over > 0:
        connection.execute(
            "delete from combinations where name in (select name from combinations order by used limit ?)",
            [over],
        )
        _drop_orphans(connection)


def _drop_orphans(connection: sqlite3.Connection) -> None:
    connection.execute("delete from measurements where combination not in (select name from combinations)")
