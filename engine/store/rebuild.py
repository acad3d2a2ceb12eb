"""Sets a damaged index aside and rebuilds it from the files' headers."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.store.blobs import claim, segment_files
from engine.store.blobs.claim import INDEX, SEGMENT
from engine.store.blobs.codec import SCHEMES
from engine.store.blobs.contents import DamagedError
from engine.store.blobs.folder import Folder
from engine.store.index import eviction
from engine.store.index.database import TABLES, FailedIndexError, Index
from engine.store.index.eviction import POLICIES
from engine.store.index.tables import UNFILLED

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 600.0  # of waiting for another process that builds the same index
_NUMBERS = {"budget": re.compile(r"\d{1,18}"), "max_age": re.compile(r"\d{1,18}(\.\d{1,18})?")}
_TEXTS = ("fingerprint", "model", "scope")


@dataclass(frozen=True)
class Rebuilt:
    """The number of segments with a new row, and the damaged or incomplete files in quarantine."""

    segments: int
    left_out: tuple[str, ...]


def opened(folder: Folder, clock: Callable[[], float] = time.time) -> Index:
    """Opens the index of a store; rebuilds it from the files if it is damaged or missing.

    `clock` returns the seconds since 1970.

    Raises:
        StoreError: another process uses the index, or it is of a newer version.
    """
    try:
        index = Index(folder, clock=clock)
    except FailedIndexError as error:
        if not error.damaged:
            raise
        with folder.compute_lock("index", _PATIENCE_SECONDS):
            return _again(folder, error, clock)
    _fill_up(folder, index)
    return index


def refresh(folder: Folder, index: Index) -> None:
    """Switches from a read-only copy to the index on disk, if that is writable now."""
    if index.read_only:
        index.refresh()
        _fill_up(folder, index)


def _fill_up(folder: Folder, index: Index) -> None:
    if index.unfilled:
        with folder.compute_lock("index", _PATIENCE_SECONDS):
            _say(folder, "there was no index", fill(folder, index, None))


def _again(folder: Folder, error: FailedIndexError, clock: Callable[[], float]) -> Index:
    """Returns the index that another process has rebuilt, or rebuilds it."""
    with contextlib.suppress(FailedIndexError):
        return Index(folder, clock=clock)
    old: Path | None = None
    try:
        old = folder.path / folder.set_index_aside()
        index = Index(folder, clock=clock)
    except OSError as refused:
        index = Index(folder, without=f"{error}, and it cannot be set aside: {refused}", clock=clock)
    _say(folder, str(error), fill(folder, index, old or folder.path / INDEX))
    return index


def renew(folder: Folder, index: Index) -> Rebuilt:
    """Sets the index of an open store aside and rebuilds it.

    Raises:
        FailedIndexError: it cannot be set aside.
    """
    aside = ""

    def make() -> None:
        nonlocal aside
        aside = folder.set_index_aside()

    with folder.compute_lock("index", _PATIENCE_SECONDS):
        index.renew(make)
        built = fill(folder, index, folder.path / aside)
    _say(folder, f"it was damaged, and is saved as {aside}", built)
    return built


def _say(folder: Folder, why: str, built: Rebuilt) -> None:
    log.warning(
        "the index of the segment store in %s was rebuilt from its files (%s): %d segments are in it, "
        "and %d files with incomplete headers are in quarantine",
        folder.path,
        why,
        built.segments,
        len(built.left_out),
    )


def fill(folder: Folder, index: Index, old: Path | None) -> Rebuilt:
    """Enters every file with a complete header, and valid remains of a damaged index."""
    known = _remains(old) if old is not None else {}
    rows_of = {str(row.get("file")): row for row in known.get("segments", [])}
    labels_of: dict[Any, list[tuple[str, str]]] = {}
    for label in known.get("labels", []):
        if isinstance(label["schema"], str) and isinstance(label["path"], str):
            labels_of.setdefault(label["key"], []).append((label["schema"], label["path"]))
    rows, left_out, unread = [], [], False
    for name in folder.ours():
        if not SEGMENT.fullmatch(name):
            continue
        try:
            with folder.opened(name) as descriptor:
                try:
                    rows.append(_row(descriptor, name, rows_of.get(name)))
                except (ValueError, RecursionError, DamagedError) as error:
                    if not _is_own(descriptor, name, rows_of.get(name)):
                        log.warning("%s is not a segment of this store, and stays unchanged", name)
                        continue
                    left_out.append(name)
                    log.warning("%s could not be entered into the index again: %s", name, error)
        except OSError as error:
            unread = True
            log.warning("%s could not be read while the index was rebuilt: %s", name, error)
    with index.memory_or_writing() as connection:
        for row in sorted(rows, key=lambda row: row["created"]):
            _enter(connection, row, labels_of.get(row["key"], []), index.clock())
        _keep_settings(connection, known, index.clock())
        if not unread:  # else a sweep would delete files that have no row yet
            connection.execute("delete from settings where name = ?", [UNFILLED])
    for name in left_out:
        with contextlib.suppress(OSError):
            folder.set_aside(name)
    return Rebuilt(len(rows), tuple(left_out))


def _is_own(descriptor: int, name: str, known: dict[str, Any] | None) -> bool:
    """Whether a file is the store's by its header or the old index, so that it may be quarantined."""
    return (known is not None and claim.is_own(known["key"], name)) or segment_files.says_it_is(
        descriptor, name
    )


