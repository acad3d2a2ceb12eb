"""What the page gets from two texts: marks at the right places, the tree, picks, words to complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.base.pml_keywords import preview
from app.studio.documents.documents import (
    Documents,
    diagnostics_json,
    edited_prompt,
    first_error,
    mended_document,
    picks_json,
    question,
    tree_json,
    words_json,
)
from app.studio.documents.requests import Argument, Pick
from app.studio.web.source_offsets import to_utf16
from engine.base.errors import PromptCacheError
from engine.pml import Diagnostic, Edit, Span, make, parse_prompt

SCHEMA = """<schema name="travel">
  <system>You plan trips.</system>
  <user>
    <module name="trip">
      I go for <param name="duration" len="5"/>.
      <union>
        <module name="tokyo">Neon and shrines.</module>
        <module name="rome">Ruins and fountains.</module>
      </union>
    </module>
  </user>
</schema>
"""
PROMPT = """<prompt schema="travel">
  <trip duration="3 days"><tokyo/></trip>
  <user>Where to surf?</user>
</prompt>
"""


@pytest.fixture
def documents() -> Documents:
    return Documents()


def tree_of(source: str = SCHEMA):
    tree = Documents().schema(source).tree
    assert tree is not None
    return tree


def test_offsets_count_utf16_units() -> None:
    text = "a😀é😀b"
    offset = to_utf16(text)
    encoded = [len(text[:n].encode("utf-16-le")) // 2 for n in range(len(text) + 1)]
    assert [offset(n) for n in range(len(text) + 1)] == encoded


def test_a_fault_after_an_emoji_is_marked_where_the_browser_counts_it() -> None:
    source = '<prompt schema="travel">\n  😀😀 <toyko/>\n</prompt>\n'
    checked = Documents().check(SCHEMA, source)
    fault = diagnostics_json(checked.of_prompt, source)[0]
    marked = source.encode("utf-16-le")[2 * fault["from"] : 2 * fault["to"]].decode("utf-16-le")
    assert "toyko" in marked
    assert (fault["line"], fault["column"]) == (2, source.split("\n")[1].index("toyko") + 1)


def test_a_half_typed_tag_leaves_the_prompt_on_the_last_good_schema(documents: Documents) -> None:
    broken = SCHEMA.replace('<module name="rome">', '<module name="ro')
    checked = documents.check(broken, PROMPT, fallback=SCHEMA)
    assert first_error(checked.schema.diagnostics) is not None
    assert checked.stale
    assert checked.basis.source == SCHEMA
    assert first_error(checked.of_prompt) is None


def test_faults_against_an_earlier_schema_say_so(documents: Documents) -> None:
    broken = SCHEMA.replace("</user>", "")
    prompt = PROMPT.replace("travel", "renamed")
    (fault,) = documents.check(broken, prompt, fallback=SCHEMA).of_prompt
    assert fault.code.startswith("E4")
    assert fault.message.endswith("(checked against the last schema without errors)")
    (fault,) = documents.check(SCHEMA, prompt).of_prompt
    assert "last schema" not in fault.message


def test_the_same_text_is_parsed_once(documents: Documents) -> None:
    assert documents.schema(SCHEMA) is documents.schema(SCHEMA)
    assert documents.schema(SCHEMA) is not documents.schema(SCHEMA + "<!-- -->")


def test_the_tree_nests_as_the_schema_does_and_leaves_turns_out() -> None:
    rows = tree_json(tree_of())
    assert [(row["kind"], row["depth"]) for row in rows] == [
        ("module", 0),
        ("union", 1),
        ("module", 2),
        ("module", 2),
    ]
    assert rows[0]["params"] == [{"name": "duration", "length": 5, "default": ""}]
    assert [row["path"] for row in rows if row["kind"] == "module"] == ["trip", "trip/tokyo", "trip/rome"]


def test_a_schema_that_reads_files_is_read_again(documents: Documents, tmp_path: Path) -> None:
    source = '<schema name="s"><module name="a"\tsrc="a.txt"/></schema>'
    for text in ("one", "two"):
        (tmp_path / "a.txt").write_text(text)
        tree = documents.schema(source, tmp_path).tree
        assert tree is not None
        assert preview(tree.modules()[0]) == text


def test_preview_is_one_short_line() -> None:
    module = tree_of(SCHEMA.replace("Neon and shrines.", "Neon\n\n and  " + "shrines " * 60)).module(
        "trip/tokyo"
    )
    assert module is not None
    line = preview(module)
    assert line.startswith("Neon and shrines")
    assert len(line) <= 160
    assert line.endswith("…")


def test_a_pick_in_the_tree_is_found_in_the_prompt_and_read_back() -> None:
    tree = tree_of()
    text = edited_prompt(tree, PROMPT, Pick(path="trip/rome", on=True))
    assert "<rome/>" in text
    assert "<tokyo/>" not in text
    assert "Where to surf?" in text
    assert set(picks_json(tree, text)["paths"]) == {"trip", "trip/rome"}


def test_an_argument_in_the_tree_is_found_in_the_prompt_and_read_back() -> None:
    tree = tree_of()
    text = edited_prompt(tree, PROMPT, Argument(path="trip", argument="duration", value='5 "long" days'))
    assert picks_json(tree, text)["arguments"]["trip"]["duration"] == '5 "long" days'
    empty = edited_prompt(tree, text, Argument(path="trip", argument="duration", value=""))
    assert "duration" not in empty


def test_words_to_complete_know_the_modules_and_their_parameters() -> None:
    words = words_json(tree_of())
    offered = {element["name"]: element for element in words["prompt"]["elements"]}
    assert offered["tokyo"]["parents"] == ["trip"]
    assert offered["tokyo"]["empty"]
    assert not offered["trip"]["empty"]
    assert [attribute["name"] for attribute in words["prompt"]["attributes"]["trip"]] == ["duration"]
    assert "module" in {element["name"] for element in words["schema"]["elements"]}


def test_a_prompt_goes_by_a_faulty_schema_of_another_name(documents: Documents) -> None:
    last = '<schema name="travel"><module name="tokyo">x</module></schema>'
    other = '<schema name="support"><module name="refund">x</module><modul/></schema>'
    asked = '<prompt schema="support"><refund/> When?</prompt>'
    checked = documents.check(other, asked, fallback=last)
    assert not checked.stale
    assert checked.of_prompt == ()
    half = documents.check('<schema name="travel"><module name="tok', asked, fallback=last)
    assert half.stale
    assert {found.code for found in half.of_prompt} == {"E401", "E402"}


def test_words_without_a_schema_are_still_there() -> None:
    assert {element["name"] for element in words_json(None)["prompt"]["elements"]} == {
        *("system", "user", "assistant", "decide", "answer-format", "option")
    }
    assert words_json(None)["prompt"]["help"]["option"] == "<option>\na possible answer"


def test_a_fix_is_made_by_its_place_in_utf16(documents: Documents) -> None:
    source = '<schema name="😀s"><modul name="a">x</modul></schema>'
    faults = diagnostics_json(documents.schema(source).diagnostics, source)
    fault = next(found for found in faults if found["code"] == "E205")
    assert fault["fixes"][0] == "Write module"

    def diagnose(text: str) -> tuple[Diagnostic, ...]:
        return documents.schema(text).diagnostics

    found = mended_document(source, "E205", fault["from"], "Write module", diagnose)
    assert found == source.replace("modul", "module")
    with pytest.raises(PromptCacheError, match="changed since"):
        mended_document(source, "E205", 0, "Write module", diagnose)


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ('<schema name="s"><module name="m">M</module><union/></schema>', "W602", "Remove it"),
        (
            '<schema name="s"><module name="m"><scaffold modules="m"/>M</module></schema>',
            "E206",
            "Move it before </schema>",
        ),
        ('<schema name="s"><modul name="m">M</modul></schema>', "E205", "Write module"),
        ('<schema name="s"><modules>M</modules></schema>', "E202", ""),
    ],
)
def test_a_button_says_what_its_fix_does(documents: Documents, source: str, code: str, says: str) -> None:
    faults = diagnostics_json(documents.schema(source).diagnostics, source)
    assert next(found["fixes"] for found in faults if found["code"] == code)[:1] == ([says] if says else [])


def test_a_fix_that_would_do_harm_is_not_made() -> None:
    def diagnose(text: str) -> tuple[Diagnostic, ...]:
        span = Span(0, 1)
        one = make("E105", "", span, text, "x", fix=(Edit(Span(0, 0), "x"),))
        return (one,) if text == "a" else (one, make("E104", "", span, text))

    with pytest.raises(PromptCacheError, match="more errors than it fixes"):
        mended_document("a", "E105", 0, diagnose("a")[0].fixes[0].title, diagnose)


def test_faults_of_an_included_file_are_marked_at_the_include(tmp_path: Path) -> None:
    (tmp_path / "rules.pml").write_text('<schema name="r">\n<module name="a b">x</module></schema>')
    source = '<schema name="s">\n<include src="rules.pml"/></schema>'
    documents = Documents()
    (mark,) = diagnostics_json(documents.schema(source, tmp_path).diagnostics, source)
    assert source[mark["from"] : mark["to"]] == "rules.pml"
    assert (mark["code"], mark["line"], mark["fixes"]) == ("E301", 2, [])
    assert mark["message"].startswith("rules.pml:2:15: 'a b' cannot name a module")
    (tmp_path / "rules.pml").write_text('<schema name="r"><module name="brief">x</module></schema>')
    tree = documents.schema(source, tmp_path).tree
    assert tree is not None, "the file was read again"
    assert [row.get("path") for row in tree_json(tree)] == ["brief"]


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ('<prompt schema="s"><a/>What is\n   <b/> new?</prompt>', "What is new?"),
        ("<prompt><user>First</user><assistant>So.</assistant><user><a/>Last?</user></prompt>", "Last?"),
        ('<prompt schema="s"><a/></prompt>', ""),
    ],
)
def test_the_question_is_the_last_text_of_the_user(prompt: str, asked: str) -> None:
    assert question(parse_prompt(prompt).tree) == asked
    assert question(None) == ""
