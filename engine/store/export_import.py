"""Segments out of a store into one file, and back into a store. `transfer` knows the file itself."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.base.errors import StoreError
from engine.files.directory import NotPlainError
from engine.prompt.recipe import TURN
from engine.store import manifest, tar_archive
from engine.store.audit import Progress
from engine.store.blobs import segment_files
from engine.store.blobs.contents import DamagedError
from engine.store.blobs.folder import Folder, new_file
from engine.store.blobs.protocol import Blobs
from engine.store.blobs.segment_files import COLUMNS, Entry
from engine.store.index.catalog import Catalog
from engine.store.index.database import FailedIndexError, Index
from engine.store.index.eviction import NoRoomError
from engine.store.index.in_use import Holds
from engine.store.index.settings import Settings
from engine.store.manifest import Row
from engine.store.tar_archive import Moved
from engine.store.writing import Writer

_ENTERED = {*Row.__dataclass_fields__} - {*COLUMNS, "labels"}


class Exporter:
    """Writes segments of a store into files for other stores.

    Args:
        index: the index of the store.
        disk: the store's folder, which no such file may lie in.
        blobs: the files.
    """

    def __init__(self, index: Index, disk: Folder, blobs: Blobs) -> None:
        self._index, self._disk, self._blobs = index, disk, blobs

    def write(
        self,
        target: Path,
        schema: str | None,
        progress: Progress | None,
        *,
        conversation: bool = False,
        replace: bool = False,
    ) -> Moved:
        """Writes the segments of a schema, or all of them, into one file; earlier turns only where asked.

        Args:
            target: the file.
            schema: the schema's name; None for all.
            progress: called with (done, total, key).
            conversation: whether earlier turns of conversations go along.
            replace: whether a plain file that is there is replaced.

        Raises:
            StoreError: there are none, one cannot be read, or the file is there already or cannot be written.
        """
        listed, left_out, unfit = _listed(self._index, schema, conversation)
        if not listed:
            raise StoreError(_nothing(schema, left_out, unfit))
        names = {row.key: file for row, file in listed}
        rows = [row for row, _ in listed]
        with _in_words(target):
            if self._disk.holds(target.parent):
                raise StoreError(
                    f"{str(target)!r} lies in the cache folder itself. Write the export somewhere else."
                )
            with new_file(target, replace=replace) as file:
                for done in tar_archive.write(file, rows, lambda row: self._blobs.content(names[row.key])):
                    if progress is not None:
                        progress(done, len(rows), rows[done - 1].key)
        return Moved(len(rows), sum(row.bytes for row in rows), left_out=left_out, unfit=tuple(unfit))


@contextmanager
def _in_words(target: Path) -> Iterator[None]:
    try:
        yield
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
    index: Index, schema: str | None, conversation: bool
) -> tuple[list[tuple[Row, str]], int, list[str]]:
    """What is to be exported, the oldest first, with the names of its files.

    Returns:
        The rows with their files; how much of conversations is left out; what cannot travel, with the reason.
    """
    labels: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for label in index.query("select key, schema, path from labels"):
        labels[label["key"]].append((label["schema"], label["path"]))
    found: list[tuple[Row, str]] = []
    left_out, unfit = 0, []
    for given in index.query("select * from segments order by created"):
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


class Importer:
    """Takes segments of other stores in.

    Args:
        disk: the folder of the store.
        blobs: the place of the files.
        catalog: the rows.
        settings: the settings of the store.
        holds: the keys that nothing evicts.
        writer: the writer that enters what comes.
    """

    def __init__(
        self,
        disk: Folder,
        blobs: Blobs,
        catalog: Catalog,
        settings: Settings,
        holds: Holds,
        writer: Writer,
    ) -> None:
        self._disk, self._blobs, self._catalog = disk, blobs, catalog
        self._settings, self._holds, self._writer = settings, holds, writer

    def take_in(self, source: Path, progress: Progress | None) -> Moved:
        """Takes the segments of an exported file in, each verified before it is entered.

        Raises:
            StoreError: the file is none of ours or damaged, or there is no room; what was taken in
                stays whole.
        """
        segments = size = known = 0
        with tar_archive.opened(source) as archive, self._holds.hold([row.key for row in archive.rows]):
            self._require_room(archive)
            for row, pieces in archive.contents():
                if progress is not None:
                    progress(segments + known, len(archive.rows), row.key)
                if self._catalog.contains([row.key]):
                    known += 1
                    continue
                try:
                    self._enter(source, row, pieces)
                except NoRoomError as error:
                    kept = len(self._catalog.contains(row.key for row in archive.rows))
                    would_do = self._settings.spared_bytes + sum(row.bytes for row in archive.rows)
                    raise StoreError(
                        f"{archive.name!r}: {kept} of its {len(archive.rows)} segments are kept, "
                        f"and {error}. A budget of {would_do:,} bytes would do for all: raise it with "
                        "pml cache budget SIZE, and import the file again."
                    ) from error
                segments, size = segments + 1, size + row.bytes
        return Moved(segments, size, known)

    def _require_room(self, archive: tar_archive.Archive) -> None:
        """Raises StoreError where budget or disk cannot take what is new, before any of it is read."""
        there = self._catalog.contains(row.key for row in archive.rows)
        sizes = [row.bytes for row in archive.rows if row.key not in there]
        needed, spared, budget = sum(sizes), self._settings.spared_bytes, self._settings.budget
        if needed > budget - spared:
            kept = f", {spared:,} of them pinned or kept for their time to live" if spared else ""
            raise StoreError(
                f"{archive.name!r} holds {needed:,} bytes that are not here yet; the store may take "
                f"{budget:,}{kept}. Raise it with pml cache budget, or export one schema at a time."
            )
        growth = min(needed, max(0, budget - self._catalog.bytes) + max(sizes, default=0))
        free = self._blobs.free
        if growth > free:
            raise StoreError(
                f"{archive.name!r} needs {growth:,} bytes on the disk of {str(self._disk.path)!r}, which has "
                f"{free:,} left. Free some space, or choose another folder (--cache-dir, cache_dir)."
            )

    def _enter(self, source: Path, row: Row, pieces: Iterator[bytes]) -> None:
        entered: dict[str, Any] = {name: getattr(row, name) for name in _ENTERED}
        entered |= {"tokens": row.tokens, "last_used": self._catalog.now, "hits": 0}
        entry = Entry(
            segment_files.new_name(row.key), row.bytes, row.digest, row.dtype, row.scheme, tuple(row.shape)
        )

        def write() -> Entry:
            self._blobs.receive(entry, pieces, _said(row))
            return entry

        try:
            self._writer.enter(write, entered, row.labels)
        except NoRoomError:
            raise
        except DamagedError as error:
            raise StoreError(
                f"{source.name}: segment {row.key} cannot be used: {error}. Export it again."
            ) from error
        except (OSError, FailedIndexError) as error:
            raise StoreError(
                f"{source.name}: segment {row.key} could not be taken in: {error}. Those before it are here; "
                "import the file again for the rest."
            ) from error


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
