"""What the file of a segment must hold: a safetensors header that says exactly what the index says.

A header is read here and not by the library, with bounds, because it may come from anybody.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from engine.store.blobs.codec import Scheme, tensors_of

MOST_HEADER = 8 << 20  # bytes: the token ids of a segment are in it
_MOST_VALUES = 20_000  # a list of a few bytes takes a hundred of memory


class DamagedError(Exception):
    """A file is not what the index says; the message says how."""


def check(
    file: BinaryIO,
    size: int,
    scheme: Scheme,
    shape: tuple[int, ...],
    dtype: str,
    said: Mapping[str, str] | None = None,
) -> None:
    """Compares a file's header with what is said of it.

    Args:
        file: the file, at its first byte; no more than the header is read.
        size: the file's size in bytes.
        scheme: how keys and values are stored.
        shape: the shape of keys and of values, (layers, kv_heads, tokens, head_dim).
        dtype: their number format, a name of torch.
        said: strings that the file must not contradict where it describes itself, by name.

    Raises:
        DamagedError: they differ, or there is no header that can be read.
        OSError: it cannot be read.
    """
    try:
        length, found = read(file)
    except ValueError as error:
        raise DamagedError(f"its header cannot be read ({error})") from error
    notes = found.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise DamagedError("the notes in its header are no texts")
    for name, value in (said or {}).items():
        if notes.get(name, value) != value:
            raise DamagedError(f"it describes itself with another {name}")
    wanted = tensors_of(scheme, shape, dtype)
    if set(found) != set(wanted):
        held = ", ".join(sorted(found)) or "nothing"
        raise DamagedError(f"it holds {held} and should hold {', '.join(sorted(wanted))}")
    for name, (kind, sides) in wanted.items():
        given = found[name]
        there = (given.get("dtype"), given.get("shape")) if isinstance(given, dict) else (None, None)
        if there != (kind, list(sides)):
            raise DamagedError(f"its {name} are {there[0]} {there[1]} and should be {kind} {list(sides)}")
    _check_offsets([found[name].get("data_offsets") for name in wanted], size - 8 - length)


def read(file: BinaryIO) -> tuple[int, dict[str, Any]]:
    """Returns the length of a header and what it says.

    Raises:
        ValueError: there is none that can be read.
    """
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 0 < length <= MOST_HEADER:
        raise ValueError("it has no sensible length")
    text = file.read(length)
    if len(text) != length:
        raise ValueError("it is cut short")
    if sum(text.count(mark) for mark in (b",", b"[", b"{")) > _MOST_VALUES:
        raise ValueError("it says too much")
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return length, found


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses two members of one name, of which two readers may take different ones."""
    listed = list(pairs)
    found = dict(listed)
    if len(found) != len(listed):
        raise ValueError("it names something twice")
    return found


def _check_offsets(offsets: list[Any], size: int) -> None:
    """Tensors lie one behind the other and fill the rest of the file."""
    end = 0
    pairs = [pair for pair in offsets if isinstance(pair, list) and len(pair) == 2]
    if len(pairs) != len(offsets) or not all(type(place) is int for pair in pairs for place in pair):
        raise DamagedError("its header has places that are none")
    for start, stop in sorted(pairs):
        if start != end or stop < start:
            raise DamagedError("its header has tensors that overlap, or leave gaps")
        end = stop
    if end != size:
        raise DamagedError(f"its tensors end at {end} and its data at {size}")
