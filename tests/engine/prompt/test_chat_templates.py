"""Templates that are used most: prompts have the tokens of `apply_chat_template`, or are told where not."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from engine.pml import bind
from engine.prompt.recipe import Identity
from engine.prompt.spec import ModelSpec
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.tokenized import TokenizedPrompt, TokenizedSchema
from tests.engine.prompt.chat_templates import FAMILIES, tokenizer
from tests.pml.documents import prompt_tree, schema_tree

SYSTEM = "You are a planner of trips. Be brief."
MAP = "Look at the map of Rome."
ANSWER = "Go to the market."
THOUGHT = "<think>\nfish, then?\n</think>\n\nGo to the market."
QUESTION = "Where should I eat?"


class Case:
    """A schema, a prompt, and the conversation that they spell."""

    def __init__(self, schema: str, prompt: str, *messages: tuple[str, str]) -> None:
        self.schema, self.prompt, self.messages = f'<schema name="s">{schema}</schema>', prompt, messages


def quoted(text: str) -> str:
    return text.replace("<", "&lt;")


USER, SYS = ("user", MAP), ("system", SYSTEM)
WHOLE = {
    "a question": Case(f"<user>{MAP}</user>", "<prompt/>", USER),
    "a system turn": Case(f"<system>{SYSTEM}</system><user>{MAP}</user>", "<prompt/>", SYS, USER),
    "words behind": Case(
        f"<system>{SYSTEM}</system><user>{MAP}</user>",
        f"<prompt>{QUESTION}</prompt>",
        SYS,
        ("user", f"{MAP}\n{QUESTION}"),
    ),
    "all in the prompt": Case(
        f"<system>{SYSTEM}</system>", f"<prompt><user>{QUESTION}</user></prompt>", SYS, ("user", QUESTION)
    ),
    "an earlier answer": Case(
        f"<system>{SYSTEM}</system><user>{MAP}</user><assistant>{ANSWER}</assistant>",
        f"<prompt><user>{QUESTION}</user></prompt>",
        SYS,
        USER,
        ("assistant", ANSWER),
        ("user", QUESTION),
    ),
    "earlier turns of the prompt": Case(
        f"<user>{MAP}</user>",
        f"<prompt><assistant>{ANSWER}</assistant><user>{QUESTION}</user></prompt>",
        USER,
        ("assistant", ANSWER),
        ("user", QUESTION),
    ),
    "an earlier thought": Case(
        f"<system>{SYSTEM}</system><user>{MAP}</user>",
        f'<prompt><assistant xml:space="preserve">{quoted(THOUGHT)}</assistant>'
        f"<user>{QUESTION}</user></prompt>",
        SYS,
        USER,
        ("assistant", THOUGHT),
        ("user", QUESTION),
    ),
    "a thought in the schema": Case(
        f'<user>{MAP}</user><assistant xml:space="preserve">{quoted(THOUGHT)}</assistant>',
        f"<prompt><user>{QUESTION}</user></prompt>",
        USER,
        ("assistant", THOUGHT),
        ("user", QUESTION),
    ),
}
MODULES = {
    "whole turns": Case(
        f'<system><module name="a">{SYSTEM}</module></system><user><module name="b">{MAP}</module></user>',
        "<prompt><a/><b/></prompt>",
        SYS,
        USER,
    ),
    "inside turns": Case(
        '<system>You are <module name="a">a planner of trips.</module> Be brief.</system>'
        '<user><module name="b">Look at</module> the map <module name="c">of Rome.</module></user>',
        "<prompt><a/><b/><c/></prompt>",
        ("system", "You are a planner of trips. Be brief."),
        ("user", "Look at the map of Rome."),
    ),
    "side by side": Case(
        f'<user><module name="a">{MAP}</module> <module name="b">{QUESTION}</module></user>'
        f"<assistant>{ANSWER}</assistant>",
        "<prompt><a/><b/><user>And then?</user></prompt>",
        ("user", f"{MAP} {QUESTION}"),
        ("assistant", ANSWER),
        ("user", "And then?"),
    ),
    "an argument": Case(
        '<user><module name="a">Look at the map of <param name="city" len="9"/> and eat.</module></user>',
        f'<prompt><a city="Tokyo"/> {QUESTION}</prompt>',
        ("user", f"Look at the map of Tokyo and eat. {QUESTION}"),
    ),
}


@cache
def planned(name: str, case: Case) -> tuple[list[int], list[int], list[Any]]:
    """The tokens of the prompt, those of the template, and what the check says."""
    made = tokenizer(FAMILIES[name])
    chat = ChatFormat(made)
    schema, prompt = schema_tree(case.schema), prompt_tree(case.prompt)
    bound = bind(schema, prompt)
    assert bound.ok
    spec = ModelSpec("tiny", made, chat, made.unk_token_id, 4096, Identity("f", "float32", True))
    tokenized = TokenizedSchema(schema, spec)
    asked = TokenizedPrompt(tokenized, prompt)
    plan = asked.planned(None).plan
    found = [*tokenized.check(), *asked.check()]
    messages = [{"role": role, "content": text} for role, text in case.messages]
    if any(one.code == "W610" for one in found):
        first, second, *rest = messages
        joined = first["content"] + "\n\n" + second["content"]
        messages = [{"role": "user", "content": joined}, *rest]
    want = made.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    return plan.token_ids, want, found


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("case", WHOLE)
def test_without_modules_the_tokens_are_those_of_the_template(name: str, case: str) -> None:
    ours, want, found = planned(name, WHOLE[case])
    assert ours == want
    assert not any(one.code == "W611" for one in found)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("case", MODULES)
def test_with_modules_every_other_token_is_told(name: str, case: str) -> None:
    ours, want, found = planned(name, MODULES[case])
    codes = {one.code for one in found}
    assert (ours != want) == ("W611" in codes)


def test_modules_that_are_whole_turns_change_tokens_only_behind_a_space() -> None:
    """The template's own space before a turn and the turn's first word would be one token."""
    told = set()
    for name in FAMILIES:
        ours, want, _ = planned(name, MODULES["whole turns"])
        told |= {name} if ours != want else set()
    assert told == {"mistral-1", "mixtral", "mistral-3", "deepseek", "vicuna", "falcon", "openchat"}


def test_dates_are_told_where_they_are_written() -> None:
    told = {name for name in FAMILIES for one in planned(name, WHOLE["a question"])[2] if one.code == "W608"}
    assert told == {"llama-3.1", "smollm-3", "granite", "gpt-oss"}


def test_what_becomes_of_system_text_is_told_where_it_is_not_kept() -> None:
    found = {
        (name, one.code, one.severity)
        for name in FAMILIES
        for one in planned(name, WHOLE["an earlier answer"])[2]
        if one.code in ("W610", "W612")
    }
    assert {one[:2] for one in found if one[2] == "info"} >= {("mistral-1", "W610"), ("gemma-2", "W610")}
    assert {one[0] for one in found if one[1] == "W610"} == {"mistral-1", "gemma-2"}
    assert {one[0] for one in found if one[1] == "W612"} == {"mixtral", "mistral-3", "mistral-tekken"}
