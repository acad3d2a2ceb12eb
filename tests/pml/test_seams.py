"""What a prompt reads between modules: the seams of the schema, and those of its own text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.pml import bind, parse_prompt, parse_schema
from engine.pml.edit.writer import write_schema
from engine.pml.tree.conversation import conversation
from engine.pml.xml.escaping import escaped_text
from tests.drawing import draws
from tests.pml.documents import prompt_tree, schema_tree

HABITS = """<schema name="habits">
  <user>
    # Habits
    <module name="cash">I pay in cash.</module>
    <module name="walk">I walk.</module>

    <module name="early">I get up <param name="time" len="4"/>.</module>
  </user>
</schema>
"""
TRIP = """<schema name="trip">
  <user>
    <module name="plan">
      Away for <param name="days" len="4"/>.
      <union>
        <module name="home">At home.</module>
        <module name="abroad">Abroad.

          <module name="tokyo">Tokyo.</module> <module name="rome">Rome.</module>
        </module>
      </union>
      <module name="note">Note.</module>
    </module>
    <module name="end">End.</module>
  </user>
</schema>
"""


def read(schema: str, prompt: str) -> str:
    """The turns that a prompt spells, with | between them."""
    parsed, asked = parse_schema(schema), parse_prompt(prompt)
    assert parsed.ok, parsed.diagnostics
    assert asked.ok, asked.diagnostics
    assert parsed.tree is not None
    assert asked.tree is not None
    bound = bind(parsed.tree, asked.tree)
    assert bound.ok, bound.diagnostics
    return "|".join(message.text for message in conversation(bound.parts))


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("<prompt/>", "# Habits"),
        ("<prompt><cash/></prompt>", "# Habits\nI pay in cash."),
        ("<prompt><cash/><walk/></prompt>", "# Habits\nI pay in cash.\nI walk."),
        ("<prompt><walk/><early time='at six'/></prompt>", "# Habits\nI walk.\n\nI get up at six."),
        ("<prompt><early time='at six'/><walk/></prompt>", "# Habits\nI get up at six.\n\nI walk."),
        (
            "<prompt><early time='x'/><cash/><walk/></prompt>",
            "# Habits\nI get up x.\n\nI pay in cash.\nI walk.",
        ),
        ("<prompt>Why?</prompt>", "# Habits\nWhy?"),
        ("<prompt><cash/>Why?</prompt>", "# Habits\nI pay in cash.\nWhy?"),
        ("<prompt><walk/>Why?</prompt>", "# Habits\nI walk.\n\nWhy?"),
        ("<prompt><early time='x'/>Why?</prompt>", "# Habits\nI get up x.\n\nWhy?"),
        ("<prompt><early time='x'/> Why?</prompt>", "# Habits\nI get up x.\n\nWhy?"),
        ("<prompt><early time='x'/>\n Why?</prompt>", "# Habits\nI get up x.\n\nWhy?"),
        ("<prompt>\n<cash/>\n\n\n\n<walk/>\n</prompt>", "# Habits\nI pay in cash.\nI walk."),
        ("<prompt>Look: <cash/>\nand <walk/></prompt>", "# Habits\nLook: I pay in cash.\nand I walk."),
        ("<prompt xml:space='preserve'>Why?</prompt>", "# Habits\nWhy?"),
        ("<prompt><cash/><user>Why?</user></prompt>", "# Habits\nI pay in cash.|Why?"),
        ("<prompt><cash/><user>Why?</user>Now?</prompt>", "# Habits\nI pay in cash.|Why?\nNow?"),
    ],
)
def test_a_flat_schema(prompt: str, text: str) -> None:
    assert read(HABITS, prompt) == text


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("<prompt><plan days='a week'/></prompt>", "Away for a week."),
        ("<prompt><plan days='a week'><home/></plan><end/></prompt>", "Away for a week.\nAt home.\nEnd."),
        ("<prompt><tokyo/></prompt>", "Away for .\nAbroad.\n\nTokyo."),
        ("<prompt><tokyo/><rome/></prompt>", "Away for .\nAbroad.\n\nTokyo. Rome."),
        ("<prompt><rome/><tokyo/></prompt>", "Away for .\nAbroad.\n\nRome. Tokyo."),
        ("<prompt><plan><abroad/><note/></plan></prompt>", "Away for .\nAbroad.\n\nNote."),
        (
            "<prompt><plan><note/><abroad><tokyo/></abroad></plan><end/></prompt>",
            "Away for .\nNote.\nAbroad.\n\nTokyo.\nEnd.",
        ),
        ("<prompt><plan>By train.</plan><end/></prompt>", "Away for .\nBy train.\nEnd."),
        ("<prompt><plan><home/>By train.<note/></plan></prompt>", "Away for .\nAt home.\nBy train.Note."),
    ],
)
def test_nested_modules(prompt: str, text: str) -> None:
    assert read(TRIP, prompt) == text


def test_a_turn_of_which_all_is_left_out_but_text_ends_with_the_text() -> None:
    turns = "<user>Read.\n<module name='m'>M</module>\n</user><assistant>Yes.</assistant>"
    schema = f"<schema name='a'>{turns}</schema>"
    assert read(schema, "<prompt/>") == "Read.|Yes."
    assert read(schema, "<prompt><m/></prompt>") == "Read.\nM|Yes."


@pytest.mark.parametrize(
    ("space", "text"), [("", "M.Why?"), (" ", "M. Why?"), ("\n  ", "M.\nWhy?"), ("\n\n\n", "M.\n\nWhy?")]
)
def test_where_no_seam_is_known_the_white_space_of_the_prompt_counts(space: str, text: str) -> None:
    schema = "<schema name='a'><user>\n<module name='m'>M.</module>\n</user></schema>"
    assert read(schema, f"<prompt><m/>{space}Why?</prompt>") == text


def test_an_implied_seam_ends_with_its_module() -> None:
    schema = """<schema name="a"><module name="m">M

      <module name="n">N</module></module><module name="o">O</module></schema>"""
    assert read(schema, "<prompt><n/><o/></prompt>") == "M\n\nNO"
    assert read(schema, "<prompt><m><n/>new</m><o/></prompt>") == "M\n\nN\n\nnewO"


def test_an_empty_module_brings_no_seam() -> None:
    schema = """<schema name="a">One.
      <module name="m"><module name="n">N</module></module>

      Two.</schema>"""
    assert read(schema, "<prompt><m/></prompt>") == "One.\nTwo."
    assert read(schema, "<prompt><n/></prompt>") == "One.\nN\n\nTwo."


def test_text_that_keeps_its_line_end_gets_no_other() -> None:
    schema = """<schema name="a"><module name="m" xml:space="preserve">M
