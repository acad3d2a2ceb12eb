"""A folder and what is done in it by name: nothing leads out of it, and no link is followed.

Where the system can, the folder is held open and every name is looked up from its descriptor, so renaming
the folder or a link in its path changes nothing. Elsewhere (Windows) names are looked up by path: the folder
and the file are compared before and after, but what is exchanged for an instant in between is not seen.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE, SEALED_FILE = 0o700, 0o600, 0o400
OPEN_FILES_STAY = os.name == "nt"  # what is open or mapped cannot be deleted
_HELD = (os.open, os.stat, os.mkdir, os.unlink, os.rename, os.link)
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS}
_JUNCTION = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)  # how Windows links folders


class NotPlainError(OSError):
    """What stands in the place of a file is no plain one: a link, a folder, a device, a pipe or a socket."""


class Directory(ABC):
    """A folder. Names are of what lies in it, without any path.

    Attributes:
        path: the folder's path, for messages and for who can open by path only.
    """

    path: Path

    @staticmethod
    def at(path: Path) -> Directory:
        """Opens a folder; links on the way to it are followed.

        Raises:
            OSError: it is no folder, or it cannot be opened.
        """
        if holds():
            with contextlib.suppress(PermissionError):  # it may be written to, and not listed
                return _HeldDirectory(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        return _NamedDirectory(path)

    @abstractmethod
    def close(self) -> None:
        """Lets go of the folder, which must not be used afterwards."""

    @abstractmethod
    def status(self) -> os.stat_result:
        """The status of the folder itself."""

    @abstractmethod
    def names(self) -> list[str]:
        """What is in it, sorted."""

    @abstractmethod
    def stat(self, name: str) -> os.stat_result:
        """The status of what has a name; links are not followed.

        Raises:
            FileNotFoundError: there is nothing.
        """

    @abstractmethod
    def open(self, name: str, flags: int, mode: int = PRIVATE_FILE) -> int:
        """Opens a file; never waits for the other end of a pipe.

        Returns:
            A descriptor, which the caller closes; what it is of is for the caller to look at.

        Raises:
            OSError: it is a link, or it cannot be opened.
        """

    @abstractmethod
    def inner(self, name: str) -> Directory:
        """Opens a folder within.

        Raises:
            FileNotFoundError: there is nothing.
            OSError: it cannot be opened; ELOOP or ENOTDIR where it is a link or no folder.
        """

    @abstractmethod
    def make(self, name: str) -> None:
        """Makes a folder within, for its owner alone.

        Raises:
            FileExistsError: the name is taken.
        """

    @abstractmethod
    def move(self, name: str, target: Directory, new: str) -> None:
        """Renames a file; what has the new name is replaced."""

    @abstractmethod
    def link(self, name: str, new: str) -> None:
        """Gives a file a second name.

        Raises:
            FileExistsError: the name is taken.
            OSError: the file system knows no such thing.
        """

    @abstractmethod
    def unlink(self, name: str) -> None:
        """Deletes a file; `deletion` says which ones may be."""

    @abstractmethod
    def tighten(self, name: str = "") -> None:
        """Takes from others what they may do with a file or a folder within, or with the folder itself."""

    def sync(self) -> None:  # noqa: B027
        """Has new names reach the disk, where the system can."""


class _HeldDirectory(Directory):
    """A folder by its descriptor."""

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
        found = self.open(name or ".", os.O_RDONLY)
        try:
            status = os.fstat(found)
            if is_loose(status):
                set_mode(found, stat.S_IMODE(status.st_mode) & PRIVATE_FOLDER)
        finally:
            os.close(found)

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise


class _NamedDirectory(Directory):
    """A folder by its path."""

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
        """The path of a name, once it is sure that the folder is the one that was opened."""
        if not os.path.samestat(self._status, self.path.lstat()):
            raise FileNotFoundError(errno.ENOENT, "another folder stands in its place", str(self.path))
        if name != os.path.basename(name) or name in (".", ".."):  # noqa: PTH119
            raise OSError(errno.EINVAL, "it is no name", name)
        return self.path / name if name else self.path


def holds() -> bool:
    """Whether this system opens files from a folder's descriptor."""
    known = hasattr(os, "O_DIRECTORY") and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_NONBLOCK")
    return known and {*_HELD} <= os.supports_dir_fd and os.scandir in os.supports_fd


def open_plain(path: Path, flags: int = os.O_RDONLY, mode: int = PRIVATE_FILE) -> int:
    """Opens a plain file by its path, where its last part is no link.

    Raises:
        FileNotFoundError: there is none.
        OSError: it is a link or no plain file, it was exchanged meanwhile, or it cannot be opened.
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
    """Whether others may read what is ours; only where files have an owner."""
    owner = getattr(os, "geteuid", None)
    return owner is not None and status.st_uid == owner() and bool(status.st_mode & 0o077)


def set_mode(descriptor: int, mode: int) -> None:
    """Sets who may do what with an open file, where the system has such modes."""
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
        raise OSError(errno.EINVAL, "it is no plain file", str(path))


def _require_folder(status: os.stat_result, name: str) -> None:
    if _is_link(status):
        raise OSError(errno.ELOOP, "it is a link", name)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "it is no folder", name)
