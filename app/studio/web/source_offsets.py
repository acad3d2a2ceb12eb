"""Converts text offsets between Python (code points) and browsers (UTF-16 code units)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable


def to_utf16(text: str) -> Callable[[int], int]:
    """Returns a function that converts a code point offset in `text` to UTF-16."""
    if text.isascii():
        return lambda offset: offset
    wide = [index for index, character in enumerate(text) if character > "\uffff"]
    return lambda offset: offset + bisect_left(wide, offset)


def from_utf16(text: str, offset: int) -> int:
    """Returns the code point offset of a UTF-16 offset in `text`."""
    before = text[:offset].encode("utf-16-le", "surrogatepass")[: 2 * offset]
    return len(before.decode("utf-16-le", "replace"))
