"""Structured output: the vendors' clients ask for a format, and the answer keeps to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from engine.model.loading import load
from tests.app.server.served import Served, served
from tests.clients.shapes import FIELDS, Colour, shape

QUESTION: list[Any] = [{"role": "user", "content": "Where is the beach?"}]
SHAPE = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}}
CHOICES = ["the beach, of course", "nowhere"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("demo"), model=load("demo"), longest=120) as running:
        yield running


@pytest.mark.parametrize("name", FIELDS)
def test_pydantic_models_are_parsed(demo: Served, name: str) -> None:
    model = shape(name)
    given: dict[str, Any] = {"model": "demo", "messages": QUESTION, "response_format": model, "seed": 3}
    completions = demo.openai().chat.completions
    parsed = completions.parse(temperature=0, **given).choices[0]
    assert parsed.finish_reason == "stop"
    assert isinstance(parsed.message.parsed, model)
    with completions.stream(temperature=0, **given) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == parsed.message.parsed
    assert isinstance(completions.parse(temperature=1, **given).choices[0].message.parsed, model)


def test_responses_and_messages_are_parsed(demo: Served) -> None:
    class Shape(BaseModel):  # Anthropic's client drops bounds of texts and numbers
        a: bool
        b: Colour

    told = demo.openai().responses.parse(model="demo", input=QUESTION, text_format=Shape, temperature=0)
    assert isinstance(told.output_parsed, Shape)
    assert told.text.format.type == "json_schema"
    asked: dict[str, Any] = {"model": "demo", "messages": QUESTION, "max_tokens": 90}
    messages = demo.anthropic().messages
    made = messages.parse(output_format=Shape, **asked)
    assert isinstance(made.parsed_output, Shape)
    assert (made.stop_reason, made.stop_sequence) == ("end_turn", None)
    with messages.stream(output_format=Shape, **asked) as stream:
        assert isinstance(stream.get_final_message().parsed_output, Shape)
    older = {"output_format": {"type": "json_schema", "schema": SHAPE}}
    assert re.fullmatch('{("a": [0-9])?.*', messages.create(extra_body=older, **asked).content[0].text)


ASKED: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "json_object"}}, r"\{.*"),
    ({"response_format": {"type": "text"}, "guided_regex": "[a-z]{4} [0-9]"}, "[a-z]{4} [0-9]"),
    ({"guided_json": SHAPE}, r"\{.*"),
    ({"guided_json": json.dumps({"const": 12})}, "12"),
    ({"guided_choice": CHOICES}, "the beach, of course|nowhere"),
    ({"guided_grammar": 'start: "a" /[0-9]{1,2}/ "b"'}, "a[0-9]{1,2}b"),
    ({"guided_grammar": 'root ::= "a" [0-9]{2} "b"'}, "a[0-9]{2}b"),
    ({"structured_outputs": {"json": {"enum": ["x", "y"]}, "regex": None}}, '"[xy]"'),
    ({"structured_outputs": {"regex": "[0-9]{3}"}}, "[0-9]{3}"),
    ({"structured_outputs": {"choice": CHOICES, "disable_fallback": True}}, "the beach, of course|nowhere"),
    ({"structured_outputs": {"grammar": 'start: "a"'}}, "a"),
    ({"structured_outputs": {"json_object": True}}, r"\{.*"),
    ({"json_schema": {"const": 1}}, "1"),
    ({"ebnf": 'root ::= "a"'}, "a"),
    ({"format": "json"}, r"\{.*"),
]


@pytest.mark.parametrize(("more", "pattern"), ASKED)
def test_other_servers_fields_are_kept_to(demo: Served, more: dict[str, Any], pattern: str) -> None:
    body = {"model": "demo", "max_tokens": 60, "temperature": 0, **more}
    chat = demo.http.post("/v1/chat/completions", json={**body, "messages": QUESTION}).json()
    text = demo.http.post("/v1/completions", json={**body, "prompt": "The beach"}).json()
    several = demo.http.post("/v1/completions", json={**body, "prompt": ["The", "A"]}).json()
    texts = [chat["choices"][0]["message"]["content"], *(one["text"] for one in text["choices"])]
    for said in [*texts, *(one["text"] for one in several["choices"])]:
        assert re.fullmatch(pattern, said, re.DOTALL), said


SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"uniqueItems": True}}}
FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": SCHEMA}, "response_format.json_schema.schema", "`uniqueItems` is not supported"),
    ({"response_format": {"type": "json_schema"}}, "response_format.schema", "Send it as schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
        "Send it as schema",
    ),
    ({"response_format": {"type": "xml"}}, "response_format.type", "json_object"),
    ({"guided_json": {"not": {}}}, "guided_json", "`not` is not supported"),
    ({"guided_json": "{"}, "guided_json", "is not JSON"),
    ({"guided_json": 3}, "guided_json", "must be an object"),
    ({"guided_regex": "("}, "guided_regex", "unclosed group"),
    ({"guided_regex": 3}, "guided_regex", "must be a text"),
    ({"guided_choice": "a,b"}, "guided_choice", "must be a list"),
    ({"guided_choice": []}, "guided_choice", "must be a list"),
    ({"guided_json": {"$ref": "#"}}, "guided_json", "refers to itself without an end"),
    ({"guided_grammar": "root ::= "}, "guided_grammar", "permits only an empty answer"),
    ({"guided_grammar": 'root ::= ""'}, "guided_grammar", "permits only an empty answer"),
    ({"guided_regex": "()"}, "guided_regex", "permits only an empty answer"),
    ({"guided_grammar": "start: x"}, "guided_grammar", "unknown name"),
    ({"guided_grammar": "root ::= ("}, "guided_grammar", "cannot be read"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "cannot have two formats"),
    (
        {"guided_regex": "a", "response_format": {"type": "json_object"}},
        "guided_regex",
        "response_format is another",
    ),
    ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", "regex"),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "unclosed group"),
]


@pytest.mark.parametrize(("more", "param", "words"), FAULTS)
def test_a_format_that_is_not_kept_to_is_refused(
    server: Served, more: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        server.openai().chat.completions.create(model=server.model, messages=QUESTION, extra_body=more)
    assert refused.value.param == param
    assert words in refused.value.body["message"]


def test_other_dialects_name_the_format_as_they_spell_it(server: Served) -> None:
    faulty = {"type": "json_schema", "schema": {"uniqueItems": True}}
    body: dict[str, Any] = {"model": server.model, "input": "Hi", "text": {"format": {**faulty, "name": "x"}}}
    assert server.http.post("/v1/responses", json=body).json()["error"]["param"] == "text.format.schema"
    body = {"model": server.model, "messages": QUESTION, "max_tokens": 9}
    for more, where in (
        ({"output_config": {"format": faulty}}, "output_config.format.schema"),
        ({"output_format": faulty}, "output_format.schema"),
        ({"output_config": {"format": "json"}}, "output_config.format"),
        ({"output_config": {"format": {"type": "text"}}}, None),
        ({"guided_json": {"type": "object"}}, "guided_json"),
    ):
        told = server.http.post("/v1/messages", json={**body, **more})
        assert (told.status_code == 400) is (where is not None)
        assert where is None or where in told.json()["error"]["message"]


def test_a_cut_answer_says_so(demo: Served) -> None:
    asked: dict[str, Any] = {"model": "demo", "messages": QUESTION, "max_tokens": 3}
    made = demo.openai().chat.completions.create(extra_body={"guided_regex": "[a-z]{40}"}, **asked)
    assert made.choices[0].finish_reason == "length"
