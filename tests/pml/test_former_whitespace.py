"""Which schemas read otherwise than under the white-space rules of version 0.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.pml import parse_schema
from engine.pml.whitespace.version_0_1 import is_new

SAMPLES = Path(__file__).parents[2] / "sample_schemas"


def changed(body: str, base: Path | None = None) -> bool:
    source = f'<schema name="s">{body}</schema>'
    parsed = parse_schema(source, base=base)
    assert parsed.ok, parsed.diagnostics
    assert parsed.tree is not None
    return is_new(parsed.tree, parsed.source)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "Hello.",
        "\n  Hello.\n",
        "<user>\n  Hello.\n  How are you?\n</user>",
        '<module name="a">One.</module>',
        '\n  <module name="a">One.</module>\n',
        '<module name="a">One.</module><module name="b">Two.</module>',
        '<module name="a">I am <param name="p" len="2"/> here.</module>',
        '<module name="a">I am <param name="p" len="2"/> <param name="q" len="2"/>.</module>',
        '<module name="a">\n  <param name="p" len="2"/>\n</module>',
        '<module name="a" xml:space="preserve">\n One. </module>',
        '<user xml:space="preserve"> Read <module name="a"> One. </module>\n</user>',
        '<union>\n  <module name="a">One.</module>\n  <module name="b">Two.</module>\n</union>',
        "<system>Brief.</system>\n<user>Hello.</user>\n<!-- no text -->\n",
        "<system>\n</system>\n<user>\n  Hello.\n</user>",
        '<user><module name="a">A<!-- none -->B</module></user>',
    ],
)
def test_what_reads_as_before_is_not_new(body: str) -> None:
    assert not changed(body)


@pytest.mark.parametrize(
    "body",
    [
        '<module name="a">One.</module>\n<module name="b">Two.</module>',
        '<module name="a">One.</module> <module name="b">Two.</module>',
        '<module name="a">\n  One.\n</module>',
        '<module name="a"> One.</module>',
        '<module name="a"><![CDATA[One. ]]></module>',
        'Read.\n<module name="a">One.</module>',
        '<module name="a">One.</module> Read.',
        '<user>Read. <module name="a">One.</module></user>',  # the module got a seam, for what a prompt adds
        '<module name="a">I am\n<param name="p" len="2"/></module>',
        '<module name="a"><param name="p" len="2"/>\n<param name="q" len="2"/></module>',
        '<module name="a"><module name="b">Two.</module> <param name="p" len="2"/></module>',
        '<user><union><module name="a">One.</module></union>\n<module name="b">Two.</module></user>',
        '<module name="a" xml:space="preserve">One.</module>\n<module name="b">Two.</module>',
        '<module name="a">A\n<!-- a comment on a line of its own -->\n<module name="b">B</module></module>',
    ],
)
def test_what_reads_otherwise_is_new(body: str) -> None:
    assert changed(body)


def test_the_text_of_a_file_is_never_new_and_its_seam_is(tmp_path: Path) -> None:
    (tmp_path / "unit.py").write_text("\n  x = 1  ", encoding="utf-8")
    file = '<module name="unit" src="unit.py"/>'
    assert not changed(file, tmp_path)
    assert changed(f'{file}\n<module name="b">Two.</module>', tmp_path)


def test_a_schema_that_includes_another_was_never_read_before(tmp_path: Path) -> None:
    (tmp_path / "b.pml").write_text('<schema name="b"><module name="b">\n B</module></schema>', "utf-8")
    assert not changed('<include src="b.pml"/>\n<module name="a">\nA</module>', tmp_path)


def test_a_document_without_a_root_is_not_new() -> None:
    parsed = parse_schema('<schema name="s"/>')
    assert parsed.tree is not None
    assert not is_new(parsed.tree, "")


def test_the_deepest_document_is_looked_through() -> None:
    depth = 250
    body = "".join(f'<module name="m{number}"> ' for number in range(depth)) + "x" + "</module>" * depth
    assert changed(body)


def test_the_samples_are_new() -> None:
    source = (SAMPLES / "travel.pml").read_text(encoding="utf-8")
    parsed = parse_schema(source, base=SAMPLES)
    assert parsed.tree is not None
    assert is_new(parsed.tree, parsed.source)
