"""The formatter: one form for each document, and nothing of its meaning lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from engine.pml import PromptError, bind, document_kind, parse_prompt, parse_schema
from engine.pml.edit.formatter import FormatError, format_source
from tests.drawing import EVERY
from tests.pml.documents import prompt_tree, schema_tree
from tests.pml.test_fuzz import ANY, PROMPT, SCHEMA

SAMPLES = sorted((Path(__file__).parents[2] / "sample_schemas").glob("*.pml"))


def tree(source: str) -> object:
    return parse_prompt(source).tree if document_kind(source) == "prompt" else parse_schema(source).tree


def check(source: str) -> str:
    """Formats, and checks what must hold for every document."""
    formatted = format_source(source)
    assert tree(formatted) == tree(source)
    assert format_source(formatted) == formatted
    return formatted


def inside(*lines: str) -> str:
    return "\n".join(('<schema name="s">', *lines, "</schema>", ""))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_samples_are_in_canonical_form(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert format_source(source) == source


@settings(max_examples=600 if EVERY else 40)
@given(source=ANY)
def test_any_document_is_formatted_whole_or_refused(source: str) -> None:
    faulty = any(found.code.startswith("E1") for found in parse_schema(source).diagnostics)
    if faulty or document_kind(source) is None:
        with pytest.raises(PromptError if faulty else FormatError):
            format_source(source)
    else:
        check(source)


def test_everything_at_once() -> None:
    assert check(SCHEMA).count("\n") == SCHEMA.count("\n")
    assert '<arg name="x">long &lt; text</arg>' in check(PROMPT)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("<module  name = 'a' ></module>", '  <module name="a"/>'),
        ("<module src='f' cache='false' name='a'/>", '  <module name="a" cache="false" src="f"/>'),
        ("<module name='a'>text</module>", '  <module name="a">text</module>'),
        ("<module name='a'> text </module>", '  <module name="a">text</module>'),
        ("<module name='a'>\n  text </module>", '  <module name="a">\n    text\n  </module>'),
        ("<module name='a'>one\n  two\n</module>", '  <module name="a">one\n  two\n  </module>'),
        (
            "<module name='a'>x</module><module name='b'>y</module>",
            '  <module name="a">x</module><module name="b">y</module>',
        ),
        (
            "<module name='a'>x</module> <module name='b'>y</module>",
            '  <module name="a">x</module> <module name="b">y</module>',
        ),
        ("x\n<module name='a'>y</module>z", '  x\n  <module name="a">y</module>z'),
        ("x <module name='a'>y</module>\n\n\n z", '  x <module name="a">y</module>\n\n  z'),
        (
            "<union><module name='a'>x</module> <module name='b'>y</module></union>\nz",
            '  <union>\n    <module name="a">x</module>\n    <module name="b">y</module>\n  </union>\n  z',
        ),
        ("<user>\n\n   Hi. \n</user>", "  <user>Hi.</user>"),
        ("<user>Hi\n  there.</user>", "  <user>\n    Hi\n      there.\n  </user>"),
        ("<scaffold modules=' a\n  b '/>", '  <scaffold modules="a b"/>'),
        ("<!-- one --><module name='a'/>", '  <!-- one -->\n  <module name="a"/>'),
        ("<module name='a'/> <!-- after -->", '  <module name="a"/> <!-- after -->'),
        ("<module name='a'/>\n\n\n\n<module name='b'/>", '  <module name="a"/>\n\n  <module name="b"/>'),
        (
            "<module name='a'>x<parameter length=' 3' name='p'/></module>",
            '  <module name="a">x<param name="p" len="3"/></module>',
        ),
    ],
)
def test_the_canonical_form(written: str, canonical: str) -> None:
    assert check(inside(written)) == inside(canonical)


def test_code_keeps_its_indentation_and_its_escapes() -> None:
    code = "<module name='c'>\n   def f():\n       return 1 &lt; 2\n\n   f()\n</module>"
    assert check(inside(code)) == inside(
        '  <module name="c">', "    def f():", "        return 1 &lt; 2", "", "    f()", "  </module>"
    )


def test_preserved_space_is_kept_to_the_character() -> None:
    kept = "<module name='a' xml:space='preserve'> x\t\n  <union> <module name='b'/>\n</union></module>"
    formatted = check(inside(kept))
    assert '> x\t\n  <union> <module name="b"/>\n</union></module>' in formatted


def test_comments_round_the_root_stay() -> None:
    source = "\ufeff<!-- before -->\r\n<schema name='a'>\r\nx</schema>  <!-- after -->"
    assert check(source) == '<!-- before -->\n<schema name="a">\n  x\n</schema>\n<!-- after -->\n'


def test_the_arguments_of_an_import_keep_their_order() -> None:
    assert check("<prompt><a z='1' name='2' length='3'/></prompt>") == (
        '<prompt>\n  <a z="1" name="2" length="3"/>\n</prompt>\n'
    )


def test_line_ends_in_values_survive() -> None:
    source = "<prompt><a x='1&#10;2&#9;3'/></prompt>"
    assert 'x="1&#10;2&#9;3"' in check(source)


def test_the_bound_text_stays() -> None:
    def parts(schema: str, prompt: str) -> list[object]:
        tree, asked = schema_tree(schema), prompt_tree(prompt)
        return [getattr(part, "text", None) or part.__class__ for part in bind(tree, asked).parts]

    assert parts(format_source(SCHEMA), format_source(PROMPT)) == parts(SCHEMA, PROMPT)


def test_a_broken_document_is_refused_with_its_faults() -> None:
    with pytest.raises(PromptError, match="E105"):
        format_source('<schema name="a"><module name="b"></schema>')


def test_another_root_is_refused() -> None:
    with pytest.raises(FormatError, match="'page'"):
        format_source("<page/>")


def test_names_may_be_wrong_while_it_is_formatted() -> None:
    assert check(inside("<module name='a b'/>")) == inside('  <module name="a b"/>')


def test_depth() -> None:
    count = 200
    source = '<schema name="a">' + '<module name="m">' * count + "x" + "</module>" * count + "</schema>"
    assert f'\n{"  " * 200}<module name="m">x</module>\n' in check(source)
