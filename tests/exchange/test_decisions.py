"""Questions go to OpenAI's Decisions API and come back."""

from __future__ import annotations

import json

import pytest

from engine.exchange import ExchangeError, export
from engine.exchange.decisions import read_questions
from engine.exchange.from_messages import from_messages
from engine.pml.tree.tree import Decide
from tests.pml.documents import prompt_tree, schema_tree

SCHEMA = '<schema name="s"><system>You decide.</system><module name="a"><user>Q</user></module></schema>'
PROMPT = """<prompt schema="s"> It is so.
  <decide name="mood" type="score">How is it?<option value="bad"/><option value="good">fine</option></decide>
  <decide name="which" type="choice">Which is it?<option value="x"/><option value="true"/></decide>
  <decide type="predicate">Is it?</decide>
</prompt>"""
QUESTIONS = [
    {
        "type": "score",
        "instructions": "How is it?",
        "name": "mood",
        "levels": [{"label": "bad"}, {"label": "good", "description": "fine"}],
    },
    {
        "type": "choice",
        "instructions": "Which is it?",
        "name": "which",
        "choices": [{"value": "x"}, {"value": "true"}],
    },
    {"type": "predicate", "instructions": "Is it?"},
]


def test_questions_survive_a_request() -> None:
    schema, prompt = schema_tree(SCHEMA), prompt_tree(PROMPT)
    exported = export("decisions", schema, prompt)
    body = json.loads(exported.text)
    assert body["questions"] == QUESTIONS
    assert body["input"] == [
        {"role": "system", "content": "You decide."},
        {"role": "user", "content": "It is so."},
    ]
    found = from_messages(exported.text, "s")
    assert found.prompt is not None
    assert found.prompt.questions == prompt.questions
    assert found.notes == ()
    dropped = export("openai", schema, prompt).notes
    assert "the questions of the prompt are left out; the form decisions has them" in dropped


def test_a_prompt_without_questions_is_no_request() -> None:
    with pytest.raises(ExchangeError, match="write a <decide>"):
        export("decisions", schema_tree(SCHEMA), prompt_tree("<prompt>It is so.</prompt>"))


JSON = {"type": "input_json", "data": {"order": 5, "state": "ü"}}


def test_json_in_a_request_becomes_text_as_on_the_server() -> None:
    body = {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "It is so."}, JSON]}],
        "questions": [
            {"type": "predicate", "instructions": [{"type": "input_text", "text": "Is it?"}, JSON]}
        ],
    }
    found = from_messages(json.dumps(body), "s")
    assert found.prompt is not None
    spelled = '{"order": 5, "state": "ü"}'
    assert found.prompt.questions[0].instructions == f"Is it?\n\n{spelled}"
    assert spelled in export("text", found.schema, found.prompt).text


@pytest.mark.parametrize(
    ("part", "question", "says"),
    [
        ({"type": "input_image", "image_url": "x"}, "predicate", "input_image"),
        ({"type": "input_json", "data": 5}, "predicate", "input_json"),
        ({"type": "input_text", "text": "a"}, "box", r"questions\[0\].type is 'box'"),
    ],
)
def test_what_the_server_refuses_is_no_import(part: object, question: str, says: str) -> None:
    content = [{"type": "input_text", "text": "It is so."}, part]
    body = {
        "input": [{"role": "user", "content": content}],
        "questions": [{"type": question, "instructions": "Is it?"}],
    }
    with pytest.raises(ExchangeError, match=says):
        from_messages(json.dumps(body), "s")


def test_questions_of_a_file() -> None:
    body = [{"type": "choice", "instructions": "Is it?", "choices": ["a", {"value": True}]}]
    assert read_questions({"questions": body}) == (Decide("choice", "Is it?", (("a", ""), ("true", ""))),)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "there are no questions"),
        ({"questions": 3}, "there are no questions"),
        (["Is it?"], r"questions\[0\] is no object"),
        ([{"type": "rank", "instructions": "x"}], r"questions\[0\].type is 'rank'"),
        ([{"instructions": "x"}], r"questions\[0\].type is missing; it must be predicate"),
        (
            [{"type": "predicate", "instructions": [{"type": "input_image"}]}],
            r"questions\[0\].instructions\[0\] is neither",
        ),
        ([{"type": "predicate"}], r"questions\[0\].instructions is no text"),
        ([{"type": "predicate", "instructions": "x", "name": 3}], r"questions\[0\].name is no text"),
        ([{"type": "choice", "instructions": "x"}], r"questions\[0\].choices is no list"),
        ([{"type": "score", "instructions": "x", "levels": [{}]}], r"levels\[0\] has no text"),
    ],
)
def test_other_shapes_say_where_they_are_wrong(value: object, says: str) -> None:
    with pytest.raises(ExchangeError, match=says):
        read_questions(value)
