"""Locks between processes: advisory, on files, and gone with the process that held them.

The library knows locks that one holds alone, on every system. So writers, of whom there may be many, each
hold a file of their own, which they make behind a gate; who wants to be alone keeps the gate shut and looks
whether a writer's file is still held. Where the system has no locks at all nobody waits, and nobody is alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import lock_descriptor

from engine.files import directory
from engine.files.directory import Directory
from engine.store.blobs.claim import LOCKS, WRITERS
from engine.store.blobs.deletion import delete

_STEP_SECONDS = 0.02
PATIENCE_SECONDS = 10.0  # for a program that keeps every writer out
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"}
)
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextlib.contextmanager
def writer(gate: tuple[Directory, str], writers: Directory, patience: float) -> Iterator[None]:
    """Holds a lock that any number of writers may hold, but none together with `alone`.

    Args:
        gate: the folder and the name of the file that who is alone holds.
        writers: the folder where every writer has a file.
        patience: how many seconds the lock is waited for.

    Raises:
        TimeoutError: another program holds the gate for longer.
        OSError: the files cannot be made.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as at_gate:
            if not _taken_within(at_gate.enter_context(_opened(*gate)).descriptor, patience):
                words = f"another program holds the lock {gate[1]} and lets nobody write"
                raise TimeoutError(errno.ETIMEDOUT, words)
            stack.enter_context(_held(writers, f"writing-{uuid.uuid4().hex}.lock"))
        yield


@contextlib.contextmanager
def alone(gate: tuple[Directory, str], writers: Directory | None) -> Iterator[bool]:
    """Tries to keep all writers out, without waiting; gives whether it does.

    Args:
        gate: the folder and the name of the file that who is alone holds.
        writers: the folder where every writer has a file; None where there is none, and so no writer.

    Raises:
        OSError: the system has no locks, or the files cannot be opened.
    """
    with _opened(*gate) as shut:
        held = lock_descriptor(shut.descriptor, blocking=False)
        yield held and (writers is None or not _anybody(writers))


@contextlib.contextmanager
def compute_lock(folder: Directory, name: str, patience: float) -> Iterator[bool]:
    """Waits for a lock, at most `patience` seconds; gives whether it had to wait. The file is gone after.

    A process that does not get it in time goes on without it: it only spares doing the same work twice.

    Raises:
        OSError: the system has no locks, or the file cannot be made.
    """
    until, waited = time.monotonic() + patience, False
    with contextlib.ExitStack() as stack:
        while not stack.enter_context(_try(folder, name)):
            waited = True
            if time.monotonic() > until:
                break
            stack.pop_all().close()
            time.sleep(_STEP_SECONDS)
        yield waited


@contextlib.contextmanager
def try_compute_lock(folder: Directory, name: str) -> Iterator[bool]:
    """Tries to take such a lock without waiting; gives whether it did. The file is gone after.

    Raises:
        OSError: the system has no locks, or the file cannot be made.
    """
    with _try(folder, name) as taken:
        yield taken


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


def _anybody(writers: Directory) -> bool:
    """Whether a writer is at work; the files of those who are no more are removed."""
    for name in writers.names():
        if WRITERS.fullmatch(name):
            with _try(writers, name) as dead:
                if not dead:
                    return True
    return False


def _taken_within(descriptor: int, patience: float) -> bool:
    """Takes a lock, waiting so many seconds; gives whether it did, or whether there are no locks to take."""
    until = time.monotonic() + patience
    try:
        while not lock_descriptor(descriptor, blocking=False):
            if time.monotonic() >= until:
                return False
            time.sleep(_STEP_SECONDS)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


@contextlib.contextmanager
def _held(folder: Directory, name: str) -> Iterator[None]:
    """Holds a lock that others only try, to see whether it is held."""
    with _opened(folder, name) as file:
        _taken_within(file.descriptor, 0)
        file.ours = True
        yield


@contextlib.contextmanager
def _try(folder: Directory, name: str) -> Iterator[bool]:
    """Tries to take a lock, without waiting; gives whether it did."""
    with _opened(folder, name) as file:
        try:
            # Where another file stands in its place, its last holder has removed this one.
            file.ours = lock_descriptor(file.descriptor, blocking=False) and file.is_there()
        except OSError:
            file.ours = True  # a file that nobody can lock is nobody's
            raise
        yield file.ours


@dataclass
class _LockFile:
    """The open file of a lock; where it is `ours` it is removed in the end."""

    folder: Directory
    name: str
    descriptor: int
    ours: bool = False

    def is_there(self) -> bool:
        """Whether the name still is this file's."""
        try:
            return os.path.samestat(self.folder.stat(self.name), os.fstat(self.descriptor))
        except OSError:
            return False

    def close(self) -> None:
        """Closes the file. It is removed before, so that nobody else's is, or after where open files stay."""
        try:
            if self.ours and self.is_there():
                self._remove()
        finally:
            os.close(self.descriptor)
        if self.ours and directory.OPEN_FILES_STAY:  # so another holder's would
            self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            delete(self.folder, self.name, LOCKS)


def _opened(folder: Directory, name: str) -> contextlib.closing[_LockFile]:
    return contextlib.closing(_LockFile(folder, name, folder.open(name, os.O_RDWR | os.O_CREAT)))
