"""Checks whether the store has room for planned writes, before they are promised."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Collection

from engine.base.errors import StoreError
from engine.base.releasable import Releasable
from engine.store.blobs.codec import Scheme, packed_bytes
from engine.store.blobs.protocol import Blobs
from engine.store.index.database import FailedIndexError, Index
from engine.store.index.eviction import FREE, NoRoomError, no_room, spared, used
from engine.store.index.settings import Settings

_HEADER_BYTES = 1024  # the most bytes of a segment's file besides keys and values, token ids and notes
_HEADER_BYTES_PER_TOKEN = 6
_NOTES_BYTES = 3072
_INDEX_BYTES = 64 << 10  # that the index may need on disk for a segment's row
_FRESH_SECONDS = 0.5  # for which the sum of all files stays valid
_AMONG = f"{FREE} and key in (select value from json_each(?))"


class Claim(Releasable):
    """Reserved space for a planned write, until this is released."""

    def __init__(self, room: Room, size: int) -> None:
        self._room, self._size = room, size

    def release(self) -> None:
        """Releases the space; a second call does nothing."""
        size, self._size = self._size, 0
        if size:
            self._room._give_back(size)


class Room:
    """The free space in the budget and on disk, besides retained segments and planned writes.

    The answer is a forecast: another process may take the space first. Segments in use by other answers count
    as free, since they are released before. `waiting` returns the bytes of delayed writes.
    """

    def __init__(
        self,
        index: Index,
        settings: Settings,
        blobs: Blobs,
        waiting: Callable[[Collection[str] | None], int],
    ) -> None:
        self._index, self._settings, self._blobs, self._waiting = index, settings, blobs, waiting
        self._lock = threading.Lock()
        self._claimed = 0
        self._at, self._used = (
            0.0,
            0,
        )  # time and result of the last sum of all files, and additions since

    def lacking(self, size: int, beside: Collection[str] = ()) -> Exception | None:
        """Returns why the store has no room for `size` bytes without evicting `beside`; None if it has."""
        with self._lock:
            return self._lacking(size, beside)

    def claim(self, size: int, beside: Collection[str] = ()) -> Claim:
        """Reserves `size` bytes for a planned write, without evicting keys in `beside`.

        Raises:
            StoreError: the budget or disk has no room, or that is unknown.
        """
        with self._lock:
            error = self._lacking(size, beside) if size else None
            if error is not None:
                raise StoreError(_words(error)) from error
            self._claimed += size
            return Claim(self, size)

    def _give_back(self, size: int) -> None:
        with self._lock:
            self._claimed -= size

    def _lacking(self, size: int, beside: Collection[str]) -> Exception | None:
        wanted = size + self._claimed
        try:
            free = self._blobs.free - self._waiting(None)
            if free < wanted + _INDEX_BYTES:
                return OSError(errno.ENOSPC, f"the disk has room for {max(0, free):,} bytes more")
            budget = self._settings.budget
            if not budget:
                return None  # a budget of 0 stores nothing, without an error
            if self._whole(size) <= budget:
                return None
            with self._index.reading() as connection:
                among = connection.execute(
                    f"select coalesce(sum(bytes), 0) from segments where {_AMONG}", [json.dumps([*beside])]
                ).fetchone()
                stays = spared(connection) + int(among[0]) + self._waiting(beside)
        except (OSError, FailedIndexError) as error:
            return error
        return None if stays + wanted <= budget else NoRoomError(no_room(budget))

    def _whole(self, size: int) -> int:
        """An upper bound of the bytes of all files, these and planned writes included."""
        now = time.monotonic()
        if now - self._at > _FRESH_SECONDS:
            with self._index.reading() as connection:
                self._at, self._used = now, used(connection)
            self._used += self._waiting(None) + self._claimed
        self._used += size
        return self._used


def file_bytes(scheme: Scheme, shape: tuple[int, ...], dtype: str, notes: int = _NOTES_BYTES) -> int:
    """Returns the maximum size of a segment's file.

    Keys and values have the shape [layers, kv_heads, tokens, head_dim]; `notes` is the size of the notes.
    """
    return packed_bytes(scheme, shape, dtype) + _HEADER_BYTES + _HEADER_BYTES_PER_TOKEN * shape[2] + notes


def _words(error: Exception) -> str:
    """The error as a sentence without paths of this machine, as a server's clients see it."""
    if isinstance(error, FailedIndexError):
        return "the store's index cannot be read now"
    return (isinstance(error, OSError) and error.strerror) or str(error)
