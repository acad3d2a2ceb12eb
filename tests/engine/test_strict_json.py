"""JSON of others: what Python's reader takes without a word is refused by its key and its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.strict_json import JsonError, JsonValueError, read_json, text_of, written

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 0, 3]))
def test_sound_json_is_read_as_python_reads_it(value: Any, spelled: bool, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=spelled)
    assert read_json(text, spelled=spelled) == value
    assert written(read_json(text, spelled=True)) == json.dumps(value, indent=2, ensure_ascii=False)


@given(VALUES, st.sampled_from(['"k": 1, "k": 2', '"k": NaN', '"k": [-1e999]']))
def test_a_fault_is_found_behind_anything(value: Any, fault: str) -> None:
    text = f'{{"before": {json.dumps(value)}, "in": [{{{fault}}}]}}'
    with pytest.raises(JsonValueError) as found:
        read_json(text)
    assert found.value.path.startswith("in[0].k")
    assert text[found.value.column - 1 :].startswith(('"k": 2', "NaN", "-1e999"))


NUMBERS = [
    "12.50",
    "12345678901234567890123",
    "1E5",
    "-0",
    "-0.0",
    "1e-7",
    "0.1234567890123456789",
    "100000.00",
]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_remember_how_they_are_spelled(number: str) -> None:
    for text, value in ((number, float(number)), (f'{{"a": [{number}]}}', float(number))):
        found = read_json(text, spelled=True)
        found = found["a"][0] if isinstance(found, dict) else found
        assert found == pytest.approx(value)
        assert text_of(found) == number
        assert written([found]) == f"[\n  {number}\n]"


def test_only_texts_numbers_and_truth_values_are_a_text() -> None:
    read = ["a", "", True, False, None, [], {}]
    assert [text_of(one) for one in read] == ["a", "", "true", "false", None, None, None]


@pytest.mark.parametrize(
    ("text", "what", "line", "column", "path"),
    [
        ('{"a": NaN}', "NaN is not a JSON number", 1, 7, "a"),
        ('{"a": [1,\n {"b": -Infinity}]}', "-Infinity is not a JSON number", 2, 8, "a[1].b"),
        ("[Infinity]", "Infinity is not a JSON number", 1, 2, "[0]"),
        ('{"NaN": "NaN", "b": NaN}', "NaN is not a JSON number", 1, 21, "b"),
        ('{"a": 1e400}', "the number 1e400 is too large", 1, 7, "a"),
        ('{"a": -1.5E+999}', "the number -1.5E+999 is too large", 1, 7, "a"),
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice", 1, 10, "a"),
        ('{"a": 1, "\\u0061": 2}', "the key 'a' occurs twice", 1, 10, "a"),
        ('{"x": ["{,", {"k\\"": 1, "k\\"": 2}]}', "the key 'k\"' occurs twice", 1, 25, 'x[1].k"'),
        ('{"": 1,\n\n"": 2}', "the key '' occurs twice", 3, 1, ""),
        (f"[{'9' * 1001}]", "a number has 1001 digits; the limit is 1000", 1, 2, "[0]"),
        ('{"a": 1, "a": 2, "b": nothing', "Expecting value", 1, 23, ""),
        ("[1, 2", "Expecting ',' delimiter", 1, 6, ""),
        ("", "Expecting value", 1, 1, ""),
    ],
)
@pytest.mark.parametrize("spelled", [False, True])
def test_what_is_wrong_is_said_with_its_key_and_place(
    text: str, what: str, line: int, column: int, path: str, spelled: bool
) -> None:
    with pytest.raises(JsonError) as found:
        read_json(text, spelled=spelled)
    assert (found.value.what, found.value.line, found.value.column, found.value.path) == (
        what,
        line,
        column,
        path,
    )
    assert f"in line {line}, column {column}" in str(found.value)


def test_what_nests_too_deep_and_what_is_too_long_is_no_crash() -> None:
    with pytest.raises(JsonError, match="it is nested too deeply"):
        read_json("[" * 100_000)
    with pytest.raises(JsonError) as found:
        read_json('{"%s": 1, "%s": 2}' % (2 * ("k" * 100_000,)))
    assert len(str(found.value)) < 300
