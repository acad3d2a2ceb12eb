"""Seams of programs: a prompt spells what running the function says, and documents have the same schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.pml import Module, Role, Schema, Text, Union, bind, parse_prompt, parse_schema
from engine.pml.edit.writer import write_prompt, write_schema
from engine.pml.tree.conversation import conversation
from engine.pml.whitespace.separators import SEAMS
from engine.programs import Program, ProgramError, compile_source, to_program
from engine.programs.writer import PromptCallError
from tests.drawing import draws
from tests.pml.documents import prompt_tree, schema_tree
from tests.pml.trees import prompts, schemas
from tests.programs.checks import both, file_of, written
from tests.programs.sources import run
from tests.programs.test_properties import call_of

HABITS = """
p.text("# How I travel", end="")
p.seam()
if flag:
    p.text("I walk.", end="")
    p.seam("\\n\\n")
if other:
    p.text("I get up early.", end="")
    p.seam("\\n\\n")
p.text(new, end="")
"""
ROWS = "flag: bool = False, other: bool = False, new: str = ''"


def the_same(program: Program, **given: Any) -> str:
    """What a program writes, which its prompt spells, also as documents."""
    schema, prompt = parse_schema(program.source()), parse_prompt(write_prompt(program(**given)))
    assert schema.tree == program.schema()
    assert schema.tree is not None
    assert prompt.tree is not None
    assert conversation(bind(schema.tree, prompt.tree).parts) == program.messages(**given)
    return written(program, **given)


def test_a_seam_stands_where_something_is_on_either_side_of_it() -> None:
    program = both(file_of(HABITS, parameters=ROWS))
    assert the_same(program) == "# How I travel"
    assert the_same(program, flag=True) == "# How I travel\nI walk."
    assert the_same(program, other=True) == "# How I travel\nI get up early."
    assert the_same(program, flag=True, other=True) == "# How I travel\nI walk.\n\nI get up early."
    assert the_same(program, new="Why?") == "# How I travel\nWhy?"
    assert the_same(program, other=True, new="Why?") == "# How I travel\nI get up early.\n\nWhy?"
    modules = """
  <module name="flag">I walk.</module>

  <module name="other">I get up early.</module>"""
    document = parse_schema(f"<schema name='program'>\n# How I travel{modules}\n</schema>")
    assert document.tree == program.schema()


@pytest.mark.parametrize(
    ("statements", "given", "text"),
    [
        (
            'with p.module("m", seam="\\n"):\n    p.text(a, end="")\np.text("End", end="")',
            {"a": "x"},
            "x\nEnd",
        ),
        ('with p.module("m", seam="\\n"):\n    p.text(a, end="")\np.text("End", end="")', {}, "End"),
        ('p.text("A ", a, end="")\np.seam(" ")\nif flag:\n    p.text("B", end="")', {"flag": True}, "A  B"),
        (
            'p.text("A", end="")\np.seam()\nwith p.module("m"):\n    p.text(a, end="")\n'
            'if flag:\n    p.text("B")',
            {"flag": True},
            "A\nB\n",
        ),
        (
            'for one in "abc":\n    p.text(one, end="")\n    p.seam()\nif flag:\n    p.text("d", end="")',
            {"flag": True},
            "a\nb\nc\nd",
        ),
        ('for one in "abc":\n    p.text(one, end="")\n    p.seam("\\n\\n")', {}, "a\n\nb\n\nc"),
        ('def stay():\n    p.text("Stay.", end="")\nstay(p)\np.seam()\np.text("Go.", end="")', {}, None),
        (
            'def stay(p):\n    p.text("Stay.", end="")\nstay(p)\np.seam()\np.text("Go.", end="")',
            {},
            "Stay.\nGo.",
        ),
        (
            'def stay(p):\n    p.text("Stay.", end="")\n    p.seam()\nstay(p)\np.text("Go.", end="")',
            {},
            "Stay.\nGo.",
        ),
        (
            'p.text("A", end="")\np.seam(" ")\np.seam("\\n")\np.seam(" ")\nif flag:\n    p.text("B", end="")',
            {"flag": True},
            "A\nB",
        ),
        (
            'if flag:\n    p.text("A")\n    p.seam()\nif other:\n    p.text("B")',
            {"flag": True, "other": True},
            "A\n\nB\n",
        ),
    ],
)
def test_what_a_seam_says(statements: str, given: dict[str, object], text: str | None) -> None:
    if text is None:
        with pytest.raises(ProgramError):
            compile_source(file_of(statements)).schema()
        return
    assert the_same(both(file_of(statements)), **given) == text


def test_turns_end_seams() -> None:
    body = """
