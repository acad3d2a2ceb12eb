"""The folder of schemas. It reads a file again only after a change.

The files are authoritative; another server may write or remove them. A stamp (inode, size and times) shows
whether a file changed.
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
_OFTEN_SECONDS = 1.0  # minimum interval between scans for other servers' changes
_RECENT_NS = 2 * 10**9  # a younger change may share its time stamp with a later one
_TRIES = 100  # to open a file during its replacement
_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True)
class _Known:
    """A file as last read; `head` is None for a foreign file."""

    stamp: _Stamp
    head: Head | None


class SchemaFolder:
    """The contents of a folder, which may be absent. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, _Known] = {}
        self._soonest = float("inf")
        self._seen: tuple[int, int] | None = None  # stamp of the folder at the last scan
        self._seen_at = float("-inf")
        self._lock = threading.Lock()

    def file(self, owner: str, name: str) -> Path:
        """Returns the path of a client's schema, even if it is absent."""
        return self.path / f"{_client(owner)}-{_digest(name)[:40]}.json"

    def read(self, owner: str, name: str) -> KeptSchema | None:
        """Reads a schema; None if there is no valid file."""
        file = self.file(owner, name)
        try:
            with os.fdopen(_opened(file), "rb") as opened:
                data = opened.read(LARGEST + 1)
            return _whole(file, data)[1]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            _warn(file, error)
            return None

    def heads(self, owner: str) -> list[Head]:
        """Returns the heads of a client's schemas."""
        return self._look(_client(owner))

    def over(self, now: float) -> list[Head]:
        """Returns the heads of expired schemas of all clients, as of the last scan."""
        self._look_if_changed()
        with self._lock:
            if now < self._soonest:
                return []
            heads = [known.head for known in self._known.values()]
        return [head for head in heads if head is not None and not head.is_there(now)]

    def again(self, owner: str, name: str) -> Head | None:
        """Reads a schema's head again; None without a file."""
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
        """Scans files with a name prefix and reads the changed ones."""
        try:
            names = {path.name for path in self.path.iterdir() if path.name.startswith(beginning)}
        except OSError:
            names = set()
        with self._lock:
            before = dict(self._known)
        now: dict[str, _Known] = {}
        for name in names:
            if FILE_NAME.fullmatch(name) and (known := _known(self.path / name, before.get(name))):
                now[name] = known
        with self._lock:
            for name in [key for key in self._known if key.startswith(beginning) and key not in now]:
                if self._known[name] is before.get(name):
                    del self._known[name]
            for name, known in now.items():
                if self._known.get(name) is before.get(name):  # unchanged by other threads
                    self._known[name] = known
            self._count()
        return [known.head for known in now.values() if known.head is not None]

    def _count(self) -> None:
        times = (known.head.expires_at for known in self._known.values() if known.head is not None)
        self._soonest = min((at for at in times if at is not None), default=float("inf"))


def _known(file: Path, before: _Known | None = None) -> _Known | None:
    """Returns the current state of a file, and reads it only after a change; None without a file."""
    try:
        stamp = _stamp(file.lstat())
        if before is not None and before.stamp == stamp:
            return before
        with os.fdopen(_opened(file), "rb") as opened:
            status = os.fstat(opened.fileno())
            stamp = _stamp(status)
            data = opened.read(HEAD_BYTES)
            head = head_of(data, status.st_size)
            if head is None:
                data += opened.read(LARGEST + 1 - len(data))
                owner, schema = _whole(file, data)
                head = schema.head(owner)
        if _name(head.owner, head.name) != file.name:
            raise ValueError("its content is invalid")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        _warn(file, error)
        return _Known(stamp, None)
    return _Known(stamp, head)


def _whole(file: Path, data: bytes) -> tuple[str, KeptSchema]:
    """Reads a schema with its client."""
    stored = kept_of(data) if len(data) <= LARGEST else None
    if stored is None or _name(stored[0], stored[1].name) != file.name:
        raise ValueError("its content is invalid")
    return stored


def _opened(file: Path) -> int:
    """Opens a file, even during its replacement."""
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
