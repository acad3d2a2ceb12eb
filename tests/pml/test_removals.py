"""Remedies that take something away, and those of files: they do what they say, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.pml import Diagnostic, mended, parse_schema
from tests.pml.documents import errors
from tests.pml.documents import schema_diagnostics as of_schema

ADVICE = [
    ("W601", '<union><module name="a">x</module></union>', '<module name="a">x</module>'),
    ("W602", '<module name="a">x</module><union/>', '<module name="a">x</module>'),
    ("W606", '<module name="a">x</module><scaffold modules="a"/>', '<module name="a">x</module>'),
]


@pytest.mark.parametrize(("code", "source", "after"), ADVICE, ids=[code for code, _, _ in ADVICE])
def test_advice_to_remove_something_removes_it_and_no_more(code: str, source: str, after: str) -> None:
    written = f'<schema name="s">{source}</schema>'
    (fault,) = (found for found in of_schema(written) if found.code == code)
    assert mended(written, fault, of_schema) == f'<schema name="s">{after}</schema>'


@pytest.mark.parametrize("tag", ["<scaffold modules='a'>", "<scaffold modules='a'><!-- why -->"])
def test_nothing_is_removed_with_what_it_has_swallowed(tag: str) -> None:
    source = f"<schema name='s'><module name='a'>x</module>{tag}<user>Keep this.</user></schema>"
    for fault in of_schema(source):
        assert "Keep this." in (mended(source, fault, of_schema) or source)


def test_remedies_of_files_work(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("From a file.", encoding="utf-8")

    def diagnose(source: str) -> Sequence[Diagnostic]:
        return parse_schema(source, base=tmp_path).diagnostics

    def module(inside: str) -> str:
        return f'<schema name="s"><module name="m"{inside}</module></schema>'

    for code, written, after in (
        ("E208", ' src="texts\\a.txt">', ' src="texts/a.txt">'),
        ("E210", ' src="texts/a.txt">From here.', ">From here."),
    ):
        (fault,) = errors(diagnose(module(written)))
        assert fault.code == code
        assert mended(module(written), fault, diagnose, fault.fixes[0]) == module(after)
        assert errors(diagnose(module(after))) == []
