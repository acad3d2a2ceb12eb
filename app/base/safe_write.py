"""Writing a user's file: whole or not at all, and as its owner has set it up."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from pathlib import Path

from engine.files import atomic
from engine.files.directory import NotPlainError


class _HalfWrittenError(OSError):
    """Neither the new content nor the old could be written over a file."""


def write_text(path: Path, text: str, *, overwrite: bool = True) -> None:
    """Writes a text as UTF-8; line ends stay as they are. The rest is as for `write_bytes`.

    Raises:
        UnicodeEncodeError: the text holds half of a surrogate pair.
    """
    write_bytes(path, text.encode("utf-8"), overwrite=overwrite)


def write_bytes(path: Path, data: bytes, *, overwrite: bool = True) -> None:
    """Writes a file so that at any instant either the old or the new content is there, whole.

    A link is followed, and a file that is there already keeps its permissions and, where we may, its owner.
    One of several names (hard links) keeps them all: it is written in place, after a whole copy of the new
    content has been put beside it.

    Args:
        path: the file.
        data: its new content.
        overwrite: whether a file that is there may be replaced.

    Raises:
        FileExistsError: there is a file already, and it may not be replaced.
        NotPlainError: what is there is a device, a pipe, a socket or a folder.
        PermissionError: the file is there and is not to be written, though its folder is.
        OSError: as the system reports it; the old content is there, or the message names its new copy.
    """
    require_replaceable(path, overwrite=overwrite)
    target = path.resolve()
    old = target.stat() if target.exists() else None
    mode = stat.S_IMODE(old.st_mode) if old is not None else None
    in_place = old is not None and old.st_nlink > 1
    name = f".{target.name[:80]}.{uuid.uuid4().hex[:8]}.new" if in_place else target.name
    with atomic.writing(target.parent, name, mode=mode, replace=overwrite) as file:
        file.write(data)
        if old is not None:
            _keep_owner(file.fileno(), old)
    if in_place:
        _write_in_place(target, data, target.with_name(name))


def move_new(old: Path, new: Path) -> None:
    """Gives a file a name that is free, on the same disk; a link itself gets it, not what it leads to.

    Raises:
        FileExistsError: the name is taken.
        FileNotFoundError: the file, or the folder of the new name, is not there.
        OSError: as the system reports it; the file has its old name.
    """
    try:
        os.link(old, new, follow_symlinks=False)
    except (FileExistsError, FileNotFoundError):
        raise
    except (OSError, NotImplementedError):  # a file system without links: the name is taken first
        new.touch(exist_ok=False)
        try:
            old.replace(new)
        except BaseException:
            new.unlink()
            raise
    else:
        old.unlink()


def require_replaceable(path: Path, *, overwrite: bool) -> None:
    """Refuses a place that `write_bytes` would refuse, before anything is written.

    Raises:
        FileExistsError, NotPlainError, PermissionError: as for `write_bytes`.
        FileNotFoundError: its folder does not exist.
        OSError: as the system reports it.
    """
    try:
        old = path.stat()  # before links are resolved: /dev/stdout leads to a pipe that no path names
    except FileNotFoundError:
        path.resolve().parent.stat()
        return
    if not stat.S_ISREG(old.st_mode):
        raise NotPlainError(errno.EINVAL, "it is no plain file", str(path))
    if not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    # A renaming would replace a read-only file without a word.
    if not old.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only", str(path))


def _write_in_place(target: Path, data: bytes, copy: Path) -> None:
    """Writes over a file that has other names too; `copy` holds the new content until that is done."""
    try:
        before = target.read_bytes()
        try:
            overwrite_in_place(target, data)
        except BaseException as error:
            try:
                overwrite_in_place(target, before)
            except OSError:
                words = f"it is half written, and {copy} holds the text"
                raise _HalfWrittenError(errno.EIO, words) from error
            raise
    except BaseException as error:
        if not isinstance(error, _HalfWrittenError):
            copy.unlink()
        raise
    copy.unlink()


def overwrite_in_place(target: Path, data: bytes) -> None:
    """Writes over a file where it lies, and flushes it to the disk."""
    with target.open("r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _keep_owner(descriptor: int, old: os.stat_result) -> None:
    chown = getattr(os, "fchown", None)  # Windows has none
    if chown is not None and (old.st_uid, old.st_gid) != (os.getuid(), os.getgid()):
        with contextlib.suppress(PermissionError):
            chown(descriptor, old.st_uid, old.st_gid)