</module>
    <module name="n">N</module></schema>"""
    assert read(schema, "<prompt><m/><n/></prompt>") == "M\nN"


LINES = st.sampled_from(
    [
        "# Title",
        "## Part",
        "- item",
        "* item",
        "1. first",
        "```",
        "> quote",
        "plain words",
        "    code",
        "| a | b |",
    ]
)


@settings(max_examples=draws(150))
@given(st.data())
def test_what_begins_a_line_in_the_source_begins_one_in_the_prompt(data: st.DataObject) -> None:
    """Markdown cut into modules: all imported it is the document, and any choice keeps its lines."""
    blocks = data.draw(st.lists(st.lists(LINES, min_size=1, max_size=4), min_size=1, max_size=6))
    gaps = [data.draw(st.sampled_from(["\n", "\n\n"])) for _ in blocks]
    named = [data.draw(st.booleans()) for _ in blocks]
    source, whole = "<schema name='d'>\n", ""
    for place, (lines, gap, module) in enumerate(zip(blocks, gaps, named, strict=True)):
        text = escaped_text("\n".join(lines))
        inner = f"<module name='m{place}'>\n{text}\n</module>" if module else text
        source += inner + gap
        whole += "\n".join(lines) + gap
    source += "</schema>"
    imports = [f"<m{place}/>" for place, module in enumerate(named) if module]
    assert squeezed(read(source, f"<prompt>{''.join(imports)}</prompt>")) == squeezed(whole.strip("\n"))
    kept = data.draw(st.permutations(imports)) if imports else []
    kept = kept[: data.draw(st.integers(0, len(kept)))]
    found = read(source, f"<prompt>{''.join(kept)}</prompt>").split("\n")
    wanted = [line.strip() for place, lines in enumerate(blocks) for line in lines
              if not named[place] or f"<m{place}/>" in kept]  # fmt: skip
    assert sorted(line.strip() for line in found if line) == sorted(wanted)


def squeezed(text: str) -> str:
    """Without indentation, which is taken off each module by itself."""
    return re.sub(r"(?m)^ +", "", text)


def test_what_an_implied_seam_has_covered_is_read_when_it_has_ended() -> None:
    schema = """<schema name="a"><module name="m">M

      <module name="n">N <module name="k">K</module></module></module><module name="o">O</module></schema>"""
    assert read(schema, "<prompt><n/><o/></prompt>") == "M\n\nN O"


@pytest.mark.parametrize(
    "inner",
    [
        "<module name='todo'></module>\n<module name='b'>B</module>",
        "<union><module name='none'/><module name='b'>B</module></union>\ntail",
    ],
)
def test_an_empty_module_with_a_seam_is_written(inner: str) -> None:
    tree = schema_tree(f"<schema name='e'>{inner}</schema>")
    assert parse_schema(write_schema(tree)).tree == tree


@pytest.mark.parametrize(("space", "text"), [("\n", "# Two\nOne.\n"), ("\n\n", "# Two\n\nOne.\n")])
def test_the_last_module_takes_the_seam_as_it_is_written(tmp_path: Path, space: str, text: str) -> None:
    (tmp_path / "one.txt").write_text("One.\n", encoding="utf-8")
    modules = f"<module name='one' src='one.txt'/>{space}<module name='two'># Two</module>"
    source = f"<schema name='s'>{modules}</schema>"
    tree, asked = schema_tree(source, base=tmp_path), prompt_tree("<prompt><two/><one/></prompt>")
    assert [message.text for message in conversation(bind(tree, asked).parts)] == [text]


EXAMPLES = """<schema name="e">
  <system>Sys</system>
  <module name="a"><user>Qa</user><assistant>Aa</assistant></module>
  <module name="b"><user>Qb</user><assistant>Ab</assistant></module>
