"""A lock that allows one writer in a folder, across processes, and detects a stuck writer."""

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
    """Locks a file; does nothing if the system has no locks.

    Args:
        lock: the file, created if missing. Its modification time is when it was last locked.
        patience: timeout in seconds for one holder; a new holder restarts it.

    Raises:
        TimeoutError: one holder exceeded the timeout.
        OSError: the file cannot be created.
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
    """Tries to lock; returns True if it succeeded or the system has no locks."""
    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return True
