"""A schema's segments as one file for another machine, verified when they arrive.

The file is a plain tar: `manifest.json` with a row per segment, then the files of the segments.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from engine.errors import StoreError
from engine.store.codec import SCHEMES
from engine.store.files import NAME

MANIFEST = "manifest.json"
FORMAT = 1
_MOST_MANIFEST = 256 << 20
NUMBERS = ("bytes", "tokens", "created", "seconds")
TEXTS = ("key", "file", "digest", "token_ids", "dtype", "fingerprint", "model", "scope", "scheme", "shape")
FIELDS = (*NUMBERS, *TEXTS, "labels")
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Moved:
    """What an export or an import moved.

    Attributes:
        segments: how many.
        bytes: of their files.
        known: of those of an import, how many were there already.
    """

    segments: int
    bytes: int
    known: int = 0

    def to_json(self) -> dict[str, int]:
        """Returns the fields by name."""
        return asdict(self)


def write(target: Path, folder: Path, rows: list[dict[str, Any]]) -> Iterator[int]:
    """Writes rows and their files into a new file; yields after each of them.

    Raises:
        StoreError: a segment's file is gone.
        OSError: the target cannot be written.
    """
    manifest = json.dumps({"format": FORMAT, "segments": rows}, ensure_ascii=False).encode()
    with tarfile.open(target, "w") as tar:
        _add(tar, MANIFEST, manifest)
        for done, row in enumerate(rows, 1):
            try:
                data = (folder / row["file"]).read_bytes()
            except FileNotFoundError as error:
                raise StoreError(
                    f"the file of segment {row['key']} is gone; run pml cache verify --repair first"
                ) from error
            _add(tar, row["file"], data)
            yield done


def read(source: Path) -> Iterator[tuple[int, int, dict[str, Any], bytes]]:
    """Yields place, total, row and verified content of every segment of a file.

    Raises:
        StoreError: the file is none of ours, or a segment is not what its row says.
    """
    try:
        with tarfile.open(source, "r:") as tar:
            rows = _manifest(tar)
            by_file = {row["file"]: row for row in rows}
            for done, member in enumerate(_members(tar)):
                row = by_file.pop(member.name, None)
                opened = tar.extractfile(member)
                if row is None or opened is None or member.size != row["bytes"]:
                    raise StoreError(f"{source.name}: {member.name!r} is not what its manifest says")
                data = opened.read()
                if xxhash.xxh3_128_hexdigest(data) != row["digest"]:
                    raise StoreError(f"{source.name}: segment {row['key']} was damaged on its way")
                yield done, len(rows), row, data
            if by_file:
                raise StoreError(f"{source.name}: {len(by_file)} segments are missing; it was cut short")
    except (tarfile.TarError, EOFError) as error:
        raise StoreError(f"{str(source)!r} is no file of pml cache export, or was cut short") from error
    except OSError as error:
        raise StoreError(f"{str(source)!r} cannot be read: {error}") from error


def _manifest(tar: tarfile.TarFile) -> list[dict[str, Any]]:
    member = tar.next()
    opened = tar.extractfile(member) if member and member.name == MANIFEST and member.isfile() else None
    if member is None or opened is None or member.size > _MOST_MANIFEST:
        raise StoreError("the file does not begin with a manifest, so it is none of pml cache export")
    try:
        found = json.loads(opened.read())
        rows: list[dict[str, Any]] = found["segments"]
        if found["format"] > FORMAT:
            raise StoreError("the file is of a newer version of pml cache export; upgrade to read it")
        for row in rows:
            _require_row(row)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"the manifest cannot be read ({error})") from error
    return rows


def _require_row(row: dict[str, Any]) -> None:
    """Raises ValueError where a row is not what `FIELDS` means."""
    numbers = all(isinstance(row[name], int | float) and row[name] >= 0 for name in NUMBERS)
    texts = all(isinstance(row[name], str) for name in TEXTS)
    labels = all(isinstance(schema, str) and isinstance(path, str) for schema, path in row["labels"])
    shape = json.loads(row["shape"])
    sound = numbers and texts and labels and row["scheme"] in SCHEMES and row["dtype"] in DTYPES
    if not sound or not NAME.fullmatch(row["file"]) or not all(isinstance(n, int) for n in shape):
        raise ValueError(row["file"])


def _members(tar: tarfile.TarFile) -> Iterable[tarfile.TarInfo]:
    while (member := tar.next()) is not None:
        if not member.isfile():
            raise StoreError(f"{member.name!r} is no plain file")
        yield member


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