def _row(descriptor: int, name: str, known: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the row of a file from its header, or from the old index if the file matches it.

    Raises:
        ValueError, DamagedError: neither is valid.
    """
    try:
        return segment_files.described(descriptor, name)
    except (ValueError, DamagedError):
        if known is None:
            raise
        entry = segment_files.entry_of(known["key"], [known[column] for column in segment_files.COLUMNS])
        segment_files.Opened(descriptor, entry).check(content=True)
        if not isinstance(known["token_ids"], bytes) or any(type(known[text]) is not str for text in _TEXTS):
            raise
        names = {*TABLES["segments"]} - {"last_used", "hits", "worth"}
        return {**{name: known[name] for name in names}, "labels": []}


def _enter(
    connection: sqlite3.Connection, row: dict[str, Any], labels: list[tuple[str, str]], now: float
) -> None:
    labels = [*row.pop("labels"), *labels]
    row = {**row, "last_used": now, "hits": 0}
    marks = ", ".join("?" * len(row))
    connection.execute(
        f"insert or replace into segments ({', '.join(row)}) values ({marks})", list(row.values())
    )
    connection.executemany(
        "insert or ignore into labels (key, schema, path) values (?, ?, ?)",
        [(row["key"], *label) for label in labels],
    )
    connection.execute(f"update segments set worth = {eviction.WORTH} where key = ?", [row["key"]])


def _keep_settings(
    connection: sqlite3.Connection, known: dict[str, list[dict[str, Any]]], now: float
) -> None:
    """Restores readable settings, pins and times to live, and sets a new "cleared" mark."""
    for row in known.get("settings", []):
        name, value = row["name"], row["value"]
        choices = {"policy": POLICIES, "scheme": SCHEMES}.get(name, ())
        number = _NUMBERS.get(name)
        if value in choices or (number and isinstance(value, str) and number.fullmatch(value)):
            connection.execute("insert or replace into settings (name, value) values (?, ?)", [name, value])
    # The last clearing is unknown, so memory of other processes may be older.
    connection.execute(
        "insert or replace into settings (name, value) values ('cleared', ?)", [secrets.token_hex(8)]
    )
    for row in known.get("pins", []):
        until = row.get("until")
        if isinstance(row["schema"], str) and (until is None or _is_time(until)):
            connection.execute(
                "insert or ignore into pins (schema, since, until) values (?, ?, ?)",
                [row["schema"], now, until],
            )
    for row in known.get("keeps", []):
        if isinstance(row["key"], str) and _is_time(row["seconds"]) and _is_time(row["until"]):
            connection.execute(
                "insert or ignore into keeps (key, seconds, until) values (?, ?, ?)",
                [row["key"], row["seconds"], row["until"]],
            )


def _is_time(value: object) -> bool:
    return isinstance(value, float) and 0 < value < math.inf


def _remains(old: Path) -> dict[str, list[dict[str, Any]]]:
    """The readable rows of a damaged index, by table."""
    rows_by_table: dict[str, list[dict[str, Any]]] = {}
    for options in ("mode=ro", "mode=ro&immutable=1"):
        uri = f"{old.absolute().as_uri()}?{options}"
        with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            for table in ("settings", "pins", "keeps", "labels", "segments"):
                rows = list(_readable(connection, table))
                if len(rows) > len(rows_by_table.get(table, [])):
                    rows_by_table[table] = rows
    return rows_by_table


def _readable(connection: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    columns = TABLES[table]
    with contextlib.suppress(sqlite3.Error, ValueError, OverflowError):
        existing = {row[1] for row in connection.execute(f"pragma table_info({table})")}
        if table == "pins" and "until" not in existing:  # pins had no end before version 5
            columns = columns - {"until"}
        for row in connection.execute(f"select {', '.join(sorted(columns))} from {table}"):
            yield dict(row)
