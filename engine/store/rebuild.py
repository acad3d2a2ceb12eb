"""A damaged index, set aside and built again from the files, which say of themselves what it held."""

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

_PATIENCE_SECONDS = 600.0  # for another process that builds the same index
_NUMBERS = {"budget": re.compile(r"\d{1,18}"), "max_age": re.compile(r"\d{1,18}(\.\d{1,18})?")}
_TEXTS = ("fingerprint", "model", "scope")


@dataclass(frozen=True)
class Rebuilt:
    """What an index was built from.

    Attributes:
        segments: how many segments have a row again.
        left_out: files that say too little of themselves, or are damaged; they are in quarantine.
    """

    segments: int
    left_out: tuple[str, ...]


def opened(folder: Folder, clock: Callable[[], float] = time.time) -> Index:
    """Opens the index of a store; one that is damaged or gone is built again from the files.

    Args:
        folder: the folder of the store.
        clock: a function that returns the seconds since 1970.

    Raises:
        StoreError: it is held by another program, or of a newer version.
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
    """Goes over to the index on the disk, where it was only read and can be written by now."""
    if index.read_only:
        index.refresh()
        _fill_up(folder, index)


def _fill_up(folder: Folder, index: Index) -> None:
    if index.unfilled:
        with folder.compute_lock("index", _PATIENCE_SECONDS):
            _say(folder, "there was no index", fill(folder, index, None))


def _again(folder: Folder, error: FailedIndexError, clock: Callable[[], float]) -> Index:
    """The index that another process has built meanwhile, or one that is built now."""
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
    """Sets the index of an open store aside and builds it again.

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
    _say(folder, f"it was damaged, and is kept as {aside}", built)
    return built


def _say(folder: Folder, why: str, built: Rebuilt) -> None:
    log.warning(
        "the index of the segment store in %s was built again from its files (%s): %d segments are in it, "
        "and %d files that say too little of themselves are in quarantine",
        folder.path,
        why,
        built.segments,
        len(built.left_out),
    )


def fill(folder: Folder, index: Index, old: Path | None) -> Rebuilt:
    """Enters every file that says what it is, and of a damaged index what can still be read and is right.

    Args:
        folder: the folder of the store.
        index: an empty index.
        old: the damaged index, where there is one.
    """
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
                        log.warning("%s is no segment of this store, and stays as it is", name)
                        continue
                    left_out.append(name)
                    log.warning("%s could not be entered into the index again: %s", name, error)
        except OSError as error:
            unread = True
            log.warning("%s could not be read while the index was built again: %s", name, error)
    with index.memory_or_writing() as connection:
        for row in sorted(rows, key=lambda row: row["created"]):
            _enter(connection, row, labels_of.get(row["key"], []), index.clock())
        _keep_settings(connection, known, index.clock())
        if not unread:  # else a sweep would take what has no row yet
            connection.execute("delete from settings where name = ?", [UNFILLED])
    for name in left_out:
        with contextlib.suppress(OSError):
            folder.set_aside(name)
    return Rebuilt(len(rows), tuple(left_out))


def _is_own(descriptor: int, name: str, known: dict[str, Any] | None) -> bool:
    """Whether a file is the store's, by its header or by the old index, and may be set aside."""
    return (known is not None and claim.is_own(known["key"], name)) or segment_files.says_it_is(
        descriptor, name
    )


def _row(descriptor: int, name: str, known: dict[str, Any] | None) -> dict[str, Any]:
    """The row of a file: as the file has it, or as the old index had it and the file bears out.

    Raises:
        ValueError, DamagedError: neither will do.
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
    """Settings, pins and times to live, as far as they can be read and mean something; and a new mark."""
    for row in known.get("settings", []):
        name, value = row["name"], row["value"]
        choices = {"policy": POLICIES, "scheme": SCHEMES}.get(name, ())
        number = _NUMBERS.get(name)
        if value in choices or (number and isinstance(value, str) and number.fullmatch(value)):
            connection.execute("insert or replace into settings (name, value) values (?, ?)", [name, value])
    # Nobody knows when the old one was cleared last: what programs hold may be older.
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
    """The rows of a damaged index that can still be read, by table."""
    found: dict[str, list[dict[str, Any]]] = {}
    for options in ("mode=ro", "mode=ro&immutable=1"):
        uri = f"{old.absolute().as_uri()}?{options}"
        with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            for table in ("settings", "pins", "keeps", "labels", "segments"):
                rows = list(_readable(connection, table))
                if len(rows) > len(found.get(table, [])):
                    found[table] = rows
    return found


def _readable(connection: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    columns = TABLES[table]
    with contextlib.suppress(sqlite3.Error, ValueError, OverflowError):
        there = {row[1] for row in connection.execute(f"pragma table_info({table})")}
        if table == "pins" and "until" not in there:  # before version 5 none ended
            columns = columns - {"until"}
        for row in connection.execute(f"select {', '.join(sorted(columns))} from {table}"):
            yield dict(row)
