"""Questions of a prompt: read, written, formatted, and no part of the prompt's text."""

from __future__ import annotations

from engine.pml import bind, set_pick
from engine.pml.edit.form import Form
from engine.pml.edit.formatter import format_source
from engine.pml.edit.question_text import question_of, set_question
from engine.pml.edit.writer import write_prompt
from engine.pml.tree.conversation import conversation
from engine.pml.tree.tree import Decide
from tests.pml.documents import prompt_tree, schema_tree

SCHEMA = '<schema name="s"><module name="a">First.</module> <module name="b">Second.</module></schema>'
WITHOUT = """<prompt schema="s">
  <a/>
  It is so.
</prompt>
"""
ASKED = """  <decide name="which" type="choice">
    Which is it,
      x or y?
    <option value="x &amp; y">both of them</option>
    <option value="z"/>
  </decide>
  <decide type="predicate">Is it so?</decide>
</prompt>
"""
WITH = WITHOUT.replace("</prompt>\n", ASKED)


def test_questions_are_read_and_are_no_text() -> None:
    schema, tree = schema_tree(SCHEMA), prompt_tree(WITH)
    assert tree.questions == (
        Decide("choice", "Which is it,\n  x or y?", (("x & y", "both of them"), ("z", "")), "which"),
        Decide("predicate", "Is it so?"),
    )
    assert tree.children == prompt_tree(WITHOUT).children
    bound = bind(schema, tree)
    assert conversation(bound.parts) == conversation(bind(schema, prompt_tree(WITHOUT)).parts)


def test_a_prompt_of_questions_only_asks_something() -> None:
    only = '<prompt schema="s"><a/><decide type="predicate">Is it?</decide></prompt>'
    assert bind(schema_tree(SCHEMA), prompt_tree(only)).diagnostics == ()


def test_questions_are_written_and_formatted() -> None:
    assert format_source(WITH) == WITH
    assert write_prompt(prompt_tree(WITH)) == WITH
    flat = WITH.replace("\n    <option", "<option").replace("\n  </decide>", "</decide>")
    assert format_source(flat) == WITH
    kept = '<prompt xml:space="preserve"> a <decide type="predicate"> b </decide></prompt>'
    assert prompt_tree(write_prompt(prompt_tree(kept))).questions == (Decide("predicate", " b "),)


def test_edits_keep_the_questions() -> None:
    schema = schema_tree(SCHEMA)
    assert question_of(WITH, schema) == "It is so."
    asked = set_question(set_pick(WITH, schema, "b", True), schema, "It is not.")
    assert asked == WITH.replace("<a/>", "<a/>\n  <b/>").replace("It is so.", "It is not.")
    cards = [(card.kind, card.name) for card in Form(WITH).cards]
    assert cards == [("prompt", "s"), ("import", "a"), ("text", ""), *[("locked", "decide")] * 2]
