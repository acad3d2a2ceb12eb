"""The segment store: a SQLite index and one safetensors file per segment.

A file is written under a temporary name, flushed to the disk, renamed, and only then entered into the
index, so a crash loses at most the segment that was being written. A file's digest is verified when the
process first reads it, and the tokens at every hit; what does not agree is set aside and never used.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import uuid
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs
import safetensors
import safetensors.torch
import sqlite_utils
import xxhash

from engine.errors import StoreError
from engine.segment import FORMAT_VERSION, Segment

log = logging.getLogger(__name__)

INDEX = "index.sqlite"
_BUSY_SECONDS = 30
_BATCH = 500  # keys in one query


@dataclass(frozen=True)
class StoreStats:
    """Totals of a store.

    Attributes:
        segments: how many there are.
        bytes: that their files take.
        hits: segments that were found, since the store was made.
        misses: segments that had to be computed.
        corrupt: files that were set aside.
    """

    segments: int
    bytes: int
    hits: int
    misses: int
    corrupt: int

    def to_json(self) -> dict[str, int]:
        """Returns the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Origin:
    """What a segment was made from; kept beside it for people to read.

    Attributes:
        schema: name of the schema.
        path: of the module, "" for the anonymous one.
        scope: under which it was encoded.
        model: name of the model.
        fingerprint: of the model.
    """

    schema: str
    path: str
    scope: str
    model: str
    fingerprint: str


def default_folder() -> Path:
    """Returns the user's cache folder for segments."""
    return Path(platformdirs.user_cache_dir("prompt-cache-studio")) / "segments"


