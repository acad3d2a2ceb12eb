"""Locks between processes: advisory, on files, and gone with the process that held them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_STEP_SECONDS = 0.02
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"}
)


@contextlib.contextmanager
def shared(path: Path) -> Iterator[None]:
    """Holds a lock that any number of processes may hold, but none together with `alone`."""
    with _opened(path) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Tries to hold a lock alone, without waiting; gives whether it does."""
    with _opened(path) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def turn(path: Path, patience: float) -> Iterator[bool]:
    """Waits for a lock, at most `patience` seconds; gives whether it had to wait. The file is gone after.

    Who has waited in vain goes on without the lock: it only keeps processes from doing the same work.
    """
    until, waited = time.monotonic() + patience, False
    with contextlib.ExitStack() as stack:
        held = False
        while not held:
            descriptor = stack.enter_context(_opened(path))
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = _is_at(path, descriptor)  # else its last holder has removed the file
            except OSError:
                waited = True
                if time.monotonic() > until:
                    break
                time.sleep(_STEP_SECONDS)
            if not held:
                stack.pop_all().close()
        try:
            yield waited
        finally:
            if held:
                path.unlink(missing_ok=True)


def network_kind(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """The kind of network file system that a folder lies on; None for a local or an unknown one."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    best, kind = -1, None
    target = str(folder.resolve())
    for line in lines:
        _, where, name, *_ = [*line.split(" "), "", "", ""]
        where = where.replace("\\040", " ").rstrip("/")
        if (target == where or target.startswith(f"{where}/")) and len(where) >= best:
            best, kind = len(where), name
    return kind if kind in NETWORK else None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        there, held = path.stat(), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_ino, there.st_dev) == (held.st_ino, held.st_dev)
