"""Conversations of blocks: what they spell, where blocks end, and which edges they share."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import SettingsError
from engine.pml import PromptError, Role, Text
from engine.prompt.conversation.messages import Message, spell
from engine.prompt.conversation.named_blocks import Block
from engine.prompt.conversation.tools import ToolCall
from engine.prompt.pieces import PromptPlan
from engine.prompt.recipe import Identity
from engine.prompt.spec import ModelSpec
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.tokenized import TokenizedPrompt, TokenizedSchema
from engine.prompt.trail import CHUNK, Trail
from tests.drawing import draws, each
from tests.engine.cases import prompt_of, schema_of
from tests.engine.prompt.chat_templates import FAMILIES, tokenizer
from tests.engine.tiny import tiny_model

KEPT = ("chatml", "llama-3")  # templates in which a turn is written alike whatever follows


def said(role: Any, *texts: str) -> Message:
    return Message(role, tuple(map(Block, texts)))


@cache
def made_of(family: str) -> Any:
    return tokenizer(FAMILIES[family])


def spec_of(made: Any) -> ModelSpec:
    return ModelSpec("tiny", made, ChatFormat(made), 0, 4096, Identity("f", "float32", relocatable=True))


@cache
def tiny() -> Any:
    return tiny_model().tokenizer


def plan_of(messages: list[Message], made: Any = None, *, held: bool = False) -> PromptPlan:
    spelled = spell(messages)
    schema = TokenizedSchema(spelled.bound.schema, spec_of(made or tiny()))
    return TokenizedPrompt(schema, spelled).planned(turns_held=held).plan


def text_of(plan: PromptPlan, to: int | None = None) -> str:
    decoded: str = tiny().decode(plan.token_ids[:to])
    return decoded


def test_a_blank_line_stands_between_blocks_that_nothing_sets_apart() -> None:
    plan = plan_of([said("user", "one", "two\n", "three", " four", "", "five")])
    assert "one\n\ntwo\nthree four\n\nfive" in text_of(plan)
    ends = [text_of(plan, border).rpartition("\n")[2] for border in plan.borders]
    assert [text_of(plan, border)[-5:] for border in plan.borders][1] == "\ntwo\n"
    assert ends == ["one", "", "three", "three four", "three four", "five"]


def test_a_block_without_text_ends_where_the_one_before_it_does() -> None:
    plan = plan_of([said("system", ""), said("user", "", "a", ""), said("assistant"), said("user", "", "b")])
    first, before, a, after, none, b = plan.borders
    assert first == before == 0
    assert (after, none) == (a, a)
    assert a < b < plan.end


def test_a_conversation_has_the_tokens_of_the_prompt_with_the_same_turns() -> None:
    made = tiny()
    prompt = prompt_of(
        "<prompt><system>Be brief.</system><user>Hi</user><assistant>Yes?</assistant>So?</prompt>"
    )
    written = TokenizedPrompt(TokenizedSchema(schema_of('<schema name="s"></schema>'), spec_of(made)), prompt)
    turns = [said("system", "Be brief."), said("user", "Hi"), said("assistant", "Yes?"), said("user", "So?")]
    plan = plan_of(turns)
    assert plan.token_ids == written.planned().plan.token_ids
    assert not any(piece.cached for piece in plan_of(turns, held=True).pieces)
    assert written.planned().plan.borders == ()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "at least one"),
        ("Hi", "a list of messages"),
        ([("user", "Hi")], "Message 1 is tuple"),
        ([said("user", "a"), said("robot", "Hi")], "The role of message 2 is 'robot'; it must be one of"),
        ([Message("user", "Hi")], "blocks of message 1 must be a list"),  # type: ignore[arg-type]
        ([Message("user", ("Hi",))], "Block 1 of message 1"),  # type: ignore[arg-type]
        ([Message("user", (Block(3),))], "Block 1 of message 1"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_conversation_is_refused_in_words(given: Any, told: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(told)):
        spell(given)


def test_turns_that_the_template_refuses_are_named() -> None:
    made = tokenizer(FAMILIES["gemma-2"])
    with pytest.raises(PromptError, match="refuses the user turn after the user turn"):
        plan_of([said("user", "a"), said("user", "b")], made)


TEXTS = st.text(st.sampled_from(" \naZ.é<|"), max_size=12) | st.integers(60, 200).map("words of any ".__mul__)
TURNS = st.lists(TEXTS, min_size=1, max_size=3)


@st.composite
def growing(draw: Any) -> tuple[list[Message], list[Message]]:
    """A conversation, and one that begins with the same blocks and goes on otherwise."""
    roles = draw(st.sampled_from([["user"], ["system", "user"]]))
    roles = roles + ["assistant", "user"] * draw(st.integers(0, 2))
    first = [said(role, *draw(TURNS)) for role in roles]
    more = [said(role, *draw(TURNS)) for role in ["assistant", "user"] * draw(st.integers(1, 2))]
    return first, [*first, *more]


@pytest.mark.parametrize("family", each(["tiny", *FAMILIES], "tiny", "llama-3", "qwen-3"))
@settings(max_examples=draws(15))
@given(pair=growing())
def test_who_begins_with_the_same_blocks_has_the_same_edges(
    family: str, pair: tuple[list[Message], list[Message]]
) -> None:
    made = tiny() if family == "tiny" else made_of(family)
    try:
        short, long = (plan_of(one, made) for one in pair)
    except PromptError:  # the template takes no such turns
        return
    found = [Trail.of_plan(plan) for plan in (short, long)]
    for number, (border, other) in enumerate(zip(short.borders, long.borders, strict=False)):
        alike = (
            short.token_ids[:border] == long.token_ids[:other]
            and short.borders[:number] == long.borders[:number]
        )
        if family in ("tiny", *KEPT):
            assert alike, "the same blocks have the same tokens"
        if alike and border == other:
            edges = [trail.up_to(border).edges for trail in found]
            assert edges[0] == edges[1]
            assert sum(edge.tokens for edge in edges[0]) == border, "they reach all of it"
    assert all(edge.tokens <= CHUNK for trail in found for edge in trail.edges)


def test_what_the_assistant_said_is_read_on_by_the_next_request() -> None:
    """The invitation and the answer of one request are the next one's opening and block."""
    asked = [said("user", "What now? " * 12)]
    answer = "Nothing much. " * 9
    plan = plan_of(asked)
    ids = tiny()(answer, add_special_tokens=False)["input_ids"]
    further = plan_of([*asked, said("assistant", answer), said("user", "And then?")])
    trail = Trail.of_plan(plan, (), ids, closed=True)
    assert trail.edges == Trail.of_plan(further).up_to(further.borders[1]).edges
    assert trail.end == further.borders[1]


