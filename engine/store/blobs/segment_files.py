"""Writes, opens and checks the files of segments."""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import time
import uuid
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import safetensors.torch
import torch
import xxhash
from torch import Tensor

from engine.base.segment import Segment
from engine.files.descriptor import expect, in_memory, mapped, read_at, read_whole
from engine.store.blobs import contents
from engine.store.blobs.claim import SEGMENT, is_own
from engine.store.blobs.codec import SCHEMES, Scheme, pack, unpack
from engine.store.blobs.contents import DamagedError
from engine.store.blobs.folder import Folder

Verify = Literal["always", "first", "never"]
VERIFY: tuple[Verify, ...] = ("always", "first", "never")
NAME = SEGMENT
COLUMNS = ("file", "bytes", "digest", "dtype", "scheme", "shape")  # of the index, as in Entry
DTYPES = ("float32", "bfloat16", "float16")
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "U8": torch.uint8}
_CHUNK = 8 << 20
_TICK_NS = 50_000_000  # between two changes of a file that its times distinguish
_NOTES = "__metadata__"
_SEAL = "seal"  # the digest of the file with zeros in place of the seal
_NO_SEAL = "0" * 32
_DESCRIBED = {
    *("key", "scheme", "dtype", "shape", "token_ids", "created", "seconds", _SEAL),
    *("schema", "path", "scope", "model", "fingerprint"),
}


@dataclass(frozen=True)
class Entry:
    """The index entry of a file.

    Attributes:
        file: the file's name.
        bytes: the file's size.
        digest: xxh3-128 of its content.
        dtype: number format of keys and values, as in torch.
        scheme: the storage format.
        shape: [layers, kv_heads, tokens, head_dim] of keys and of values.
    """

    file: str
    bytes: int
    digest: str
    dtype: str
    scheme: Scheme
    shape: tuple[int, ...]


def write(folder: Folder, segment: Segment, scheme: Scheme, notes: Mapping[str, str]) -> Entry:
    """Writes a segment's file. Its header has everything to rebuild the index, and further notes.

    Raises:
        OSError: it cannot be written; no file is left.
    """
    shape, dtype = tuple(segment.keys.shape), str(segment.keys.dtype).removeprefix("torch.")
    described = {
        **notes,
        "key": segment.key,
        "scheme": scheme,
        "dtype": dtype,
        "shape": json.dumps(list(shape)),
        "token_ids": base64.b64encode(array("i", segment.token_ids).tobytes()).decode(),
        _SEAL: _NO_SEAL,
    }
    data = safetensors.torch.save(pack(segment.keys, segment.values, scheme), described)
    place = data.index(_sealed(_NO_SEAL)) + len(_sealed(""))
    seal = xxhash.xxh3_128_hexdigest(data).encode()
    parts = (memoryview(data)[:place], seal, memoryview(data)[place + len(seal) :])
    digest = xxhash.xxh3_128()
    name = new_name(segment.key)
    with folder.writing(name) as file:
        for part in parts:
            digest.update(part)
            file.write(part)
    return Entry(name, len(data), digest.hexdigest(), dtype, scheme, shape)


def new_name(key: str) -> str:
    """Returns a name that is unique for ever, so that deleting an evicted file never hits its successor."""
    return f"{key}-{uuid.uuid4().hex[:16]}.safetensors"


def entry_of(key: object, row: Sequence[Any]) -> Entry:
    """Parses the columns file, bytes, digest, dtype, scheme and shape of an index row.

    Raises:
        ValueError: the row is invalid.
    """
    file, size, digest, dtype, scheme, shape = row
    if not is_own(key, file):
        raise ValueError(f"its row has the file {file!r}, which is not this segment's")
    if not isinstance(size, int) or size < 0 or not isinstance(digest, str):
        raise ValueError("its row has no size or no digest")
    if dtype not in DTYPES or scheme not in SCHEMES:
        raise ValueError(f"its row has the number format {dtype!r} and the scheme {scheme!r}")
    try:
        sizes = json.loads(shape) if shape else []
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError("its row has a shape that cannot be read") from error
    if not isinstance(sizes, list) or not all(type(n) is int and n > 0 for n in sizes):
        raise ValueError(f"its row has the shape {shape!r}")
    return Entry(file, size, digest, dtype, scheme, tuple(sizes))


