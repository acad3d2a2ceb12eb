"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path


def write_text(path: Path, text: str, *, overwrite: bool = True) -> None:
    """Write a text as UTF-8; line ends stay as they are. The rest is as for `write_bytes`.

    Raises:
        UnicodeEncodeError: The text holds half of a surrogate pair.
    """
    write_bytes(path, text.encode("utf-8"), overwrite=overwrite)


def write_bytes(path: Path, data: bytes, *, overwrite: bool = True) -> None:
    """Write a file so that at any instant either the old or the new content is there, whole.

    A link is followed, and a file that is there already keeps its permissions and, where we may, its owner.

    Args:
        path: The file.
        data: Its new content.
        overwrite: Whether a file that is there may be replaced.

    Raises:
        FileExistsError: There is a file already, and it may not be replaced.
        PermissionError: The file is there and is not to be written, though its folder is.
        OSError: as the system reports it; the old file is untouched.
    """
    target = path.resolve()
    old = target.stat() if target.exists() else None
    if old is not None and overwrite:
        _require_writable(target, old)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:80]}.", suffix=".new")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if old is not None:
            _keep_owner(temporary, old)
            temporary.chmod(stat.S_IMODE(old.st_mode))
        else:
            temporary.chmod(0o666 & ~_umask())
        if overwrite:
            temporary.replace(target)
        else:
            _place(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _require_writable(target: Path, old: os.stat_result) -> None:
    """A renaming would replace a read-only file without a word."""
    if not old.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only", str(target))


def _keep_owner(temporary: Path, old: os.stat_result) -> None:
    chown = getattr(os, "chown", None)  # Windows has none
    if chown is not None and (old.st_uid, old.st_gid) != (os.getuid(), os.getgid()):
        with contextlib.suppress(PermissionError):
            chown(temporary, old.st_uid, old.st_gid)


def _place(temporary: Path, target: Path) -> None:
    """Give a file its name if no other has it: a link, unlike a renaming, fails where one has come to be."""
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError(target) from None
        temporary.replace(target)
    else:
        temporary.unlink()


def _umask() -> int:
    """What new files of this process may not have; asking for it means setting it for an instant."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
