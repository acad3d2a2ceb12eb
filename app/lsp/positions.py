"""Offsets in a text, as the language server protocol counts them, and back.

Lines end where the protocol says they end, which is not where `str.splitlines` ends them.
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
    """Places in one text.

    Args:
        text: the text.
        codec: counts characters as the client does, in UTF-16 unless it asked for another way.
    """

    def __init__(self, text: str, codec: PositionCodec) -> None:
        self._index = LineIndex(text)
        self._lines: Sequence[str] = _LINE_END.split(text)
        self._length = len(text)
        self._codec = codec

    def position(self, offset: int) -> types.Position:
        """The position of an offset in code points."""
        line, column = self._index.position(offset)
        own = ServerTextPosition(line - 1, column - 1)
        return self._codec.position_to_client_units(self._lines, own)

    def offset(self, position: types.Position) -> int:
        """The offset of a position; one beyond the end of a line counts as that end."""
        if position.line >= len(self._lines):
            return self._length
        longest = self._codec.client_num_units(self._lines[position.line])
        inside = types.Position(position.line, min(position.character, longest))
        own = self._codec.position_from_client_units(self._lines, inside)
        return self._index.offset(own.line + 1, own.character + 1)

    def range(self, span: Span) -> types.Range:
        """The range of a span."""
        return types.Range(self.position(span.start), self.position(span.end))

    def span(self, span: types.Range) -> Span:
        """The span of a range."""
        return Span(self.offset(span.start), self.offset(span.end))

    def edits(self, edits: Iterable[Edit]) -> list[types.TextEdit]:
        """Edits in the form of the protocol, in the order of the text."""
        ordered = sorted(edits, key=lambda edit: edit.span.start)
        return [types.TextEdit(self.range(edit.span), edit.text) for edit in ordered]
