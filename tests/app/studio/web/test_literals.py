"""Texts as they are written in programs: read back by Python, node and JSON they are what they were."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.studio.web.literals import Name, javascript, javascript_text, json_text, python, python_text

HARD = [
    "",
    '"',
    "\"\"\" and ''' and `",
    'ends in a quote\n"',
    'ends in three\n"""',
    '"\n""\n"""\n""""\n"""""',
    "back\\slash \\n \\\nand \\",
    "${HOME} $HOME $(id) `id` #{x} %s {y} !!",
    "it's\nJSON\nEOF",
    "tab\tand\r\nline\x0c\x00\x1b[31m\x7f\x85",
    "naïve — 東京 🏝️ a\u0301 \u202eright\u202c \u2028\u2029 \ufeff\xa0",
    "half \ud83d of a pair",
    "</script><!-- &amp; <b>",
]
NODE = (
    shutil.which("node", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    or "node"
)
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("\\\"'`${}\n\r\t\u2028")), max_size=40)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


@pytest.mark.parametrize("text", HARD)
def test_hard_texts_come_back(text: str) -> None:
    assert ast.literal_eval(python_text(text)) == text
    assert json.loads(json_text({"a": text})) == {"a": text}


@given(VALUES)
def test_any_value_comes_back_in_python_and_in_json(value: Any) -> None:
    assert ast.literal_eval(python(value)) == value
    assert json.loads(json_text(value)) == value


def test_node_reads_what_was_meant(tmp_path: Path) -> None:
    script = tmp_path / "read.mjs"
    texts = [javascript_text(text) for text in HARD]
    value = {"a-b": [1, 0.5, None, True], "plain": {"$deep": HARD}, "constructor": "x", "a\nb": "y"}
    script.write_text(
        f"console.log(JSON.stringify([[{', '.join(texts)}], {javascript(value)}]))", encoding="utf-8"
    )
    found = subprocess.run([NODE, script], check=True, capture_output=True, timeout=60, text=True)
    assert json.loads(found.stdout) == [HARD, value]


def test_what_nobody_sees_is_escaped() -> None:
    text = "a\tb\u202ec\x1bd"
    for written in (python_text(text), javascript_text(text), json_text(text)):
        assert written.isprintable()
        assert written.isascii()


def test_several_lines_stay_several_and_short_ones_one() -> None:
    assert python_text("one\ntwo") == '"""one\ntwo"""'
    assert javascript_text("one\ntwo") == "`one\ntwo`"
    assert python([1.0, 0.5]) == "[1, 0.5]"
    assert python({"a": [1, 2], "b": Name("c")}) == '{"a": [1, 2], "b": c}'
    assert javascript({"a": [1, 2], "b": Name("b")}) == "{ a: [1, 2], b }"
    assert python(["x" * 80], 1) == f'[\n        "{"x" * 80}",\n    ]'
