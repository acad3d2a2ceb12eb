"""The interface of segment files that a store requires. It does not use the index.

`local_files` is the only implementation. A file's name is unique for ever, and its content never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

from torch import Tensor

from engine.base.segment import Segment
from engine.store.blobs.codec import Scheme
from engine.store.blobs.segment_files import Entry


class Blob(Protocol):
    """An open file of a segment, so that the checked bytes are the ones to read."""

    @property
    def entry(self) -> Entry:
        """Its index entry."""

    @property
    def state(self) -> tuple[int, ...]:
        """A value that changes if the file was written to, as far as detectable."""

    @property
    def settled(self) -> bool:
        """Whether its last change is old enough for the next one to change `state`."""

    def check(self, *, content: bool) -> None:
        """Checks its size, its header, and with `content` its digest.

        Raises:
            DamagedError: it differs from the index.
            OSError, MemoryError: it cannot be read.
        """

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values [layers, kv_heads, tokens, head_dim].

        Raises:
            DamagedError: it differs from the index.
            OSError, MemoryError: they cannot be read.
        """


class Blobs(Protocol):
    """Files of segments, by name."""

    @property
    def free(self) -> int:
        """Free bytes."""

    def write(self, segment: Segment, scheme: Scheme, notes: Mapping[str, str]) -> Entry:
        """Writes a segment's file completely or not at all; `notes` go into its header.

        Raises:
            OSError: it cannot be written; no file is left.
        """

    def receive(self, entry: Entry, pieces: Iterator[bytes], said: Mapping[str, str]) -> None:
        """Writes an imported file completely or not at all, after a check of its header.

        Args:
            entry: the entry that the file must match.
            pieces: the file's content; the caller checks its digest.
            said: notes that the file must not contradict, by name.

        Raises:
            DamagedError: its header differs; no file is left.
            OSError: it cannot be written; no file is left.
        """

    def opened(self, entry: Entry, *, copied: bool = False) -> AbstractContextManager[Blob]:
        """Opens a file; `copied` reads it into memory once, so that later changes have no effect.

        Raises:
            FileNotFoundError: there is none.
            DamagedError: it is not a segment's file.
            OSError: it cannot be opened.
        """

    def content(self, name: str) -> BinaryIO:
        """Opens a file for its bytes.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be opened.
        """

    def expect_soon(self, entries: Sequence[Entry]) -> None:
        """Reads files ahead in the background, layer by layer, if possible."""

    def names(self) -> set[str]:
        """The existing files, half-written ones included."""

    def is_own(self, name: str) -> bool:
        """Whether a file is half-written, or its header has the key in its name."""

    def is_gone(self, name: str) -> bool:
        """Whether the file is certainly missing."""

    def remove(self, names: Iterable[str]) -> int:
        """Deletes files; returns their bytes. Files that cannot be deleted stay."""

    def set_aside(self, name: str) -> None:
        """Moves a damaged file to quarantine.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be moved.
        """

    def tidy(self) -> None:
        """Deletes the oldest quarantined files over the limit."""

    def foreign(self) -> list[str]:
        """The names in the folder that are not the store's; they stay unchanged."""
