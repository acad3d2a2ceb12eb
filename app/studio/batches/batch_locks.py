"""Marks running batches with one lock file each. The lock ends with its process."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.files.directory import Directory
from engine.store.blobs.locks import try_compute_lock

FOLDER = "answering"
_STEP_SECONDS = 0.02
_LOOKS = 3  # another studio may hold the lock briefly while it checks
_PATIENCE_SECONDS = 2.0  # waits for studios that check the lock


class Answering:
    """The batches that run in studios with one data folder.

    Empty if the system has no locks or the folder is read-only.

    Args:
        folder: the data folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    @contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Marks a batch as running for other studios."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder = stack.enter_context(contextlib.closing(Directory.at(self._folder)))
                until = time.monotonic() + _PATIENCE_SECONDS
                while not _taken(stack, folder, key) and time.monotonic() < until:
                    time.sleep(_STEP_SECONDS)
            yield

    def __contains__(self, key: str) -> bool:
        with contextlib.suppress(OSError), contextlib.closing(Directory.at(self._folder)) as folder:
            folder.stat(_file(key))
            for look in range(_LOOKS):
                with contextlib.ExitStack() as stack:
                    if _taken(stack, folder, key):
                        return False
                if look < _LOOKS - 1:
                    time.sleep(_STEP_SECONDS)
            return True
        return False


def _taken(stack: contextlib.ExitStack, folder: Directory, key: str) -> bool:
    """Tries to lock a batch until the stack closes; returns whether it succeeded."""
    with contextlib.ExitStack() as trying:
        if not trying.enter_context(try_compute_lock(folder, _file(key))):
            return False
        stack.push(trying.pop_all())
        return True


def _file(key: str) -> str:
    return f"{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}.lock"
