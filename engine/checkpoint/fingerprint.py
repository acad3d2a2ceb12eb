"""The identity of a checkpoint, from the contents of its files.

Every byte of every file that the loader reads is digested. Digests of large files are cached by path, device,
inode, size and both times. Only a change that preserves all of these would go unnoticed: a write through a
mapping whose time is not set yet, or a change below the file system.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xxhash

from engine.base.choices import Quantize
from engine.checkpoint.checkpoint import Checkpoint, Stamp, settled, stamp
from engine.files import atomic

log = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
"""Called with bytes done, total bytes, and a label."""

LARGE = 16 << 20  # bytes
BLOCK = 8 << 20
REMEMBERED = 1000  # files
_FORMAT = "checkpoint 2"
_ROUNDING = "rounded weights 1"  # increase it when quantized_weights.py rounds differently


def fingerprint(checkpoint: Checkpoint, memory: Path | None = None, progress: Progress | None = None) -> str:
    """Returns a digest (32 hexadecimal digits) of a checkpoint's weights, configuration and tokenizer.

    Args:
        checkpoint: the files to read.
        memory: a file that caches the digests of large files; None for none.
        progress: called with (bytes done, total bytes, label) while large files are read.

    Raises:
        OSError: a file cannot be read.
    """
    known = _Memory(memory)
    stamps = {name: stamp(checkpoint.folder / name) for name in checkpoint.names}
    large = {name for name, file_stamp in stamps.items() if file_stamp[2] > LARGE}
    places = {name: os.path.realpath(checkpoint.folder / name) for name in large}
    unread = [name for name in large if known.get(places[name], stamps[name]) is None]
    reading = _Reading(sum(stamps[name][2] for name in unread), progress)
    whole = hashlib.sha256(_FORMAT.encode())
    for name, label in zip(checkpoint.names, checkpoint.labels, strict=True):
        path, file_stamp = checkpoint.folder / name, stamps[name]
        digest = known.get(places[name], file_stamp) if name in large else None
        if digest is None:
            digest = digest_of(path, reading if name in large else None)
            if name in large and settled(file_stamp) and stamp(path) == file_stamp:
                known.put(places[name], file_stamp, digest)
        whole.update(f"\0{label}\0{digest}".encode("utf-8", "surrogateescape"))
    known.save()
    return whole.hexdigest()[:32]


def quantized_fingerprint(plain: str, quantize: Quantize) -> str:
    """Returns the digest of a checkpoint with rounded weights, whose keys and values differ."""
    if quantize == "none":
        return plain
    return hashlib.sha256(f"{_ROUNDING}\0{quantize}\0{plain}".encode()).hexdigest()[:32]


class _Reading:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress, self._done = total, progress, 0

    def report(self, more: int, what: str) -> None:
        self._done += more
        if self._progress is not None and self._total:
            self._progress(min(self._done, self._total), self._total, what)


def digest_of(path: Path, reading: _Reading | None) -> str:
    """Returns the digest of a file's bytes and reports each block to `reading`."""
    digest = xxhash.xxh3_128()
    buffer = memoryview(bytearray(BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            if reading is not None:
                reading.report(count, f"reading {path.name}")
    return digest.hexdigest()


class _Memory:
    """Cached digests of large files by stamp; the oldest are dropped. A damaged cache counts as empty."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._new: dict[str, tuple[Stamp, str]] = {}
        self._known = _remembered(path) if path is not None else {}

    def get(self, place: str, found: Stamp) -> str | None:
        entry = self._known.get(place)
        return entry[1] if entry is not None and entry[0] == found else None

    def put(self, place: str, found: Stamp, digest: str) -> None:
        self._known.pop(place, None)
        self._known[place] = self._new[place] = (found, digest)

    def save(self) -> None:
        """Writes new digests; concurrent changes of other processes stay."""
        if self._path is None or not self._new:
            return
        rows = {**{k: v for k, v in _remembered(self._path).items() if k not in self._new}, **self._new}
        newest = dict(list(rows.items())[-REMEMBERED:])
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic.writing(self._path.parent, self._path.name) as file:
                file.write(json.dumps(newest).encode())
        except OSError as error:
            log.info("cannot save digests in %s: %s", self._path, error)


def _remembered(memory: Path) -> dict[str, tuple[Stamp, str]]:
    try:
        with memory.open("rb") as file:
            content: Any = json.loads(file.read(REMEMBERED * 10_000))
    except (OSError, ValueError, RecursionError):
        return {}
    rows = content.items() if isinstance(content, dict) else ()
    return {place: (tuple(row[0]), row[1]) for place, row in rows if _sound(row)}


def _sound(row: Any) -> bool:
    match row:
        case [[int(), int(), int(), int(), int()], str(digest)]:
            return len(digest) == 32 and set(digest) <= set("0123456789abcdef")
    return False
