"""The schemas that clients have put, over restarts: a small file each, in a folder of the store.

A file is named by digests of its client and its schema's name, so no name leads anywhere else. What is
written is there whole or not at all, and any number of servers may share the folder.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from app.server.core.schema_folder import SchemaFolder
from app.server.core.stored_schema import Head, KeptSchema, Terms, written
from app.server.http.file_lock import sole_writer
from engine.base.errors import StoreError
from engine.files.atomic import writing
from engine.files.directory import PRIVATE_FOLDER
from engine.store.blobs.claim import SCHEMAS

MOST = 256
MOST_BYTES = 64 * 1000 * 1000
PATIENCE_SECONDS = 30.0
"""So long one other program that writes is waited for: on a busy disk a single schema takes seconds."""


class FullError(StoreError):
    """A client has as many schemas, or as much text in them, as are kept."""


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
        self._folder = SchemaFolder(store / SCHEMAS)
        self._lock = threading.Lock()

    def get(self, owner: str, name: str) -> KeptSchema | None:
        """Returns a schema; None where there is none, or its time is over.

        Args:
            owner: the client, "" for all of them.
            name: its name.
        """
        found = self._folder.read(owner, name)
        return found if found is not None and found.is_there(self.clock()) else None

    def size(self, owner: str, name: str) -> int:
        """Returns the bytes of a schema's file; 0 where there is none."""
        try:
            return self._folder.file(owner, name).lstat().st_size
        except OSError:
            return 0

    def all(self, owner: str) -> list[Head]:
        """Returns what there is to say of a client's schemas, by name; no text is read for it."""
        now = self.clock()
        return sorted(
            (head for head in self._folder.heads(owner) if head.is_there(now)), key=lambda head: head.name
        )

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
                self._delete(owner, name)
            return before

    def settled(self, owner: str, name: str) -> KeptSchema | None:
        """A schema when nobody is writing; None where there is none.

        Raises:
            StoreError: the folder cannot be written.
        """
        with self._writing():
            return self.get(owner, name)

    def sweep(self) -> list[Head]:
        """Removes every client's schemas whose time is over; returns what there was to say of them.

        What another server has put is known of a little later.

        Raises:
            StoreError: the folder cannot be written.
        """
        now = self.clock()
        found = self._folder.over(now)
        gone: list[Head] = []
        if not found:
            return gone
        with self._writing():
            for head in found:
                latest = self._folder.again(head.owner, head.name)  # it may have been put again meanwhile
                if latest is not None and not latest.is_there(now):
                    self._delete(head.owner, head.name)
                    gone.append(latest)
        return gone

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Lets nobody else write, in any process."""
        with self._lock:
            folder = self._folder.path
            try:
                folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
                with sole_writer(folder / ".lock", PATIENCE_SECONDS):
                    yield
            except TimeoutError:
                raise StoreError(
                    "Another program writes schemas beside the store and does not end. Try again."
                ) from None
            except OSError as error:
                raise StoreError(
                    f"The schema cannot be kept beside the store: {error.strerror or 'the disk refuses it'}."
                ) from error

    def _require_room(self, owner: str, new: KeptSchema) -> None:
        others = [head for head in self.all(owner) if head.name != new.name]
        if len(others) >= MOST:
            raise FullError(f"There are {MOST} schemas, the most that are kept. Delete one first.")
        size = sum(head.bytes for head in others) + len(new.text.encode())
        if size > MOST_BYTES:
            raise FullError(
                f"The schemas would have {size} bytes together, beyond {MOST_BYTES}. Delete one first."
            )

    def _write(self, owner: str, kept: KeptSchema) -> None:
        file = self._folder.file(owner, kept.name)
        with writing(file.parent, file.name) as out:
            out.write(written(kept, owner))
        self._folder.again(owner, kept.name)

    def _delete(self, owner: str, name: str) -> None:
        self._folder.file(owner, name).unlink(missing_ok=True)
        self._folder.again(owner, name)
