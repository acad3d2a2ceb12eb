"""Exports segments to one file, and imports them. `tar_archive` defines the file format."""

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
    """Exports segments of a store to files."""

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
        """Writes the segments of a schema, or all, to one file.

        `conversation` includes earlier turns of conversations. `progress` is called with (done, total, key).

        Raises:
            StoreError: there are no segments, one cannot be read, or the file exists or cannot be written.
        """
        listed, left_out, unfit = _listed(self._index, schema, conversation)
        if not listed:
            raise StoreError(_nothing(schema, left_out, unfit))
        names = {row.key: file for row, file in listed}
        rows = [row for row, _ in listed]
        with _in_words(target):
            if self._disk.holds(target.parent):
                raise StoreError(f"{str(target)!r} is inside the cache folder. Export to another folder.")
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
            f"{str(target)!r} exists already. Choose another file, or use --force to replace it."
        ) from error
    except NotPlainError as error:
        raise StoreError(
            f"{str(target)!r} is not a plain file, so it is not replaced. Choose another one."
        ) from error
    except OSError as error:
        raise StoreError(f"{str(target)!r} cannot be written: {error}") from error


def _nothing(schema: str | None, left_out: int, unfit: Sequence[str]) -> str:
    if unfit:
        more = f", and {len(unfit) - 1} more" if len(unfit) > 1 else ""
        return f"no segment can be exported: {unfit[0]}{more}. This store can still use them."
    if left_out:
        return f"there are only {left_out} segments of conversations; export them with --conversation."
    what = f"of schema {schema!r} " if schema is not None else ""
    return f"there are no segments {what}to export; pml cache list shows the stored segments."


def _listed(
    index: Index, schema: str | None, conversation: bool
) -> tuple[list[tuple[Row, str]], int, list[str]]:
    """The segments to export, oldest first.

    Returns:
        Rows with their files, the number of omitted turns, and why some segments cannot be exported.
    """
    labels: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for label in index.query("select key, schema, path from labels"):
        labels[label["key"]].append((label["schema"], label["path"]))
    rows: list[tuple[Row, str]] = []
    left_out, unfit = 0, []
    for line in index.query("select * from segments order by created"):
        key = line["key"]
        if schema is not None:  # an export of one schema omits the names in others
            labels[key] = [label for label in labels[key] if label[0] == schema]
            if not labels[key]:
                continue
        if not conversation and labels[key] and all(path == TURN for _, path in labels[key]):
            left_out += 1
            continue
        try:
            row = _row_of(line, labels[key])
            manifest.line(row.to_json())
            rows.append((row, line["file"]))
        except (ValueError, TypeError) as error:
            unfit.append(f"segment {key!r} cannot be exported ({error})")
    return rows, left_out, unfit


def _row_of(given: dict[str, Any], labels: Sequence[tuple[str, str]]) -> Row:
    fields = {name: given[name] for name in Row.__dataclass_fields__ if name in given}
    ids, shape = bytes(given["token_ids"]).hex(), json.loads(given["shape"])
    return manifest.row_of({**fields, "token_ids": ids, "shape": shape, "labels": labels})


class Importer:
    """Imports segments of other stores."""

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
        """Imports the segments of an exported file, each after verification.

        Raises:
            StoreError: the file is invalid or damaged, or there is no room; imported segments stay valid.
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
                    stored = len(self._catalog.contains(row.key for row in archive.rows))
                    would_do = self._settings.spared_bytes + sum(row.bytes for row in archive.rows)
                    raise StoreError(
                        f"{archive.name!r}: only {stored} of its {len(archive.rows)} segments are stored: "
                        f"{error}. A budget of {would_do:,} bytes has room for all: raise it with pml cache "
                        "budget SIZE, and import the file again."
                    ) from error
                segments, size = segments + 1, size + row.bytes
        return Moved(segments, size, known)

    def _require_room(self, archive: tar_archive.Archive) -> None:
        """Raises StoreError if budget or disk has no room, before reading any segment."""
        known = self._catalog.contains(row.key for row in archive.rows)
        sizes = [row.bytes for row in archive.rows if row.key not in known]
        needed, spared, budget = sum(sizes), self._settings.spared_bytes, self._settings.budget
        if needed > budget - spared:
            retained = f", {spared:,} of them pinned or in their time to live" if spared else ""
            raise StoreError(
                f"{archive.name!r} has {needed:,} bytes of new segments; the store's budget is {budget:,} "
                f"bytes{retained}. Raise it with pml cache budget, or export one schema at a time."
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
                f"{source.name}: segment {row.key} could not be imported: {error}. The segments before it "
                "are stored; import the file again for the rest."
            ) from error


def _said(row: Row) -> dict[str, str]:
    """The notes of a segment's file, from which a lost index can be rebuilt."""
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
