"""The one place of the store that deletes a file, and what it insists on."""

from __future__ import annotations

import errno
import os
import stat

from engine.cache.store.claim import IN_PART, matches


def is_ours(folder: int, name: str, part: str) -> bool:
    """Whether a plain file of a name that the store gives stands there.

    Args:
        folder: descriptor of the folder that the file is in.
        name: of the file, without any path.
        part: which part of the store the folder is; it says which names are the store's.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be looked at.
    """
    if not matches(name, IN_PART[part]):
        return False
    return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def delete(folder: int, name: str, part: str) -> int:
    """Deletes a file of the store; returns the bytes that it took.

    Args:
        folder: descriptor of the folder that the file is in.
        name: of the file, without any path.
        part: which part of the store the folder is.

    Raises:
        OSError: it is none of the store's, or it cannot be deleted.
    """
    if not is_ours(folder, name, part):
        raise OSError(errno.EPERM, "it is none of the store's files", name)
    size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    os.unlink(name, dir_fd=folder)
    return size
