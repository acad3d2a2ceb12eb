"""A file that is written whole or not at all: the one way in which anything here puts a file in its place."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PRIVATE = 0o600
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS}


@contextmanager
def writing(
    folder: int | Path, name: str, *, mode: int | None = PRIVATE, replace: bool = True
) -> Iterator[BinaryIO]:
    """Gives an open file that gets its name when all of it is on the disk; else nothing of it stays.

    It is written beside its place under a temporary name, flushed to the disk, renamed, and its folder is
    flushed, where the platform can. So at any instant the name stands for the old content or for the new.

    Args:
        folder: that it comes into: a descriptor, or a path.
        name: of the file, without any path.
        mode: its permissions; None for those of any new file.
        replace: what has the name goes.

    Raises:
        FileExistsError: the name is taken, and is not to be replaced.
        OSError: as the system reports it; what was there stays, unless only the last flush has failed.
    """
    temporary = f".{uuid.uuid4().hex}.tmp"
    with _held(folder) as place:
        descriptor = place.open(temporary, PRIVATE if mode is not None else 0o666)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                yield file
                file.flush()
                os.fsync(descriptor)
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(descriptor, mode)
            if replace:
                place.rename(temporary, name)
            else:
                place.name_new(temporary, name)
            place.sync()
        except BaseException:
            with contextlib.suppress(OSError):
                place.unlink(temporary)
            raise


class _Place:
    """A folder by its descriptor, so that who renames it meanwhile changes nothing; else by its path."""

    def __init__(self, path: Path | None, descriptor: int | None) -> None:
        self._path, self._within = path, descriptor

    def _of(self, name: str) -> str:
        return name if self._path is None else os.fspath(self._path / name)

    def open(self, name: str, mode: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        for more in ("O_CLOEXEC", "O_NOFOLLOW", "O_BINARY"):  # no platform has all of them
            flags |= getattr(os, more, 0)
        return os.open(self._of(name), flags, mode, dir_fd=self._within)

    def rename(self, old: str, new: str) -> None:
        os.replace(self._of(old), self._of(new), src_dir_fd=self._within, dst_dir_fd=self._within)

    def unlink(self, name: str) -> None:
        os.unlink(self._of(name), dir_fd=self._within)

    def name_new(self, old: str, new: str) -> None:
        """Gives a file a name that is free: a link, unlike a renaming, fails where one has come to be."""
        try:
            os.link(self._of(old), self._of(new), src_dir_fd=self._within, dst_dir_fd=self._within)
        except FileExistsError:
            raise
        except OSError:  # a file system without links: the name is taken first
            os.close(self.open(new, PRIVATE))
            self.rename(old, new)
        else:
            self.unlink(old)

    def sync(self) -> None:
        """Has a new name reach the disk, where the file system can."""
        if self._within is None:
            return
        try:
            os.fsync(self._within)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise


@contextmanager
def _held(folder: int | Path) -> Iterator[_Place]:
    if isinstance(folder, int):
        yield _Place(None, folder)
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | getattr(os, "O_CLOEXEC", 0))
    except (
        AttributeError,
        PermissionError,
    ):  # a platform without such descriptors; a folder not to be listed
        yield _Place(folder, None)
        return
    try:
        yield _Place(None, descriptor)
    finally:
        os.close(descriptor)
