"""The only module of the store that deletes files, with its checks."""

from __future__ import annotations

import errno
import stat

from engine.files.directory import Directory
from engine.store.blobs.claim import IN_PART, matches


def is_ours(folder: Directory, name: str, part: str) -> bool:
    """Whether a file of a part of the store is plain and has a name of the store.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be checked.
    """
    return matches(name, IN_PART[part]) and stat.S_ISREG(folder.stat(name).st_mode)


def delete(folder: Directory, name: str, part: str) -> int:
    """Deletes a file of a part of the store; returns its size.

    Raises:
        PermissionError: it must not be deleted, or, on Windows, not while it is open or mapped.
        OSError: it is not the store's, or it cannot be deleted.
    """
    if not is_ours(folder, name, part):
        raise OSError(errno.EPERM, "it is not a file of the store", name)
    size = folder.stat(name).st_size
    folder.unlink(name)
    return size
