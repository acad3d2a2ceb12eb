"""Advisory file locks between processes, which end with their process.

The library has exclusive locks only. So each of many writers locks a file of its own, which it creates behind
a gate. An exclusive user locks the gate and checks that no writer's file is locked. On systems without file
locks nobody waits, and nobody gets the exclusive lock.
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
PATIENCE_SECONDS = 10.0  # of waiting for a process that excludes all writers
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"}
)
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextlib.contextmanager
def writer(gate: tuple[Directory, str], writers: Directory, patience: float) -> Iterator[None]:
    """Takes a lock that any number of writers may have, but none together with `alone`.

    Args:
        gate: folder and name of the exclusive lock's file.
        writers: the folder of the writers' files.
        patience: seconds to wait.

    Raises:
        TimeoutError: another process has the gate for longer.
        OSError: the files cannot be created.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as at_gate:
            if not _taken_within(at_gate.enter_context(_opened(*gate)).descriptor, patience):
                words = f"another program has the lock {gate[1]}, so nothing can be written"
                raise TimeoutError(errno.ETIMEDOUT, words)
            stack.enter_context(_held(writers, f"writing-{uuid.uuid4().hex}.lock"))
        yield


@contextlib.contextmanager
def alone(gate: tuple[Directory, str], writers: Directory | None) -> Iterator[bool]:
    """Tries to exclude all writers, without waiting; yields whether it does.

    Args:
        gate: folder and name of the exclusive lock's file.
        writers: the folder of the writers' files; None if it does not exist.

    Raises:
        OSError: the system has no locks, or the files cannot be opened.
    """
    with _opened(*gate) as shut:
        locked = lock_descriptor(shut.descriptor, blocking=False)
        yield locked and (writers is None or not _anybody(writers))


@contextlib.contextmanager
def compute_lock(folder: Directory, name: str, patience: float) -> Iterator[bool]:
    """Waits for a lock up to `patience` seconds; yields whether it had to wait. Deletes the file afterwards.

    After a timeout the process goes on without the lock, which only avoids duplicate work.

    Raises:
        OSError: the system has no locks, or the file cannot be created.
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
    """Tries to take such a lock without waiting; yields whether it did. Deletes the file afterwards.

    Raises:
        OSError: the system has no locks, or the file cannot be created.
    """
    with _try(folder, name) as locked:
        yield locked


def network_kind(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """Returns the kind of network file system of a folder; None for a local or unknown one."""
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
    """Whether a writer is active; deletes the files of dead ones."""
    for name in writers.names():
        if WRITERS.fullmatch(name):
            with _try(writers, name) as dead:
                if not dead:
                    return True
    return False


def _taken_within(descriptor: int, patience: float) -> bool:
    """Takes a lock within `patience` seconds; returns whether it did, or True without file locks."""
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
    """Takes a lock that others only test."""
    with _opened(folder, name) as file:
        _taken_within(file.descriptor, 0)
        file.ours = True
        yield


@contextlib.contextmanager
def _try(folder: Directory, name: str) -> Iterator[bool]:
    """Tries to take a lock without waiting; yields whether it did."""
    with _opened(folder, name) as file:
        try:
            # A new file under this name means that the last owner has deleted this one.
            file.ours = lock_descriptor(file.descriptor, blocking=False) and file.is_there()
        except OSError:
            file.ours = True  # a file that cannot be locked belongs to nobody
            raise
        yield file.ours


@dataclass
class _LockFile:
    """The open file of a lock; deleted at the end if it is `ours`."""

    folder: Directory
    name: str
    descriptor: int
    ours: bool = False

    def is_there(self) -> bool:
        """Whether the name still refers to this file."""
        try:
            return os.path.samestat(self.folder.stat(self.name), os.fstat(self.descriptor))
        except OSError:
            return False

    def close(self) -> None:
        """Closes the file, and deletes it first, or afterwards on systems where open files stay."""
        try:
            if self.ours and self.is_there():
                self._remove()
        finally:
            os.close(self.descriptor)
        if self.ours and directory.OPEN_FILES_STAY:  # as another owner's would
            self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            delete(self.folder, self.name, LOCKS)


def _opened(folder: Directory, name: str) -> contextlib.closing[_LockFile]:
    return contextlib.closing(_LockFile(folder, name, folder.open(name, os.O_RDWR | os.O_CREAT)))