with p.system():
    p.text("Be kind.", end="")
    p.seam()
with p.user():
    if flag:
        p.text("A", end="")
        p.seam("\\n\\n")
    with p.module("b", seam="\\n"):
        p.text("B", end="")
with p.assistant():
    p.text("C", end="")
"""
    program = both(file_of(body))
    assert the_same(program, flag=True) == "Be kind.A\n\nBC"
    assert the_same(program) == "Be kind.BC"


def test_the_turn_of_a_branch_ends_its_seams() -> None:
    body = """
if flag:
    with p.user():
        with p.module("b"):
            p.text("B", end="")
            p.seam()
        with p.module("c"):
            p.text("C", end="")
            p.seam()
with p.assistant():
    p.text("D", end="")
"""
    program = both(file_of(body))
    assert the_same(program, flag=True) == "B\nCD"
    assert the_same(program) == "D"


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        ('p.seam()\np.text("A")', "line 8: p.seam needs text before it"),
        ('if flag:\n    p.text("A")\np.seam()\np.text("B")', "as the last line of each branch"),
        ('if flag:\n    p.text(a, end="")\n    p.seam()\np.text("B")', r"p\.module\('flag', seam=…\)"),
        ('p.text(a)\np.seam("  ")', "a separator is"),
        ('p.text("A")\np.seam("\\n", "\\n")', "takes one text"),
        ('p.text("A")\np.seam(end="")', "takes one text"),
        ('with p.module("m", seam=5):\n    p.text("A")', "a separator is"),
        (
            'if flag:\n    p.text("A", end="")\n    p.seam()\np.text("B")\nif other:\n    p.text("C")',
            r'write end="" and use p',
        ),
        (
            'with p.module("m"):\n    p.text("A")\n    if flag:\n        p.text("B")\n        p.seam()',
            "nothing follows the last separator in the module 'm'",
        ),
        (
            'if flag:\n    p.text("A", end="")\n    p.seam()\nelse:\n    p.text("B", end="")\n'
            'if other:\n    p.text("C", end="")',
            "the same separator",
        ),
        (
            'with p.module("m"):\n    p.text(a, end="")\n    p.seam()\n    p.text("B")',
            "white space between texts of one module is always read",
        ),
    ],
)
def test_what_no_document_can_say_is_refused(statements: str, says: str) -> None:
    with pytest.raises(ProgramError, match=says):
        compile_source(file_of(statements)).schema()


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ("", r"write p.seam\('\\n\\n'\)"),
        ('\n    p.seam(" ")', r"write p.seam\('\\n\\n'\)"),
        ('\np.text("B", end="")\np.seam()', "cannot follow a separator"),
    ],
)
def test_new_words_are_set_apart_as_a_document_sets_them(last: str, says: str) -> None:
    first = 'if flag:\n    p.text("A", end="")\n    p.seam("\\n\\n")\nif other:\n    p.text("B", end="")'
    with pytest.raises(ProgramError, match=says):
        compile_source(file_of(f"{first}{last}\np.text(new)", parameters=ROWS)).schema()


def test_new_words_after_the_only_seam_are_refused() -> None:
    body = 'if flag:\n    p.text("A", end="")\n    p.seam()\np.text(new)'
    with pytest.raises(ProgramError, match="write the separator as text"):
        compile_source(file_of(body, parameters=ROWS)).schema()


WORDS = st.lists(st.sampled_from(["Go", "to", "Rome,", "soon."]), min_size=1, max_size=3).map(" ".join)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Documents of schemas with white space of all kinds between their elements."""
    gaps = st.sampled_from(SEAMS)

    def inner(children: tuple[Any, ...]) -> str:
        return draw(gaps).join(element(child) for child in children)

    def element(node: Any) -> str:
        match node:
            case Text(text):
                return draw(gaps) + text + draw(gaps)
            case Module(name=name, children=children, cache=cache):
                return f'<module name="{name}" cache="{str(cache).lower()}">{gapped(children)}</module>'
            case Union(members):
                return f"<union>{gapped(members)}</union>"
            case Role(role, children):
                return f"<{role}>{gapped(children)}</{role}>"
        length = "" if node.repeats else f' len="{node.length}"'
        return f'<param name="{node.name}"{length}/>'

    def gapped(children: tuple[Any, ...]) -> str:
        return "".join(element(child) + draw(gaps) for child in children)

    schema = draw(schemas(WORDS))
    return f'<schema name="{schema.name}">{gapped(schema.children)}</schema>'


