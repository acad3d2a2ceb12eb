"""Positions in a text, between Python (code points) and the browser (UTF-16 code units)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable


def to_utf16(text: str) -> Callable[[int], int]:
    """A function that turns a code point offset in `text` into a UTF-16 offset."""
    if text.isascii():
        return lambda offset: offset
    wide = [index for index, character in enumerate(text) if character > "\uffff"]
    return lambda offset: offset + bisect_left(wide, offset)
