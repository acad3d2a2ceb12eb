"""Turns that a prompt may leave out, in other forms: each says what the engine reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.exchange import export
from engine.pml import Prompt, Schema, bind
from engine.pml.tree.conversation import conversation
from engine.programs import Arg, compile_source, schema
from engine.prompt.conversation.question import ask, narrowed
from engine.prompt.conversation.search import SearchIndex
from tests.pml.documents import prompt_tree, schema_tree

SCHEMA = """<schema name="sums">
  <union>
    <module name="brief"><system>Be brief.</system></module>
    <module name="kind"><system>Be kind.</system></module>
  </union>
  <module name="shot-1"><user>One and one?</user><assistant>Two.</assistant></module>
  <module name="shot-2">
    <user>Two and <param name="n" len="4" default="two"/>?</user>
    <assistant>It is <param name="n"/> more.<module name="why">For two is half of it.</module></assistant>
  </module>
  <user><module name="topic">About sums.</module></user>
</schema>"""
PROMPTS = {
    "": [("user", "So?")],
    "<topic/>": [("user", "About sums.\nSo?")],
    "<kind/><shot-1/>": [
        ("system", "Be kind."),
        ("user", "One and one?"),
        ("assistant", "Two."),
        ("user", "So?"),
    ],
    '<shot-2 n="2"><why/></shot-2>': [
        ("user", "Two and 2?"),
        ("assistant", "It is 2 more.For two is half of it."),
        ("user", "So?"),
    ],
}


def read(names: str) -> tuple[Schema, Prompt]:
    tree, prompt = schema_tree(SCHEMA), prompt_tree(f"<prompt>{names}\nSo?</prompt>")
    return tree, prompt


@pytest.mark.parametrize("names", PROMPTS)
def test_every_form_has_the_turns_of_the_prompt_and_no_other(names: str) -> None:
    tree, prompt = read(names)
    wanted = [{"role": role, "content": text} for role, text in PROMPTS[names]]
    bound = bind(tree, prompt)
    assert [{"role": one.role, "content": one.text} for one in conversation(bound.parts)] == wanted
    assert json.loads(export("openai", tree, prompt).text)["messages"] == wanted
    anthropic = json.loads(export("anthropic", tree, prompt).text)
    turns: list[Any] = [{"role": "system", "content": anthropic["system"]}] if "system" in anthropic else []
    spoken = [
        (one["role"], "".join(part["text"] for part in one["content"]))
        for one in [*turns, *anthropic["messages"]]
    ]
    assert spoken == PROMPTS[names]
    headed = "\n\n".join(f"{role.capitalize()}: {text}" for role, text in PROMPTS[names])
    assert export("text", tree, prompt).text == headed


@pytest.mark.parametrize("names", PROMPTS)
def test_a_template_renders_to_the_same_words(names: str) -> None:
    tree, prompt = read(names.replace("\n", ""))
    template = export("jinja", tree, prompt).text
    context = json.loads(template[template.index("{\n") : template.index("\n#}")])
    rendered = ImmutableSandboxedEnvironment().from_string(template).render(context)
    assert rendered == "".join(one.text for one in conversation(bind(tree, prompt).parts))


@pytest.mark.parametrize("names", PROMPTS)
def test_a_program_compiles_to_the_schema_and_says_the_same(names: str) -> None:
    tree, prompt = read(names)
    program = compile_source(export("python", tree, prompt).text)
    assert program.schema() == tree


@schema("sums")
def sums(p: Any, shot: bool, topic: bool, question: str, n: Arg[4] = "two") -> None:
    if shot:
        with p.user():
            p.text("Two and ", n, "?", end="")
        with p.assistant():
            p.text("It is ", n, " more.", end="")
    with p.user():
        if topic:
            p.text("About sums.", end="")
    with p.user():
        p.text(question, end="")


def test_a_program_that_is_called_leaves_turns_out_too() -> None:
    shot, _ = sums.schema().modules()
    assert [turn.role for turn in shot.turns()] == ["user", "assistant"]
    assert [param.name for param in shot.params()] == ["n"]
    for values in ({"shot": True, "topic": False, "n": "2"}, {"shot": False, "topic": True}):
        bound = bind(sums.schema(), sums(**values, question="So?"))
        assert conversation(bound.parts) == sums.messages(**values, question="So?")


def test_a_search_finds_what_turns_of_a_module_say() -> None:
    tree, _ = read("")
    with SearchIndex.of(tree) as index:
        assert index.search("half of it")[0].path == "shot-2/why"
        assert index.search("one and one")[0].path == "shot-1"
    asked = ask(tree, ["shot-1"], "And three?")
    said = conversation(bind(asked.schema, asked.prompt).parts)
    assert [one.role for one in said] == ["user", "assistant", "user"]
    left = narrowed(tree, ["shot-1"])
    assert [role.role for role, _ in left.index.turns] == [role.role for role, _ in tree.index.turns]
    assert left.module("shot-2").params() == ()
