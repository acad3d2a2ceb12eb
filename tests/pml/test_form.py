"""Edits by form: the rest of a document stays byte for byte, and the tree is the one meant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.pml import Module, Param, Text, Union, bind, parse_prompt
from engine.pml.edit.form import Card, Form
from engine.pml.edit.form_edits import Edited, New
from engine.pml.edit.form_words import FormError
from tests.drawing import draws
from tests.pml.documents import valid_schema

SAMPLES = Path(__file__).parents[2] / "sample_schemas"
NAMES = ("citybreak", "code-generation", "documents", "few-shot", "personalization", "travel")
AWKWARD = """<?xml version="1.0"?>
<!-- head -->
<schema name='s'  >
\t<system>First &amp; last
\t  <!-- of a --><module name="a">one</module>  two <module name = "b" cache="false"><!-- in -->
      def f():
          return &lt;{{x}}&gt;

      <param name='p'  len="4"  default="d&amp;e"/> and <param name="q" length="2"/>; <param name="p"/>.
    </module><!-- after b -->
\t</system>
  <user xml:space="preserve"> kept
   as it is <module name="c"><![CDATA[<raw>]]></module><union><module name="d"/>
<module name="e"> E </module></union>
</user>
  <scaffold modules="a  b"/>
  <!-- the
       last -->
  <module name="shots"><user>Q&#33;</user><assistant/></module>
