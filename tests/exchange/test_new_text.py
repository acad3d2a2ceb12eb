"""New text in templates and programs: as the engine reads it, or refused for the reason that holds."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.exchange import ExchangeError, export
from engine.pml import Prompt, Schema, Text, bind, parse_prompt, parse_schema
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.edit.writer import written_alike
from engine.pml.tree.conversation import Message, conversation
from engine.programs import compile_source
from tests.drawing import EVERY
from tests.pml.documents import schema_tree
from tests.pml.trees import prompts, schemas, seamed, text
from tests.programs.sources import load

slow = settings(
    max_examples=150 if EVERY else 10,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
asked_more = seamed(schemas()).flatmap(
    lambda schema: st.tuples(
        st.just(schema), prompts(schema).filter(bool), st.sampled_from(["", "\n", "\n\n"])
    )
)
TURNS = """<module name="m"><assistant>Hi.</assistant><user>
  <module name="a">A.</module>

  <module name="b">B.</module>
</user></module>"""


def read(schema: str, prompt: str) -> tuple[Schema, Prompt]:
    tree, asked = parse_schema(f"<schema name='s'>{schema}</schema>"), parse_prompt(prompt)
    assert tree.ok
    assert asked.ok
    assert tree.tree is not None
    assert asked.tree is not None
    return tree.tree, asked.tree


def said(schema: Schema, prompt: Prompt) -> tuple[Message, ...]:
    bound = bind(schema, prompt)
    assert bound.ok
    return conversation(bound.parts)


def rendered(schema: Schema, prompt: Prompt) -> str:
    template = export("jinja", schema, prompt).text
    context = json.loads(template[template.index("{\n") : template.index("\n#}")])
    return jinja2.Environment().from_string(template).render(context)


def called(schema: Schema, prompt: Prompt) -> tuple[Message, ...]:
    """What the exported call of a program gives."""
    found = export("python", schema, prompt)
    assert found.notes == ()
    assert compile_source(found.text).schema() == schema
    return said(schema, load(found.text, "prompt")())


SPELLED = {
    "a turn of a module is joined": (TURNS, "<prompt><m><a/><b/></m>So?</prompt>"),
    "a turn of a module is joined behind an empty one": (
        f"{TURNS}<assistant><module name='x'>X.</module></assistant>",
        "<prompt><m><a/><b/></m>So?</prompt>",
    ),
    "a turn follows a turn of a module": (
        f"{TURNS}<assistant><module name='x'>X.</module></assistant>",
        "<prompt><m><a/><b/></m><x/>So?</prompt>",
    ),
    "a turn of a module is not joined by a turn": (TURNS, "<prompt><m><a/></m><user>So?</user></prompt>"),
    "an argument empties a turn": (
        "<module name='m'><assistant><param name='n' len='4' default='D'/></assistant></module>"
        "<user><module name='a'>A.</module></user>",
        "<prompt><m n=''/><a/></prompt>",
    ),
    "an argument empties the turn behind the one that is joined": (
        "<user>Q.\n<module name='a'>A.</module></user>"
        "<module name='m'><assistant><param name='n' len='4' default='D'/></assistant></module>",
        "<prompt><a/><m n=''/>So?</prompt>",
    ),
    "the last turn is empty": ("<system>S.</system><user/>", "<prompt>So?</prompt>"),
    "the last turn is empty behind one of the user": ("<user>A.</user><user/>", "<prompt>So?</prompt>"),
    "text stands behind the last turn": ("<user>A.</user>B.", "<prompt>So?</prompt>"),
    "a module stands behind the last turn": (
        "<user>A.</user><module name='m'>M.</module>",
        "<prompt><m/>So?</prompt>",
    ),
    "a turn is added beside the last turn": ("<user>A.</user>", "<prompt><user>So?</user></prompt>"),
    "text and turns are added": (
        "<user>A.</user>",
        "<prompt>So?<assistant>Yes.</assistant><user>Why?</user></prompt>",
    ),
    "a turn is added where there is none": ("A.", "<prompt><user>So?</user></prompt>"),
    "text and turns are added where there is none": ("A.", "<prompt>So?<user>Why?</user></prompt>"),
    "an empty turn of a module is joined": ("<module name='m'><user/></module>", "<prompt><m/>So?</prompt>"),
}
JOINS = "its text joins a turn, but a call adds text only to the schema's last turn"
NO_CALL = {
    "a turn of a module is joined": JOINS,
    "a turn of a module is joined behind an empty one": JOINS,
    "an argument empties the turn behind the one that is joined": JOINS,
    "text and turns are added where there is none": "it adds text outside of turns, and turns after it",
}


@pytest.mark.parametrize("case", SPELLED)
def test_a_template_says_what_the_engine_reads(case: str) -> None:
    schema, prompt = read(*SPELLED[case])
    assert rendered(schema, prompt) == "".join(one.text for one in said(schema, prompt))


@pytest.mark.parametrize("case", sorted(SPELLED.keys() - NO_CALL.keys()))
def test_a_call_says_what_the_engine_reads(case: str) -> None:
    schema, prompt = read(*SPELLED[case])
    assert called(schema, prompt) == said(schema, prompt)


@pytest.mark.parametrize("case", NO_CALL)
def test_a_call_that_cannot_join_a_turn_says_so(case: str) -> None:
    found = export("python", *read(*SPELLED[case]))
    assert NO_CALL[case] in found.notes[0]
    assert "order" not in found.notes[0]
    assert "def prompt" not in found.text


def test_a_first_new_turn_of_another_role_has_no_call() -> None:
    found = export("python", *read("<system>S.</system>", "<prompt><assistant>Yes.</assistant></prompt>"))
    assert "its first new turn is the assistant's" in found.notes[0]


@slow
@given(asked_more)
def test_new_text_behind_seams_is_read_as_the_engine_does(drawn: tuple[Schema, Prompt, str]) -> None:
    schema, prompt, space = drawn
    more = [text("So?")] if not space else [Text(space, NOWHERE, seam=True), text("So?")]
    imports = tuple(child for child in prompt.children if not isinstance(child, Text))
    prompt = Prompt(prompt.schema, (*imports, *more), NOWHERE)
    try:
        found = rendered(schema, prompt)
    except ExchangeError as error:
        assume("outside turns on both sides" not in str(error))
        raise
    assert found == "".join(one.text for one in said(schema, prompt))


def test_a_true_change_of_order_is_refused_as_such() -> None:
    modules = "<user><module name='a'>A.</module>\n<module name='b'>B.</module></user>"
    schema, prompt = read(modules, "<prompt><b/><a/></prompt>")
    with pytest.raises(ExchangeError, match="another order"):
        export("jinja", schema, prompt)
    assert "in the schema's order" in export("python", schema, prompt).notes[0]


def test_a_schema_ends_with_what_is_set_apart_as_no_program_can_say(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Notes.\n", encoding="utf-8")
    modules = "Hi. <module name='a' src='notes.txt'/>\n<module name='b'><module name='c'>C.</module></module>"
    schema = schema_tree(f"<schema name='s'>{modules}</schema>", base=tmp_path)
    asked = parse_prompt("<prompt><a/><b/>So?</prompt>").tree
    plain = parse_prompt("<prompt><a/><b/></prompt>").tree
    found = export("python", schema, asked, tmp_path)
    assert written_alike(compile_source(found.text, base=tmp_path).schema(), schema)
    assert "new_text" not in found.text
    assert "follows a module with a separator that no program can have" in found.notes[0]
    assert "return s(a=True, b=True)" in export("python", schema, plain, tmp_path).text
