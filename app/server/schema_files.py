"""The schemas that clients have put, over restarts: a small file each, in a folder of the store.

A file is named by digests of its client and its schema's name, so no name leads anywhere else. What is
written is there whole or not at all, and any number of servers may share the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from filelock import FileLock, Timeout

from engine.atomic import writing
from engine.cache.store.claim import SCHEMAS
from engine.directory import PRIVATE_FOLDER, open_plain
from engine.errors import StoreError

log = logging.getLogger(__name__)

MOST = 256
MOST_BYTES = 64 * 1000 * 1000
_LARGEST = 32 * 1000 * 1000  # bytes of a file that is read
_PATIENCE_SECONDS = 10.0
FILE_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{40}\.json")


class FullError(StoreError):
    """A client has as many schemas, or as much text in them, as are kept."""


@dataclass(frozen=True)
class KeptSchema:
    """A schema that a client has put.

    Attributes:
        name: its name.
        text: its PML.
        created_at: when this text was put, in seconds since 1970.
        expires_at: when it goes; None for never.
        pinned: whether its segments are never evicted.
    """

    name: str
    text: str
    created_at: float
    expires_at: float | None = None
    pinned: bool = False

    @property
    def digest(self) -> str:
        """The digest of its text."""
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()


@dataclass(frozen=True)
class Terms:
    """What a client says of how long a schema stays; what it does not say stays as it is.

    Attributes:
        expires: whether `expires_at` is said.
        expires_at: when it goes, in seconds since 1970; None for never.
        pinned: whether it is pinned; None where that is not said.
    """

    expires: bool = False
    expires_at: float | None = None
    pinned: bool | None = None

    def put_on(self, kept: KeptSchema) -> KeptSchema:
        """Returns a schema under these terms."""
        expires_at = self.expires_at if self.expires else kept.expires_at
        pinned = kept.pinned if self.pinned is None else self.pinned
        return replace(kept, expires_at=expires_at, pinned=pinned)


class SchemaFiles:
    """Schemas by client and name. Safe for threads and for several processes.

    Args:
        store: the folder of the store.
        clock: the seconds since 1970.

    Attributes:
        clock: the seconds since 1970.
    """

    def __init__(self, store: Path, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._folder = store / SCHEMAS
        self._lock = threading.Lock()

    def get(self, owner: str, name: str) -> KeptSchema | None:
        """Returns a schema; None where there is none, or its time is over.

        Args:
            owner: the client, "" for all of them.
            name: its name.
        """
        found = self._read(self._file(owner, name))
        return found[1] if found is not None and _at(found[1], self.clock()) else None

    def size(self, owner: str, name: str) -> int:
        """Returns the bytes of a schema's file; 0 where there is none."""
        try:
            return self._file(owner, name).lstat().st_size
        except OSError:
            return 0

    def all(self, owner: str) -> list[KeptSchema]:
        """Returns a client's schemas, by name."""
        now = self.clock()
        found = [one for one in map(self._read, self._files(owner)) if one is not None]
        return sorted((kept for _, kept in found if _at(kept, now)), key=lambda kept: kept.name)

    def put(self, owner: str, name: str, text: str, terms: Terms) -> tuple[KeptSchema, KeptSchema | None]:
        """Keeps a schema, in place of the one of this name.

        Args:
            owner: the client.
            name: its name.
            text: its PML.
            terms: how long it stays.

        Returns:
            It, and what was there before.

        Raises:
            FullError: the client has too many.
            StoreError: the folder cannot be written.
        """
        with self._writing():
            before = self.get(owner, name)
            if before is not None and before.text == text:
                kept = terms.put_on(before)
            else:
                kept = terms.put_on(KeptSchema(name, text, self.clock()))
                self._require_room(owner, kept)
            if kept != before:
                self._write(owner, kept)
            return kept, before

    def change(self, owner: str, name: str, terms: Terms) -> KeptSchema | None:
        """Changes how long a schema stays; None where there is none.

        Raises:
            StoreError: the folder cannot be written.
        """
        with self._writing():
            before = self.get(owner, name)
            if before is None:
                return None
            kept = terms.put_on(before)
            if kept != before:
                self._write(owner, kept)
            return kept

    def remove(self, owner: str, name: str) -> KeptSchema | None:
        """Forgets a schema, and returns it; None where there is none.

        Raises:
            StoreError: the folder cannot be written.
        """
        with self._writing():
            before = self.get(owner, name)
            if before is not None:
                self._file(owner, name).unlink(missing_ok=True)
            return before

    def settled(self, owner: str, name: str) -> KeptSchema | None:
        """A schema when nobody is writing; None where there is none.

        Raises:
            StoreError: the folder cannot be written.
        """
        with self._writing():
            return self.get(owner, name)

    def sweep(self) -> list[tuple[str, KeptSchema]]:
        """Removes every client's schemas whose time is over; returns them, each with its client."""
        now = self.clock()
        found = [file for file in self._files() if (one := self._read(file)) and not _at(one[1], now)]
        gone: list[tuple[str, KeptSchema]] = []
        if not found:
            return gone
        with self._writing():
            for file in found:
                one = self._read(file)  # it may have been put again meanwhile
                if one is not None and not _at(one[1], now):
                    file.unlink(missing_ok=True)
                    gone.append(one)
        return gone

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Lets nobody else write, in any process."""
        with self._lock:
            try:
                self._folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
                with _alone(self._folder / ".lock"):
                    yield
            except Timeout:
                raise StoreError(
                    "Another program writes schemas beside the store and does not end. Try again."
                ) from None
            except OSError as error:
                raise StoreError(
                    f"The schema cannot be kept beside the store: {error.strerror or 'the disk refuses it'}."
                ) from error

    def _require_room(self, owner: str, new: KeptSchema) -> None:
        others = [kept for kept in self.all(owner) if kept.name != new.name]
        if len(others) >= MOST:
            raise FullError(f"There are {MOST} schemas, the most that are kept. Delete one first.")
        size = sum(len(kept.text.encode()) for kept in (*others, new))
        if size > MOST_BYTES:
            raise FullError(
                f"The schemas would have {size} bytes together, beyond {MOST_BYTES}. Delete one first."
            )

    def _file(self, owner: str, name: str) -> Path:
        return self._folder / f"{_digest(owner)[:16]}-{_digest(name)[:40]}.json"

    def _files(self, owner: str | None = None) -> list[Path]:
        """The files of a client, or of all."""
        beginning = "" if owner is None else _digest(owner)[:16]
        try:
            files = sorted(self._folder.iterdir())
        except OSError:
            return []
        return [file for file in files if FILE_NAME.fullmatch(file.name) and file.name.startswith(beginning)]

    def _write(self, owner: str, kept: KeptSchema) -> None:
        file = self._file(owner, kept.name)
        told = {"version": 1, "owner": owner, **asdict(kept)}
        with writing(file.parent, file.name) as out:
            out.write(json.dumps(told, ensure_ascii=False).encode())

    def _read(self, file: Path) -> tuple[str, KeptSchema] | None:
        """A schema with its client; None where there is none that was written here."""
        try:
            with os.fdopen(open_plain(file), "rb") as held:
                data = held.read(_LARGEST + 1)
            found = json.loads(data) if len(data) <= _LARGEST else None
            kept = _kept(found)
            owner = str(found.get("owner")) if isinstance(found, dict) else ""
            if kept is None or self._file(owner, kept.name) != file:
                raise ValueError("it is not what was written")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            log.warning("the schema in %s cannot be read: %s", file, error)
            return None
        return owner, kept


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Holds a lock of the system's on a file; nobody waits where it has none."""
    held = FileLock(lock, timeout=_PATIENCE_SECONDS, mode=0o600)
    with contextlib.suppress(NotImplementedError):
        held.acquire()
    try:
        yield
    finally:
        held.release()


def _at(kept: KeptSchema, now: float) -> bool:
    """Whether a schema is still there at a time."""
    return kept.expires_at is None or now < kept.expires_at


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _kept(found: Any) -> KeptSchema | None:
    """What a file says; None where it says something else."""
    if not isinstance(found, dict) or found.get("version") != 1:
        return None
    name, text, pinned = found.get("name"), found.get("text"), found.get("pinned")
    created_at, expires_at = found.get("created_at"), found.get("expires_at")
    if not (isinstance(name, str) and isinstance(text, str) and isinstance(pinned, bool)):
        return None
    if not _is_time(created_at) or not (expires_at is None or _is_time(expires_at)) or not _is_whole(text):
        return None
    return KeptSchema(name, text, created_at, expires_at, pinned)


def _is_time(given: object) -> TypeGuard[float]:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)


def _is_whole(text: str) -> bool:
    """Whether a text is made of whole characters."""
    with contextlib.suppress(UnicodeEncodeError):
        text.encode("utf-8")
        return True
    return False