</schema>
<!-- tail -->
"""
TEXTS = st.text("ab {}<&>]\"'\n\t\u00e9\U0001f980-", max_size=12) | st.sampled_from(
    ["{{p}} x", "a\n\n  b", "]]>", "{{neu}}", "a\r\nb", "x"]
)
COMMENT_AT_END = re.compile(r"[ \t]*<!--((?!-->)[\s\S])*-->\s*\Z")
ACTS = st.sampled_from(["text", "text", "text", "move", "move", "add", "remove", "rename"])
STEPS = st.lists(st.tuples(ACTS, st.integers(0, 999), st.integers(0, 9), TEXTS), min_size=1, max_size=6)


def texts(node: Any, path: str = "") -> list[tuple[str, str]]:
    """The texts of a tree with the path of their module, without separators."""
    found: list[tuple[str, str]] = []
    open_text = ""
    for child in node.members if isinstance(node, Union) else node.children:
        if isinstance(child, Text | Param):
            shown = f"{{{{{child.name}}}}}" if isinstance(child, Param) else "" if child.seam else child.text
            open_text += shown
            continue
        found += [(path, open_text)] if open_text.strip() else []
        open_text = ""
        inside = f"{path}/{child.name}".lstrip("/") if isinstance(child, Module) else path
        found += texts(child, inside)
    return found + ([(path, open_text)] if open_text.strip() else [])


def around(card: Card, form: Form) -> tuple[str, str]:
    """The document before and after a card with its lines; an empty text is its whole element."""
    empty = card.text is not None and not card.text.tokens
    span = form.cards[card.host].span if empty else form.with_line(card.span)
    return form.source[: span.start], form.source[span.end :]


def step(edited: Edited, act: str, index: int, place: int, text: str) -> None:
    """One edit, with what it must keep."""
    before, form = edited.schema, Form(edited.schema)
    tree = valid_schema(before)
    at = index % len(form.cards)
    card = form.cards[at]
    if act == "text" and card.kind == "text":
        assert card.text is not None
        edited.set_text(at, text)
        start, end = around(card, form)
        assert edited.schema.startswith(start)
        assert edited.schema.endswith(end)
        old, new = texts(tree), texts(valid_schema(edited.schema))
        wanted = card.text.normal(text.replace("\r\n", "\n"))
        removed = [one for one in old if one not in new]
        assert removed in ([], [(card.path, card.text.text)]) or not wanted.strip()
        if wanted.strip():
            assert (card.path, wanted) in new
    elif act == "move" and card.host >= 0 and card.kind != "locked":
        siblings = form.inside(card.host)
        edited.move(at, place)
        whole = [form.cards[one].span for one in siblings]
        for span in whole:
            assert before[span.start : span.end] in edited.schema
        assert sorted(edited.schema) == sorted(before)
        words = [word for _, one in texts(tree) for word in one.split()]
        assert sorted(words) == sorted(
            word for _, one in texts(valid_schema(edited.schema)) for word in one.split()
        )
    elif act == "add" and card.kind in ("schema", "turn", "module", "union"):
        kinds: dict[str, New] = {"union": "module", "schema": "user", "turn": "union"}
        new_index = edited.add(at, kinds.get(card.kind, "module"))
        added = Form(edited.schema).cards[new_index]
        assert added.kind == {"user": "turn"}.get(
            kinds.get(card.kind, "module"), kinds.get(card.kind, "module")
        )
        kept = common(before, edited.schema)
        assert kept == len(before) or (card.element is not None and card.element.empty_tag)
    elif act == "remove" and card.kind in ("module", "union", "turn"):
        edited.remove(at)
        start, end = around(card, form)
        start = COMMENT_AT_END.sub("", start)  # it goes with the card
        assert without_scaffolds(edited.schema).startswith(without_scaffolds(start))
        assert without_scaffolds(edited.schema).endswith(without_scaffolds(end))
    elif act == "rename" and card.kind == "module":
        edited.rename(at, f"new-{index}-{place}")
        path = card.path.rpartition("/")[0]
        assert valid_schema(edited.schema).module(f"{path}/new-{index}-{place}".lstrip("/"))
        assert len(Form(edited.schema).cards) == len(form.cards)


def without_scaffolds(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if "<scaffold" not in line)


def common(short: str, long: str) -> int:
    """How many characters of two texts are the same from both ends."""
    head = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    tail = next(
        (at for at, (a, b) in enumerate(zip(short[::-1], long[::-1], strict=False)) if a != b), len(short)
    )
    return min(len(short), head + tail)


def play(source: str, prompt: str, steps: list[tuple[str, int, int, str]]) -> None:
    edited = Edited(source, prompt)
    for one in steps:
        was = edited.schema, edited.prompt
        try:
            step(edited, *one)
        except FormError:
            assert (edited.schema, edited.prompt) == was
        else:
            tree, bound = valid_schema(edited.schema), parse_prompt(edited.prompt).tree
            assert bound is not None
            assert [d for d in bind(tree, bound).diagnostics if d.severity == "error"] == []


@settings(max_examples=draws(100), deadline=None)
@given(st.sampled_from(NAMES), STEPS)
def test_drawn_edits_of_the_samples_change_only_what_is_meant(name: str, steps: Any) -> None:
    source = (SAMPLES / f"{name}.pml").read_text(encoding="utf-8")
    play(source, (SAMPLES / f"{name}.prompt.1.pml").read_text(encoding="utf-8"), steps)


@settings(max_examples=draws(250), deadline=None)
@given(STEPS, st.booleans())
def test_drawn_edits_of_an_awkward_schema_change_only_what_is_meant(steps: Any, windows: bool) -> None:
    source = AWKWARD.replace("\n", "\r\n") if windows else AWKWARD
    play(source, '<prompt schema="s"><a/><b p="1"/>x</prompt>', steps)


def schema(inside: str) -> str:
    return f'<schema name="s">{inside}</schema>'


def index_of(source: str, kind: str, at: int = 0) -> int:
    return [place for place, card in enumerate(Form(source).cards) if card.kind == kind][at]


LINES = """
  <module name="a">
    One &gt; two.

      Three <param name="p" len="4" default="x"/>.
  </module>
