"""Places in a text as editors count them: in UTF-16, UTF-8 or characters, over every kind of line end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types
from pygls.workspace.position_codec import PositionCodec

from app.lsp.formatting import formatting
from app.lsp.positions import Positions
from engine.pml import Span, apply_edits
from engine.pml.edit.formatter import format_source

CODECS = {
    kind: PositionCodec(kind)
    for kind in (
        types.PositionEncodingKind.Utf8,
        types.PositionEncodingKind.Utf16,
        types.PositionEncodingKind.Utf32,
    )
}
UNITS = {
    types.PositionEncodingKind.Utf8: lambda text: len(text.encode("utf-8")),
    types.PositionEncodingKind.Utf16: lambda text: len(text.encode("utf-16-le")) // 2,
    types.PositionEncodingKind.Utf32: len,
}
TEXTS = st.text(alphabet="a東🗼é\u0301\u2028\x85\x0c\r\n", max_size=30)


@pytest.mark.parametrize("kind", CODECS)
def test_characters_beyond_ascii_count_as_the_client_counts_them(kind: types.PositionEncodingKind) -> None:
    positions = Positions("<a>\n  🗼 東京 <b/>", CODECS[kind])
    before = "  🗼 東京 "
    assert positions.position(len("<a>\n") + len(before)) == types.Position(1, UNITS[kind](before))


@pytest.mark.parametrize("kind", CODECS)
@given(text=TEXTS)
def test_there_and_back_is_where_one_was(kind: types.PositionEncodingKind, text: str) -> None:
    positions = Positions(text, CODECS[kind])
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] == "\r\n":
            continue  # no client has a place inside a line end
        place = positions.position(offset)
        assert positions.offset(place) == offset
        line = text[:offset].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert place == types.Position(len(line) - 1, UNITS[kind](line[-1]))


def test_places_that_are_none_are_the_nearest() -> None:
    positions = Positions("ab\r\ncd", CODECS[types.PositionEncodingKind.Utf16])
    assert positions.offset(types.Position(0, 99)) == 2
    assert positions.offset(types.Position(1, 99)) == 6
    assert positions.offset(types.Position(9, 0)) == 6
    assert positions.span(types.Range(types.Position(0, 1), types.Position(1, 1))) == Span(1, 5)
    assert Positions("", CODECS[types.PositionEncodingKind.Utf8]).offset(types.Position(0, 3)) == 0


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_formatting_is_one_edit_that_gives_the_canonical_form(newline: str) -> None:
    source = '<schema name="s">\n<module   name="m">東京 🗼</module>\n</schema>\n'.replace("\n", newline)
    edits = formatting(source)
    assert len(edits) == 1
    assert apply_edits(source, edits) == format_source(source)
    assert formatting(format_source(source)) == ()
    for end in (edits[0].span.start, edits[0].span.end):
        assert source[end - 1 : end + 1] != "\r\n"
