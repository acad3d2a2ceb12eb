"""Rows that change a prompt, that have settings and expectations of their own, and rows of a grid."""

from __future__ import annotations

import io

import pytest

from engine.base.errors import PromptCacheError
from engine.exchange.base.errors import ExchangeError
from engine.pml import PromptEditError, Schema
from engine.pml.edit.question_text import set_question
from engine.rows.duplicates import Chosen, distinct_rows
from engine.rows.grid import Axis, grid_rows, grid_size
from engine.rows.row_extras import CellError
from engine.rows.row_prompts import prompt_text
from engine.rows.rows import Row, read_rows
from tests.pml.documents import schema_tree

SCHEMA = """<schema name="s"><module name="a">A <param name="p" len="9"/></module>
<union><module name="b">B</module><module name="c">C</module></union></schema>"""
OPEN = """<prompt schema="s">
  <!-- mine -->
  <a p="1"/>
  <b/>
  <user>First, <!-- then --> what &amp; why?</user>
</prompt>"""


@pytest.fixture(scope="module")
def schema() -> Schema:
    tree = schema_tree(SCHEMA)
    return tree


def rows(text: str) -> list[Row]:
    return list(read_rows(io.BytesIO(text.encode()), "rows"))


def test_a_row_changes_a_prompt_and_keeps_all_else_of_it(schema: Schema) -> None:
    row = Row(1, 1, picks=("c",), arguments={"p": "2 < 3"}, text="  And now <you>?\n")
    assert prompt_text(row, schema, OPEN) == OPEN.replace("<b/>", "<c/>").replace(
        'p="1"', 'p="2 &lt; 3"'
    ).replace("First, <!-- then --> what &amp; why?", "And now &lt;you>?")
    assert prompt_text(Row(1, 1), schema, OPEN) == OPEN
    assert "<b/>" not in prompt_text(Row(1, 1, picks=("-b",)), schema, OPEN)
    assert prompt_text(Row(1, 1, prompt="<prompt/>"), schema, OPEN) == "<prompt/>"


@pytest.mark.parametrize("over", [None, OPEN])
def test_two_members_of_a_union_are_an_error(schema: Schema, over: str | None) -> None:
    with pytest.raises(CellError, match=r"'c' and 'b' are in the same choice\. Keep one\.") as error:
        prompt_text(Row(1, 1, picks=("c", "b")), schema, over)
    assert error.value.column == "picks"


def test_modules_in_two_members_of_a_union_are_an_error_too() -> None:
    inner = '<module name="{}"><module name="{}">B</module></module>'
    nested = schema_tree(
        f'<schema name="s"><union>{inner.format("b", "x")}{inner.format("c", "y")}</union></schema>'
    )
    with pytest.raises(CellError, match=r"'b' and 'c' are in the same choice\. Keep one\."):
        prompt_text(Row(1, 1, picks=("x", "y")), nested)
    assert "<x/>" in prompt_text(Row(1, 1, picks=("b", "x")), nested)


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ("<prompt><b/>old</prompt>", "<prompt><b/>new</prompt>"),
        ("<prompt>old<b/></prompt>", "<prompt>new<b/></prompt>"),
        ("<prompt><b/></prompt>", "<prompt><b/>new</prompt>"),
        ("<prompt/>", "<prompt>new</prompt>"),
        (
            "<prompt><user> old </user>\n<assistant/></prompt>",
            "<prompt><user> new </user>\n<assistant/></prompt>",
        ),
        ("<prompt>one<user>two</user></prompt>", "<prompt>one<user>new</user></prompt>"),
        ("<prompt><![CDATA[a<b]]> old</prompt>", "<prompt>new</prompt>"),
    ],
)
def test_a_question_takes_the_place_of_the_last_text(schema: Schema, source: str, after: str) -> None:
    assert set_question(source, schema, "new") == after


def test_a_question_that_no_document_may_hold_is_refused(schema: Schema) -> None:
    with pytest.raises(PromptEditError, match="XML forbids"):
        set_question(OPEN, schema, "a\x00b")
    with pytest.raises(PromptEditError, match="no <prompt> element"):
        set_question("none", schema, "x")


def test_a_row_by_itself_leaves_nothing_out(schema: Schema) -> None:
    with pytest.raises(CellError, match="no prompt to omit it from") as caught:
        prompt_text(Row(1, 1, picks=("-b",)), schema)
    assert caught.value.column == "picks"