"""


@pytest.mark.parametrize(
    ("inside", "text", "after"),
    [
        (LINES, "One > two!\n\n  Three {{p}}.", LINES.replace("two.", "two!")),
        (LINES, "One > two.\nA & <b>\n  Three {{p}}.", LINES.replace("\n\n  ", "\n    A &amp; &lt;b>\n  ")),
        (LINES, "One > two.\n\n\n  Three {{p}}.", LINES.replace("\n\n", "\n\n\n")),
        (LINES, "{{p}}, {{p}} and {{q}}", None),
        (LINES, "One > two.\n\n  Three {{city}}.", LINES.replace('"p"', '"city"')),
        (LINES, "One > two.\n\n  Three .", LINES.replace('<param name="p" len="4" default="x"/>', "")),
        ('<module name="a"/>', "x", '<module name="a">x</module>'),
        ('\n <module name="a">\n </module>\n', "x\ny", '\n <module name="a">\n  x\n  y\n </module>\n'),
        ('<module name="a">]]</module>', "]]>", '<module name="a">]]&gt;</module>'),
        ('<module name="a">x></module>', "]]>", '<module name="a">]]&gt;</module>'),
        ('<module name="a">a]&gt;</module>', "a]]>", '<module name="a">a]]&gt;</module>'),
        ('<module name="a" xml:space="preserve">\n x \n</module>', "\n x\n", None),
    ],
)
def test_a_text_is_written_with_the_smallest_edit(inside: str, text: str, after: str | None) -> None:
    source = schema(inside)
    edited = Edited(source, "")
    edited.set_text(index_of(source, "text"), text)
    card = Form(edited.schema).cards[index_of(edited.schema, "text")]
    assert card.text is not None
    assert card.text.text == text
    assert after is None or edited.schema == schema(after)


def test_the_first_place_of_a_parameter_has_its_length() -> None:
    source = schema('<module name="a">x <param name="p" len="4"/> y <param name="p"/></module>')
    edited = Edited(source, '<prompt><a p="1"/>q</prompt>')
    at = index_of(source, "text")
    edited.set_text(at, "{{p}} x {{p}} y {{p}}")
    first = '<param name="p" len="4"/> x <param name="p"/> y <param name="p"/>'
    assert edited.schema == schema(f'<module name="a">{first}</module>')
    edited.set_text(at, "x y {{p}}")
    assert edited.schema == schema('<module name="a">x y <param name="p" len="4"/></module>')
    edited.set_text(at, "x y {{town}}")
    assert edited.schema == schema('<module name="a">x y <param name="town" len="4"/></module>')
    assert edited.prompt == '<prompt><a town="1"/>q</prompt>'


def test_a_rename_reaches_the_prompt_scaffolds_and_unions() -> None:
    source = schema(
        '<union scaffold="a"><module name="a">A<module name="i">I</module></module>'
        '<module name="b">B</module></union><module name="c">C <param name="p" len="2"/></module>'
        '<scaffold modules="a/i  c"/>'
    )
    edited = Edited(source, '<prompt schema="s"><a><i/></a> <c p="1"/>?</prompt>')
    edited.rename(index_of(source, "module"), "z")
    assert edited.schema == source.replace('"a"', '"z"').replace("a/i", "z/i")
    assert edited.prompt == '<prompt schema="s"><z><i/></z> <c p="1"/>?</prompt>'
    edited.set_parameter(index_of(source, "module", 3), "p", "q", 3, "d&")
    assert '<param name="q" len="3" default="d&amp;"/>' in edited.schema
    edited.rename(0, "t")
    assert edited.prompt == '<prompt schema="t"><z><i/></z> <c q="1"/>?</prompt>'
    edited.remove(index_of(source, "module"))
    assert edited.schema.startswith('<schema name="t"><union><module name="b">B</module></union>')
    assert "scaffold" not in edited.schema
    assert edited.prompt == '<prompt schema="t"> <c q="1"/>?</prompt>'
    refused = {"b": "'b'", "9": "write '_9' instead", "user": "user", "!": "begin with"}
    for name, says in {**refused, "Return rules!": "write 'Return-rules' instead"}.items():
        with pytest.raises(FormError, match=says):
            edited.rename(index_of(edited.schema, "module", 1), name)


def test_a_moved_card_takes_its_comment_along_and_leaves_the_gaps() -> None:
    first, second = '<!-- a -->\n  <module name="a">A</module>', '<module name="b">B</module>'
    source = schema(f"\n  {first}\n\n  {second} <!-- b -->\n")
    edited = Edited(source, "")
    assert edited.move(1, 1) == 3
    assert edited.schema == schema(f"\n  {second}\n\n  {first} <!-- b -->\n")
    edited.move(3, 0)
    assert edited.schema == source


@pytest.mark.parametrize(
    ("place", "after", "back"),
    [
        (0, " []\n One.\n\n Two.\n", "\n One.\n\n Two. []\n"),
        (2, " One.\n Two.\n\n []\n", " One.\n Two.\n\n []\n"),
    ],
)
def test_a_union_lands_behind_the_text_that_its_move_joins(place: int, after: str, back: str) -> None:
    union = '<union><module name="x">X</module><module name="y">Y</module></union>'

    def source(inside: str) -> str:
        return schema(f'<module name="a">{inside.replace("[]", union)}</module>')

    edited = Edited(source(" One.\n []\n\n Two.\n"), "")
    moved = edited.move(3, place)
    assert (edited.schema, moved) == (source(after), index_of(edited.schema, "union"))
    assert edited.move(moved, 1) == 3
    assert edited.schema == source(back)


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        ('<module name="a">x <!-- c --> y</module>', "It has a comment."),
        ('<module name="a">x <![CDATA[<]]> y</module>', "It has a CDATA section."),
        ('<module name="a">x &#233;</module>', "It has a character reference."),
        ('<module name="a">{{x}} <param name="x" len="2"/></module>', "It has {{…}}"),
        ('<scaffold modules="a"/><module name="a">x</module>', "It lists modules"),
    ],
)
def test_what_a_form_cannot_show_is_left_to_the_source(inside: str, why: str) -> None:
    (card,) = (card for card in Form(schema(inside)).cards if card.kind == "locked")
    assert card.why.startswith(why)
    with pytest.raises(FormError):
        Edited(schema(inside), "").set_text(index_of(schema(inside), "locked"), "new")


@pytest.mark.parametrize(
    ("prompt", "after"),
    [
        ("", '<prompt schema="s">\n  <user>Why &amp; how?</user>\n</prompt>\n'),
        ("<prompt><a/></prompt>", "<prompt><a/>\n  <user>Why &amp; how?</user>\n</prompt>"),
        ("<prompt>\n    <a/>\n</prompt>", "<prompt>\n    <a/>\n    <user>Why &amp; how?</user>\n</prompt>"),
    ],
)
def test_a_first_question_becomes_the_last_turn(prompt: str, after: str) -> None:
    edited = Edited(schema('<user>x<module name="a">A</module></user>'), prompt)
    edited.ask(" Why & how?\n")
    assert edited.prompt == after
    edited.set_prompt_text(index_of(after, "text"), "Why & who?")
    assert edited.prompt == after.replace("how", "who")


def test_an_invalid_schema_is_not_edited() -> None:
    with pytest.raises(FormError, match="has an error"):
        Edited('<schema name="s"><module>x</module></schema>', "").set_text(1, "y")


def test_a_comment_before_a_module_is_removed_with_it() -> None:
    rest = '<schema name="s">\n  <module name="a">A</module>\n'
    schema = f'{rest}  <!-- of b -->\n  <module name="b">B</module>\n</schema>\n'
    edited = Edited(schema, "")
    edited.remove(next(at for at, card in enumerate(Form(schema).cards) if card.name == "b"))
    assert edited.schema == f"{rest}</schema>\n"