</schema>"""


@pytest.mark.parametrize(
    ("prompt", "last"),
    [
        ("lead<b/>mid<a/>tail", "lead\nmid\ntail"),
        ("lead <b/>mid\n\n<a/>tail", "lead\nmid\n\ntail"),
        ("<b>in</b>mid<a/>", "in\nmid"),
        ("lead<b/><a/><user>T</user>", "T"),
    ],
)
def test_text_that_cannot_stand_where_it_is_written_follows_on_lines_of_its_own(
    prompt: str, last: str
) -> None:
    assert turns(EXAMPLES, f"<prompt>{prompt}</prompt>")[-1] == ("user", last)
    asking = '<schema name="e"><module name="a"><user>Say</user></module></schema>'
    assert turns(asking, "<prompt>lead<a/>tail</prompt>") == [("user", "Say\nlead\ntail")]
    assert turns(asking, "<prompt><a/> tail</prompt>") == [("user", "Say tail")]


def test_text_round_a_turn_that_is_left_out_does_not_touch() -> None:
    turn = '<user><module name="m">M</module></user>'
    other = '<assistant><module name="n">N</module></assistant>'
    schema = f'<schema name="e">Intro{turn}Outro{other}End</schema>'
    assert turns(schema, "<prompt/>") == [(None, "Intro\nOutro\nEnd")]
    assert turns(schema, "<prompt><m/></prompt>") == [(None, "Intro"), ("user", "M"), (None, "Outro\nEnd")]
    kept = f'<schema name="e" xml:space="preserve">Intro {turn}Outro</schema>'
    assert turns(kept, "<prompt/>") == [(None, "Intro Outro")]


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("A {}\n\nB", "A\n\nB"),
        ("A\n\n{} B", "A\n\nB"),
        ("A{} {}\n{}B", "A\nB"),
        ('<module name="a">A</module> {}\n\n<module name="b">B</module>', "A\n\nB"),
        ('<module name="b">A</module>\n\n{} <module name="a">B</module>', "B\n\nA"),
        ('<union><module name="a">A</module></union> {}\n<module name="b">B</module>', "A\nB"),
    ],
)
def test_the_larger_seam_stands_round_an_include_that_holds_nothing(
    tmp_path: Path, inner: str, text: str
) -> None:
    (tmp_path / "none.pml").write_text('<schema name="none"></schema>', encoding="utf-8")
    schema = f'<schema name="s">{inner}</schema>'.replace("{}", '<include src="none.pml"/>')
    names = "<a/><b/>" if "module" in inner else ""
    assert turns(schema, f"<prompt>{names}</prompt>", tmp_path) == [(None, text)]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("<a/>\n\nPara\n\n<b/>\n\n- list", "A.\n\nPara\n\nB.\n\n- list"),
        ("<a/> Para <b/>", "A.\nPara B."),
        ("<a/>\n<b/>\n\nEnd", "A.\nB.\n\nEnd"),
        ("<b/>\n\nEnd\n\n<a/>", "B.\n\nEnd\n\nA."),
    ],
)
def test_a_blank_line_of_a_prompt_stands(prompt: str, text: str) -> None:
    schema = '<schema name="s"><module name="a">A.</module>\n<module name="b">B.</module></schema>'
    assert turns(schema, f"<prompt>{prompt}</prompt>") == [(None, text)]


def turns(schema: str, prompt: str, base: Path | None = None) -> list[tuple[str | None, str]]:
    tree, asked = schema_tree(schema, base=base), prompt_tree(prompt)
    return [(message.role, message.text) for message in conversation(bind(tree, asked).parts)]


def test_the_implied_seam_is_the_nearest_before_it() -> None:
    inner = '<module name="a">A.</module> <module name="b">B.</module>\n\nT<module name="c">C.</module>'
    assert turns(f'<schema name="s">{inner}</schema>', "<prompt><c/><a/></prompt>") == [(None, "C.\n\nTA.")]


def test_white_space_that_is_kept_beside_turns_is_nothing() -> None:
    held = "<user>a</user>\n <assistant>b </assistant>"
    inner = f'<module name="f" xml:space="preserve"> {held} </module><user>q</user>'
    assert turns(f'<schema name="s">{inner}</schema>', "<prompt><f/></prompt>") == [
        ("user", "a"),
        ("assistant", "b "),
        ("user", "q"),
    ]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("<a>not here <x/></a>", "I go to Rome not here X now."),
        ("<a>\n  not here\n  <x/></a>", "I go to Rome not here\nX now."),
        ("lead<a/>", "I go to leadRome now."),
        ("\n  lead\n  <a/>\n", "I go to lead\nRome now."),
        ("<a/>thanks", "I go to Rome now. thanks"),
    ],
)
def test_a_line_break_that_nobody_wrote_takes_the_place_of_no_seam(prompt: str, text: str) -> None:
    inner = 'I go to <module name="a">Rome <module name="x">X</module> now.</module>'
    assert turns(f'<schema name="s">{inner}</schema>', f"<prompt>{prompt}</prompt>") == [(None, text)]
