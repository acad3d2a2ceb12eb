"""Files that are no PML: one diagnostic, and never one for something that is PML with mistakes."""

from __future__ import annotations

import pytest

from engine.pml import parse_prompt, parse_schema

MARKDOWN = "# Notes\n\n- [a](b) & <br>\n- `<T>`\n" * 40
OTHER = {
    "Markdown": MARKDOWN,
    "a footnote": "[1] says so.\n",
    "YAML": "prompts:\n  - 'Hello {{name}}'\n",
    "JSON": '{"messages": [{"role": "user", "content": "a < b & c"}]}',
    "JSON lines": '{"a": "<b>"}\n{"a": "&"}\n' * 20,
    "a list": '[\n  {"role": "user"}\n]',
    "Python": "from os import path\n\ndef f(a: list[int]) -> bool:\n    return a < b & c\n",
    "a program": "@schema('x')\ndef travel(p, a):\n    p.text('<b>')\n",
    "a template": "{% if a %}<b>{{ b }}</b>{% endif %}",
    "a page": "<!DOCTYPE html>\n<html><head><meta a=b><title>x</title><body>" + "<p>x<br>&nbsp;" * 50,
    "a page without its type": "<html>\n<p>x\n<p>y",
    "a feed": '<?xml version="1.0"?>\n<rss xmlns:a="b"><a:item>x</a:item></rss>',
    "a picture of XML": '<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>',
}
BINARY = {
    "a picture": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\xff",
    "an archive": b"PK\x03\x04\x14\x00\x08\xff" * 100,
    "a PDF": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" * 100,
    "anything": b"\xff\x00\x01\x02" * 5000,
}


@pytest.mark.parametrize("text", OTHER.values(), ids=OTHER)
@pytest.mark.parametrize("parse", [parse_schema, parse_prompt])
def test_what_is_no_pml_is_told_once(text: str, parse: object) -> None:
    assert callable(parse)
    for source in (text, text.encode(), b"\xef\xbb\xbf" + text.encode(), "\ufeff\n" + text):
        parsed = parse(source)
        assert [found.code for found in parsed.diagnostics] == ["E121"]
        assert parsed.diagnostics[0].hint.startswith(("pml import F", "<prompt"))
        assert parsed.diagnostics[0].hint in parsed.diagnostics[0].message
        assert parsed.tree is None


def test_a_bare_question_becomes_a_prompt_and_bare_text_an_imported_schema() -> None:
    (of_prompt,) = parse_prompt("Where?").diagnostics
    (of_schema,) = parse_schema("Where?").diagnostics
    assert of_prompt.message.endswith(', not PML; write it inside <prompt schema="…">…</prompt>')
    assert of_schema.hint == "pml import FILE --from text -o schema.pml"


@pytest.mark.parametrize("data", BINARY.values(), ids=BINARY)
def test_what_is_no_text_is_told_once(data: bytes) -> None:
    parsed = parse_schema(data)
    assert [found.code for found in parsed.diagnostics] == ["E101"]
    assert "not text" in parsed.diagnostics[0].message


@pytest.mark.parametrize(
    "source",
    [
        'Here it is:\n<schema name="s">x</schema>',
        "<tokyo/>\nWhere should I eat?",
        '<module name="m">x</module>',
        "<shema name='s'>x</shema>",
        "You are kind.\n<module name='m'>{{ x }}</module>",
        '<?xml version="1.0"?><!DOCTYPE schema><schema name="s" xmlns="x">x</schema>',
        "",
    ],
)
def test_pml_with_mistakes_is_pml(source: str) -> None:
    assert "E121" not in {found.code for found in parse_schema(source).diagnostics}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_told_with_and_without_its_mark(encoding: str) -> None:
    parsed = parse_schema('<schema name="s"><module name="m">é 東京</module></schema>'.encode(encoding))
    assert [found.code for found in parsed.diagnostics] == ["E101"]
    assert "UTF-16" in parsed.diagnostics[0].message
    assert parsed.tree is not None
    assert parsed.tree.module("m") is not None
