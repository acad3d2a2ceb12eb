"""The form view: the cards that the page gets, and the edits that it asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.app.studio.asked import Asked

SCHEMA = (
    '<schema name="s"><user>Go 🦀. <module name="a">one <param name="p" len="6" default="d"/></module>'
    '<union><module name="b">Two</module><module name="c">x &#33;</module></union></user></schema>'
)
PROMPT = '<prompt schema="s"><a/>First<b/><user>Why &lt; 2?</user></prompt>'


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def ask(asked: Asked, question: str, **more: Any) -> Any:
    answer = asked.ask(question, {"schema": SCHEMA, "prompt": PROMPT, **more})
    if "error" not in answer:
        TypeAdapter(asked.endpoints[question].answer).validate_python(answer)
    return answer


def test_the_page_gets_both_documents_as_cards(asked: Asked) -> None:
    form = ask(asked, "read_form")
    cards = form["schema"]["cards"]
    assert [(card["depth"], card["kind"], card["name"] or card["text"]) for card in cards] == [
        (0, "schema", "s"),
        (1, "turn", "user"),
        (2, "text", "Go 🦀."),
        (2, "module", "a"),
        (3, "text", "one {{p}}"),
        (2, "union", ""),
        (3, "module", "b"),
        (4, "text", "Two"),
        (3, "module", "c"),
        (4, "locked", "x &#33;"),
    ]
    assert cards[3]["params"] == [{"name": "p", "length": 6, "default": "d"}]
    assert SCHEMA.encode("utf-16-le")[2 * cards[9]["at"] :].decode("utf-16-le").startswith("x &#33;")
    assert form["prompt"]["cards"][form["question"]]["text"] == "Why < 2?"


@pytest.mark.parametrize(
    ("schema", "prompt", "document", "error"),
    [
        ('<schema name="s">\n🦀 <user>&</user></schema>', "", "schema", "line 2: a plain '&'"),
        (SCHEMA, '<prompt schema="s"><z/></prompt>', "prompt", "line 1: "),
    ],
)
def test_a_document_with_an_error_has_no_cards(
    asked: Asked, schema: str, prompt: str, document: str, error: str
) -> None:
    form = ask(asked, "read_form", schema=schema, prompt=prompt)
    assert form[document]["cards"] == []
    assert form[document]["error"].startswith(error)
    assert form[document]["at"] > 0


def test_an_edit_answers_with_both_documents(asked: Asked) -> None:
    answer = ask(asked, "edit_form", act="rename", card=6, text="z")
    assert answer["schema"] == SCHEMA.replace('"b"', '"z"')
    assert answer["prompt"] == PROMPT.replace("<b/>", "<z/>")
    assert answer["form"]["schema"]["cards"][6]["name"] == "z"
    answer = ask(asked, "edit_form", act="add", card=5, what="module")
    assert answer["form"]["schema"]["cards"][answer["card"]]["name"] == "module-1"
    answer = ask(asked, "edit_form", act="move", card=6, number=1)
    assert answer["form"]["schema"]["cards"][answer["card"]]["name"] == "b"
    question = ask(asked, "read_form")["question"]
    formatted = PROMPT.replace(
        "</prompt>", '<answer-format type="choice"><option value="a"/></answer-format></prompt>'
    )
    assert ask(asked, "read_form", prompt=formatted)["question"] == question
    answer = ask(asked, "edit_form", act="write", card=question, text="a & b")
    assert answer["prompt"] == PROMPT.replace("Why &lt; 2?", "a &amp; b")
    assert ask(asked, "edit_form", act="parameter", card=3, what="p", text="p", number=7)["schema"] == (
        SCHEMA.replace('len="6" default="d"', 'len="7"')
    )
    assert (
        "not a whole number" in ask(asked, "edit_form", act="parameter", card=3, what="p", text="p")["error"]
    )
    assert ask(asked, "edit_form", act="text", card=9, text="x")["error"].startswith("The document has")
    assert "unknown part" in ask(asked, "edit_form", act="add", card=0, what="schema")["error"]
