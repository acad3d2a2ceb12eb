"""Segment files in the store's own folder."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from engine.base.segment import Segment
from engine.files.directory import NotPlainError
from engine.store.blobs import contents, segment_files
from engine.store.blobs.claim import TEMPORARY
from engine.store.blobs.codec import Scheme
from engine.store.blobs.contents import DamagedError
from engine.store.blobs.folder import Folder
from engine.store.blobs.segment_files import Entry, Opened

_AHEAD = 64  # files to announce to the operating system at once, each with a descriptor


class LocalBlobs:
    """Segment files in the open folder of a store; `Blobs` documents the methods."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    @property
    def free(self) -> int:
        """Free bytes on the disk."""
        return shutil.disk_usage(self._folder.path).free

    def write(self, segment: Segment, scheme: Scheme, notes: Mapping[str, str]) -> Entry:
        """Writes a segment: temporary file, flush, rename."""
        return segment_files.write(self._folder, segment, scheme, notes)

    def receive(self, entry: Entry, pieces: Iterator[bytes], said: Mapping[str, str]) -> None:
        """Writes an imported file."""
        with self._folder.writing(entry.file) as file:
            file.writelines(pieces)
            file.seek(0)
            contents.check(file, entry.bytes, entry.scheme, entry.shape, entry.dtype, said)

    @contextmanager
    def opened(self, entry: Entry, *, copied: bool = False) -> Iterator[Opened]:
        """Opens a file; maps its tensors unless it is copied or compressed."""
        with contextlib.ExitStack() as stack:
            try:
                descriptor = stack.enter_context(self._folder.opened(entry.file))
            except NotPlainError as error:
                raise DamagedError(str(error)) from error
            yield Opened(descriptor, entry, copied=copied)

    def content(self, name: str) -> BinaryIO:
        """Opens a file for its bytes."""
        return self._folder.file(name)

    def expect_soon(self, entries: Sequence[Entry]) -> None:
        """Announces files to the operating system."""
        with contextlib.suppress(OSError):
            for batch in (entries[i : i + _AHEAD] for i in range(0, len(entries), _AHEAD)):
                with contextlib.ExitStack() as stack:
                    opened = []
                    for entry in batch:
                        with contextlib.suppress(FileNotFoundError, NotPlainError):
                            opened.append((stack.enter_context(self._folder.opened(entry.file)), entry))
                    segment_files.expect_soon(opened)

    def names(self) -> set[str]:
        """The plain files with the store's names."""
        return set(self._folder.ours())

    def is_own(self, name: str) -> bool:
        """Whether a file is the store's; unreadable files are not."""
        if TEMPORARY.fullmatch(name):
            return True
        try:
            with self._folder.opened(name) as descriptor:
                return segment_files.says_it_is(descriptor, name)
        except OSError:
            return False

    def is_gone(self, name: str) -> bool:
        """Whether the file is missing."""
        try:
            with self._folder.opened(name):
                return False
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def remove(self, names: Iterable[str]) -> int:
        """Deletes plain files with the store's names."""
        return self._folder.remove(names)

    def set_aside(self, name: str) -> None:
        """Moves a damaged file to quarantine."""
        self._folder.set_aside(name)

    def tidy(self) -> None:
        """Trims the quarantine to its size limit."""
        self._folder.trim_quarantine()

    def foreign(self) -> list[str]:
        """The names in the folder that are not the store's."""
        return self._folder.foreign()
