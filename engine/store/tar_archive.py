"""The file that segments travel in: a plain tar of a manifest, and of the segments' files in its order.

Who reads it may have got it from anybody. So it is read front to back with bounds, header by header: plain
members of the expected name and size and nothing else, whatever else tar knows. Knows no store.
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
_PIECE = 1 << 20  # bytes that are held at a time


@dataclass(frozen=True)
class Moved:
    """What an export or an import moved.

    Attributes:
        segments: how many segments were moved.
        bytes: size of their files.
        known: how many of an import's segments were there already.
        left_out: how many earlier turns of conversations an export left out.
        unfit: segments that an export left out because they cannot travel, with the reason.
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
    """Writes rows and their files; yields after each of them.

    Args:
        target: the file, which is written to from where it stands.
        rows: the rows to export.
        opened: a function that opens the file of a row.

    Raises:
        StoreError: there is too much for one file, or a segment's file is gone or damaged.
        OSError: something cannot be read or written.
    """
    with tempfile.TemporaryFile() as said:
        said.writelines(manifest.lines(rows))
        size = said.tell()
        said.seek(0)
        _header(target, manifest.NAME, size)
        for piece in _pieces(said, size):
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
    """A path leads to no file that could be an export."""


class Archive:
    """An export that is being read.

    Args:
        file: the file, at its first byte; a plain one, so that what is not wanted can be skipped.
        name: the file's name in messages.

    Raises:
        StoreError: it is no export of this version, or was cut short.
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
                f"{name!r} is no file of pml cache export that can be read: {str(error).rstrip('.')}. Export "
                "it again, with this version."
            ) from error
        self._place = _BLOCK + _padded(first.size)
        self._require_whole()

    def contents(self) -> Iterator[tuple[Row, Iterator[bytes]]]:
        """Yields every row with its content in pieces, which may be left unread.

        Whoever reads the pieces to their end knows that they have the digest of the row.

        Raises:
            StoreError: a member is not what its row says.
        """
        for number, row in enumerate(self.rows, 1):
            what = f"{self.name}: segment {number} of {len(self.rows)} ({row.key})"
            self._file.seek(self._place)
            try:
                member = self._member()
            except (tarfile.HeaderError, StoreError) as error:
                raise StoreError(
                    f"{what} cannot be read: {str(error).rstrip('.')}. Export it again."
                ) from error
            if (member.name, member.size) != (row.file, row.bytes):
                raise StoreError(
                    f"{what} is not what its manifest says: {member.name!r} with {member.size:,} bytes "
                    f"stands where {row.file!r} with {row.bytes:,} should. Export it again."
                )
            self._place += _BLOCK
            yield row, self._checked(row, what)
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
            raise StoreError(f"{what} was damaged on its way. Copy or export the file again.")

    def _member(self) -> tarfile.TarInfo:
        """The next header: of a plain file, without what tar has for long names, holes or links."""
        member = tarfile.TarInfo.frombuf(self._file.read(_BLOCK), "ascii", "surrogateescape")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.size < 0:
            raise StoreError(f"{member.name!r} is no plain file.")
        return member

    def _require_whole(self) -> None:
        """Raises StoreError unless the file is as long as its manifest says, and no longer."""
        end = self._place + sum(_BLOCK + _padded(row.bytes) for row in self.rows)
        size = os.fstat(self._file.fileno()).st_size
        if size < end:
            raise StoreError(
                f"{self.name!r} has {size:,} bytes and should have {end:,}: it was cut short. Copy it again."
            )
        self._file.seek(end)
        if any(self._file.read(_BLOCK)):
            raise StoreError(
                f"{self.name!r} holds more than its manifest lists, so nothing of it is taken in."
            )


@contextmanager
def opened(source: Path) -> Iterator[Archive]:
    """Opens an export.

    Raises:
        NoArchiveError: the path leads to no plain file that may be read.
        StoreError: it is no export, or it cannot be read.
    """
    try:
        file = open_file(source)
    except NoFileError as error:
        raise NoArchiveError(str(error)) from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # what the shell holds open may be a pipe
            raise NoArchiveError(f"{source} is no plain file. Name what pml cache export has written.")
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
    """Raises EOFError where fewer than `size` bytes come."""
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
