"""The format of an answer in a prompt: read, written, formatted, and no part of the prompt's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.pml import bind, parse_prompt, set_pick
from engine.pml.edit.form import Form
from engine.pml.edit.formatter import format_source
from engine.pml.edit.question_text import question_of, set_question
from engine.pml.edit.writer import self_contained_prompt, write_prompt
from engine.pml.tree.conversation import conversation
from engine.pml.tree.tree import AnswerFormat
from tests.pml.documents import prompt_tree, schema_tree

SCHEMA = '<schema name="s"><module name="a">First.</module> <module name="b">Second.</module></schema>'
WITHOUT = """<prompt schema="s">
  <a/>
  Is it so?
</prompt>
"""
JSON = """  <answer-format type="json">
    {
      "type": "object",
      "properties": {"so": {"type": "boolean"}}
    }
  </answer-format>
</prompt>
"""
CHOICE = """  <answer-format type="choice">
    <option value="yes &amp; no"/>
    <option value="no"/>
  </answer-format>
</prompt>
"""
REGEX = """  <answer-format type="regex">[A-Z]{3}|a &lt; b</answer-format>
</prompt>
"""
SCHEMA_TEXT = '{\n  "type": "object",\n  "properties": {"so": {"type": "boolean"}}\n}'
FILE = '<prompt><answer-format type="json" src="so.json"/>Is it?</prompt>'


def asked(element: str) -> str:
    return WITHOUT.replace("</prompt>\n", element)


@pytest.mark.parametrize(
    ("written", "meant", "grammar"),
    [
        (JSON, AnswerFormat("json", SCHEMA_TEXT), f"schema:{SCHEMA_TEXT}"),
        (CHOICE, AnswerFormat("choice", "", ("yes & no", "no")), 'choices:["yes & no", "no"]'),
        (REGEX, AnswerFormat("regex", "[A-Z]{3}|a < b"), "regex:[A-Z]{3}|a < b"),
        ('  <answer-format type="json"/>\n</prompt>\n', AnswerFormat("json"), "json"),
    ],
)
def test_a_format_is_read_written_and_no_text(written: str, meant: AnswerFormat, grammar: str) -> None:
    source, schema = asked(written), schema_tree(SCHEMA)
    tree = prompt_tree(source)
    assert (tree.format, tree.format and tree.format.grammar) == (meant, grammar)
    assert tree != prompt_tree(WITHOUT)
    plain = bind(schema, prompt_tree(WITHOUT))
    assert conversation(bind(schema, tree).parts) == conversation(plain.parts)
    assert bind(schema, tree).diagnostics == ()
    assert format_source(source) == write_prompt(tree) == source
    flat = source.replace("\n    <option", "<option").replace("\n  </answer-format>", "</answer-format>")
    assert format_source(flat) == source


def test_white_space_of_a_pattern_is_kept() -> None:
    written = '<prompt><answer-format type="regex" xml:space="preserve"> a</answer-format>Is it?</prompt>'
    tree = prompt_tree(written)
    assert tree.format == AnswerFormat("regex", " a")
    assert prompt_tree(write_prompt(tree)) == tree


def test_edits_keep_the_format() -> None:
    source, schema = asked(REGEX), schema_tree(SCHEMA)
    assert question_of(source, schema) == "Is it so?"
    changed = set_question(set_pick(source, schema, "b", True), schema, "It is not.")
    assert changed == source.replace("<a/>", "<a/>\n  <b/>").replace("Is it so?", "It is not.")
    cards = [(card.kind, card.name) for card in Form(source).cards]
    assert cards == [("prompt", "s"), ("import", "a"), ("text", ""), ("locked", "answer-format")]


def test_a_schema_is_read_from_a_file_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "so.json").write_text('{"type": "boolean"}')
    parsed = parse_prompt(FILE, base=tmp_path)
    assert parsed.ok
    assert parsed.tree is not None
    assert parsed.tree.format is not None
    assert parsed.tree.format.grammar == 'schema:{"type": "boolean"}'
    assert write_prompt(parsed.tree).count('src="so.json"') == 1
    alone = write_prompt(self_contained_prompt(parsed.tree))
    assert prompt_tree(alone).format == AnswerFormat("json", '{"type": "boolean"}')

    (tmp_path / "so.json").write_text('{"not": {}}')
    (fault,) = parse_prompt(FILE, base=tmp_path).diagnostics
    assert (fault.code, FILE[fault.span.start : fault.span.end]) == ("E215", "so.json")
    (tmp_path / "so.json").unlink()
    (fault,) = parse_prompt(FILE, base=tmp_path).diagnostics
    assert (fault.code, FILE[fault.span.start : fault.span.end]) == ("E209", "so.json")


def test_a_file_outside_the_folder_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.json").write_text("{}")
    (inner / "so.json").symlink_to(tmp_path / "secret.json")
    assert [one.code for one in parse_prompt(FILE, base=inner).diagnostics] == ["E208"]


def test_a_prompt_without_a_folder_cannot_read_a_file() -> None:
    parsed = parse_prompt(FILE)
    assert parsed.ok
    assert parsed.tree is not None
    (fault,) = bind(schema_tree(SCHEMA), parsed.tree).diagnostics
    assert (fault.code, "the prompt has no folder" in fault.message) == ("E209", True)
    assert FILE[fault.span.start : fault.span.end] == "so.json"
