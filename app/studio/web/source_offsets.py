"""Converts text offsets from Python (code points) to browsers (UTF-16 code units)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable


def to_utf16(text: str) -> Callable[[int], int]:
    """Returns a function that converts a code point offset in `text` to UTF-16."""
    if text.isascii():
        return lambda offset: offset
    wide = [index for index, character in enumerate(text) if character > "\uffff"]
    return lambda offset: offset + bisect_left(wide, offset)
