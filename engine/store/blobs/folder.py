"""The open folder of a store. It reaches nothing outside, and deletes only the store's own files.

`directory` opens the files. This module does not use the index.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import threading
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from engine.base.errors import StoreError
from engine.files import atomic, directory
from engine.files.directory import PRIVATE_FOLDER, SEALED_FILE, Directory, NotPlainError, is_loose
from engine.store.blobs import claim, locks
from engine.store.blobs.claim import FILES, IN_PART, LOCKS, QUARANTINE, SEGMENT, TAG, TAG_TEXT, WRITING
from engine.store.blobs.deletion import delete, is_ours

log = logging.getLogger(__name__)

QUARANTINE_BYTES = 1 << 28  # the most bytes of quarantined files, besides the last one


class Folder:
    """The folder of a store.

    Args:
        path: the folder's path.
        root: the open folder.

    Attributes:
        path: the folder's path.
        patience: seconds to wait for another process's lock; 0 after a timeout.
    """

    def __init__(self, path: Path, root: Directory) -> None:
        self.path = path
        self._parts: dict[str, Directory] = {"": root}
        self._lock = threading.Lock()
        self._left: set[str] = set()  # files to delete that are still open
        self.patience = locks.PATIENCE_SECONDS
        self._closed = weakref.finalize(self, _close, self._parts)

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Opens a folder, creates it if needed, and makes it private.

        Raises:
            StoreError: it is neither empty nor a store, or it cannot be created or read.
        """
        standing = claim.require_ours(path)
        try:
            if standing == "none":
                path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            folder = cls(path, Directory.at(path))
        except OSError as error:
            raise StoreError(
                f"the cache folder {str(path)!r} cannot be used: {error}. "
                "Choose another (--cache-dir, cache_dir)."
            ) from error
        try:
            folder._settle(claim.KEPT_MODE if standing == "empty" else b"")
        except BaseException:
            folder.close()
            raise
        return folder

    def close(self) -> None:
        """Closes the folder, which must not be used afterwards."""
        if self._closed.alive:
            self._retry()
        self._closed()

    @property
    def root(self) -> Directory:
        """The folder itself."""
        return self._parts[""]

    def _settle(self, note: bytes) -> None:
        """Tags the folder as a store, with a note, and opens its parts. Skips a read-only folder."""
        with (
            contextlib.suppress(OSError),
            os.fdopen(self.root.open(TAG, os.O_WRONLY | os.O_CREAT), "wb") as file,
        ):
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and not status.st_size:
                file.write(TAG_TEXT + note)
        with contextlib.suppress(OSError):
            self._part(FILES)
        for name in (QUARANTINE, LOCKS):
            with contextlib.suppress(OSError):
                self._part(name, make=False)
        self._tighten()

    def _part(self, name: str, *, make: bool = True) -> Directory:
        """Opens a folder within.

        Raises:
            StoreError: it is a link, or no folder.
            OSError: it does not exist and cannot be created.
        """
        with self._lock:
            if name not in self._parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        self.root.make(name)
                try:
                    part = self.root.inner(name)
                except OSError as error:
                    if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                        raise
                    raise StoreError(
                        f"{str(self.path / name)!r} is a link or not a folder, so the store does not use "
                        "it. Remove it, or choose another cache folder (--cache-dir, cache_dir)."
                    ) from error
                self._parts[name] = part
            return self._parts[name]

    def _tighten(self) -> None:
        """Makes files of earlier versions private, if the mode is the store's to change."""
        loose = [part for part in self._parts.values() if is_loose(part.status())]
        if self.root not in loose:
            return
        for part in loose:
            for name in part.names():
                if claim.in_root(name) or any(claim.matches(name, p) for p in IN_PART.values()):
                    with contextlib.suppress(OSError):
                        part.tighten(name)
        if not claim.keeps_mode(self.path):
            with contextlib.suppress(OSError):
                self.root.tighten()

    @contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """Opens a segment's file for reading.

        Raises:
            FileNotFoundError: there is none.
            NotPlainError: it is a link, a folder, a pipe, or has another name than a segment.
            OSError: it cannot be opened.
        """
        if not SEGMENT.fullmatch(name):
            raise NotPlainError(f"{name!r} is not the name of a segment's file")
        part = self._part(FILES, make=False)
        if not stat.S_ISREG(part.stat(name).st_mode):
            raise NotPlainError("it is not a plain file")
        descriptor = part.open(name, os.O_RDONLY)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NotPlainError("it is not a plain file")
            yield descriptor
        finally:
            os.close(descriptor)

    def file(self, name: str) -> BinaryIO:
        """Opens a segment's file as an object.

        Raises:
            FileNotFoundError: there is no such plain file of the store.
            OSError: it cannot be opened.
        """
        try:
            with self.opened(name) as descriptor:
                return os.fdopen(os.dup(descriptor), "rb")
        except NotPlainError as error:
            raise FileNotFoundError(errno.ENOENT, str(error), name) from error

    def holds(self, path: Path) -> bool:
        """Whether a path is this folder or inside it, by any name.

        Raises:
            OSError: it cannot be read.
        """
        root, real = self.root.status(), path.resolve(strict=True)
        return any(os.path.samestat(root, folder.stat()) for folder in (real, *real.parents))

    def ours(self, part: str = FILES) -> dict[str, os.stat_result]:
        """The plain files of a part with the store's names."""
        return {name: status for name, status in self._listed(part) if status is not None}

    def foreign(self) -> list[str]:
        """The names in the folder that are not the store's; they stay unchanged."""
        root_names = [name for name in self.root.names() if not claim.in_root(name)]
        within = [
            f"{part}/{name}" for part in IN_PART for name, status in self._listed(part) if status is None
        ]
        return sorted(root_names + within)

    def _listed(self, part: str) -> list[tuple[str, os.stat_result | None]]:
        """The names in a part, with the status of the store's own files."""
        try:
            folder = self._part(part, make=False)
        except FileNotFoundError:
            return []
        listed: list[tuple[str, os.stat_result | None]] = []
        for name in folder.names():
            try:
                status = folder.stat(name)
            except FileNotFoundError:
                continue
            plain = stat.S_ISREG(status.st_mode) and claim.matches(name, IN_PART[part])
            listed.append((name, status if plain else None))
        return listed

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Yields a new segment's file, which gets its name once complete on disk, or is deleted.

        Raises:
            OSError: it cannot be written.
        """
        if not SEGMENT.fullmatch(name):
            raise OSError(f"{name!r} is not the name of a segment's file")
        try:
            with atomic.writing(self._part(FILES), name, mode=SEALED_FILE) as file:
                yield file
        except BaseException:
            self.remove([name])
            raise

    def remove(self, names: Iterable[str], part: str = FILES) -> int:
        """Deletes plain files with the store's names; returns their bytes.

        A failure is logged. A file that is open or mapped is deleted at the next deletion or opening.
        """
        self._retry()
        freed, failed = 0, []
        for name in names:
            try:
                freed += delete(self._part(part, make=False), name, part)
            except FileNotFoundError:
                continue
            except OSError as error:
                if part == FILES and directory.OPEN_FILES_STAY and error.errno == errno.EACCES:
                    self._left.add(name)
                    log.info("%s is in use, and is deleted later: %s", name, error)
                    continue
                failed.append(f"{name!r} ({error.strerror})")
        if failed:
            more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
            log.warning("%s%s in %s could not be deleted", failed[0], more, self.path / part)
        return freed

    def _retry(self) -> None:
        for name in list(self._left):
            try:
                delete(self._part(FILES, make=False), name, FILES)
            except FileNotFoundError:
                pass
            except OSError:
                continue
            self._left.discard(name)

    def set_aside(self, name: str) -> None:
        """Moves a damaged file to quarantine, and deletes the oldest there.

        Raises:
            OSError: it cannot be moved.
        """
        source, target = self._part(FILES, make=False), self._part(QUARANTINE)
        if is_ours(source, name, FILES):
            source.move(name, target, name)
            self.trim_quarantine()

    def trim_quarantine(self) -> None:
        """Deletes the oldest quarantined files over the size limit, never the last one."""
        total, excess = 0, []
        came = sorted(self.ours(QUARANTINE).items(), key=lambda item: -item[1].st_ctime_ns)
        for place, (name, status) in enumerate(came):
            total += status.st_size
            if place and total > QUARANTINE_BYTES:
                excess.append(name)
        if excess:
            self.remove(excess, QUARANTINE)

    def set_index_aside(self) -> str:
        """Renames the index and its journal files; returns its new name.

        Raises:
            OSError: it cannot be renamed.
        """
        stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
        aside = f"{claim.INDEX}.damaged-{stamp}"
        for ending in ("-wal", "-shm", "-journal", ""):
            with contextlib.suppress(FileNotFoundError):
                self.root.move(f"{claim.INDEX}{ending}", self.root, f"{aside}{ending}")
        return aside

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Takes the lock that all writers share; after a timeout the next calls do not wait.

        Raises:
            TimeoutError: another process has the exclusive lock.
        """
        with contextlib.ExitStack() as stack:
            try:
                gate = (self.root, WRITING)
                stack.enter_context(locks.writer(gate, self._part(LOCKS), self.patience))
            except TimeoutError:
                self.patience = 0.0
                raise
            self.patience = locks.PATIENCE_SECONDS
            yield

    def alone(self) -> contextlib.AbstractContextManager[bool]:
        """Tries to take the exclusive lock; yields whether it did."""
        try:
            writers = self._part(LOCKS, make=False)
        except FileNotFoundError:
            writers = None
        return locks.alone((self.root, WRITING), writers)

    @contextmanager
    def compute_lock(self, key: str, patience: float) -> Iterator[bool]:
        """Waits for the lock to compute a segment; yields whether it had to wait.

        Without file locks nobody waits, and two processes may compute the same segment.
        """
        name = f"{key}.lock"
        with contextlib.ExitStack() as stack:
            waited = False
            try:
                waited = stack.enter_context(locks.compute_lock(self._part(LOCKS), name, patience))
            except (OSError, StoreError) as error:
                log.info("%s is computed without a lock: %s", key, error)
            yield waited

    @contextmanager
    def try_compute_lock(self, key: str) -> Iterator[bool]:
        """Tries to take a segment's compute lock; yields whether it did, or True without file locks."""
        with contextlib.ExitStack() as stack:
            locked = True
            try:
                locked = stack.enter_context(locks.try_compute_lock(self._part(LOCKS), f"{key}.lock"))
            except (OSError, StoreError) as error:
                log.info("%s is computed without a lock: %s", key, error)
            yield locked


@contextmanager
def new_file(target: Path, *, replace: bool = False) -> Iterator[BinaryIO]:
    """Yields a file at the user's path that is written completely or not at all.

    Args:
        target: the file.
        replace: replace an existing plain file once the new one is complete.

    Raises:
        FileExistsError: it exists, and `replace` is False.
        NotPlainError: it exists and is no plain file.
        OSError: it cannot be written; an existing file stays.
    """
    folder = Directory.at(target.parent)
    try:
        _require_free(folder, target.name, replace)
        with atomic.writing(folder, target.name, replace=replace) as file:
            yield file
            _require_free(folder, target.name, replace)
    finally:
        folder.close()


def _require_free(beside: Directory, name: str, replace: bool) -> None:
    try:
        status = beside.stat(name)
    except FileNotFoundError:
        return
    if not replace:
        raise FileExistsError(errno.EEXIST, "it exists already", name)
    if not stat.S_ISREG(status.st_mode):
        raise NotPlainError("it is not a plain file")


def _close(parts: dict[str, Directory]) -> None:
    while parts:
        parts.popitem()[1].close()
