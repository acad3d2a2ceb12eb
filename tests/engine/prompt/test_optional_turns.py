"""Turns that a prompt may leave out: the tokens of the template, positions, segments, and refusals."""

from __future__ import annotations

import pytest

from engine.pml import PromptError
from engine.pml.tree.conversation import conversation
from engine.prompt.recipe import Identity
from engine.prompt.spec import ModelSpec
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.tokenized import TokenizedPrompt, TokenizedSchema
from tests.engine.cases import prompt_of, schema_of
from tests.engine.prompt.chat_templates import FAMILIES, tokenizer

SCHEMA = """<schema name="s">
  <union>
    <module name="brief"><system>Be brief.</system></module>
    <module name="kind"><system>Be kind.</system></module>
  </union>
  <module name="shot-1"><user>One and one?</user><assistant>Two.</assistant></module>
  <module name="shot-2">
    <user>Two and <param name="n" len="4" default="two"/>?</user>
    <assistant>Four. <module name="why">For two is half of it.</module></assistant>
  </module>
  <user><module name="topic">About sums.</module></user>
</schema>"""
PROMPTS = [
    "<prompt>And three?</prompt>",
    "<prompt><topic/> And three?</prompt>",
    "<prompt><brief/><topic/> And three?</prompt>",
    "<prompt><kind/><shot-1/> And three?</prompt>",
    "<prompt><shot-1/><shot-2/><user>And three?</user></prompt>",
    '<prompt><brief/><shot-2 n="2"><why/></shot-2><shot-1/> And three?</prompt>',
    "<prompt><kind/><shot-2/><topic/></prompt>",
]


def tokenized(name: str, source: str = SCHEMA) -> TokenizedSchema:
    """A schema for a model of a family; nothing of the model is there to compute."""
    made = tokenizer(FAMILIES[name])
    spec = ModelSpec("tiny", made, ChatFormat(made), made.unk_token_id, 4096, Identity("f", "float32", True))
    return TokenizedSchema(schema_of(source), spec)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("source", PROMPTS)
def test_the_tokens_are_those_of_the_template_for_the_turns_that_are_imported(name: str, source: str) -> None:
    schema = tokenized(name)
    prompt = TokenizedPrompt(schema, prompt_of(source))
    ours = prompt.planned(None).plan.token_ids
    messages = [{"role": one.role, "content": one.text} for one in conversation(prompt.bound.parts)]
    assert all(one["content"] for one in messages)
    codes = {one.code for one in prompt.check()}
    roles, contents = ([one[key] for one in messages] for key in ("role", "content"))
    if schema.spec.chat.render(roles, contents).system != "kept":
        first, second, *rest = messages
        messages = [{"role": "user", "content": f"{first['content']}\n\n{second['content']}"}, *rest]
        assert "W610" in codes
    made = schema.spec.tokenizer
    theirs = made.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert made.decode(ours).replace(" ", "") == made.decode(theirs).replace(" ", "")
    assert (ours != theirs) == ("W611" in codes)


