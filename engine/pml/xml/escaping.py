"""Escapes texts and values for a document.

A `>` stays unescaped if XML allows it.
"""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape

_TEXT: Final = {"\r": "&#13;"}
_VALUE: Final = {"\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
_MARKS: Final = {'"': "&quot;", "'": "&apos;"}


def escaped_text(value: str) -> str:
    """Returns a text as the content of an element."""
    return escape(value, _TEXT).replace("&gt;", ">").replace("]]>", "]]&gt;")


def escaped_value(value: str, mark: str = '"') -> str:
    """Returns the value of an attribute, for use between two `mark`s (single or double quotes)."""
    return escape(value, _VALUE | {mark: _MARKS[mark]}).replace("&gt;", ">")