@settings(max_examples=draws(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_a_document_is_a_program_and_every_prompt_a_call(data: st.DataObject) -> None:
    document = data.draw(documents())
    parsed = parse_schema(document)
    assert parsed.tree is not None
    assert parsed.ok, (document, parsed.diagnostics)
    schema = parsed.tree
    assert parse_schema(write_schema(schema)).tree == schema
    source = to_program(schema)
    assert compile_source(source).schema() == schema, source
    prompt = data.draw(prompts(schema, WORDS))
    bound = bind(schema, prompt)
    assert bound.ok
    try:
        check(schema, bound)
    except PromptCallError:
        assert any(isinstance(child, Text) for child in prompt.children)


def check(schema: Schema, bound: Any) -> None:
    source = to_program(schema, None, bound)
    names = run(source)
    wanted = conversation(bound.parts)
    assert conversation(bind(schema, names["prompt"]()).parts) == wanted, source
    program = names[compile_source(source).definition.node.name]
    assert program.messages(**call_of(source)) == wanted, source


@pytest.mark.parametrize("gap", ["", "\n", "\n\n"])
def test_a_schema_that_includes_another_is_a_document_and_a_program(gap: str, tmp_path: Path) -> None:
    rules = '<schema name="r">Be kind.\n<module name="x">X</module> Be brief.</schema>'
    (tmp_path / "rules.pml").write_text(rules, encoding="utf-8")
    inside = f'Start.{gap}<include src="rules.pml"/>{gap}More.\n<module name="m">M</module>'
    schema = schema_tree(f'<schema name="a"><user>{inside}</user></schema>', base=tmp_path)
    whole = schema_tree(write_schema(schema))
    assert whole == compile_source(to_program(schema)).schema()
    prompt = prompt_tree('<prompt schema="a"><x/><m/>Why?</prompt>')
    assert conversation(bind(whole, prompt).parts) == conversation(bind(schema, prompt).parts)


def test_text_round_a_turn_without_text_does_not_touch() -> None:
    turn = 'with p.user():\n    if flag:\n        p.text("M", end="")\n'
    program = both(file_of(f'p.text("Intro", end="")\n{turn}p.text("Outro", end="")', parameters=ROWS))
    assert the_same(program) == "Intro\nOutro"
    assert [message.text for message in program.messages(flag=True)] == ["Intro", "M", "Outro"]
    spaced = both(file_of(f'p.text("Intro")\n{turn}p.text("Outro", end="")', parameters=ROWS))
    assert the_same(spaced) == "Intro\nOutro"
