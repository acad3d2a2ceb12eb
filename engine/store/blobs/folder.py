"""The folder of a store, held open: nothing outside it is reached, and nothing deleted but the store's own.

What it is opened and looked up by is `directory`'s. Nothing here knows the index.
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

QUARANTINE_BYTES = 1 << 28  # of damaged files that are kept to be looked at, beside the last one


class Folder:
    """The folder of a store.

    Args:
        path: the folder's path.
        root: the folder itself, held open.

    Attributes:
        path: the folder's path.
        patience: how many seconds a lock of another program is waited for; 0 after a wait that was in vain.
    """

    def __init__(self, path: Path, root: Directory) -> None:
        self.path = path
        self._parts: dict[str, Directory] = {"": root}
        self._lock = threading.Lock()
        self._left: set[str] = set()  # files to delete that somebody here or elsewhere still has open
        self.patience = locks.PATIENCE_SECONDS
        self._closed = weakref.finalize(self, _close, self._parts)

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Opens a folder, makes it where there is none, and keeps others from reading it.

        Raises:
            StoreError: it is neither empty nor a store, or it cannot be made or read.
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
        """Lets go of the folder, which must not be used afterwards."""
        if self._closed.alive:
            self._retry()
        self._closed()

    @property
    def root(self) -> Directory:
        """The folder itself."""
        return self._parts[""]

    def _settle(self, note: bytes) -> None:
        """Marks the folder as a store and opens its parts; where nothing can be written it stays as it is.

        Args:
            note: the text that the mark holds besides.
        """
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
        """A folder within.

        Raises:
            StoreError: it is a link, or no folder.
            OSError: it is not there and cannot be made.
        """
        with self._lock:
            if name not in self._parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        self.root.make(name)
                try:
                    found = self.root.inner(name)
                except OSError as error:
                    if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                        raise
                    raise StoreError(
                        f"{str(self.path / name)!r} is a link or no folder, so the store does not use it. "
                        "Put the whole cache folder elsewhere (--cache-dir, cache_dir), or remove this one."
                    ) from error
                self._parts[name] = found
            return self._parts[name]

    def _tighten(self) -> None:
        """Takes what an earlier version left open to others away from them, where it is ours to do."""
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

    # Reading

    @contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """Opens a segment's file for reading.

        Raises:
            FileNotFoundError: there is none.
            NotPlainError: it is a link, a folder, a pipe, or of a name that no segment has.
            OSError: it cannot be opened.
        """
        if not SEGMENT.fullmatch(name):
            raise NotPlainError(f"{name!r} is no name of a segment's file")
        part = self._part(FILES, make=False)
        if not stat.S_ISREG(part.stat(name).st_mode):
            raise NotPlainError("what stands in its place is no plain file")
        descriptor = part.open(name, os.O_RDONLY)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NotPlainError("what stands in its place is no plain file")
            yield descriptor
        finally:
            os.close(descriptor)

    def file(self, name: str) -> BinaryIO:
        """Opens a segment's file as an object; what it raises is as for `opened`, but `NotPlainError`.

        Raises:
            FileNotFoundError: there is none that is a plain file of the store.
            OSError: it cannot be opened.
        """
        try:
            with self.opened(name) as descriptor:
                return os.fdopen(os.dup(descriptor), "rb")
        except NotPlainError as error:
            raise FileNotFoundError(errno.ENOENT, str(error), name) from error

    def holds(self, path: Path) -> bool:
        """Whether a path is this folder, or leads into it, by whatever name.

        Raises:
            OSError: it cannot be looked at.
        """
        root, real = self.root.status(), path.resolve(strict=True)
        return any(os.path.samestat(root, folder.stat()) for folder in (real, *real.parents))

    def ours(self, part: str = FILES) -> dict[str, os.stat_result]:
        """The plain files of a part whose names the store gives."""
        return {name: status for name, status in self._listed(part) if status is not None}

    def foreign(self) -> list[str]:
        """What is in the folder and none of the store's; nobody here touches it."""
        beside = [name for name in self.root.names() if not claim.in_root(name)]
        within = [
            f"{part}/{name}" for part in IN_PART for name, status in self._listed(part) if status is None
        ]
        return sorted(beside + within)

    def _listed(self, part: str) -> list[tuple[str, os.stat_result | None]]:
        """Names in a part, with their status where they are the store's."""
        try:
            folder = self._part(part, make=False)
        except FileNotFoundError:
            return []
        found: list[tuple[str, os.stat_result | None]] = []
        for name in folder.names():
            try:
                status = folder.stat(name)
            except FileNotFoundError:
                continue
            plain = stat.S_ISREG(status.st_mode) and claim.matches(name, IN_PART[part])
            found.append((name, status if plain else None))
        return found

    # Writing

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A new segment's file, which gets its name when all of it is on the disk, or leaves nothing behind.

        Raises:
            OSError: it cannot be written.
        """
        if not SEGMENT.fullmatch(name):
            raise OSError(f"{name!r} is no name of a segment's file")
        try:
            with atomic.writing(self._part(FILES), name, mode=SEALED_FILE) as file:
                yield file
        except BaseException:
            self.remove([name])
            raise

    # Deleting

    def remove(self, names: Iterable[str], part: str = FILES) -> int:
        """Deletes plain files of names that the store gives; returns how many bytes they took.

        What cannot be deleted stays, with a log line. What may not be just now, because somebody has it
        open or mapped, is tried again at the next deletion, and at the next opening of the store.
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
        """Deletes what could not be deleted before, where it can be by now."""
        for name in list(self._left):
            try:
                delete(self._part(FILES, make=False), name, FILES)
            except FileNotFoundError:
                pass
            except OSError:
                continue
            self._left.discard(name)

    def set_aside(self, name: str) -> None:
        """Moves a damaged file into quarantine, and lets go of the oldest ones there.

        Raises:
            OSError: it cannot be moved.
        """
        source, target = self._part(FILES, make=False), self._part(QUARANTINE)
        if is_ours(source, name, FILES):
            source.move(name, target, name)
            self.trim_quarantine()

    def trim_quarantine(self) -> None:
        """Keeps the damaged files that came last, up to a size; the very last one whatever its size."""
        total, gone = 0, []
        came = sorted(self.ours(QUARANTINE).items(), key=lambda item: -item[1].st_ctime_ns)
        for place, (name, status) in enumerate(came):
            total += status.st_size
            if place and total > QUARANTINE_BYTES:
                gone.append(name)
        if gone:
            self.remove(gone, QUARANTINE)

    def set_index_aside(self) -> str:
        """Renames the index and what belongs to it; returns its new name.

        Raises:
            OSError: it cannot be renamed.
        """
        stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
        aside = f"{claim.INDEX}.damaged-{stamp}"
        for ending in ("-wal", "-shm", "-journal", ""):
            with contextlib.suppress(FileNotFoundError):
                self.root.move(f"{claim.INDEX}{ending}", self.root, f"{aside}{ending}")
        return aside

    # Between processes

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Holds the lock that every writer shares; only the first of several vain waits is paid.

        Raises:
            TimeoutError: another program holds it alone.
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
        """Tries to hold the lock of the writers alone; gives whether it does."""
        try:
            writers = self._part(LOCKS, make=False)
        except FileNotFoundError:
            writers = None
        return locks.alone((self.root, WRITING), writers)

    @contextmanager
    def compute_lock(self, key: str, patience: float) -> Iterator[bool]:
        """Waits for the turn to compute a segment; gives whether it had to wait.

        Where no lock can be made nobody waits: at worst two compute the same.
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
        """Takes the turn to compute a segment where nobody has it; gives whether it is taken.

        Where no lock can be made it is.
        """
        with contextlib.ExitStack() as stack:
            taken = True
            try:
                taken = stack.enter_context(locks.try_compute_lock(self._part(LOCKS), f"{key}.lock"))
            except (OSError, StoreError) as error:
                log.info("%s is computed without a lock: %s", key, error)
            yield taken


@contextmanager
def new_file(target: Path, *, replace: bool = False) -> Iterator[BinaryIO]:
    """A file of the user's own choice that is written whole, or not at all.

    Args:
        target: the file.
        replace: whether a plain file that is there goes when the new one is whole.

    Raises:
        FileExistsError: it is there, and is not to be replaced.
        NotPlainError: it is there and no plain file.
        OSError: it cannot be written; what was there stays.
    """
    beside = Directory.at(target.parent)
    try:
        _require_free(beside, target.name, replace)
        with atomic.writing(beside, target.name, replace=replace) as file:
            yield file
            _require_free(beside, target.name, replace)
    finally:
        beside.close()


def _require_free(beside: Directory, name: str, replace: bool) -> None:
    try:
        status = beside.stat(name)
    except FileNotFoundError:
        return
    if not replace:
        raise FileExistsError(errno.EEXIST, "it is there already", name)
    if not stat.S_ISREG(status.st_mode):
        raise NotPlainError("what stands there is no plain file")


def _close(parts: dict[str, Directory]) -> None:
    while parts:
        parts.popitem()[1].close()
