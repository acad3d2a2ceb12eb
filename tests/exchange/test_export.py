"""Every form spells what the bound prompt spells."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.exchange import FORMS, ExchangeError, export
from engine.exchange.templates.from_jinja import from_jinja
from engine.exchange.to_messages import MAX_BREAKPOINTS
from engine.pml import NewText, Prompt, PromptError, Schema, bind, parse_schema
from engine.pml.tree.conversation import conversation
from engine.programs import compile_source
from tests.drawing import EVERY, each
from tests.pml.documents import prompt_tree as asked
from tests.pml.documents import schema_tree
from tests.pml.documents import schema_tree as tree
from tests.pml.trees import prompts, schemas, seamed
from tests.programs.sources import load

SAMPLES = Path(__file__).parents[2] / "sample_schemas"
slow = settings(
    max_examples=150 if EVERY else 10,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
pairs = schemas().flatmap(lambda schema: st.tuples(st.just(schema), prompts(schema)))
set_apart = seamed(schemas()).flatmap(lambda schema: st.tuples(st.just(schema), prompts(schema)))


def turns(schema: Schema, prompt: Prompt) -> list[tuple[str | None, str]]:
    return [(one.role, one.text) for one in conversation(bind(schema, prompt).parts)]


def rendered(template: str) -> str:
    """A template rendered as the comment at its top says."""
    found = re.match(r"\{# Render it with:\n(.*?)\n#\}", template, re.S)
    context = json.loads(found[1]) if found else {}
    return jinja2.Environment(undefined=jinja2.Undefined).from_string(template).render(context)


def renders_to_the_text(schema: Schema, prompt: Prompt) -> None:
    """Refused is only what sets texts apart that nobody wrote: a template has no place for it."""
    text = "".join(text for _, text in turns(schema, prompt))
    nobodys = (p for p in bind(schema, prompt).parts if isinstance(p, NewText) and p.span.start == p.span.end)
    with suppress(ExchangeError) if any(nobodys) else nullcontext():
        assert rendered(export("jinja", schema, prompt).text) == text


@slow
@given(pairs)
def test_a_template_renders_to_the_text_of_the_prompt(pair: tuple[Schema, Prompt]) -> None:
    renders_to_the_text(*pair)


@slow
@given(set_apart)
def test_a_template_reads_seams_as_the_engine_does(pair: tuple[Schema, Prompt]) -> None:
    renders_to_the_text(*pair)


@slow
@given(set_apart)
def test_openai_gets_every_turn(pair: tuple[Schema, Prompt]) -> None:
    schema, prompt = pair
    expected = [{"role": role or "user", "content": text} for role, text in turns(schema, prompt) if text]
    if not expected:
        with pytest.raises(ExchangeError, match="empty"):
            export("openai", schema, prompt)
        return
    assert json.loads(export("openai", schema, prompt).text) == {"messages": expected}


@slow
@given(set_apart)
def test_anthropic_gets_every_word_in_blocks_that_it_takes(pair: tuple[Schema, Prompt]) -> None:
    schema, prompt = pair
    spoken = [(role or "user", text) for role, text in turns(schema, prompt) if text.strip()]
    if not spoken:
        with pytest.raises(ExchangeError, match="empty"):
            export("anthropic", schema, prompt)
        return
    body = json.loads(export("anthropic", schema, prompt).text)
    assert "".join(joined(body.get("system", ()))) == "".join(t for role, t in spoken if role == "system")
    got = [(one["role"], "".join(joined(one["content"]))) for one in body["messages"]]
    assert got == [(role, text) for role, text in spoken if role != "system"]
    blocks = [*body.get("system", ()), *(block for one in body["messages"] for block in one["content"])]
    assert all(block["text"].strip() for block in blocks)
    assert sum("cache_control" in block for block in blocks) <= MAX_BREAKPOINTS


def joined(blocks: Any) -> list[str]:
    return [block["text"] for block in blocks]


@slow
@given(pairs)
def test_pml_and_python_give_the_schema_back(pair: tuple[Schema, Prompt]) -> None:
    schema, prompt = pair
    assert parse_schema(export("pml", schema, prompt).text).tree == schema
    assert compile_source(export("python", schema, prompt).text).schema() == schema


@slow
@given(pairs)
def test_the_program_of_a_prompt_calls_itself_for_it(pair: tuple[Schema, Prompt]) -> None:
    schema, prompt = pair[0], replace(pair[1], questions=())
    found = export("python", schema, prompt)
    if "def prompt():" in found.text:
        called = load(found.text, "prompt")()
        assert turns(schema, called) == turns(schema, prompt)
        assert len(found.notes) == len(prompt.questions)
        assert all("the questions of the prompt are left out" in note for note in found.notes)
    else:
        assert "the prompt is left out" in found.notes[0]


def test_calls_take_arguments_picks_and_new_text() -> None:
    text = export("python", tree(CACHED), asked('<prompt><a/><b x="1"/>And?</prompt>')).text
    assert 'return s(a=True, b=True, x="1", new_text="And?")' in text
    reordered = export("python", tree(CACHED), asked("<prompt><c/><a/></prompt>"))
    assert "in the schema's order" in reordered.notes[0]
    assert "def prompt" not in reordered.text


CACHED = """
<schema name="s">
  <system>Always.</system>
  <user>
    <module name="a">Aaaa.</module> <module name="b">Bbbb <param name="x" len="4"/>.</module>
    <module name="c">Cccc.</module> <module name="d">Dddd.</module> <module name="e">Eeee.</module>
  </user>
