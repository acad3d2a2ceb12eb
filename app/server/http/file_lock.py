"""One writer at a time in a folder, among all processes; a queue is told from a writer that is stuck."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import lock_descriptor

from engine.files.directory import open_plain

_STEP_SECONDS = 0.02
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextlib.contextmanager
def sole_writer(lock: Path, patience: float) -> Iterator[None]:
    """Holds a lock of the system's on a file; nobody waits where the system has none.

    Args:
        lock: the file, which is made where it is missing. Its time is when it was last taken.
        patience: how many seconds one holder is waited for; each further one is given as many.

    Raises:
        TimeoutError: one and the same holder has had it for longer.
        OSError: the file cannot be made.
    """
    descriptor = open_plain(lock, os.O_RDWR | os.O_CREAT)
    try:
        _take(descriptor, patience)
        with contextlib.suppress(OSError):
            os.utime(lock, ns=(now := time.time_ns(), now))
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, patience: float) -> None:
    taken_at, until = os.fstat(descriptor).st_mtime_ns, time.monotonic() + patience
    while not _taken(descriptor):
        latest = os.fstat(descriptor).st_mtime_ns
        if latest != taken_at:
            taken_at, until = latest, time.monotonic() + patience
        elif time.monotonic() >= until:
            raise TimeoutError(errno.ETIMEDOUT, "another program holds the lock")
        time.sleep(_STEP_SECONDS)


def _taken(descriptor: int) -> bool:
    """Takes the lock if it is free; gives whether it did, or whether there are no locks to take."""
    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return True
