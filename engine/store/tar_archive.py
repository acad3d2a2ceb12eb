"""The file format of exports: a plain tar of a manifest and the segments' files in its order.

A file may come from anyone, so it is read front to back with bounds: only plain members with the expected
name and size are accepted. The module does not use the store.
"""

from __future__ import annotations

import os
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from engine.base.errors import PathError, StoreError
from engine.files.text_files import NoFileError, open_file
from engine.store import manifest
from engine.store.manifest import Row

_BLOCK = tarfile.BLOCKSIZE
_PIECE = 1 << 20  # bytes in memory at a time


@dataclass(frozen=True)
class Moved:
    """The result of an export or import.

    Attributes:
        segments: number of moved segments.
        bytes: size of their files.
        known: imported segments that the store already had.
        left_out: earlier turns of conversations that an export omitted.
        unfit: why an export omitted segments, a sentence each.
    """

    segments: int
    bytes: int
    known: int = 0
    left_out: int = 0
    unfit: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return asdict(self)


def write(target: BinaryIO, rows: Sequence[Row], opened: Callable[[Row], BinaryIO]) -> Iterator[int]:
    """Writes rows and their files from the file's current position; yields after each.

    `opened` opens the file of a row.

    Raises:
        StoreError: the manifest is too large, or a segment's file is missing or damaged.
        OSError: a file cannot be read or written.
    """
    with tempfile.TemporaryFile() as lines:
        lines.writelines(manifest.lines(rows))
        size = lines.tell()
        lines.seek(0)
        _header(target, manifest.NAME, size)
        for piece in _pieces(lines, size):
            target.write(piece)
        _pad(target, size)
    for done, row in enumerate(rows, 1):
        _header(target, row.file, row.bytes)
        digest = xxhash.xxh3_128()
        try:
            with opened(row) as file:
                for piece in _pieces(file, row.bytes):
                    digest.update(piece)
                    target.write(piece)
        except FileNotFoundError as error:
            raise StoreError(_unfit(row, "is gone")) from error
        except EOFError as error:
            raise StoreError(_unfit(row, "was cut short")) from error
        if digest.hexdigest() != row.digest:
            raise StoreError(_unfit(row, "is damaged"))
        _pad(target, row.bytes)
        yield done
    target.write(bytes(2 * _BLOCK))


class NoArchiveError(StoreError, PathError):
    """A path is not a file that could be an export."""


class Archive:
    """An export open for reading.

    Raises:
        StoreError: it is no export of this version, or is truncated.
        OSError: it cannot be read.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self.name = file, name
        try:
            first = self._member()
            if first.name != manifest.NAME:
                raise StoreError(f"it begins with {first.name!r} and not with {manifest.NAME!r}.")
            self.rows = manifest.read(file, first.size)
        except (tarfile.HeaderError, StoreError) as error:
            raise StoreError(
                f"{name!r} is not a valid file of pml cache export: {str(error).rstrip('.')}. Export "
                "it again, with this version."
            ) from error
        self._place = _BLOCK + _padded(first.size)
        self._require_whole()

    def contents(self) -> Iterator[tuple[Row, Iterator[bytes]]]:
        """Yields every row with its content in pieces, which may stay unread.

        Pieces that were read to the end have the digest of the row.

        Raises:
            StoreError: a member differs from its row.
        """
        for number, row in enumerate(self.rows, 1):
            label = f"{self.name}: segment {number} of {len(self.rows)} ({row.key})"
            self._file.seek(self._place)
            try:
                member = self._member()
            except (tarfile.HeaderError, StoreError) as error:
                raise StoreError(
                    f"{label} cannot be read: {str(error).rstrip('.')}. Export it again."
                ) from error
            if (member.name, member.size) != (row.file, row.bytes):
                raise StoreError(
                    f"{label} does not match its manifest: it is {member.name!r} with {member.size:,} bytes "
                    f"instead of {row.file!r} with {row.bytes:,}. Export it again."
                )
            self._place += _BLOCK
            yield row, self._checked(row, label)
            self._place += _padded(row.bytes)

    def _checked(self, row: Row, what: str) -> Iterator[bytes]:
        digest = xxhash.xxh3_128()
        try:
            for piece in _pieces(self._file, row.bytes):
                digest.update(piece)
                yield piece
        except EOFError as error:
            raise StoreError(f"{what} was cut short. Copy the file again.") from error
        if digest.hexdigest() != row.digest:
            raise StoreError(f"{what} is damaged. Copy or export the file again.")

    def _member(self) -> tarfile.TarInfo:
        """The next header, of a plain file: no long names, holes or links."""
        member = tarfile.TarInfo.frombuf(self._file.read(_BLOCK), "ascii", "surrogateescape")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.size < 0:
            raise StoreError(f"{member.name!r} is not a plain file.")
        return member

    def _require_whole(self) -> None:
        """Raises StoreError unless the file is exactly as long as its manifest requires."""
        end = self._place + sum(_BLOCK + _padded(row.bytes) for row in self.rows)
        size = os.fstat(self._file.fileno()).st_size
        if size < end:
            raise StoreError(
                f"{self.name!r} has {size:,} bytes and should have {end:,}: it was cut short. Copy it again."
            )
        self._file.seek(end)
        if any(self._file.read(_BLOCK)):
            raise StoreError(f"{self.name!r} has more than its manifest lists, so nothing is imported.")


@contextmanager
def opened(source: Path) -> Iterator[Archive]:
    """Opens an export.

    Raises:
        NoArchiveError: the path is not a readable plain file.
        StoreError: it is no export, or it cannot be read.
    """
    try:
        file = open_file(source)
    except NoFileError as error:
        raise NoArchiveError(str(error)) from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # an inherited descriptor may be a pipe
            raise NoArchiveError(f"{source} is not a plain file. Give a file of pml cache export.")
        try:
            archive = Archive(file, source.name)
        except OSError as error:
            raise StoreError(f"{source} cannot be read: {error.strerror or error}. Copy it again.") from error
        yield archive


def _header(target: BinaryIO, name: str, size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    target.write(member.tobuf(tarfile.GNU_FORMAT))


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Raises EOFError if fewer than `size` bytes come."""
    while size:
        piece = file.read(min(size, _PIECE))
        if not piece:
            raise EOFError
        size -= len(piece)
        yield piece


def _pad(target: BinaryIO, size: int) -> None:
    target.write(bytes(_padded(size) - size))


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _unfit(row: Row, what: str) -> str:
    return f"the file of segment {row.key} {what}; run pml cache verify --repair, and export again."
