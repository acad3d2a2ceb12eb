"""Writing segments: the file first, and then its row, within the budget."""

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
    """Puts segments into a store.

    Args:
        disk: the folder of the store, whose lock writers share.
        blobs: the place of the files.
        catalog: the place of the rows.
        reader: the reader that discards the files of what is evicted.
        room: says what there is room for.
    """

    def __init__(self, disk: Folder, blobs: Blobs, catalog: Catalog, reader: Reader, room: Room) -> None:
        self._disk, self._blobs, self._catalog, self._reader = disk, blobs, catalog, reader
        self._room = room

    def lacking(
        self, segment: Segment, origin: Origin, scheme: Scheme, beside: Collection[str]
    ) -> StoreError | None:
        """Returns what `save` would raise for want of room, as far as that is known by now.

        Args:
            segment: the segment.
            origin: its origin.
            scheme: how its keys and values are stored.
            beside: keys of what does not go for it.
        """
        notes = len(json.dumps(_notes(origin, self._catalog.now, 0.0)))
        dtype = str(segment.keys.dtype).removeprefix("torch.")
        size = file_bytes(scheme, tuple(segment.keys.shape), dtype, notes)
        error = self._room.lacking(size, beside)
        return None if error is None else self._fault(size, error)

    def refuse(self, segment: Segment, origin: Origin) -> None:
        """Writes down that there was no room for a segment, so that who misses it knows why."""
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
        """Writes a segment as `Store.save` says: temporary file, flush, rename, and then its row.

        Raises:
            ClearedError: the store was cleared since `Settings.cleared` was this.
            StoreError: disk or budget is full, or the folder cannot be written; nothing is left behind.
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
            self._catalog.require_writable()  # before a file is written in vain
            entry = self.enter(lambda: self._blobs.write(segment, scheme, notes), row, [label], cleared)
        except (OSError, FailedIndexError) as error:
            if isinstance(error, NoRoomError):
                self.refuse(segment, origin)
            raise self._fault(segment.nbytes, error) from error
        what = origin.path or "text"
        log.info("stored %s of %s: %d tokens, %d bytes", what, origin.schema, segment.tokens, entry.bytes)

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
        """Writes a file and its row; what goes for it is removed.

        Args:
            write: a function that writes the file, whole or not at all.
            row: the index's row of the segment, but for its file.
            labels: schemas and paths of modules that it is of.
            cleared: as for `Catalog.enter`.

        Raises:
            ClearedError: the store was cleared since; nothing is left behind.
            NoRoomError: the budget has no room for it; nothing is left behind.
            OSError, FailedIndexError: it cannot be written; nothing is left behind.
        """
        with self._disk.shared():
            entry = write()
            try:
                gone = self._catalog.enter({**_columns(entry), **row}, labels, cleared)
            except BaseException:
                self._reader.discard([entry.file])
                raise
            self._reader.discard(gone)
        return entry


def _notes(origin: Origin, now: float, seconds: float) -> dict[str, str]:
    """What a file says of itself besides."""
    notes = {name: str(value) for name, value in asdict(origin).items()}
    return {**notes, "created": f"{now:.6f}", "seconds": f"{seconds:.6e}"}


def _columns(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "shape": json.dumps(list(entry.shape))}


def _advice(error: Exception) -> str:
    """What to do about a segment that could not be saved."""
    if isinstance(error, NoRoomError):
        return (
            "Raise the budget (pml cache budget SIZE), or let go of a pinned schema (pml cache unpin NAME); "
            "what is kept for its time to live may go when that has ended."
        )
    if isinstance(error, TimeoutError) or (isinstance(error, FailedIndexError) and error.busy):
        return WAIT
    return MAKE_ROOM
