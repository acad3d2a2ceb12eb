"""A folder with operations by name that never leave it and never follow links.

If the system supports it, the folder stays open and names are looked up from its descriptor. Renaming the
folder or a link in its path then has no effect. Elsewhere (Windows) names are looked up by path. The folder
and the file are compared before and after, but a brief exchange in between goes unnoticed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE, SEALED_FILE = 0o700, 0o600, 0o400
OPEN_FILES_STAY = os.name == "nt"  # open or mapped files cannot be deleted
_HELD = (os.open, os.stat, os.mkdir, os.unlink, os.rename, os.link)
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS}
_JUNCTION = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)  # Windows' links to folders


class NotPlainError(OSError):
    """A path is not a regular file but a link, a folder, a device, a pipe or a socket."""


class Directory(ABC):
    """A folder. Names are those of its entries, without any path.

    Attributes:
        path: the folder's path, for messages and for programs that open by path.
    """

    path: Path

    @staticmethod
    def at(path: Path) -> Directory:
        """Opens a folder; links in its path are followed. Raises OSError if it cannot."""
        if holds():
            with contextlib.suppress(PermissionError):  # it may be writable but not readable
                return _HeldDirectory(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        return _NamedDirectory(path)

    @abstractmethod
    def close(self) -> None:
        """Closes the folder, which must not be used afterwards."""

    @abstractmethod
    def status(self) -> os.stat_result:
        """Returns the status of the folder itself."""

    @abstractmethod
    def names(self) -> list[str]:
        """Returns its entries, sorted."""

    @abstractmethod
    def stat(self, name: str) -> os.stat_result:
        """Returns the status of an entry, without following links; may raise FileNotFoundError."""

    @abstractmethod
    def open(self, name: str, flags: int, mode: int = PRIVATE_FILE) -> int:
        """Opens a file and returns its descriptor; never waits for the other end of a pipe.

        The caller checks the kind of file and closes the descriptor.

        Raises:
            OSError: it is a link, or cannot be opened.
        """

    @abstractmethod
    def inner(self, name: str) -> Directory:
        """Opens a folder inside; raises OSError, with ELOOP or ENOTDIR for a link or another file."""

    @abstractmethod
    def make(self, name: str) -> None:
        """Makes a private folder inside; raises FileExistsError for an existing name."""

    @abstractmethod
    def move(self, name: str, target: Directory, new: str) -> None:
        """Renames a file and replaces an existing one."""

    @abstractmethod
    def link(self, name: str, new: str) -> None:
        """Gives a file a second name; raises OSError if the name exists or the file system has no links."""

    @abstractmethod
    def unlink(self, name: str) -> None:
        """Deletes a file."""

    @abstractmethod
    def tighten(self, name: str = "") -> None:
        """Removes other users' permissions from an entry, or from the folder itself."""

    def sync(self) -> None:  # noqa: B027
        """Flushes new names to the disk, if the system can."""


