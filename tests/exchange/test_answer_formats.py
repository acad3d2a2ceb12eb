"""The format of an answer goes into requests to chat services and comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.exchange import export
from engine.exchange.from_messages import from_messages
from engine.pml.edit.writer import write_prompt
from engine.pml.tree.tree import AnswerFormat
from tests.pml.documents import prompt_tree, schema_tree

SCHEMA = '<schema name="s"><system>You answer.</system><module name="a"><user>Q</user></module></schema>'
TRIP = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
JSON = f'<answer-format type="json">{json.dumps(TRIP)}</answer-format>'
CHOICE = '<answer-format type="choice"><option value="yes"/><option value="no"/></answer-format>'
REGEX = '<answer-format type="regex">[a-z]+</answer-format>'
ANY = '<answer-format type="json"/>'
NAMED = {"type": "json_schema", "json_schema": {"name": "answer", "schema": TRIP}}
LEFT_OUT = "the answer format of the prompt is left out; the forms openai and anthropic have it"


def exported(form: str, element: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    found = export(form, schema_tree(SCHEMA), prompt_tree(f'<prompt schema="s">Is it?{element}</prompt>'))
    return json.loads(found.text), found.notes


@pytest.mark.parametrize(
    ("form", "element", "fields"),
    [
        ("openai", JSON, {"response_format": NAMED}),
        ("openai", ANY, {"response_format": {"type": "json_object"}}),
        ("openai", CHOICE, {"structured_outputs": {"choice": ["yes", "no"]}}),
        ("openai", REGEX, {"structured_outputs": {"regex": "[a-z]+"}}),
        ("anthropic", JSON, {"output_config": {"format": {"type": "json_schema", "schema": TRIP}}}),
    ],
)
def test_a_format_survives_a_request(form: str, element: str, fields: dict[str, Any]) -> None:
    body, _ = exported(form, element)
    assert {name: body[name] for name in fields} == fields
    found = from_messages(json.dumps(body), "s")
    assert found.prompt is not None
    assert found.prompt.format is not None
    given = prompt_tree(f"<prompt>Is it?{element}</prompt>").format
    assert given is not None
    same = found.prompt.format.kind, found.prompt.format.options
    assert same == (given.kind, given.options)
    if given.text:
        read = json.loads if given.kind == "json" else str
        assert read(found.prompt.format.text or "") == read(given.text)
    assert prompt_tree(write_prompt(found.prompt)).format == found.prompt.format


def test_what_a_service_lacks_is_noted() -> None:
    body, notes = exported("anthropic", CHOICE)
    assert "output_config" not in body
    assert any("a choice, is left out" in note for note in notes)
    assert any("OpenAI's own API refuses it" in note for note in exported("openai", REGEX)[1])
    prompt = prompt_tree(f'<prompt schema="s">Is it?{JSON}</prompt>')
    assert LEFT_OUT in export("text", schema_tree(SCHEMA), prompt).notes


@pytest.mark.parametrize(
    ("fields", "meant", "note"),
    [
        ({"text": {"format": {"type": "json_schema", "schema": TRIP}}}, "json", ""),
        ({"text": {"format": {"type": "text"}}}, None, ""),
        ({"output_format": {"type": "json_schema", "schema": TRIP}}, "json", ""),
        ({"guided_choice": ["a", "b"]}, "choice", ""),
        ({"structured_outputs": {"regex": "a", "choice": None}}, "regex", ""),
        ({"response_format": {"type": "json_schema", "schema": {"not": {}}}}, None, "`not` is not supported"),
        ({"response_format": {"type": "xml"}}, None, "its type is 'xml'"),
        ({"guided_choice": []}, None, "PML has no answer format 'choice'"),
        ({"text": {"format": {"type": "json_object"}, "verbosity": "low"}}, "json", "left out (settings"),
    ],
)
def test_a_format_is_imported_or_noted(fields: dict[str, Any], meant: str | None, note: str) -> None:
    body = {"messages": [{"role": "user", "content": "Is it?"}], **fields}
    found = from_messages(json.dumps(body), "s")
    assert found.prompt is not None
    answer: AnswerFormat | None = found.prompt.format
    assert (answer and answer.kind) == meant
    assert any(note in one for one in found.notes) if note else found.notes == ()
