"""Segments out of a store into one file, and back into a store. `transfer` knows the file itself."""

from __future__ import annotations

import sqlite3
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import StoreError
from engine.store import files, locks, transfer
from engine.store.audit import Progress
from engine.store.transfer import Moved

if TYPE_CHECKING:
    from engine.store.store import Store


def export(store: Store, target: Path, schema: str | None, progress: Progress | None) -> Moved:
    """Writes the segments of a schema, or all of them, into one file.

    Raises:
        StoreError: there are none, or the file cannot be written.
    """
    rows = store.query("select * from segments order by created")
    labels = store.query("select key, schema, path from labels")
    if schema is not None:
        wanted = {label["key"] for label in labels if label["schema"] == schema}
        rows = [row for row in rows if row["key"] in wanted]
    if not rows:
        what = f"of schema {schema!r} " if schema is not None else ""
        raise StoreError(f"there are no segments {what}to export; pml cache list shows what there is.")
    for row in rows:
        row["token_ids"] = bytes(row["token_ids"]).hex()
        row["labels"] = [[la["schema"], la["path"]] for la in labels if la["key"] == row["key"]]
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}{files.TEMPORARY}")
    try:
        for done in transfer.write(temporary, store.files, rows):
            if progress is not None:
                progress(done, len(rows), rows[done - 1]["key"])
        temporary.replace(target)
    except OSError as error:
        raise StoreError(f"{str(target)!r} cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return Moved(len(rows), sum(row["bytes"] for row in rows))


def take_in(store: Store, source: Path, progress: Progress | None) -> Moved:
    """Takes the segments of an exported file in, each verified before it is entered.

    Raises:
        StoreError: the file is none of ours or damaged, or there is no room; what was taken in stays.
    """
    segments = size = known = 0
    for done, total, row, data in transfer.read(source):
        if progress is not None:
            progress(done, total, row["key"])
        if store.contains([row["key"]]):
            known += 1
            continue
        labels = [(str(schema), str(path)) for schema, path in row.pop("labels")]
        entered = {name: row[name] for name in transfer.FIELDS if name in row and name != "labels"}
        entered |= {"token_ids": bytes.fromhex(row["token_ids"]), "last_used": time.time(), "hits": 0}
        try:
            with locks.shared(store.folder / "writing.lock"):
                entered["file"] = files.new_name(row["key"])
                files.place(store.files, entered["file"], data)
                try:
                    gone = store.enter(entered, labels)
                except BaseException:
                    (store.files / entered["file"]).unlink(missing_ok=True)
                    raise
                store.discard(gone)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{source.name}: a segment could not be taken in: {error}") from error
        segments, size = segments + 1, size + row["bytes"]
    return Moved(segments, size, known)
