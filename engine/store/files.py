"""Files of segments: written whole or not at all, and verified before they are believed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
import torch
import xxhash
from torch import Tensor

from engine.store.codec import Scheme, pack, unpack

Verify = Literal["always", "first", "never"]
VERIFY: tuple[Verify, ...] = ("always", "first", "never")
NAME = re.compile(r"[0-9A-Za-z._-]{1,120}-[0-9a-f]{16}\.safetensors")
TEMPORARY = ".tmp"
_CHUNK = 8 << 20
_MOST_HEADER = 1 << 20


@dataclass(frozen=True)
class Entry:
    """What the index says of a file.

    Attributes:
        file: its name.
        bytes: its size.
        digest: of its content, xxh3 with 128 bits.
        dtype: of keys and values, a name of torch.
        scheme: how they are stored.
        shape: of each, [layers, kv_heads, tokens, head_dim].
    """

    file: str
    bytes: int
    digest: str
    dtype: str
    scheme: Scheme
    shape: tuple[int, ...]


def write(
    folder: Path, key: str, keys: Tensor, values: Tensor, scheme: Scheme, notes: dict[str, str]
) -> Entry:
    """Writes a segment's file: temporary name, flush to the disk, rename.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    data = safetensors.torch.save(pack(keys, values, scheme), {**notes, "key": key, "scheme": scheme})
    digest = xxhash.xxh3_128_hexdigest(data)
    name = new_name(key)
    place(folder, name, [data])
    dtype = str(keys.dtype).removeprefix("torch.")
    return Entry(name, len(data), digest, dtype, scheme, tuple(keys.shape))


def new_name(key: str) -> str:
    """A name that no other file has or had: who removes an evicted file never removes its successor."""
    return f"{key}-{uuid.uuid4().hex[:16]}.safetensors"


def place(
    folder: Path, name: str, pieces: Iterable[bytes], check: Callable[[Path], None] | None = None
) -> None:
    """Puts a whole file under a name, or nothing.

    Args:
        folder: of the files.
        name: of the file.
        pieces: its content, written one after the other.
        check: called with the written file before it gets its name; what it raises keeps it from that.

    Raises:
        OSError: it cannot be written.
    """
    temporary = folder / f".{uuid.uuid4().hex}{TEMPORARY}"
    try:
        with temporary.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(temporary)
        temporary.replace(folder / name)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def fault(path: Path, entry: Entry, *, content: bool) -> str | None:
    """Says what is wrong with a file, or None: its size, its header, and with `content` its digest.

    Raises:
        FileNotFoundError: there is none.
    """
    size = path.stat().st_size
    if size != entry.bytes:
        return f"it has {size} bytes and should have {entry.bytes}"
    wrong = _header_fault(path, entry)
    if wrong is None and content and digest_of(path) != entry.digest:
        return "its digest does not agree with the index"
    return wrong


def read(path: Path, entry: Entry) -> tuple[Tensor, Tensor]:
    """Keys and values of a file; where they are stored plainly they are mapped from it, page by page.

    Raises:
        OSError, safetensors.SafetensorError, RuntimeError: it cannot be read.
    """
    with safetensors.safe_open(path, framework="pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    return unpack(tensors, entry.scheme, entry.shape, getattr(torch, entry.dtype))


def expect_soon(paths: Sequence[tuple[Path, Entry]]) -> None:
    """Has the operating system read files ahead while something else goes on, layer by layer.

    Each layer of all files comes before the next layer of any.
    """
    with contextlib.ExitStack() as stack:
        opened = []
        for path, entry in paths:
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                opened.append((descriptor, entry))
        for layer in range(max((_layers(entry) for _, entry in opened), default=0)):
            for descriptor, entry in opened:
                if layer < _layers(entry):
                    _expect_layer(descriptor, entry, layer)


def _layers(entry: Entry) -> int:
    return entry.shape[0] if entry.scheme == "plain" and entry.shape else 1


def _expect_layer(descriptor: int, entry: Entry, layer: int) -> None:
    """Keys fill the first half of a plain file, values the second; each is cut into layers."""
    layers = _layers(entry)
    half = entry.bytes // (2 if layers > 1 else 1)
    for start in (0, half) if layers > 1 else (0,):
        with contextlib.suppress(OSError, AttributeError):
            offset = start + half * layer // layers
            os.posix_fadvise(descriptor, offset, half // layers + 1, os.POSIX_FADV_WILLNEED)


def digest_of(path: Path) -> str:
    """The digest of a file's content."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file.

    Raises:
        ValueError: it has none that can be read.
    """
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= _MOST_HEADER:
            raise ValueError("its header has no sensible length")
        found = json.loads(file.read(length))
    if not isinstance(found, dict):
        raise ValueError("its header is no object")
    return found


def _header_fault(path: Path, entry: Entry) -> str | None:
    try:
        found = header(path)
        shapes = {name: part.get("shape") for name, part in found.items() if name != "__metadata__"}
    except (ValueError, AttributeError) as error:
        return f"its header cannot be read ({error})"
    if not {"keys", "values"} <= set(shapes):
        return "it holds no keys and values"
    if entry.scheme == "plain" and entry.shape and shapes["keys"] != list(entry.shape):
        return f"its keys have the shape {shapes['keys']} and should have {list(entry.shape)}"
    return None
