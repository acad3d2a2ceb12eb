"""Whether the store will take in what is about to be written: asked before anybody is told that it is."""

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

_HEADER_BYTES = 1024  # of a segment's file, at most, beside keys and values, token ids and notes
_HEADER_BYTES_PER_TOKEN = 6
_NOTES_BYTES = 3072
_INDEX_BYTES = 64 << 10  # that the index may want on the disk for a segment's row
_FRESH_SECONDS = 0.5  # that a look at what all files take is of use
_AMONG = f"{FREE} and key in (select value from json_each(?))"


class Claim(Releasable):
    """Room that is set aside for what is written soon and stays, until this is released."""

    def __init__(self, room: Room, size: int) -> None:
        self._room, self._size = room, size

    def release(self) -> None:
        """Gives it back; a second time does nothing."""
        size, self._size = self._size, 0
        if size:
            self._room._give_back(size)


class Room:
    """What the budget and the disk have room for, beside what stays and what is already to be written.

    It says what will hold as far as anybody can know: another program may take the room first. Segments that
    other answers are reading count as free, since they are let go of before.

    Args:
        index: the index of the store.
        settings: its settings.
        blobs: the place of its files.
        waiting: the bytes of what is to be written behind answers, of these keys or of all.
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
        )  # when all files were added up, and what they took, with what came since

    def lacking(self, size: int, beside: Collection[str] = ()) -> Exception | None:
        """Says why so many bytes more will not be kept; None where they will.

        Args:
            size: the bytes.
            beside: keys of what does not go for them.
        """
        with self._lock:
            return self._lacking(size, beside)

    def claim(self, size: int, beside: Collection[str] = ()) -> Claim:
        """Sets room aside for what is written soon, and is then promised to stay.

        Args:
            size: its bytes.
            beside: keys of what does not go for it.

        Raises:
            StoreError: budget or disk have none, or nobody can know.
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
                return None  # nothing is to be stored, which is no fault
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
        """The bytes of all files with these, and all that is to be written: no less than they will be."""
        now = time.monotonic()
        if now - self._at > _FRESH_SECONDS:
            with self._index.reading() as connection:
                self._at, self._used = now, used(connection)
            self._used += self._waiting(None) + self._claimed
        self._used += size
        return self._used


def file_bytes(scheme: Scheme, shape: tuple[int, ...], dtype: str, notes: int = _NOTES_BYTES) -> int:
    """The most bytes of a segment's file.

    Args:
        scheme: how its keys and values are stored.
        shape: [layers, kv_heads, tokens, head_dim] of either.
        dtype: their number format.
        notes: bytes of what it says of itself.
    """
    return packed_bytes(scheme, shape, dtype) + _HEADER_BYTES + _HEADER_BYTES_PER_TOKEN * shape[2] + notes


def _words(error: Exception) -> str:
    """Why there is no room, without a name of this machine's: clients of a server are told it too."""
    if isinstance(error, FailedIndexError):
        return "the store's index cannot be read just now"
    return (isinstance(error, OSError) and error.strerror) or str(error)