class Opened:
    """An open file of a segment: one descriptor for checks and reads.

    Args:
        descriptor: the file's descriptor, open while this is in use.
        entry: its index entry.
        copied: read it into memory once, so that later changes have no effect.
    """

    def __init__(self, descriptor: int, entry: Entry, *, copied: bool = False) -> None:
        self._descriptor, self.entry = descriptor, entry
        self._copied, self._copy = copied, bytearray()

    @property
    def state(self) -> tuple[int, ...]:
        """A value that changes if the file was written to, as far as the file system shows it."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    @property
    def settled(self) -> bool:
        """Whether its last change is old enough for the next one to change `state`."""
        return time.time_ns() - os.fstat(self._descriptor).st_ctime_ns > _TICK_NS

    def check(self, *, content: bool) -> None:
        """Checks its size, its header, and with `content` its digest.

        Raises:
            DamagedError: it differs from the index.
            OSError, MemoryError: it cannot be read.
        """
        size = os.fstat(self._descriptor).st_size
        if size != self.entry.bytes:
            raise DamagedError(f"it has {size} bytes and should have {self.entry.bytes}")
        if self._copied and len(self._copy) != size:
            self._copy = read_whole(self._descriptor, size)
        self._check_header()
        if content and self._digest() != self.entry.digest:
            raise DamagedError("its digest does not agree with the index")

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values; mapped from the file unless it is copied or compressed.

        Raises:
            DamagedError: header or size differ from the index.
            OSError, MemoryError: they cannot be read.
        """
        self._check_header()
        length, header = contents.read(_head(self._bytes))
        start = 8 + length
        size = os.fstat(self._descriptor).st_size
        if not self._copied and size != self.entry.bytes:
            raise DamagedError(f"it has {size} bytes and should have {self.entry.bytes}")
        content = in_memory(self._copy) if self._copied else mapped(self._descriptor, size)
        tensors = {}
        for name, part in header.items():
            if name != _NOTES:
                begin, end = part["data_offsets"]
                flat = content[start + begin : start + end].view(_DTYPES[part["dtype"]])
                tensors[name] = flat.view(part["shape"])
        entry = self.entry
        try:
            return unpack(tensors, entry.scheme, entry.shape, getattr(torch, entry.dtype))
        except RuntimeError as error:
            if "DefaultCPUAllocator" not in str(error):
                raise
            raise MemoryError(str(error)) from error

    def _bytes(self, start: int, count: int) -> bytes:
        if self._copied:
            return bytes(self._copy[start : start + count])
        return read_at(self._descriptor, count, start)

    def _digest(self) -> str:
        return xxhash.xxh3_128_hexdigest(self._copy) if self._copied else digest_of(self._descriptor)

    def _check_header(self) -> None:
        entry = self.entry
        head = _head(self._bytes)
        contents.check(head, entry.bytes, entry.scheme, entry.shape, entry.dtype)


def described(descriptor: int, name: str) -> dict[str, Any]:
    """Returns the index row of an open file from its header, with `labels`.

    Raises:
        ValueError: the header is incomplete (as in earlier versions), or the file is damaged.
        DamagedError: the tensors differ from the header.
        OSError: it cannot be read.
    """
    head = _head(lambda at, count: read_at(descriptor, count, at))
    _, header = contents.read(head)
    notes = header.get(_NOTES)
    if not isinstance(notes, dict) or not set(notes) >= _DESCRIBED:
        raise ValueError("an earlier version wrote it with an incomplete header")
    place = head.getvalue().find(_sealed(notes[_SEAL])) + len(_sealed(""))
    if notes[_SEAL] != digest_of(descriptor, blank=(place, len(_NO_SEAL))):
        raise ValueError("it is damaged")
    token_ids = base64.b64decode(notes["token_ids"])
    size = os.fstat(descriptor).st_size
    row = [name, size, digest_of(descriptor), notes["dtype"], notes["scheme"], notes["shape"]]
    entry = entry_of(notes["key"], row)
    head.seek(0)
    contents.check(head, size, entry.scheme, entry.shape, entry.dtype)
    return {
        **dict(zip(COLUMNS, row, strict=True)),
        "key": notes["key"],
        "tokens": len(token_ids) // array("i").itemsize,
        "token_ids": token_ids,
        **{name: notes[name] for name in ("fingerprint", "model", "scope")},
        "created": _finite(notes["created"]),
        "seconds": _finite(notes["seconds"]),
        "labels": [(notes["schema"], notes["path"])],
    }


def says_it_is(descriptor: int, name: str) -> bool:
    """Whether the header of an open file has the key in its name, which others may use too.

    Raises:
        OSError: it cannot be read.
    """
    try:
        _, header = contents.read(_head(lambda at, count: read_at(descriptor, count, at)))
    except ValueError:
        return False
    notes = header.get(_NOTES)
    return isinstance(notes, dict) and is_own(notes.get("key"), name)


def _finite(text: str) -> float:
    number = float(text)
    if not 0 <= number < 1e11:
        raise ValueError(f"it has the time {text!r}")
    return number


def expect_soon(opened: Sequence[tuple[int, Entry]]) -> None:
    """Lets the operating system read open files ahead in the background, each layer of all files in turn."""
    for layer in range(max((_layers(entry) for _, entry in opened), default=0)):
        for descriptor, entry in opened:
            if layer < _layers(entry):
                _expect_layer(descriptor, entry, layer)


def _layers(entry: Entry) -> int:
    return entry.shape[0] if entry.scheme == "plain" and entry.shape else 1


def _expect_layer(descriptor: int, entry: Entry, layer: int) -> None:
    """Keys are the first half of a plain file, values the second; each has the layers in order."""
    layers = _layers(entry)
    half = entry.bytes // (2 if layers > 1 else 1)
    for start in (0, half) if layers > 1 else (0,):
        expect(descriptor, start + half * layer // layers, half // layers + 1)


def digest_of(descriptor: int, blank: tuple[int, int] = (0, 0)) -> str:
    """Returns the digest of an open file, with bytes (start, count) of `blank` read as ASCII zeros."""
    digest, at = xxhash.xxh3_128(), 0
    begin, count = blank
    while chunk := read_at(descriptor, begin - at if at < begin else _CHUNK, at):
        if at == begin and count:
            chunk = b"0" * count + chunk[count:]
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest()


def _head(read: Callable[[int, int], bytes]) -> io.BytesIO:
    """The header of a file, if its length is within bounds."""
    start = read(0, 8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    return io.BytesIO(start + (read(8, length) if length <= contents.MOST_HEADER else b""))


def _sealed(seal: str) -> bytes:
    """The seal as spelled in a header; a quote cannot appear like this within a string."""
    return f'"{_SEAL}":"{seal}'.encode()