def results(*ids: str, calls: str, split: bool = False) -> list[tuple[str, str, str]]:
    """What is read of results: text, id and name of each. A call "a" is of the function "f-a"."""
    made = [ToolCall(f"f-{number}{one}", {}, one.strip("-")) for number, one in enumerate(calls.split())]
    turns = [made[:1], made[1:]] if split else [made]
    asking = [Message("assistant", (), tuple(turn)) for turn in turns]
    answering = [
        Message("tool", (Block(f"{place}{one}"),), call_id=one.strip("-")) for place, one in enumerate(ids)
    ]
    spelled = spell([said("user", "So?"), *asking, *answering, said("user", "And?")])
    found = []
    for turn in spelled.prompt.children:
        if isinstance(turn, Role) and turn.role == "tool":
            fields = json.loads(turn.fields or "{}")
            (text,) = turn.children
            assert isinstance(text, Text)
            found.append((text.text, fields.get("tool_call_id", ""), fields.get("name", "")))
    return found


@pytest.mark.parametrize("split", [False, True], ids=["one turn", "two turns"])
def test_results_are_read_in_the_order_of_their_calls(split: bool) -> None:
    wanted = [("0a", "a", "f-0a"), ("1b", "b", "f-1b"), ("2c", "c", "f-2c")]
    assert results("a", "b", "c", calls="a b c", split=split) == wanted
    swapped = [("2a", "a", "f-0a"), ("0b", "b", "f-1b"), ("1c", "c", "f-2c")]
    assert results("b", "c", "a", calls="a b c", split=split) == swapped


def test_calls_with_the_same_id_have_each_its_own_result() -> None:
    assert results("b", "a", "a", calls="a b a") == [
        ("1a", "a", "f-0a"),
        ("0b", "b", "f-1b"),
        ("2a", "a", "f-2a"),
    ]


def test_results_without_ids_are_those_of_the_calls_in_their_order() -> None:
    assert results("-", "-", calls="- -") == [("0-", "", "f-0-"), ("1-", "", "f-1-")]
    assert results("-", calls="a b") == [("0-", "", "")]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ("ax", "'x' is not a call of the turn"),
        ("aab", "'a' is not a call of the turn"),
        ("b", "'a' has no result"),
    ],
)
def test_results_of_several_calls_are_one_for_each(ids: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"calls 2 tools at once, and {words}"):
        results(*ids, calls="a b")


def test_a_turn_whose_calls_were_given_up_asks_for_no_results() -> None:
    calls = (ToolCall("f", {}, "a"), ToolCall("g", {}, "b"))
    later = Message("assistant", (), (ToolCall("h", {}, "c"),))
    turns = [
        Message("assistant", (), calls),
        said("user", "Stop."),
        later,
        Message("tool", (Block("1"),), (), "c"),
    ]
    last = spell(turns).prompt.children[-1]
    assert isinstance(last, Role)
    assert json.loads(last.fields) == {"tool_call_id": "c", "name": "h"}
