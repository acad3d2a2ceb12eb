"""Reads segments: finds, checks and maps them, and quarantines damaged ones."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from array import array
from collections.abc import Iterable, Sequence

from engine.base.segment import Form, Segment
from engine.base.tiers import Reason
from engine.store.blobs import claim
from engine.store.blobs.contents import DamagedError
from engine.store.blobs.protocol import Blob, Blobs
from engine.store.blobs.segment_files import Entry, Verify
from engine.store.index.catalog import Catalog, Chosen, UnfitRowError
from engine.store.index.database import FailedIndexError
from engine.store.index.eviction import Victim

log = logging.getLogger(__name__)


class Reader:
    """Reads listed segments, and remembers checked files."""

    def __init__(self, catalog: Catalog, blobs: Blobs, verify: Verify) -> None:
        self._catalog, self._blobs, self._policy = catalog, blobs, verify
        self._verified: dict[str, tuple[int, ...]] = {}

    def load(self, key: str, token_ids: Sequence[int], form: Form | None = None) -> Segment | None:
        """Returns a segment, or None if it must be computed, as in `Store.load`."""
        try:
            return self._load(key, token_ids, form)
        except (OSError, MemoryError, FailedIndexError) as error:
            log.warning(
                "segment %s could not be read: %s; its file stays, and the segment is computed again",
                key,
                error,
            )
            return None

    def _load(self, key: str, token_ids: Sequence[int], form: Form | None) -> Segment | None:
        listed = self._entry(key)
        if listed is None:
            return None
        entry, blob = listed
        try:
            with self._blobs.opened(entry, copied=self._policy == "always") as opened:
                _require_tokens(blob, token_ids)
                self._check(opened)
                segment = Segment(key, tuple(token_ids), *opened.tensors())
                if form is not None:
                    _require_form(segment, form)
                return segment
        except FileNotFoundError:
            again = self._entry(key)
            if again is None:  # another process has evicted it
                return None
            if again[0].file != entry.file:
                return self._load(key, token_ids, form)
            reason = "its file is gone"
        except DamagedError as error:
            reason = str(error)
        self.set_aside(key, entry.file, reason)
        return None

    def _entry(self, key: str) -> tuple[Entry, bytes] | None:
        """The index entry of a segment's file, and its tokens; drops an invalid row."""
        try:
            return self._catalog.entry(key)
        except UnfitRowError as error:
            self.set_aside(key, error.file, str(error))
            return None

    def _check(self, opened: Blob) -> None:
        """Checks a file; with `first`, its digest only if it is new to this process or has changed."""
        file, state = opened.entry.file, opened.state
        content = self._policy == "always" or (self._policy == "first" and self._verified.get(file) != state)
        opened.check(content=content)
        if content and opened.settled and opened.state == state:
            self._verified[file] = state

    def expect_soon(self, keys: Iterable[str]) -> None:
        """Reads files ahead, layer by layer, in the background."""
        with contextlib.suppress(FailedIndexError):
            rows = [row for key in keys if (row := self._entry(key)) is not None]
            self._blobs.expect_soon([entry for entry, _ in rows])

    def set_aside(self, key: str, file: str, what: str) -> None:
        """Removes a segment from the index, and moves its file to quarantine if it is the store's."""
        log.warning("segment %s is not used (%s); it is computed again", key, what)
        self._verified.pop(file, None)
        try:
            self._catalog.strike(lambda connection: _damaged(connection, key, file), "corrupt")
        except FailedIndexError as error:
            log.info("segment %s stays in the index: %s", key, error)
        try:
            if claim.is_own(key, file):
                self._blobs.set_aside(file)
        except FileNotFoundError:
            return
        except OSError as error:
            log.info("segment %s could not be set aside: %s", key, error)

    def discard(self, names: Iterable[str]) -> int:
        """Deletes files without a row; returns their bytes."""
        files = list(names)
        for name in files:
            self._verified.pop(name, None)
        return self._blobs.remove(files)


def _require_tokens(found: bytes, token_ids: Sequence[int]) -> None:
    if found != pack_ids(token_ids):
        raise DamagedError("its tokens do not match its key")


def _require_form(segment: Segment, form: Form) -> None:
    shape = (form.layers, form.heads, segment.tokens, form.size)
    for name, states in (("keys", segment.keys), ("values", segment.values)):
        if tuple(states.shape) != shape:
            raise DamagedError(
                f"its {name} have the shape {list(states.shape)}; the model's have {list(shape)}"
            )
        if states.dtype != form.dtype:
            raise DamagedError(f"its {name} are {states.dtype} and the model's {form.dtype}")


def _damaged(connection: sqlite3.Connection, key: str, file: str) -> Chosen:
    rows = connection.execute("select key, file, bytes from segments where key = ?", [key]).fetchall()
    return [([Victim(*row) for row in rows if str(row[1]) == file], Reason.DAMAGED)]


def pack_ids(token_ids: Sequence[int]) -> bytes:
    """Returns tokens in the format of the index."""
    return array("i", token_ids).tobytes()
