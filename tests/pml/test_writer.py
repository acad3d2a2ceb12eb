"""Trees survive being written and read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.pml import Module, Parsed, Prompt, Schema, Text, bind, parse_prompt, parse_schema
from engine.pml.edit import formatter, writer
from engine.pml.edit.formatter import format_source
from engine.pml.edit.writer import WriteError, write_prompt, write_schema
from tests.drawing import EVERY
from tests.pml.documents import schema_tree
from tests.pml.trees import NOWHERE, prompts, schemas, text


@settings(max_examples=150 if EVERY else 12)
@given(schemas())
def test_a_schema_survives(schema: Schema) -> None:
    source = write_schema(schema)
    parsed = parse_schema(source)
    assert parsed.ok, parsed.diagnostics
    assert parsed.tree == schema
    assert format_source(source) == source


@settings(max_examples=200 if EVERY else 12)
@given(st.data())
def test_a_prompt_survives(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    prompt = data.draw(prompts(schema))
    source = write_prompt(prompt)
    parsed = parse_prompt(source)
    assert parsed.ok, parsed.diagnostics
    assert parsed.tree == prompt
    assert bind(schema, prompt).ok
    assert format_source(source) == source


def leaf(name: str, *texts: str, seam: str = "") -> Module:
    children = (*(text(one) for one in texts), *([Text(seam, NOWHERE, seam=True)] if seam else []))
    return Module(name, name, children, True, None, NOWHERE, NOWHERE)


def test_plain_texts_are_laid_out() -> None:
    schema = Schema("s", (leaf("a", "One.", seam="\n"), leaf("b", "Two", " three.")), (), NOWHERE)
    assert write_schema(schema).splitlines() == [
        '<schema name="s">',
        '  <module name="a">One.</module>',
        '  <module name="b">Two three.</module>',
        "</schema>",
    ]


def test_the_text_of_a_file_stays_in_its_file() -> None:
    schema = Schema("s", (replace(leaf("a", "read\n"), src="a.txt"),), (), NOWHERE)
    assert write_schema(schema) == '<schema name="s">\n  <module name="a" src="a.txt"/>\n</schema>\n'


def test_only_texts_that_need_it_keep_their_space() -> None:
    schema = Schema("s", (leaf("a", "  One."), leaf("b", "Two.")), (), NOWHERE)
    source = write_schema(schema)
    assert '<module name="a" xml:space="preserve">  One.</module>' in source
    assert '<module name="b">Two.</module>' in source


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        (Schema("s", (leaf("a b"),), (), NOWHERE), "E301"),
        (Schema("s", (leaf("user"),), (), NOWHERE), "E303"),
        (Schema("s", (leaf("a"), leaf("a")), (), NOWHERE), "E302"),
        (Schema("s", (text("\0"),), (), NOWHERE), "E103"),
        (Schema("", (), (), NOWHERE), "E202"),
    ],
)
def test_what_cannot_be_written_says_why(schema: Schema, code: str) -> None:
    with pytest.raises(WriteError, match=code):
        write_schema(schema)


def test_a_prompt_that_cannot_be_written_says_why() -> None:
    with pytest.raises(WriteError, match="E103"):
        write_prompt(Prompt(None, (text("\x07"),), NOWHERE))


def test_two_hundred_levels() -> None:
    module = Module("m", "/".join("m" * 200), (text(" deep\n  er "),), True, None, NOWHERE, NOWHERE)
    for level in range(199, 0, -1):
        module = Module("m", "/".join("m" * level), (module,), True, None, NOWHERE, NOWHERE)
    schema = Schema("s", (module,), (), NOWHERE)
    assert parse_schema(write_schema(schema)).tree == schema


def test_a_seam_beyond_a_line_end_is_written_with_it() -> None:
    source = """<schema name="a"><union><module name="m" xml:space="preserve">M
</module><module name="n">N</module></union>

    <module name="o">O</module></schema>"""
    tree = schema_tree(source)
    assert parse_schema(write_schema(tree)).tree == tree


@pytest.mark.parametrize("filled", ["Text.", "Text.\n", ""])
def test_the_seam_of_a_union_is_written_beside_a_member_of_whole_turns(filled: str) -> None:
    brief = "<module name='brief'><system>Be brief.</system></module>"
    other = f"<module name='plain' xml:space='preserve'>{filled}</module>"
    source = f"<schema name='s'><union>{brief}{other}</union>\n\n<module name='b'>B.</module></schema>"
    schema = schema_tree(source)
    written = write_schema(schema)
    assert parse_schema(written).tree == schema


def test_a_document_is_read_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = "<module name='a'>A.</module>\n<module name='b'>B.</module>"
    schema = schema_tree(f"<schema name='s'>{modules}</schema>")
    reads: list[str] = []

    def counted(source: str) -> Parsed[Schema]:
        reads.append(source)
        return parse_schema(source)

    for module in (writer, formatter):
        monkeypatch.setattr(module, "parse_schema", counted)
    assert [writer.write_schema(schema)] == reads