class Store:
    """Segments on disk. Safe to use from several threads and several processes.

    Args:
        folder: holds the index and the files.
        database: the open index.
    """

    def __init__(self, folder: Path, database: sqlite_utils.Database) -> None:
        self.folder = folder
        self._database = database
        self._lock = threading.RLock()
        self._verified: set[str] = set()

    @classmethod
    def open(cls, folder: Path | None = None) -> Store:
        """Opens a store, and makes it where there is none.

        Args:
            folder: None for the user's cache folder.

        Raises:
            StoreError: the folder cannot be made or written, or its index is none of ours.
        """
        folder = folder if folder is not None else default_folder()
        connection: sqlite3.Connection | None = None
        try:
            (folder / "files").mkdir(parents=True, exist_ok=True)
            _require_writable(folder)
            connection = sqlite3.connect(folder / INDEX, timeout=_BUSY_SECONDS, check_same_thread=False)
            connection.isolation_level = None
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            database = sqlite_utils.Database(connection)
            _create_tables(database)
            _require_version(folder, database)
        except StoreError:
            if connection is not None:
                connection.close()
            raise
        except (OSError, sqlite3.Error) as error:
            if connection is not None:
                connection.close()
            raise StoreError(
                f"the cache folder {str(folder)!r} cannot be used: {error}. Choose another one with "
                "--cache-dir, or make this one writable."
            ) from error
        return cls(folder, database)

    def close(self) -> None:
        """Closes the index. The store must not be used afterwards."""
        with self._lock:
            self._database.conn.close()

    def contains(self, keys: Iterable[str]) -> set[str]:
        """Returns those of the keys that the index lists."""
        wanted = list(keys)
        found: set[str] = set()
        with self._index() as connection:
            for batch in (wanted[i : i + _BATCH] for i in range(0, len(wanted), _BATCH)):
                marks = ",".join("?" * len(batch))
                rows = connection.execute(f"select key from segments where key in ({marks})", batch)
                found.update(row[0] for row in rows.fetchall())
        return found

    def load(self, key: str, token_ids: Sequence[int]) -> Segment | None:
        """Returns a segment whose tensors are mapped from its file, or None where it must be computed.

        A file that is missing, cut short, changed, or of other tokens is set aside and counted as corrupt.
        """
        with self._index() as connection:
            row = connection.execute(
                "select file, bytes, digest, token_ids from segments where key = ?", [key]
            ).fetchone()
        if row is None:
            return None
        file, size, digest, blob = row
        path = self.folder / "files" / file
        fault = self._fault(path, size, digest, blob == _pack(token_ids))
        if fault is None:
            try:
                with safetensors.safe_open(path, framework="pt") as opened:
                    keys, values = opened.get_tensor("keys"), opened.get_tensor("values")
                return Segment(key, tuple(token_ids), keys, values)
            except (OSError, safetensors.SafetensorError, RuntimeError) as error:
                fault = str(error)
        self._set_aside(key, path, fault)
        return None

    def save(self, segment: Segment, origin: Origin) -> None:
        """Writes a segment: temporary file, flush, rename, and then its row.

        Raises:
            StoreError: the disk is full or the folder cannot be written; nothing is left behind.
        """
        metadata = {"key": segment.key, "format": str(FORMAT_VERSION), **asdict(origin)}
        tensors = {"keys": segment.keys.cpu().contiguous(), "values": segment.values.cpu().contiguous()}
        data = safetensors.torch.save(tensors, metadata)
        digest = xxhash.xxh3_128_hexdigest(data)
        # Two processes that encode the same segment write two files, and neither spoils the other's.
        name = f"{segment.key}-{digest[:16]}.safetensors"
        path = self.folder / "files" / name
        temporary = path.with_name(f".{segment.key}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            self._enter(segment, origin, name, len(data), digest)
        except (OSError, sqlite3.Error) as error:
            temporary.unlink(missing_ok=True)
            raise StoreError(
                f"a segment of {len(data):,} bytes could not be written to {str(self.folder)!r}: {error}. "
                "Free some space (pml cache clear) or choose another folder with --cache-dir."
            ) from error

    def record(self, hits: Sequence[str], misses: Sequence[str]) -> None:
        """Counts the hits and misses of one answer. What cannot be written is left out, with a log line."""
        now = time.time()
        try:
            with self._index() as connection:
                connection.execute("begin immediate")
                connection.executemany(
                    "update segments set hits = hits + 1, last_used = ? where key = ?",
                    [(now, key) for key in hits],
                )
                self._count(connection, "hits", len(hits))
                self._count(connection, "misses", len(misses))
                connection.execute("commit")
        except sqlite3.Error as error:
            log.warning("hits and misses of an answer were not counted: %s", error)

    def stats(self) -> StoreStats:
        """Returns the totals."""
        with self._index() as connection:
            segments, size = connection.execute(
                "select count(*), coalesce(sum(bytes), 0) from segments"
            ).fetchone()
            counted = dict(connection.execute("select name, value from counters").fetchall())
        return StoreStats(
            segments, size, counted.get("hits", 0), counted.get("misses", 0), counted.get("corrupt", 0)
        )

    def list(self) -> list[dict[str, Any]]:
        """Returns one row per segment, the last used first."""
        sql = """
            select s.key, group_concat(distinct l.schema) as schema, group_concat(distinct l.path) as path,
                   s.tokens, s.bytes, s.scope, s.model, s.dtype, s.hits, s.created, s.last_used
            from segments s left join labels l on l.key = s.key group by s.key order by s.last_used desc
        """
        with self._lock:
            return list(self._database.query(sql))

    def clear(self, schema: str | None = None) -> int:
        """Removes all segments, or those that only this schema uses; returns how many."""
        with self._index() as connection:
            rows = connection.execute("select key, file from segments").fetchall()
            if schema is not None:
                labels = connection.execute("select key, schema from labels").fetchall()
                used = {key for key, name in labels if name == schema}
                used -= {key for key, name in labels if name != schema}
                rows = [row for row in rows if row[0] in used]
            connection.execute("begin immediate")
            connection.executemany("delete from segments where key = ?", [(key,) for key, _ in rows])
            connection.executemany("delete from labels where key = ?", [(key,) for key, _ in rows])
            connection.execute("commit")
            for _, file in rows:
                (self.folder / "files" / file).unlink(missing_ok=True)
                self._verified.discard(file)
        return len(rows)

    @contextmanager
    def _index(self) -> Iterator[sqlite3.Connection]:
        """The connection, held by one thread at a time; an open transaction is undone on failure."""
        with self._lock:
            connection = self._database.conn
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

    def _enter(self, segment: Segment, origin: Origin, file: str, size: int, digest: str) -> None:
        now = time.time()
        dtype = str(segment.keys.dtype).removeprefix("torch.")
        row = (
            *(segment.key, file, size, digest, segment.tokens, _pack(segment.token_ids), dtype),
            *(origin.fingerprint, origin.model, origin.scope, now, now),
        )
        with self._index() as connection:
            connection.execute("begin immediate")
            old = connection.execute("select file from segments where key = ?", [segment.key]).fetchone()
            connection.execute(
                "insert or replace into segments (key, file, bytes, digest, tokens, token_ids, dtype,"
                " fingerprint, model, scope, created, last_used, hits)"
                " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
                row,
            )
            connection.execute(
                "insert or ignore into labels (key, schema, path) values (?, ?, ?)",
                [segment.key, origin.schema, origin.path],
            )
            connection.execute("commit")
            self._verified.discard(file)
        if old is not None and old[0] != file:
            (self.folder / "files" / old[0]).unlink(missing_ok=True)

    def _fault(self, path: Path, size: int, digest: str, same_tokens: bool) -> str | None:
        """Says what is wrong with a file, or None. The digest is taken once per process and file."""
        if not same_tokens:
            return "its tokens are not those of its key"
        try:
            found = path.stat().st_size
            if found != size:
                return f"it has {found} bytes and should have {size}"
            if path.name not in self._verified:
                if _file_digest(path) != digest:
                    return "its digest does not agree with the index"
                self._verified.add(path.name)
        except OSError as error:
            return str(error)
        return None

    def _set_aside(self, key: str, path: Path, fault: str) -> None:
        log.warning("segment %s is not used (%s); it is computed again", key, fault)
        aside = self.folder / "quarantine"
        with self._index() as connection:
            connection.execute("begin immediate")
            gone = connection.execute("delete from segments where key = ? and file = ?", [key, path.name])
            self._count(connection, "corrupt", gone.rowcount)
            connection.execute("commit")
            self._verified.discard(path.name)
        try:
            aside.mkdir(exist_ok=True)
            path.replace(aside / path.name)
        except OSError as error:
            log.info("segment %s could not be set aside: %s", key, error)

    @staticmethod
    def _count(connection: sqlite3.Connection, name: str, by: int) -> None:
        connection.execute(
            "insert into counters (name, value) values (?, ?)"
            " on conflict (name) do update set value = value + excluded.value",
            [name, by],
        )


def _create_tables(database: sqlite_utils.Database) -> None:
    database.table("segments").create(
        {
            "key": str,
            "file": str,
            "bytes": int,
            "digest": str,
            "tokens": int,
            "token_ids": bytes,
            "dtype": str,
            "fingerprint": str,
            "model": str,
            "scope": str,
            "created": float,
            "last_used": float,
            "hits": int,
        },
        pk="key",
        if_not_exists=True,
    )
    database.table("labels").create(
        {"key": str, "schema": str, "path": str}, pk=("key", "schema", "path"), if_not_exists=True
    )
    database.table("counters").create({"name": str, "value": int}, pk="name", if_not_exists=True)


def _require_version(folder: Path, database: sqlite_utils.Database) -> None:
    """The version of the index stands in SQLite's own user_version."""
    found = int(database.conn.execute("pragma user_version").fetchone()[0])
    if found > FORMAT_VERSION:
        raise StoreError(
            f"the cache folder {str(folder)!r} was written by a newer version (format {found}, this one "
            f"knows {FORMAT_VERSION}). Upgrade, or choose another folder with --cache-dir."
        )
    if found < FORMAT_VERSION:
        database.conn.execute(f"pragma user_version = {FORMAT_VERSION}")


def _require_writable(folder: Path) -> None:
    probe = folder / f".write-{uuid.uuid4().hex}"
    probe.write_bytes(b"")
    probe.unlink()


def _pack(token_ids: Sequence[int]) -> bytes:
    return array("i", token_ids).tobytes()


def _file_digest(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(8 << 20):
            digest.update(chunk)
    return digest.hexdigest()


__all__ = ["Origin", "Store", "StoreStats", "default_folder"]