def test_csv_and_json_spell_settings_and_expectations_alike() -> None:
    (csv,) = rows("id,Set Max-new-tokens,expect contains,Expect contains\n1,9,Rome,Oslo\n")
    (json,) = rows('{"id": 1, "settings": {"max_new_tokens": 9}, "expect": {"contains": ["Rome", "Oslo"]}}')
    assert dict(csv.settings) == {"max_new_tokens": "9"}
    assert dict(json.settings) == {"max_new_tokens": 9}
    assert csv.expect == json.expect
    assert [str(one) for one in csv.expect] == ["contains 'Rome'", "contains 'Oslo'"]
    (shape,) = rows('{"expect": {"json": {"type": "object"}, "max words": 3}}')
    assert [one.value for one in shape.expect] == ['{"type": "object"}', "3"]


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("id,expect likes\n1,x\n", "expect likes", "'likes' is not a kind of expectation"),
        ("id,expect regex\n1,(\n", "expect regex", "not a regular expression"),
        ('{"expect": []}', "", ""),
        ('{"expect": "x"}', "expect", "is not an object"),
        ('{"settings": 3}', "settings", "is not an object"),
        ('{"expect": {"contains": [null]}}', "expect", "neither text nor a number"),
    ],
)
def test_what_is_wrong_is_told_with_its_column(text: str, column: str, words: str) -> None:
    (row,) = rows(text)
    assert row.column == column
    assert words in row.fault


def test_a_digest_knows_settings_and_expectations_and_is_that_of_before_without() -> None:
    plain, hot, wanted = (
        rows(f"id,text{more}\n")[0]
        for more in ("\n1,x", ",set temperature\n1,x,1", ",expect contains\n1,x,y")
    )
    assert len({plain.digest, hot.digest, wanted.digest}) == 3
    assert plain.digest == Row(5, "other", text="x").digest


def test_a_grid_has_every_combination_the_last_axis_fastest() -> None:
    axes = [
        Axis("picks", "", ("a b", "")),
        Axis("argument", "a/p", ("1",)),
        Axis("setting", "temperature", ("0", "1")),
        Axis("text", "", ("Why?",)),
    ]
    found = list(grid_rows(axes))
    assert grid_size(axes) == len(found) == 4
    assert [(row.picks, row.settings["temperature"]) for row in found] == [
        (("a", "b"), "0"),
        (("a", "b"), "1"),
        ((), "0"),
        ((), "1"),
    ]
    assert all(row.arguments == {"a/p": "1"} and row.text == "Why?" for row in found)
    assert grid_size([]) == 0


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ([], "Nothing varies"),
        ([Axis("text", "", ())], "has no value"),
        ([Axis("text", "", ("x", "x"))], "has a value twice"),
        ([Axis("setting", "seed", ("1",)), Axis("setting", "seed", ("2",))], "'seed' is chosen twice"),
    ],
)
def test_a_grid_that_is_none_is_refused(axes: list[Axis], words: str) -> None:
    with pytest.raises(ExchangeError, match=words):
        list(grid_rows(axes))


def test_all_that_is_raised_of_a_row_is_ours(schema: Schema) -> None:
    for row in (
        Row(1, 1, fault="bad"),
        Row(1, 1, schema="t"),
        Row(1, 1, prompt="x"),
        Row(1, 1, picks=("z",)),
    ):
        with pytest.raises(PromptCacheError):
            prompt_text(row, schema, OPEN)


NESTED = """<schema name="n"><module name="out"><module name="in">I</module>
<module name="more">M <param name="p" len="9"/></module></module></schema>"""


def test_each_prompt_of_a_grid_is_there_once_however_often_choices_come_to_it() -> None:
    tree = schema_tree(NESTED)
    axes = [
        Axis("picks", "", ("out/in", "-out/in")),
        Axis("picks", "", ("out", "-out")),
        Axis("setting", "temperature", ("0.5", "0.50", "1")),
        Axis("text", "", ("Go.", " Go. ", "Stay.")),
    ]
    rows, over = list(grid_rows(axes)), '<prompt schema="n"><out><in/></out>Why?</prompt>'
    known: dict[Chosen, str | None] = {}
    found = list(distinct_rows(rows, tree, over, _temperature, known))
    asked = [(prompt_text(row, tree, over), float(row.settings["temperature"])) for row in found]
    every = {(prompt_text(row, tree, over), float(row.settings["temperature"])) for row in rows}
    assert len(rows) == 36
    assert len(asked) == len(every) == 12, "out with in, out, and nothing of two leave one"
    assert set(asked) == every
    assert [(row.line, row.id) for row in found] == [(n, n) for n in range(1, 13)]
    assert len(known) == 4, "what arguments, texts and settings multiply is looked at once"


def test_an_argument_brings_its_module_and_a_faulty_choice_stays() -> None:
    tree = schema_tree(NESTED)
    over = '<prompt schema="n">Why?</prompt>'
    axes = [Axis("picks", "", ("out/more", "")), Axis("argument", "out/more/p", ("a", "b"))]
    found = [prompt_text(row, tree, over) for row in distinct_rows(grid_rows(axes), tree, over, _nothing, {})]
    assert len(found) == len(set(found)) == 2
    wrong = [Axis("picks", "", ("nowhere", "elsewhere", "out")), Axis("setting", "heat", ("1",))]
    kept = distinct_rows(grid_rows(wrong), tree, over, _unknown, {})
    assert [row.picks for row in kept] == [("nowhere",), ("elsewhere",), ("out",)]


def _temperature(row: Row) -> float:
    return float(row.settings["temperature"])


def _nothing(_row: Row) -> None:
    """Rows without settings."""


def _unknown(_row: Row) -> float:
    raise CellError("set heat", "There is no setting 'heat'.")
