"""The operating system's page cache: asking it to drop files, and seeing whether it did."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

DROPPED = 0.05  # of the pages may stay


def can_drop() -> bool:
    """Whether the system takes such a wish, and says what became of it."""
    return hasattr(os, "posix_fadvise") and hasattr(ctypes.CDLL(None), "mincore")


def drop(files: Sequence[Path]) -> None:
    """Writes out what is not written, and asks that the files' pages be dropped."""
    os.sync()
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def held(files: Sequence[Path]) -> float:
    """The share of the files' pages that are in memory, 0 to 1; pages of files in memory (tmpfs) all are.

    Raises:
        OSError: a file cannot be read, or the system does not say.
    """
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    pages = present = 0
    for path in files:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
            count = -(-len(mapped) // mmap.PAGESIZE)
            found = (ctypes.c_ubyte * count)()
            first = ctypes.c_char.from_buffer(mapped)
            done = mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(len(mapped)), found)
            del first  # else the mapping cannot be closed
            if done:
                raise OSError(ctypes.get_errno(), "the page cache cannot be looked at", str(path))
            pages += count
            present += sum(one & 1 for one in found)
    return present / pages if pages else 0.0
