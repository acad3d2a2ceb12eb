"""The folder of schemas: what its files say, each read again only where it has changed.

The folder is the truth. A file is known by its stamp: which file it is, its size, and when it was written.
Another server may have written it, or removed it.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from app.server.core.stored_schema import HEAD_BYTES, LARGEST, Head, KeptSchema, head_of, kept_of
from engine.files.directory import open_plain

log = logging.getLogger(__name__)

FILE_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{40}\.json")
_OFTEN_SECONDS = 1.0  # the folder is not looked through more often for what others have written
_RECENT_NS = 2 * 10**9  # a change as young may share its time with one to come
_TRIES = 100  # of a file that is exchanged while it is opened
_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True)
class _Known:
    """A file as it was read; without a head it is none of ours."""

    stamp: _Stamp
    head: Head | None


class SchemaFolder:
    """What stands in the folder. Safe for threads.

    Args:
        path: the folder, which need not be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, _Known] = {}
        self._soonest = float("inf")
        self._seen: tuple[int, int] | None = None  # the folder, when it was looked through
        self._seen_at = float("-inf")
        self._lock = threading.Lock()

    def file(self, owner: str, name: str) -> Path:
        """Returns where a client's schema stands, or would."""
        return self.path / f"{_client(owner)}-{_digest(name)[:40]}.json"

    def read(self, owner: str, name: str) -> KeptSchema | None:
        """Reads a schema; None where there is none that was written here."""
        file = self.file(owner, name)
        try:
            with os.fdopen(_opened(file), "rb") as held:
                data = held.read(LARGEST + 1)
            return _whole(file, data)[1]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            _warn(file, error)
            return None

    def heads(self, owner: str) -> list[Head]:
        """Returns what there is to say of a client's schemas."""
        return self._look(_client(owner))

    def over(self, now: float) -> list[Head]:
        """Returns the schemas of all clients whose time is over, as far as the folder was looked through."""
        self._look_if_changed()
        with self._lock:
            if now < self._soonest:
                return []
            heads = [one.head for one in self._known.values()]
        return [head for head in heads if head is not None and not head.is_there(now)]

    def again(self, owner: str, name: str) -> Head | None:
        """Reads a schema's head again; None where there is none."""
        file = self.file(owner, name)
        known = _known(file)
        with self._lock:
            if known is None:
                self._known.pop(file.name, None)
            else:
                self._known[file.name] = known
            self._count()
        return None if known is None else known.head

    def _look_if_changed(self) -> None:
        try:
            status = self.path.stat()
        except OSError:
            return
        if (status.st_ino, status.st_mtime_ns) == self._seen:
            return
        if time.monotonic() - self._seen_at < _OFTEN_SECONDS:
            return
        self._seen_at = time.monotonic()
        young = time.time_ns() - status.st_mtime_ns < _RECENT_NS
        self._look("")
        self._seen = None if young else (status.st_ino, status.st_mtime_ns)

    def _look(self, beginning: str) -> list[Head]:
        """Looks at the files whose names begin so, and reads those that have changed."""
        try:
            found = {one.name for one in self.path.iterdir() if one.name.startswith(beginning)}
        except OSError:
            found = set()
        with self._lock:
            before = dict(self._known)
        now: dict[str, _Known] = {}
        for name in found:
            if FILE_NAME.fullmatch(name) and (known := _known(self.path / name, before.get(name))):
                now[name] = known
        with self._lock:
            for name in [one for one in self._known if one.startswith(beginning) and one not in now]:
                if self._known[name] is before.get(name):
                    del self._known[name]
            for name, known in now.items():
                if self._known.get(name) is before.get(name):  # nobody has read it again meanwhile
                    self._known[name] = known
            self._count()
        return [known.head for known in now.values() if known.head is not None]

    def _count(self) -> None:
        times = (one.head.expires_at for one in self._known.values() if one.head is not None)
        self._soonest = min((at for at in times if at is not None), default=float("inf"))


def _known(file: Path, before: _Known | None = None) -> _Known | None:
    """A file as it is now, read only where it is not as before; None where there is none."""
    try:
        stamp = _stamp(file.lstat())
        if before is not None and before.stamp == stamp:
            return before
        with os.fdopen(_opened(file), "rb") as held:
            status = os.fstat(held.fileno())
            stamp = _stamp(status)
            data = held.read(HEAD_BYTES)
            head = head_of(data, status.st_size)
            if head is None:
                data += held.read(LARGEST + 1 - len(data))
                owner, kept = _whole(file, data)
                head = kept.head(owner)
        if _name(head.owner, head.name) != file.name:
            raise ValueError("it is not what was written")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        _warn(file, error)
        return _Known(stamp, None)
    return _Known(stamp, head)


def _whole(file: Path, data: bytes) -> tuple[str, KeptSchema]:
    """Reads a schema with its client.

    Raises:
        ValueError: the file is too large, or none that was written here.
    """
    found = kept_of(data) if len(data) <= LARGEST else None
    if found is None or _name(found[0], found[1].name) != file.name:
        raise ValueError("it is not what was written")
    return found


def _opened(file: Path) -> int:
    """Opens a file; where another one takes its place in that moment, that one."""
    for _ in range(_TRIES):
        try:
            return open_plain(file)
        except OSError as error:
            if error.errno != errno.ELOOP or file.is_symlink():
                raise
    return open_plain(file)


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _warn(file: Path, error: Exception) -> None:
    log.warning("the schema in %s cannot be read: %s", file, error)


def _name(owner: str, name: str) -> str:
    return f"{_client(owner)}-{_digest(name)[:40]}.json"


def _client(owner: str) -> str:
    return _digest(owner)[:16]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
