"""What is escaped is read back to the character, and looks as people write it."""

from __future__ import annotations

import lxml.etree as ET
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.pml.xml.entities import forbidden_character
from engine.pml.xml.escaping import escaped_text, escaped_value

TEXTS = st.text(st.one_of(st.sampled_from("&<>]'\"\n\t\r;"), st.characters(exclude_categories=["Cs"])))


@given(TEXTS.filter(lambda text: forbidden_character(text) is None))
def test_every_reader_of_xml_reads_the_text_back(text: str) -> None:
    for mark in "'\"":
        written = f"<a b={mark}{escaped_value(text, mark)}{mark}>{escaped_text(text)}</a>"
        element = ET.fromstring(written.encode())
        assert element.get("b") == text
        assert (element.text or "") == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a > b", "a > b"),
        ("a]]>b", "a]]&gt;b"),
        ("&gt;", "&amp;gt;"),
        ('it\'s "so"\n', 'it\'s "so"\n'),
        ("\r", "&#13;"),
    ],
)
def test_a_text_keeps_what_xml_lets_stand(text: str, written: str) -> None:
    assert escaped_text(text) == written


def test_a_value_escapes_its_own_mark_only() -> None:
    assert escaped_value('it\'s "so" > that\n') == "it's &quot;so&quot; > that&#10;"
    assert escaped_value('it\'s "so"', "'") == 'it&apos;s "so"'
