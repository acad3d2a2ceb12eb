"""Converts offsets in a text to protocol positions and back.

Lines end as the protocol defines, which differs from `str.splitlines`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from lsprotocol import types
from pygls.workspace.position_codec import PositionCodec, ServerTextPosition

from engine.pml import Edit, LineIndex, Span

_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class Positions:
    """Positions of one text.

    Args:
        text: the text.
        codec: the client's encoding of positions, by default UTF-16.
    """

    def __init__(self, text: str, codec: PositionCodec) -> None:
        self._index = LineIndex(text)
        self._lines: Sequence[str] = _LINE_END.split(text)
        self._length = len(text)
        self._codec = codec

    def position(self, offset: int) -> types.Position:
        """Converts an offset in code points to a position."""
        line, column = self._index.position(offset)
        position = ServerTextPosition(line - 1, column - 1)
        return self._codec.position_to_client_units(self._lines, position)

    def offset(self, position: types.Position) -> int:
        """Converts a position to an offset; a position beyond a line means the line's end."""
        if position.line >= len(self._lines):
            return self._length
        longest = self._codec.client_num_units(self._lines[position.line])
        inside = types.Position(position.line, min(position.character, longest))
        own = self._codec.position_from_client_units(self._lines, inside)
        return self._index.offset(own.line + 1, own.character + 1)

    def range(self, span: Span) -> types.Range:
        """Converts a span to a range."""
        return types.Range(self.position(span.start), self.position(span.end))

    def span(self, span: types.Range) -> Span:
        """Converts a range to a span."""
        return Span(self.offset(span.start), self.offset(span.end))

    def edits(self, edits: Iterable[Edit]) -> list[types.TextEdit]:
        """Converts edits to the protocol's form, in text order."""
        ordered = sorted(edits, key=lambda edit: edit.span.start)
        return [types.TextEdit(self.range(edit.span), edit.text) for edit in ordered]
