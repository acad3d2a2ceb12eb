"""A grammar is checked before a model reads it, and what is not enforced is refused by its name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.base.errors import ModelError, SettingsError
from engine.checkpoint.synthetic import byte_tokenizer
from engine.grammars.grammar import (
    GrammarError,
    compiled,
    json_rule,
    of_choices,
    of_schema,
    quoted,
    schema_of,
)
from engine.grammars.matcher import GrammarTokens, Matcher
from engine.inference.run_settings import RunSettings

END = 1
AB = {"properties": {"ab": {"enum": ["x", "y"]}}, "required": ["ab"]}


def spelled(text: str) -> list[int]:
    return list(byte_tokenizer()(text, add_special_tokens=False)["input_ids"])


def matcher(grammar: str) -> Matcher:
    tokenizer = byte_tokenizer()
    return GrammarTokens(tokenizer, len(tokenizer), {END}).matcher(grammar)


def accepts(grammar: str, text: str) -> bool:
    """Whether a grammar lets an answer be this text, token by token."""
    state = matcher(grammar)
    for token in spelled(text):
        if state.complete or not state.permits(token):
            return False
        state.take(token)
    return state.complete or state.permits(END)


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"not": {"type": "string"}}, "not"),
        ({"if": {"type": "string"}, "then": {"minLength": 1}}, "`if`, `then`"),
        ({"type": "array", "contains": {}}, "contains"),
        ({"properties": {"a": {"type": "array", "items": {"propertyNames": {}}}}}, "propertyNames"),
        ({"properties": {"a": {}}, "patternProperties": {"^x": {}}}, "patternProperties and properties"),
        (
            {"anyOf": [{"properties": {"a": {}}, "patternProperties": {"^x": {}}}]},
            "patternProperties and properties",
        ),
        (
            {"$defs": {"a": {"properties": {"a": {}}, "patternProperties": {"x": {}}}}, "$ref": "#/$defs/a"},
            "patternProperties and properties",
        ),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "Use anyOf"),
        ({"$ref": "https://example.com/schema"}, "registry"),
        ({"type": "text"}, "Invalid type: text"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, "Use minimum"),
        ({"items": {"exclusiveMaximum": 0, "minimum": -0.5}}, "Use maximum"),
        ({"type": "integer", "maximum": 2**64}, "below 2^64"),
        ({"x-remark": -(10**40)}, "below 2^64"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "Unsatisfiable"),
    ],
)
def test_what_is_not_enforced_is_refused_by_name(schema: dict[str, Any], name: str) -> None:
    with pytest.raises(GrammarError, match=r"The JSON schema") as error:
        RunSettings(grammar=of_schema(schema))
    assert name in str(error.value)
    assert str(error.value).endswith((".", "yourself."))


def test_a_property_may_have_the_name_of_a_keyword() -> None:
    inner = {"type": "object", "properties": {"properties": {"type": "integer"}, "not": {"type": "integer"}}}
    compiled(of_schema({"properties": {"patternProperties": inner}, "enum": [{"not": 1}]}))


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("xml", "grammar is 'xml'; it must be text"),
        ("schema:", "it must be text"),
        ("schema:{", "The JSON schema is not JSON"),
        ("schema:[1]", "must be an object"),
        ("schema:false", "Unsatisfiable schema"),
        ("schema:" + "[" * 400 + "]" * 400, "The JSON schema"),
        ("schema:" + '{"items":' * 99 + "{}" + "}" * 99, "nests deeper than 64 levels"),
        ("regex:(", "The regular expression cannot be enforced: unclosed group. Correct it."),
        ("choices:[]", "must be a list of texts"),
        ('choices:["a", 1]', "must be a list of texts"),
        ("choices:a,b", "is not JSON"),
        ("lark:start: nowhere", "nowhere"),
    ],
)
def test_a_grammar_that_cannot_be_read_says_why(grammar: str, words: str) -> None:
    with pytest.raises(SettingsError) as error:
        RunSettings(grammar=grammar)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("grammar", "fits", "fails"),
    [
        ("json", ['{"a": [1, null]}', "{}"], ["[1]", '{"a" :1}', "{", "{} "]),
        (of_schema({"type": "integer", "minimum": 3, "maximum": 12}), ["3", "12"], ["2", "13", "a"]),
        (of_schema({"enum": ["a b", 1]}), ['"a b"', "1"], ["a b", "2"]),
        ("schema:true", ["[1, 2]", '"é"'], ["[1,2]", "a"]),
        ("regex:ab+", ["ab", "abbb"], ["a", "ba", "abc"]),
        (
            of_choices(["yes", "yes, of course", 'a "b"\n', "ü"]),
            ["yes", "yes, of course", 'a "b"\n', "ü"],
            ["no", "yes,", "u"],
        ),
        (
            of_schema({"properties": {"a": {"const": 1}}}),
            ['{"a": 1}', "{}", "2"],
            ['{"b": 1}', '{"a": 1, "b": 2}'],
        ),
        (
            of_schema({"properties": {"a": {"const": 1}}, "anyOf": [{"properties": {"b": {"const": 2}}}]}),
            ['{"a": 1, "b": 2}'],
            ['{"a": 2}'],
        ),
        (of_schema({"type": "number", "exclusiveMinimum": 0}), ["0.3", "1"], ["0", "-1"]),
        (of_schema({"type": "integer", "exclusiveMinimum": 0, "maximum": 1}), ["1"], ["0"]),
        (of_schema({"uniqueItems": False, "items": {"const": 1}}), ["[1, 1]"], ["[2]"]),
        (
            f"lark:start: {json_rule({'properties': {'a': {'pattern': '(?=b)'}}})}",
            ['{"a": "b", "c": 1}'],
            ["1"],
        ),
        (of_schema({"x-map": {"format": {"a": 1}}, "const": 1}), ["1"], ["2"]),
        (of_schema({"type": "string", "format": "path"}), ['"/a"'], ["/a"]),
        (of_schema({"type": "string", "format": "date"}), ['"2026-11-28"'], ['"today"']),
        (of_schema({"properties": {"format": {"const": "x"}}}), ['{"format": "x"}'], ['{"format": "y"}']),
        (of_schema({"properties": {"a": {}}, "additionalProperties": True}), ['{"a": 1, "b": 2}'], ["{"]),
        (
            of_schema({"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}]}),
            ['{"a": 1, "b": 2}'],
            ['{"a": 2}'],
        ),
        (
            of_schema({"properties": {"properties": {"enum": [{"x": 1}]}}}),
            ['{"properties": {"x": 1}}'],
            ['{"properties": {"x": 1}, "y": 1}'],
        ),
        (of_choices([f"option {number}" for number in range(5000)]), ["option 0", "option 4999"], ["option"]),
        (
            f"lark:start: {quoted('<a>')} x {quoted('</a>')}\nx: {json_rule({'const': 1})}",
            ["<a>1</a>"],
            ["1"],
        ),
    ],
)
def test_a_grammar_lets_through_its_texts_only(grammar: str, fits: list[str], fails: list[str]) -> None:
    RunSettings(grammar=grammar)
    assert [text for text in fits if not accepts(grammar, text)] == []
    assert [text for text in fails if accepts(grammar, text)] == []


def test_tokens_without_a_choice_are_known_and_the_end_is_seen() -> None:
    state = matcher(of_schema({**AB, "type": "object"}))
    assert state.forced == spelled('{"ab": "')
    for token in spelled('{"ab": "'):
        state.take(token)
    assert state.forced == []
    assert not state.complete
    state = matcher(of_choices(["go"]))
    for number, token in enumerate(spelled("go")):
        assert state.forced == spelled("go")[number:]
        state.take(token)
    assert (state.complete, state.forced) == (True, [])


def test_states_of_one_grammar_are_apart() -> None:
    tokenizer = byte_tokenizer()
    tokens = GrammarTokens(tokenizer, len(tokenizer), {END})
    first, second = tokens.matcher("regex:ab"), tokens.matcher("regex:ab")
    first.take(first.forced[0])
    assert second.forced == spelled("ab")


def test_a_grammar_without_a_beginning_is_refused_before_an_answer() -> None:
    with pytest.raises(GrammarError, match="refers to itself without an end"):
        matcher(of_schema({"$ref": "#"}))


def test_a_token_against_the_grammar_is_an_error() -> None:
    state = matcher("regex:a")
    with pytest.raises(GrammarError, match="cannot follow its grammar"):
        state.take(spelled("b")[0])


def test_a_tokenizer_without_a_readable_form_is_refused() -> None:
    class Slow:
        def __len__(self) -> int:
            return 3

    with pytest.raises(ModelError, match=r"Remove the grammar, or use a model with a tokenizer\.json"):
        GrammarTokens(Slow(), 3, {1})


def test_the_schema_of_a_grammar_is_known() -> None:
    assert schema_of(of_schema({"type": "array"})) == {"type": "array"}
    assert schema_of("json") == {"type": "object"}
    assert schema_of("regex:a") is None
    assert json.loads(of_choices(["a"]).partition(":")[2]) == ["a"]
