"""What was measured of combinations of segments: how far answers that read them were from uncached ones."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.store.index.database import FailedIndexError, Index

log = logging.getLogger(__name__)

MOST_COMBINATIONS: Final = 2000
LAST: Final = 8  # measurements of a combination at a rung


@dataclass(frozen=True)
class Known:
    """What is known of a combination.

    Attributes:
        runs: how many answers read it.
        kl: the greatest of its last measurements, by the rung that was measured, in nats per answer token.
    """

    runs: int = 0
    kl: Mapping[int, float] = field(default_factory=dict)


class Measured:
    """The measurements of a store, of the combinations that were used last.

    A combination is named by a digest. What cannot be read counts as unknown, and what cannot be written is
    forgotten: no answer fails for it.

    Args:
        index: the index that holds them.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def of(self, combination: str) -> Known:
        """Returns what is known of a combination; waits for nobody for long."""
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
        """Counts one more answer; returns how many there were, 0 where it could not be written."""
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
        """Adds a measurement of each rung, and forgets all but the last ones of each.

        A combination that was cleared meanwhile is not known any more, and stays so.
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
            log.info("a measurement of reuse was not kept: %s", error)

    def clear(self, schema: str | None = None) -> None:
        """Forgets all, or what was measured over one schema.

        Raises:
            FailedIndexError: the index cannot be written.
        """
        with self._index.writing() as connection:
            connection.execute("delete from combinations where ?1 is null or schema = ?1", [schema])
            _drop_orphans(connection)


def _bound(connection: sqlite3.Connection) -> None:
    """Forgets the combinations that were not used for longest, where there are too many."""
    over = connection.execute("select count(*) from combinations").fetchone()[0] - MOST_COMBINATIONS
    if over > 0:
        connection.execute(
            "delete from combinations where name in (select name from combinations order by used limit ?)",
            [over],
        )
        _drop_orphans(connection)


def _drop_orphans(connection: sqlite3.Connection) -> None:
    connection.execute("delete from measurements where combination not in (select name from combinations)")
