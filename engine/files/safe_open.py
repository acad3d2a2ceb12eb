"""Opens files beneath a folder; no link and no renaming leads out of it.

Every part of the path is opened from the descriptor of the folder before it. Links are read and followed
here, so the system never walks a path of several parts. A system that cannot open from a folder (Windows)
resolves paths first and opens them then. It refuses links out too, but not an exchange in between.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_FROM_FOLDERS = {os.open, os.readlink} <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
# A pipe must not block before it is refused.
_FILE: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

MOST_LINKS: Final = 40
MOST_PARTS: Final = 256


class OutsideError(OSError):
    """A path leads out of the folder."""


def open_beneath(base: Path, path: str) -> int:
    """Opens a file at a /-separated path in the folder `base` for reading, and returns a descriptor.

    The path of the base itself may have links. The file may not be a regular one.

    Raises:
        OutsideError: a link leads out of the folder.
        OSError: the file does not exist, its links form a circle, or it cannot be opened.
    """
    if not _FROM_FOLDERS:
        return _open_resolved(base, path)
    walk = _Walk(base)
    try:
        return walk.open(path)
    finally:
        walk.close()


class _Walk:
    """The open folders from the base to the current one."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._folders = [os.open(base, _FOLDER | getattr(os, "O_CLOEXEC", 0))]

    def close(self) -> None:
        for folder in self._folders:
            os.close(folder)

    def open(self, path: str) -> int:
        pending = _parts(path)
        links = steps = 0
        while pending:
            part = pending.pop()
            steps += 1
            if steps > MOST_PARTS:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            if part == "..":
                self._up()
                continue
            link = self._link(part)
            if link is not None:
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, "its links form a circle")
                pending += self._from_link(link)
            elif pending:
                self._folders.append(os.open(part, _FOLDER | _NO_LINK, dir_fd=self._folders[-1]))
            else:
                return os.open(part, _FILE | _NO_LINK, dir_fd=self._folders[-1])
        return os.open(".", _FILE | _NO_LINK, dir_fd=self._folders[-1])

    def _up(self) -> None:
        if len(self._folders) == 1:
            raise OutsideError(errno.EXDEV, "it leads out of the folder")
        os.close(self._folders.pop())

    def _link(self, part: str) -> str | None:
        try:
            return os.readlink(part, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None
            raise

    def _from_link(self, link: str) -> list[str]:
        if not link.startswith("/"):
            return _parts(link)
        whole, root = _parts(link), _parts(os.path.realpath(self._base))
        if ".." in whole or whole[len(whole) - len(root) :] != root:
            raise OutsideError(errno.EXDEV, "it leads out of the folder")
        while len(self._folders) > 1:
            self._up()
        return whole[: len(whole) - len(root)]


def _parts(path: str) -> list[str]:
    """The parts of a path in reverse order."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _open_resolved(base: Path, path: str) -> int:
    root = base.resolve(strict=True)
    try:
        target = (root / path).resolve(strict=True)
    except RuntimeError:
        raise OSError(errno.ELOOP, "its links form a circle") from None
    if not target.is_relative_to(root):
        raise OutsideError(errno.EXDEV, "it leads out of the folder")
    return os.open(target, _FILE | _NO_LINK)
