"""What an author expects of an answer: judged within a time, and told in words."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from engine.exchange.base.errors import ExchangeError
from engine.rows import expectations
from engine.rows.expectations import KINDS, expected, judge

PLACE = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
TOLD_APART = [
    ("contains", "Rome", "In Rome.", "In rome."),
    ("not contains", "sorry", "Yes.", "I am sorry."),
    ("contains in any case", "ROME", "In Rome.", "In Oslo."),
    ("starts with", "Day 1", "\n Day 1: rest", "On day 1"),
    ("equals", "Rome", " Rome\n", "Rome."),
    ("regex", r"\b\d+ days\b", "It takes 3 days.", "It takes days."),
    ("not regex", r"(?i)as an ai", "Go.", "As an AI I go."),
    ("json", "{}", "[1]", "none"),
    ("json", PLACE, '```json\n{"name": "Rome"}\n```', '{"name": 3}'),
    ("min words", "2", "a b", "a"),
    ("max words", "2", "a b", "a b c"),
    ("min characters", "3", "abc", " ab "),
    ("max characters", "3", "abc ", "abcd"),
]


@pytest.mark.parametrize(("kind", "value", "good", "bad"), TOLD_APART)
def test_each_kind_tells_good_answers_from_bad_ones(kind: str, value: str, good: str, bad: str) -> None:
    one = expected(kind, value)
    assert one.fault(good) == ""
    assert one.fault(bad).endswith(".")


def test_every_kind_is_tried_above() -> None:
    assert {one[0] for one in TOLD_APART} == set(KINDS)


RECURSIVE = (
    "a(?R)?",
    "a(?0)?",
    "(a(?1)?)",
    "(a(?-1)?)",
    "(?P<a>(?&a))",
    "(?P<a>b(?P>a)?)",
    "(?x)(?P<a>b(?P >a)?)",
)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("has", "x", "is not a kind of expectation. Use one of contains"),
        ("contains", " ", "has no value"),
        ("regex", "(a", "is not a regular expression at character"),
        ("max words", "-1", "whole number of 0 or more"),
        ("max words", "²", "whole number of 0 or more"),
        ("json", "{", "is not JSON"),
        ("json", "[1]", "is not an object"),
        ("json", '{"type": "text"}', "is invalid"),
        ("json", '{"pattern": "("}', "is invalid"),
        ("json", '{"patternProperties": {}, "unevaluatedProperties": false}', "cannot be combined"),
        ("json", '{"$schema": 5}', '"$schema" of the JSON Schema is not a text'),
        ("json", '{"$schema": []}', '"$schema" of the JSON Schema is not a text'),
        *(("regex", value, "calls a group") for value in RECURSIVE),
    ],
)
def test_what_cannot_be_expected_is_refused_in_words(kind: str, value: str, words: str) -> None:
    with pytest.raises(ExchangeError, match=re.escape(words)):
        expected(kind, value)


def test_patterns_that_only_look_recursive_are_valid() -> None:
    assert expected("regex", r"\(?R").fault("(R") == ""
    assert expected("regex", r"(?P<a>x)(?P=a)(?-i)\1").fault("xxx") == ""


def test_a_kind_may_be_written_with_capitals_and_blanks() -> None:
    assert expected(" Not  Contains ", "x").kind == "not contains"


def test_all_are_to_hold_or_any_is_enough() -> None:
    both = (expected("contains", "a"), expected("contains", "b"))
    assert judge("a", ()) is None
    judged = judge("a", both)
    assert judged is not None
    assert (judged.passed, judged.faults) == (False, ("", "It does not contain 'b'."))
    either = judge("a", both, "any")
    assert either is not None
    assert either.passed


def test_unevaluated_items_of_a_long_array_end_at_once() -> None:
    one = expected("json", '{"unevaluatedItems": false, "items": true}')
    assert one.fault(json.dumps([1] * 100)) == ""
    began = time.process_time()
    assert "was stopped" in one.fault(json.dumps([1] * 20_000))
    assert time.process_time() - began < 1


def test_unique_items_take_linear_time_and_compare_as_json() -> None:
    one = expected("json", '{"uniqueItems": true}')
    began = time.process_time()
    assert one.fault(json.dumps([{"a": i} for i in range(8000)])) == ""
    assert time.process_time() - began < 1
    for good in ("[1, true]", "[0, false, null, []]", '["1", 1]', "[[1], [true]]", '{"a": [1, 1]}'):
        assert one.fault(good) == ""
    for bad in ("[1, 1.0]", '[{"a": 1, "b": [0]}, {"b": [-0.0], "a": 1e0}]', "[[], []]"):
        assert "has non-unique elements" in one.fault(bad)
    assert expected("json", '{"uniqueItems": false}').fault("[1, 1]") == ""


SLOW = "^(x|xx)+$"
LONG = json.dumps({("x" * 40 + "!"): 1})
FORKING = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "definitions": {
        **{f"d{i}": {"anyOf": [{"$ref": f"#/definitions/d{i + 1}"}] * 9} for i in range(30)},
        "d30": False,
    },
    "anyOf": [{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/d0"}],
}


@pytest.mark.parametrize(
    ("kind", "value", "answer"),
    [
        ("regex", SLOW, ("x" * 40 + "!")),
        ("not regex", SLOW, ("x" * 40 + "!")),
        ("json", json.dumps({"pattern": SLOW}), json.dumps("x" * 40 + "!")),
        ("json", json.dumps({"patternProperties": {SLOW: {}}}), LONG),
        ("json", json.dumps({"patternProperties": {SLOW: {}}, "additionalProperties": False}), LONG),
        ("json", json.dumps(FORKING), "1"),
    ],
)
def test_what_would_take_for_ever_is_given_up(
    kind: str, value: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expectations, "JUDGED_SECONDS", 0.1)
    assert "was stopped" in expected(kind, value).fault(answer)


@pytest.mark.parametrize(
    ("divisor", "good", "bad"),
    [
        ("0.01", ("19.99", "10.11", "0.07", "4.35", "100", "-0.29", "1e2"), ("10.115", "0.001")),
        ("0.1", ("0.3", "0.7", "1.1"), ("0.35",)),
        ("0.5", ("1" + "0" * 400, "2.5", "0"), ("0.75",)),
        ("11.0", ("9007199254740995",), ("9007199254740996",)),
        ("1e-8", ("1e308", "12391239123"), ("1.5e-8",)),
        ("3", ("9", "9.0", '"a"', "true"), ("10", "9.5")),
    ],
)
@pytest.mark.parametrize("draft", ["2020-12", "03"])
def test_multiples_are_told_by_numbers_as_they_are_written(
    divisor: str, good: tuple[str, ...], bad: tuple[str, ...], draft: str
) -> None:
    rule = (
        '"multipleOf"'
        if draft != "03"
        else '"$schema": "http://json-schema.org/draft-03/schema#", "divisibleBy"'
    )
    one = expected("json", f"{{{rule}: {divisor}}}")
    assert {answer: one.fault(answer) for answer in good} == dict.fromkeys(good, "")
    assert all("is not a multiple of" in one.fault(answer) for answer in bad)


@pytest.mark.parametrize("answer", ['{"a": 1, "a": 2}', "1e400", "9" * 5000, "[" * 100_000, "NaN"])
def test_what_is_no_json_is_told_in_words_of_json(answer: str) -> None:
    told = expected("json", "{}").fault(answer)
    assert told.startswith("It is not JSON: ")
    assert not re.search("sys|unicode|recursion", told)


def test_names_and_patterns_share_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "JUDGED_SECONDS", 0.2)
    names = json.dumps({"x" * 22 + f"!{i}": 1 for i in range(400)})
    for rules in ({}, {"additionalProperties": {}}):
        one = expected("json", json.dumps({"patternProperties": {SLOW: {}}, **rules}))
        began = time.process_time()
        assert "was stopped" in one.fault(names)
        assert time.process_time() - began < 1


@pytest.mark.parametrize("part", [5, {"$schema": 5}, {"$ref": 5}, {"type": 5}, {"multipleOf": 0}])
def test_a_reference_to_a_part_that_is_no_schema_is_an_error_in_words(part: Any) -> None:
    assert "is not a JSON Schema" in expected("json", json.dumps({"$ref": "#/x", "x": part})).fault("1")


def test_a_json_schema_without_end_or_from_elsewhere_is_no_crash() -> None:
    assert "without an end" in expected("json", '{"$ref": "#"}').fault("1")
    elsewhere = expected("json", '{"$ref": "http://127.0.0.1:9/x"}').fault("1")
    assert elsewhere.endswith("refers to 'http://127.0.0.1:9/x' outside of it; nothing is fetched.")
    for missing in ("#/definitions/nope", "#nope"):
        told = expected("json", json.dumps({"$id": "http://a.example/b", "$ref": missing})).fault("1")
        assert told.endswith("nope', which is not in it.")
    for deep in ("[" * 600 + "]" * 600, '{"a":' * 300 + "1" + "}" * 300):
        tree = {"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}
        assert "nests more than" in expected("json", json.dumps(tree)).fault(deep)
    old = {"$schema": "http://json-schema.org/draft-03/schema#", "extends": {"$ref": "#"}}
    assert "without an end" in expected("json", json.dumps(old)).fault("1")
    assert "has 4000 digits" in expected("json", '{"multipleOf": 0.1}').fault("9" * 4000)
    with pytest.raises(ExchangeError, match="Flatten it"):
        expected("json", '{"const":' + "[" * 800 + "]" * 800 + "}")
    named = {"additionalProperties": {"type": "string"}, "properties": {"a": {}}}
    one = expected("json", json.dumps(named))
    assert one.fault('{"a": 1, "b": "x"}') == ""
    assert "rejects b" in one.fault('{"b": 1}')
