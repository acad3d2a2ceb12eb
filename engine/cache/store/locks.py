"""Locks between processes: advisory, on files, and gone with the process that held them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from engine.cache.store.claim import LOCKS
from engine.cache.store.deletion import delete

_STEP_SECONDS = 0.02
PATIENCE_SECONDS = 10.0  # for a program that keeps every writer out
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"}
)


@contextlib.contextmanager
def shared(path: Path, patience: float = PATIENCE_SECONDS, *, within: int | None = None) -> Iterator[None]:
    """Holds a lock that any number of processes may hold, but none together with `alone`.

    Args:
        path: of the lock's file.
        patience: seconds that it is waited for.
        within: descriptor of the folder that the path is relative to.

    Raises:
        TimeoutError: another program holds it alone for longer.
    """
    until = time.monotonic() + patience
    with _opened(path, within) as descriptor:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    words = f"another program holds the lock {path.name} and lets nobody write"
                    raise TimeoutError(errno.ETIMEDOUT, words) from None
                time.sleep(_STEP_SECONDS)
        yield


@contextlib.contextmanager
def alone(path: Path, *, within: int | None = None) -> Iterator[bool]:
    """Tries to hold a lock alone, without waiting; gives whether it does."""
    with _opened(path, within) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def compute_lock(path: Path, patience: float, *, within: int | None = None) -> Iterator[bool]:
    """Waits for a lock, at most `patience` seconds; gives whether it had to wait. The file is gone after.

    Who has waited in vain goes on without the lock: it only keeps processes from doing the same work.
    """
    until, waited = time.monotonic() + patience, False
    with contextlib.ExitStack() as stack:
        held = False
        while not held:
            descriptor = stack.enter_context(_opened(path, within))
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = _is_at(path, within, descriptor)  # else its last holder has removed the file
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
            if held and _is_at(path, within, descriptor):
                _remove(path, within)


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
def _opened(path: Path, within: int | None) -> Iterator[int]:
    if within is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove(path: Path, within: int | None) -> None:
    """Removes a lock's file that this process holds."""
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(path.parent, flags, dir_fd=within)
        try:
            delete(folder, path.name, LOCKS)
        finally:
            os.close(folder)


def _is_at(path: Path, within: int | None, descriptor: int) -> bool:
    try:
        there, held = os.stat(path, dir_fd=within, follow_symlinks=False), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_ino, there.st_dev) == (held.st_ino, held.st_dev)