</schema>"""


def marked(prompt: str) -> list[str]:
    body = json.loads(export("anthropic", tree(CACHED), asked(prompt)).text)
    blocks = [*body["system"], *(block for one in body["messages"] for block in one["content"])]
    return [block["text"].strip() for block in blocks if "cache_control" in block]


def test_the_last_breakpoint_ends_the_stable_prefix() -> None:
    assert marked('<prompt><a/><b x="1"/><c/>And?</prompt>') == ["Always.", "Aaaa.", "Bbbb"]
    assert marked("<prompt><a/><b/><c/>And?</prompt>")[-1] == "Cccc."
    everything = marked("<prompt><a/><b/><c/><d/><e/></prompt>")
    assert len(everything) == MAX_BREAKPOINTS
    assert everything[0] == "Always."
    assert everything[-1] == "Eeee."


def test_what_follows_the_first_change_is_one_block() -> None:
    prompt = asked('<prompt><a/><b x="1"/><c/><d/>And?</prompt>')
    body = json.loads(export("anthropic", tree(CACHED), prompt).text)
    assert len(body["messages"][-1]["content"]) == 3


def test_what_is_stable_is_said() -> None:
    notes = export("openai", tree(CACHED), asked('<prompt><a/><b x="1"/></prompt>')).notes
    assert "18 of 20 characters stand before the first argument" in notes[0]


def test_a_system_turn_in_the_middle_is_moved_and_said() -> None:
    schema = tree("<schema name='s'><user>u</user><system>late</system>out</schema>")
    found = export("anthropic", schema, asked("<prompt/>"))
    assert json.loads(found.text)["system"][0]["text"] == "late"
    assert any("moved up" in note for note in found.notes)
    assert any("text between turns" in note for note in found.notes)


@pytest.mark.parametrize(
    "text", ["{", "{{", "{%", "{#", "{\r", "{{{\r%}", "}}", "\r\n", "x\n", "{% raw %}", "-%}"]
)
def test_a_template_keeps_whatever_looks_like_a_tag(text: str) -> None:
    spelled = text.replace("\r", "&#13;")
    module = f"<module name='m'>{spelled}</module>"
    schema = tree(f"<schema name='s' xml:space='preserve'>{spelled}{module}{spelled}</schema>")
    for prompt, expected in (("<prompt/>", text * 2), ("<prompt><m/></prompt>", text * 3)):
        assert rendered(export("jinja", schema, asked(prompt)).text) == expected


def test_a_turn_of_white_space_that_is_left_out_is_said() -> None:
    preserved = (
        "<user xml:space='preserve'>  </user><user>Hi</user><assistant xml:space='preserve'>\n</assistant>"
    )
    found = export("anthropic", tree(f"<schema name='s'>{preserved}</schema>"), asked("<prompt/>"))
    assert [one["content"][0]["text"] for one in json.loads(found.text)["messages"]] == ["Hi"]
    assert "2 turns with only white space are left out, because the service refuses them" in found.notes
    one = export(
        "anthropic",
        tree(f"<schema name='s'>{preserved.partition('<assistant')[0]}</schema>"),
        asked("<prompt/>"),
    )
    assert "1 turn with only white space is left out, because the service refuses it" in one.notes
    assert not any(
        "white space" in note
        for note in export("anthropic", tree(CACHED), asked("<prompt><a/></prompt>")).notes
    )


def test_plain_text_names_the_turns() -> None:
    schema = tree("<schema name='s'><system>S</system><user><module name='m'>M</module></user></schema>")
    assert export("text", schema, asked("<prompt><m/></prompt>")).text == "System: S\n\nUser: M"
    plain = tree("<schema name='s'>A <module name='m'>M</module></schema>")
    assert export("text", plain, asked("<prompt><m/> new</prompt>")).text == "A M new"


def test_files_are_copied_into_a_document_that_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "unit.py").write_text("x = 1\n", encoding="utf-8")
    schema = schema_tree("<schema name='s'><module name='m' src='unit.py'/></schema>", base=tmp_path)
    found = export("pml", schema)
    copy = schema_tree(found.text)
    assert copy.module("m") is not None
    assert [child.text for child in copy.modules()[0].children] == ["x = 1\n"]  # type: ignore[union-attr]
    assert "copied" in found.notes[0]


@pytest.mark.parametrize("before", ["", "\n\n", "Be kind.\n"])
@pytest.mark.parametrize("line", ["assistant:", "## User :", "system[name=a]:"])
def test_text_that_looks_like_a_role_is_no_turn_when_it_comes_back(before: str, line: str) -> None:
    schema = schema_tree(f'<schema name="s">\n{before}{line}\n\nSay yes.\n</schema>')
    template = export("jinja", schema, None).text
    assert rendered(template).strip().endswith(f"{line}\n\nSay yes.")
    assert from_jinja(template, "s").schema == schema


def test_names_that_jinja_spells_in_another_way_are_said() -> None:
    schema = tree("<schema name='s'><module name='unit.py'>x</module><module name='loop'>y</module></schema>")
    assert "unit_py for unit.py, loop_2 for loop" in export("jinja", schema).notes[0]
    assert export("jinja", tree("<schema name='s'><module name='m'>x</module></schema>")).notes == ()


@pytest.mark.parametrize("form", ["openai", "anthropic", "text"])
def test_a_conversation_needs_a_prompt(form: str) -> None:
    with pytest.raises(ExchangeError, match="exports one prompt"):
        export(form, tree(CACHED))


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ExchangeError, match="use one of pml, python, openai"):
        export("yaml", tree(CACHED))


def test_a_faulty_prompt_is_refused() -> None:
    with pytest.raises(PromptError, match="E402"):
        export("text", tree(CACHED), asked("<prompt><nothing/></prompt>"))


@pytest.mark.parametrize(
    "prompt", ["<prompt><c/><a/></prompt>", "<prompt><a/>between<c/></prompt>"], ids=["order", "new text"]
)
def test_what_a_template_cannot_hold_is_said(prompt: str) -> None:
    with pytest.raises(
        ExchangeError, match=r"a template (has modules in the order|allows new text only at its end)"
    ):
        export("jinja", tree(CACHED), asked(prompt))


def test_a_schema_too_deep_for_a_template_is_refused() -> None:
    source = "".join(f"<module name='m{i}'>" for i in range(200)) + "x" + "</module>" * 200
    with pytest.raises(ExchangeError, match="flatten it"):
        export("jinja", tree(f"<schema name='s'>{source}</schema>"))


PAIRS = [
    (path, form) for path in sorted(SAMPLES.glob("*.prompt.*.pml")) for form in FORMS if form != "decisions"
]


@pytest.mark.parametrize(
    ("path", "form"),
    each(PAIRS, *[pair for pair in PAIRS if pair[1] == "jinja" or pair[0].name == "travel.prompt.1.pml"]),
)
def test_every_sample_prompt_has_every_form(path: Path, form: str) -> None:
    source = (SAMPLES / f"{path.name.partition('.')[0]}.pml").read_text(encoding="utf-8")
    schema = schema_tree(source, base=SAMPLES)
    prompt = asked(path.read_text(encoding="utf-8"))
    if (form, path.name) == ("jinja", "few-shot.prompt.2.pml"):
        with pytest.raises(ExchangeError, match="put its imports in the schema's order"):
            export(form, schema, prompt, SAMPLES)  # its examples stand in an order of their own
        return
    found = export(form, schema, prompt, SAMPLES)
    assert len(found.text) > 500
    assert found.filename.startswith(schema.name)
