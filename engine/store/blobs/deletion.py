"""The one place of the store that deletes a file, and what it insists on."""

from __future__ import annotations

import errno
import stat

from engine.files.directory import Directory
from engine.store.blobs.claim import IN_PART, matches


def is_ours(folder: Directory, name: str, part: str) -> bool:
    """Whether a plain file of a name that the store gives stands there.

    Args:
        folder: the folder of the file.
        name: the file's name, without any path.
        part: the part of the store that the folder is; it says which names are the store's.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be looked at.
    """
    return matches(name, IN_PART[part]) and stat.S_ISREG(folder.stat(name).st_mode)


def delete(folder: Directory, name: str, part: str) -> int:
    """Deletes a file of the store; returns the bytes that it took.

    Args:
        folder: the folder of the file.
        name: the file's name, without any path.
        part: the part of the store that the folder is.

    Raises:
        PermissionError: it may not be deleted, or, on Windows, not while somebody has it open or mapped.
        OSError: it is none of the store's, or it cannot be deleted.
    """
    if not is_ours(folder, name, part):
        raise OSError(errno.EPERM, "it is none of the store's files", name)
    size = folder.stat(name).st_size
    folder.unlink(name)
    return size
