"""Writes segments within the budget: the file first, then its row."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import Any

from engine.base.errors import StoreError
from engine.base.segment import Segment
from engine.store.blobs.codec import Scheme
from engine.store.blobs.folder import Folder
from engine.store.blobs.protocol import Blobs
from engine.store.blobs.segment_files import Entry
from engine.store.disk_space import Room, file_bytes
from engine.store.index.catalog import Catalog
from engine.store.index.database import FailedIndexError
from engine.store.index.eviction import NoRoomError
from engine.store.index.stats import Origin
from engine.store.reading import Reader, pack_ids

log = logging.getLogger(__name__)

WAIT = "Wait for that program or end it, or choose another folder (--cache-dir, cache_dir)."
MAKE_ROOM = (
    "Free some space (pml cache prune --max-bytes 5GB), make the folder writable, or choose another one with "
    "--cache-dir."
)


class Writer:
    """Writes segments to a store."""

    def __init__(self, disk: Folder, blobs: Blobs, catalog: Catalog, reader: Reader, room: Room) -> None:
        self._disk, self._blobs, self._catalog, self._reader = disk, blobs, catalog, reader
        self._room = room

    def lacking(
        self, segment: Segment, origin: Origin, scheme: Scheme, beside: Collection[str]
    ) -> StoreError | None:
        """Returns the expected error of `save` for lack of room, if it must not evict `beside`."""
        notes = len(json.dumps(_notes(origin, self._catalog.now, 0.0)))
        dtype = str(segment.keys.dtype).removeprefix("torch.")
        size = file_bytes(scheme, tuple(segment.keys.shape), dtype, notes)
        error = self._room.lacking(size, beside)
        return None if error is None else self._fault(size, error)

    def refuse(self, segment: Segment, origin: Origin) -> None:
        """Records that there was no room for a segment, as the reason of later misses."""
        with contextlib.suppress(FailedIndexError):
            self._catalog.refuse(segment.key, (origin.schema, origin.path), segment.nbytes)

    def save(
        self,
        segment: Segment,
        origin: Origin,
        scheme: Scheme,
        seconds: float,
        cleared: str | None = None,
    ) -> None:
        """Writes a segment like `Store.save`: temporary file, flush, rename, then its row.

        Raises:
            ClearedError: the store was cleared since `Settings.cleared` had this value.
            StoreError: disk or budget is full, or the folder cannot be written; no file is left.
        """
        now = self._catalog.now
        notes = _notes(origin, now, seconds)
        row = {
            "key": segment.key,
            "tokens": segment.tokens,
            "token_ids": pack_ids(segment.token_ids),
            **{name: notes[name] for name in ("fingerprint", "model", "scope")},
            "created": now,
            "last_used": now,
            "hits": 0,
            "seconds": seconds,
        }
        label = (origin.schema, origin.path)
        try:
            self._catalog.require_writable()  # before writing a file in vain
            entry = self.enter(lambda: self._blobs.write(segment, scheme, notes), row, [label], cleared)
        except (OSError, FailedIndexError) as error:
            if isinstance(error, NoRoomError):
                self.refuse(segment, origin)
            raise self._fault(segment.nbytes, error) from error
        module = origin.path or "text"
        log.info("stored %s of %s: %d tokens, %d bytes", module, origin.schema, segment.tokens, entry.bytes)

    def _fault(self, size: int, error: Exception) -> StoreError:
        return StoreError(
            f"a segment of {size:,} bytes could not be written to {str(self._disk.path)!r}: {error}. "
            f"{_advice(error)}"
        )

    def enter(
        self,
        write: Callable[[], Entry],
        row: dict[str, Any],
        labels: Sequence[tuple[str, str]],
        cleared: str | None = None,
    ) -> Entry:
        """Writes a file and its row, and deletes evicted files. After an error no file is left.

        `write` writes the file completely or not at all.

        Raises:
            ClearedError: the store was cleared since.
            NoRoomError: the budget has no room for it.
            OSError, FailedIndexError: it cannot be written.
        """
        with self._disk.shared():
            entry = write()
            try:
                evicted = self._catalog.enter({**_columns(entry), **row}, labels, cleared)
            except BaseException:
                self._reader.discard([entry.file])
                raise
            self._reader.discard(evicted)
        return entry


def _notes(origin: Origin, now: float, seconds: float) -> dict[str, str]:
    notes = {name: str(value) for name, value in asdict(origin).items()}
    return {**notes, "created": f"{now:.6f}", "seconds": f"{seconds:.6e}"}


def _columns(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "shape": json.dumps(list(entry.shape))}


def _advice(error: Exception) -> str:
    if isinstance(error, NoRoomError):
        return (
            "Raise the budget (pml cache budget SIZE), or unpin a schema (pml cache unpin NAME). Segments "
            "in their time to live can be evicted when it ends."
        )
    if isinstance(error, TimeoutError) or (isinstance(error, FailedIndexError) and error.busy):
        return WAIT
    return MAKE_ROOM
