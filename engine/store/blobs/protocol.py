"""Where the files of segments lie: what a store asks of any such place. Knows no index.

Local files are the one kind there is (`local`). A file has a name that no other has or had, and is never
changed once it is there.
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
    """A segment's file that is open: what is checked and what is read is the same."""

    @property
    def entry(self) -> Entry:
        """What the index says of it."""

    @property
    def state(self) -> tuple[int, ...]:
        """Differs where it was written to since, as far as that shows."""

    @property
    def settled(self) -> bool:
        """Whether its last change is so long ago that the next one will show in `state`."""

    def check(self, *, content: bool) -> None:
        """Looks at its size, its header, and with `content` its digest.

        Raises:
            DamagedError: it is not what the index says.
            OSError, MemoryError: it cannot be read.
        """

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values [layers, kv_heads, tokens, head_dim].

        Raises:
            DamagedError: it is not what the index says.
            OSError, MemoryError: they cannot be read.
        """


class Blobs(Protocol):
    """Files of segments, by their names."""

    @property
    def free(self) -> int:
        """Bytes that there is room for."""

    def write(self, segment: Segment, scheme: Scheme, notes: Mapping[str, str]) -> Entry:
        """Writes a segment's file, whole or not at all.

        Args:
            segment: the segment to write.
            scheme: how keys and values are stored.
            notes: further strings that the file says of itself, by name.

        Raises:
            OSError: it cannot be written; nothing is left behind.
        """

    def receive(self, entry: Entry, pieces: Iterator[bytes], said: Mapping[str, str]) -> None:
        """Writes a file that comes from elsewhere, whole or not at all, and looks at its header first.

        Args:
            entry: the entry that the file must match.
            pieces: the file's content, whose digest is checked by who gives it.
            said: strings that the file must not contradict where it describes itself, by name.

        Raises:
            DamagedError: its header is not what is said of it; nothing is left behind.
            OSError: it cannot be written; nothing is left behind.
        """

    def opened(self, entry: Entry, *, copied: bool = False) -> AbstractContextManager[Blob]:
        """Opens a file.

        Args:
            entry: the index's entry of it.
            copied: whether it is read once into memory: what was checked is what is used, whatever is done to
                the file.

        Raises:
            FileNotFoundError: there is none.
            DamagedError: what stands in its place is no file of a segment.
            OSError: it cannot be opened.
        """

    def content(self, name: str) -> BinaryIO:
        """Opens a file for its bytes.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be opened.
        """

    def expect_soon(self, entries: Sequence[Entry]) -> None:
        """Has files read ahead while something else goes on, layer by layer, as far as that is possible."""

    def names(self) -> set[str]:
        """The files that are there, those half written included."""

    def is_own(self, name: str) -> bool:
        """Whether a file is half written, or says in its header that it is the segment of its name."""

    def is_gone(self, name: str) -> bool:
        """Whether there certainly is no such file."""

    def remove(self, names: Iterable[str]) -> int:
        """Deletes files; returns how many bytes they took. What cannot be deleted stays."""

    def set_aside(self, name: str) -> None:
        """Takes a damaged file out of the way, to be looked at.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be moved.
        """

    def tidy(self) -> None:
        """Lets go of the oldest of what was set aside."""

    def foreign(self) -> list[str]:
        """What lies there and is none of the store's; nobody here touches it."""
