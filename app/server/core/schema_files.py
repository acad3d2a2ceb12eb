"""Schemas of clients, stored as small files in a folder of the store.

A file's name is made of digests of the client and the schema name, so a name cannot point elsewhere. Writes
are atomic, and several servers may share the folder.
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
"""How long to wait for another program's write; on a busy disk one schema takes seconds."""


class FullError(StoreError):
    """A client exceeds the limit on schemas or on their total size."""


class SchemaFiles:
    """Schemas by client and name. Safe for threads and for several processes.

    Args:
        store: the folder of the store.
        clock: returns the seconds since 1970.
    """

    def __init__(self, store: Path, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._folder = SchemaFolder(store / SCHEMAS)
        self._lock = threading.Lock()

    def get(self, owner: str, name: str) -> KeptSchema | None:
        """Returns a schema of a client, or a shared one for ""; None if it is unknown or expired."""
        schema = self._folder.read(owner, name)
        return schema if schema is not None and schema.is_there(self.clock()) else None

    def size(self, owner: str, name: str) -> int:
        """Returns the size of a schema's file in bytes; 0 without a file."""
        try:
            return self._folder.file(owner, name).lstat().st_size
        except OSError:
            return 0

    def all(self, owner: str) -> list[Head]:
        """Returns the heads of a client's schemas, sorted by name, without reading their texts."""
        now = self.clock()
        return sorted(
            (head for head in self._folder.heads(owner) if head.is_there(now)), key=lambda head: head.name
        )

    def put(self, owner: str, name: str, text: str, terms: Terms) -> tuple[KeptSchema, KeptSchema | None]:
        """Stores a schema and replaces an earlier one of the same name.

        Returns:
            The stored schema and its predecessor.

        Raises:
            FullError: the client has too many.
            StoreError: the folder is not writable.
        """
        with self._writing():
            before = self.get(owner, name)
            if before is not None and before.text == text:
                schema = terms.put_on(before)
            else:
                schema = terms.put_on(KeptSchema(name, text, self.clock()))
                self._require_room(owner, schema)
            if schema != before:
                self._write(owner, schema)
            return schema, before

    def change(self, owner: str, name: str, terms: Terms) -> KeptSchema | None:
        """Changes a schema's lifetime; None if it is unknown. Raises StoreError if the write fails."""
        with self._writing():
            before = self.get(owner, name)
            if before is None:
                return None
            changed = terms.put_on(before)
            if changed != before:
                self._write(owner, changed)
            return changed

    def remove(self, owner: str, name: str) -> KeptSchema | None:
        """Deletes a schema and returns it; None if it is unknown. Raises StoreError if that fails."""
        with self._writing():
            before = self.get(owner, name)
            if before is not None:
                self._delete(owner, name)
            return before

    def settled(self, owner: str, name: str) -> KeptSchema | None:
        """Returns a schema after pending writes; None if it is unknown. Raises StoreError."""
        with self._writing():
            return self.get(owner, name)

    def sweep(self) -> list[Head]:
        """Deletes expired schemas of all clients and returns their heads.

        Schemas from other servers are noticed with a short delay.

        Raises:
            StoreError: the folder is not writable.
        """
        now = self.clock()
        expired = self._folder.over(now)
        deleted: list[Head] = []
        if not expired:
            return deleted
        with self._writing():
            for head in expired:
                latest = self._folder.again(head.owner, head.name)  # another server may have stored it again
                if latest is not None and not latest.is_there(now):
                    self._delete(head.owner, head.name)
                    deleted.append(latest)
        return deleted

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Locks the folder against other writers, in all processes."""
        with self._lock:
            folder = self._folder.path
            try:
                folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
                with sole_writer(folder / ".lock", PATIENCE_SECONDS):
                    yield
            except TimeoutError:
                raise StoreError(
                    "Another program is writing schemas to the store and does not finish. Try again."
                ) from None
            except OSError as error:
                raise StoreError(
                    f"The schema cannot be stored: {error.strerror or 'the disk rejects it'}."
                ) from error

    def _require_room(self, owner: str, new: KeptSchema) -> None:
        others = [head for head in self.all(owner) if head.name != new.name]
        if len(others) >= MOST:
            raise FullError(f"There are {MOST} schemas, the maximum. Delete one first.")
        size = sum(head.bytes for head in others) + len(new.text.encode())
        if size > MOST_BYTES:
            raise FullError(
                f"The schemas would have {size} bytes in total, more than {MOST_BYTES}. Delete one first."
            )

    def _write(self, owner: str, kept: KeptSchema) -> None:
        file = self._folder.file(owner, kept.name)
        with writing(file.parent, file.name) as out:
            out.write(written(kept, owner))
        self._folder.again(owner, kept.name)

    def _delete(self, owner: str, name: str) -> None:
        self._folder.file(owner, name).unlink(missing_ok=True)
        self._folder.again(owner, name)