def runs_of(schema: TokenizedSchema, source: str) -> dict[str, list[tuple[int, ...]]]:
    """The tokens of every module on the layout of a prompt."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for run in TokenizedPrompt(schema, prompt_of(source)).planned(None).layout.runs:
        found.setdefault(run.path, []).append(run.token_ids)
    return found


@pytest.mark.parametrize("name", ["gemma-2", "chatml", "llama-3"])
def test_what_is_left_out_leaves_no_token(name: str) -> None:
    bare = '<schema name="s"><user><module name="topic">About sums.</module></user></schema>'
    whole, without = tokenized(name), tokenized(name, bare)
    for question in ("", " And three?", "<assistant>Well?</assistant><user>And three?</user>"):
        prompt = prompt_of(f"<prompt><topic/>{question}</prompt>")
        ours, theirs = TokenizedPrompt(whole, prompt), TokenizedPrompt(without, prompt)
        assert ours.planned(None).plan.token_ids == theirs.planned(None).plan.token_ids


def test_every_choice_of_turns_has_one_layout_where_turns_are_written_alike() -> None:
    schema = tokenized("chatml")
    with_all_fixed = [source for source in PROMPTS if "<user>" not in source]
    layouts = {id(TokenizedPrompt(schema, prompt_of(one)).planned(None).layout) for one in with_all_fixed}
    assert layouts == {id(schema.layout)}


def test_the_first_turn_has_a_segment_of_its_own_where_it_is_written_otherwise() -> None:
    schema = tokenized("qwen-2.5")
    alone, behind = (
        runs_of(schema, f"<prompt>{one}<user>So?</user></prompt>")
        for one in ("<shot-2/>", "<shot-1/><shot-2/>")
    )
    assert alone["shot-2"] != behind["shot-2"]
    assert alone["shot-2/why"] == behind["shot-2/why"]
    with_system = runs_of(schema, "<prompt><kind/><shot-2/><user>So?</user></prompt>")
    assert with_system["shot-2"] == behind["shot-2"]


def test_members_of_a_union_start_at_one_place_with_what_stands_round_their_turns() -> None:
    schema = tokenized("chatml")
    brief, kind, first, *_ = schema.layout.modules
    assert (brief.path, brief.start) == ("brief", kind.start)
    assert first.start == brief.start + max(brief.total_tokens, kind.total_tokens)
    marks = schema.spec.chat.opening(("system", "user"), ("a", "b"))
    count = schema.spec.chat.token_ids
    assert brief.tokens == len(count(marks.opens[0])) + len(count("Be brief.")) + len(count(marks.closes[0]))


def test_schema_placement_leaves_room_for_turns_that_are_left_out() -> None:
    schema = tokenized("chatml")
    start = {module.path: module.start for module in schema.layout.modules}
    for source in (
        "<prompt><shot-2/><topic/></prompt>",
        "<prompt><kind/><shot-1/><shot-2/><topic/></prompt>",
    ):
        plan = TokenizedPrompt(schema, prompt_of(source)).planned(None, "schema").plan
        places = {piece.path: piece.start for piece in reversed(plan.pieces) if piece.path in start}
        assert {path: start[path] for path in places} == places
    with pytest.raises(PromptError) as told:
        TokenizedPrompt(schema, prompt_of("<prompt><shot-2/><shot-1/></prompt>")).planned(None, "schema")
    assert [one.code for one in told.value.diagnostics] == ["E506"]


BROKEN = """<schema name="s">
  <module name="half"><user>One and one?</user></module>
  <module name="whole"><user>Two and two?</user><assistant>Four.</assistant></module>
</schema>"""


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "<prompt>\n<half/>\n<whole/></prompt>",
            "the user turn of module 'whole' (line 3 of the schema) after the user turn of module 'half' "
            "(line 2 of the schema)",
        ),
        (
            "<prompt><whole/><half/>\n<user>So?</user></prompt>",
            "the user turn (line 2 of the prompt) after the user turn of module 'half' "
            "(line 2 of the schema)",
        ),
    ],
)
def test_turns_that_do_not_alternate_are_refused_by_their_places(source: str, says: str) -> None:
    prompt = TokenizedPrompt(tokenized("gemma-2", BROKEN), prompt_of(source))
    (found,) = (one for one in prompt.check() if one.severity == "error")
    assert found.code == "E508"
    assert says in found.message
    assert found.span != prompt.tree.span
    assert (
        TokenizedPrompt(tokenized("gemma-2", BROKEN), prompt_of("<prompt><whole/>So?</prompt>")).check()
        is not None
    )


def test_a_schema_whose_fixed_turns_need_those_of_a_module_is_laid_out() -> None:
    source = """<schema name="s">
      <union><module name="a"><user>Salt?</user></module><module name="b"><user>Oil?</user></module></union>
      <assistant>Yes.</assistant>
    </schema>"""
    schema = tokenized("gemma-2", source)
    for name in "ab":
        prompt = TokenizedPrompt(schema, prompt_of(f"<prompt><{name}/>And pepper?</prompt>"))
        assert not [one for one in prompt.check() if one.severity == "error"]
    (found,) = TokenizedPrompt(schema, prompt_of("<prompt>And pepper?</prompt>")).check()
    assert found.code == "E505"
