"""Segments out of a store into one file, and back into a store. `transfer` knows the file itself."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cache.store import contents, files, manifest, transfer
from engine.cache.store.audit import Progress
from engine.cache.store.eviction import NoRoomError
from engine.cache.store.folder import NotPlainError, new_file
from engine.cache.store.index import FailedIndexError
from engine.cache.store.manifest import Row
from engine.cache.store.transfer import Moved
from engine.errors import StoreError
from engine.prompt.recipe import TURN

if TYPE_CHECKING:
    from engine.cache.store.store import Store


def export(
    store: Store,
    target: Path,
    schema: str | None,
    progress: Progress | None,
    *,
    conversation: bool = False,
    replace: bool = False,
) -> Moved:
    """Writes the segments of a schema, or all of them, into one file; earlier turns only where asked.

    Raises:
        StoreError: there are none, or one cannot be read, or the file is there already or cannot be written.
    """
    listed, left_out, unfit = _listed(store, schema, conversation)
    if not listed:
        raise StoreError(_nothing(schema, left_out, unfit))
    names = {row.key: file for row, file in listed}
    rows = [row for row, _ in listed]
    try:
        if store.disk.holds(target.parent):
            raise StoreError(
                f"{str(target)!r} lies in the cache folder itself. Write the export somewhere else."
            )
        with new_file(target, replace=replace) as file:
            for done in transfer.write(file, rows, lambda row: store.disk.file(names[row.key])):
                if progress is not None:
                    progress(done, len(rows), rows[done - 1].key)
    except FileExistsError as error:
        raise StoreError(
            f"{str(target)!r} is there already. Name another file, or give --force to replace it."
        ) from error
    except NotPlainError as error:
        raise StoreError(
            f"{str(target)!r} is no plain file, so it is not replaced. Name another one."
        ) from error
    except OSError as error:
        raise StoreError(f"{str(target)!r} cannot be written: {error}") from error
    return Moved(len(rows), sum(row.bytes for row in rows), left_out=left_out, unfit=tuple(unfit))


def _nothing(schema: str | None, left_out: int, unfit: Sequence[str]) -> str:
    """Why there is nothing to export."""
    if unfit:
        more = f", and {len(unfit) - 1} more" if len(unfit) > 1 else ""
        return f"nothing can be exported: {unfit[0]}{more}. They are used here as before."
    if left_out:
        return (
            f"there are only {left_out} segments of conversations, which are not exported unless you ask "
            "(--conversation)."
        )
    what = f"of schema {schema!r} " if schema is not None else ""
    return f"there are no segments {what}to export; pml cache list shows what there is."


def _listed(
    store: Store, schema: str | None, conversation: bool
) -> tuple[list[tuple[Row, str]], int, list[str]]:
    """What is to be exported, the oldest first, with the names of its files.

    Returns:
        It; how much of conversations is left out; and what cannot travel, with the reason.
    """
    labels: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for label in store.query("select key, schema, path from labels"):
        labels[label["key"]].append((label["schema"], label["path"]))
    found: list[tuple[Row, str]] = []
    left_out, unfit = 0, []
    for given in store.query("select * from segments order by created"):
        key = given["key"]
        if schema is not None:  # what another schema calls it is nobody's business
            labels[key] = [label for label in labels[key] if label[0] == schema]
            if not labels[key]:
                continue
        if not conversation and labels[key] and all(path == TURN for _, path in labels[key]):
            left_out += 1
            continue
        try:
            row = _row_of(given, labels[key])
            manifest.line(row.to_json())
            found.append((row, given["file"]))
        except (ValueError, TypeError) as error:
            unfit.append(f"segment {key!r} cannot travel ({error})")
    return found, left_out, unfit


def _row_of(given: dict[str, Any], labels: Sequence[tuple[str, str]]) -> Row:
    """A line of the index as a row of an export."""
    taken = {name: given[name] for name in Row.__dataclass_fields__ if name in given}
    ids, shape = bytes(given["token_ids"]).hex(), json.loads(given["shape"])
    return manifest.row_of({**taken, "token_ids": ids, "shape": shape, "labels": labels})


def take_in(store: Store, source: Path, progress: Progress | None) -> Moved:
    """Takes the segments of an exported file in, each verified before it is entered.

    Raises:
        StoreError: the file is none of ours or damaged, or there is no room; what was taken in stays whole.
    """
    segments = size = known = 0
    with transfer.opened(source) as archive, store.using([row.key for row in archive.rows]):
        _require_room(store, archive)
        for row, pieces in archive.contents():
            if progress is not None:
                progress(segments + known, len(archive.rows), row.key)
            if store.contains([row.key]):
                known += 1
                continue
            try:
                _enter(store, source, row, pieces)
            except NoRoomError as error:
                kept = len(store.contains(row.key for row in archive.rows))
                would_do = store.pinned_bytes + sum(row.bytes for row in archive.rows)
                raise StoreError(
                    f"{archive.name!r}: {kept} of its {len(archive.rows)} segments are kept, "
                    f"and {error}. A budget of {would_do:,} bytes would do for all: raise it with pml cache "
                    "budget SIZE, and import the file again."
                ) from error
            segments, size = segments + 1, size + row.bytes
    return Moved(segments, size, known)


def _require_room(store: Store, archive: transfer.Archive) -> None:
    """Raises StoreError where budget or disk cannot take what is new, before any of it is read."""
    there = store.contains(row.key for row in archive.rows)
    sizes = [row.bytes for row in archive.rows if row.key not in there]
    needed, pinned, budget = sum(sizes), store.pinned_bytes, store.budget
    if needed > budget - pinned:
        kept = f", {pinned:,} of them pinned" if pinned else ""
        raise StoreError(
            f"{archive.name!r} holds {needed:,} bytes that are not here yet; the store may take {budget:,}"
            f"{kept}. Raise it with pml cache budget, or export one schema at a time."
        )
    growth = min(needed, max(0, budget - store.stats().bytes) + max(sizes, default=0))
    free = shutil.disk_usage(store.folder).free
    if growth > free:
        raise StoreError(
            f"{archive.name!r} needs {growth:,} bytes on the disk of {str(store.folder)!r}, which has "
            f"{free:,} left. Free some space, or choose another folder with --cache-dir."
        )


def _said(row: Row) -> dict[str, str]:
    """What the file of a row says of itself: the index is built again from it when it is lost."""
    return {
        "key": row.key,
        "scheme": row.scheme,
        "dtype": row.dtype,
        "fingerprint": row.fingerprint,
        "model": row.model,
        "scope": row.scope,
        "shape": json.dumps(list(row.shape)),
        "token_ids": base64.b64encode(row.token_ids).decode(),
    }


def _enter(store: Store, source: Path, row: Row, pieces: Iterator[bytes]) -> None:
    entered = {name: getattr(row, name) for name in Row.__dataclass_fields__ if name != "labels"}
    entered |= {
        "file": files.new_name(row.key),
        "tokens": row.tokens,
        "shape": json.dumps(row.shape),
        "last_used": time.time(),
        "hits": 0,
    }
    try:
        with store.disk.shared():
            with store.disk.writing(str(entered["file"])) as file:
                file.writelines(pieces)
                file.seek(0)
                wrong = contents.fault(file, row.bytes, row.scheme, row.shape, row.dtype, _said(row))
                if wrong is not None:
                    raise StoreError(
                        f"{source.name}: segment {row.key} cannot be used: {wrong}. Export it again."
                    )
            try:
                gone = store.enter(entered, row.labels)
            except BaseException:
                store.discard([entered["file"]])
                raise
            store.discard(gone)
    except NoRoomError:
        raise
    except (OSError, FailedIndexError) as error:
        raise StoreError(
            f"{source.name}: segment {row.key} could not be taken in: {error}. Those before it are here; "
            "import the file again for the rest."
        ) from error
