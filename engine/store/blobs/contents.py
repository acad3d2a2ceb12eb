"""Checks the safetensors header of a segment's file against the index.

It parses the header with bounds instead of using the library, as the file may come from anyone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from engine.store.blobs.codec import Scheme, tensors_of

MOST_HEADER = 8 << 20  # bytes; it includes the token ids of a segment
_MOST_VALUES = 20_000  # each short list takes a hundred bytes of memory


class DamagedError(Exception):
    """A file differs from the index; the message says how."""


def check(
    file: BinaryIO,
    size: int,
    scheme: Scheme,
    shape: tuple[int, ...],
    dtype: str,
    said: Mapping[str, str] | None = None,
) -> None:
    """Compares a file's header with the index.

    Args:
        file: the file, at its first byte; only the header is read.
        size: the file's size in bytes.
        scheme: the storage format.
        shape: (layers, kv_heads, tokens, head_dim) of keys and of values.
        dtype: their number format, as in torch.
        said: notes that the file must not contradict, by name.

    Raises:
        DamagedError: they differ, or the header is invalid.
        OSError: it cannot be read.
    """
    try:
        length, header = read(file)
    except ValueError as error:
        raise DamagedError(f"its header cannot be read ({error})") from error
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise DamagedError("the notes in its header are not strings")
    for name, value in (said or {}).items():
        if notes.get(name, value) != value:
            raise DamagedError(f"its header has another {name}")
    wanted = tensors_of(scheme, shape, dtype)
    if set(header) != set(wanted):
        names = ", ".join(sorted(header)) or "nothing"
        raise DamagedError(f"it has {names} and should have {', '.join(sorted(wanted))}")
    for name, (kind, sides) in wanted.items():
        tensor = header[name]
        actual = (tensor.get("dtype"), tensor.get("shape")) if isinstance(tensor, dict) else (None, None)
        if actual != (kind, list(sides)):
            raise DamagedError(f"its {name} are {actual[0]} {actual[1]} and should be {kind} {list(sides)}")
    _check_offsets([header[name].get("data_offsets") for name in wanted], size - 8 - length)


def read(file: BinaryIO) -> tuple[int, dict[str, Any]]:
    """Returns the length of a header and its content.

    Raises:
        ValueError: the header is invalid.
    """
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 0 < length <= MOST_HEADER:
        raise ValueError("its length is invalid")
    text = file.read(length)
    if len(text) != length:
        raise ValueError("it is cut short")
    if sum(text.count(mark) for mark in (b",", b"[", b"{")) > _MOST_VALUES:
        raise ValueError("it has too many values")
    try:
        content = json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(content, dict):
        raise ValueError("it is not an object")
    return length, content


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Rejects duplicate names, which readers interpret differently."""
    listed = list(pairs)
    members = dict(listed)
    if len(members) != len(listed):
        raise ValueError("it has a duplicate name")
    return members


def _check_offsets(offsets: list[Any], size: int) -> None:
    """Checks that the tensors are contiguous and fill the file."""
    end = 0
    pairs = [pair for pair in offsets if isinstance(pair, list) and len(pair) == 2]
    if len(pairs) != len(offsets) or not all(type(place) is int for pair in pairs for place in pair):
        raise DamagedError("its header has invalid offsets")
    for start, stop in sorted(pairs):
        if start != end or stop < start:
            raise DamagedError("its header has tensors that overlap, or leave gaps")
        end = stop
    if end != size:
        raise DamagedError(f"its tensors end at {end} and its data at {size}")
