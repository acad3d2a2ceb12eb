"""Writes a user's file atomically, with its owner and permissions."""

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
    """Neither the new nor the old content could be written completely."""


def write_text(path: Path, text: str, *, overwrite: bool = True) -> None:
    """Writes a text like `write_bytes`; raises UnicodeEncodeError for half of a surrogate pair."""
    write_bytes(path, text.encode("utf-8"), overwrite=overwrite)


def write_bytes(path: Path, data: bytes, *, overwrite: bool = True) -> None:
    """Writes a file atomically: it always has either the old or the new content.

    Follows a link, and preserves permissions and, if possible, the owner of an existing file. A file with
    hard links is written in place, after writing a copy of the new content next to it.

    Args:
        path: the file.
        data: its new content.
        overwrite: whether to replace an existing file.

    Raises:
        FileExistsError: the file exists and may not be replaced.
        NotPlainError: the path is a device, a pipe, a socket or a folder.
        PermissionError: the file is not writable, although its folder is.
        OSError: from the system; the old content is unchanged, or the message names the new copy.
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
    """Renames a file to a free name on the same disk; a link itself is renamed, not its target.

    Raises:
        FileExistsError: the name exists.
        FileNotFoundError: the file or the target folder is missing.
        OSError: from the system; the file has its old name.
    """
    try:
        os.link(old, new, follow_symlinks=False)
    except (FileExistsError, FileNotFoundError):
        raise
    except (OSError, NotImplementedError):  # without hard links, reserve the name first
        new.touch(exist_ok=False)
        try:
            old.replace(new)
        except BaseException:
            new.unlink()
            raise
    else:
        old.unlink()


def require_replaceable(path: Path, *, overwrite: bool) -> None:
    """Raises the errors of `write_bytes` for a path, before anything is written.

    Raises:
        FileExistsError, NotPlainError, PermissionError: as for `write_bytes`.
        FileNotFoundError: its folder is missing.
        OSError: from the system.
    """
    try:
        old = path.stat()  # before resolving links: /dev/stdout leads to a pipe without a path
    except FileNotFoundError:
        path.resolve().parent.stat()
        return
    if not stat.S_ISREG(old.st_mode):
        raise NotPlainError(errno.EINVAL, "it is no plain file", str(path))
    if not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    # A rename would silently replace a read-only file.
    if not old.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only", str(path))


def _write_in_place(target: Path, data: bytes, copy: Path) -> None:
    """Overwrites a file with hard links; `copy` has the new content until that succeeds."""
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
    """Overwrites a file in place, and flushes it to disk."""
    with target.open("r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _keep_owner(descriptor: int, old: os.stat_result) -> None:
    chown = getattr(os, "fchown", None)  # missing on Windows
    if chown is not None and (old.st_uid, old.st_gid) != (os.getuid(), os.getgid()):
        with contextlib.suppress(PermissionError):
            chown(descriptor, old.st_uid, old.st_gid)