class _HeldDirectory(Directory):
    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    def close(self) -> None:
        os.close(self._descriptor)

    def status(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def names(self) -> list[str]:
        own = self.open(".", os.O_RDONLY | os.O_DIRECTORY)  # threads would share a position
        try:
            with os.scandir(own) as entries:
                return sorted(entry.name for entry in entries)
        finally:
            os.close(own)

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def open(self, name: str, flags: int, mode: int = PRIVATE_FILE) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode, dir_fd=self._descriptor)

    def inner(self, name: str) -> Directory:
        return _HeldDirectory(self.path / name, self.open(name, os.O_RDONLY | os.O_DIRECTORY))

    def make(self, name: str) -> None:
        os.mkdir(name, PRIVATE_FOLDER, dir_fd=self._descriptor)

    def move(self, name: str, target: Directory, new: str) -> None:
        assert isinstance(target, _HeldDirectory)
        os.replace(name, new, src_dir_fd=self._descriptor, dst_dir_fd=target._descriptor)

    def link(self, name: str, new: str) -> None:
        os.link(name, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._descriptor)

    def tighten(self, name: str = "") -> None:
        descriptor = self.open(name or ".", os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            if is_loose(status):
                set_mode(descriptor, stat.S_IMODE(status.st_mode) & PRIVATE_FOLDER)
        finally:
            os.close(descriptor)

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise


class _NamedDirectory(Directory):
    def __init__(self, path: Path) -> None:
        self.path = path.resolve(strict=True)
        self._status = self.path.lstat()
        _require_folder(self._status, str(path))

    def close(self) -> None:
        pass

    def status(self) -> os.stat_result:
        return self._place("").stat()

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self._place("").iterdir())

    def stat(self, name: str) -> os.stat_result:
        return self._place(name).lstat()

    def open(self, name: str, flags: int, mode: int = PRIVATE_FILE) -> int:
        return open_plain(self._place(name), flags, mode)

    def inner(self, name: str) -> Directory:
        place = self._place(name)
        _require_folder(place.lstat(), name)
        return _NamedDirectory(place)

    def make(self, name: str) -> None:
        self._place(name).mkdir(PRIVATE_FOLDER)

    def move(self, name: str, target: Directory, new: str) -> None:
        assert isinstance(target, _NamedDirectory)
        os.replace(self._place(name), target._place(new))  # noqa: PTH105

    def link(self, name: str, new: str) -> None:
        os.link(self._place(name), self._place(new))

    def unlink(self, name: str) -> None:
        self._place(name).unlink()

    def tighten(self, name: str = "") -> None:
        place = self._place(name)
        status = place.lstat()
        if not _is_link(status) and is_loose(status):
            place.chmod(stat.S_IMODE(status.st_mode) & PRIVATE_FOLDER)

    def _place(self, name: str) -> Path:
        """Returns the path of an entry, after a check that the folder is unchanged."""
        if not os.path.samestat(self._status, self.path.lstat()):
            raise FileNotFoundError(errno.ENOENT, "another folder has replaced it", str(self.path))
        if name != os.path.basename(name) or name in (".", ".."):  # noqa: PTH119
            raise OSError(errno.EINVAL, "it is not a file name", name)
        return self.path / name if name else self.path


def holds() -> bool:
    """Returns whether this system opens files from a folder's descriptor."""
    known = hasattr(os, "O_DIRECTORY") and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_NONBLOCK")
    return known and {*_HELD} <= os.supports_dir_fd and os.scandir in os.supports_fd


def open_plain(path: Path, flags: int = os.O_RDONLY, mode: int = PRIVATE_FILE) -> int:
    """Opens a regular file by a path whose last part is not a link.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: it is a link or not a regular file, was exchanged meanwhile, or cannot be opened.
    """
    if not flags & os.O_CREAT or os.path.lexists(path):
        _require_plain(path.lstat(), path)
    safely = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | safely, mode)
    try:
        status = os.fstat(descriptor)
        _require_plain(status, path)
        if not os.path.samestat(status, path.lstat()):
            raise OSError(errno.ELOOP, "it was exchanged while it was opened", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_loose(status: os.stat_result) -> bool:
    """Returns whether other users have access to this user's file; false on systems without owners."""
    owner = getattr(os, "geteuid", None)
    return owner is not None and status.st_uid == owner() and bool(status.st_mode & 0o077)


def set_mode(descriptor: int, mode: int) -> None:
    """Sets the permissions of an open file, if the system has them."""
    if os.name == "posix" and hasattr(os, "fchmod"):
        os.fchmod(descriptor, mode)


def _is_link(status: os.stat_result) -> bool:
    return stat.S_ISLNK(status.st_mode) or (
        _JUNCTION is not None and getattr(status, "st_reparse_tag", 0) == _JUNCTION
    )


def _require_plain(status: os.stat_result, path: Path) -> None:
    if _is_link(status):
        raise OSError(errno.ELOOP, "it is a link", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _require_folder(status: os.stat_result, name: str) -> None:
    if _is_link(status):
        raise OSError(errno.ELOOP, "it is a link", name)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", name)
