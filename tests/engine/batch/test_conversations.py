"""Conversations in the batch loop: who begins with the same blocks reads them, wherever the two part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from engine.base.events import Answer, FirstToken
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.model.model import Model
from engine.prompt.conversation.messages import Message
from engine.prompt.conversation.named_blocks import Block
from engine.prompt.trail import CHUNK
from engine.store import Store
from tests.engine.cases import apart, model_of

FAMILIES = [
    "llama-gqa",
    "gemma2",
    "mistral-swa",
    "gpt2",
    "falcon",
]  # two with windows, one that stays in place
SETTINGS = RunSettings(max_new_tokens=8, hold_conversation=False)
LONG = "It was a bright cold day in April, and the clocks were striking thirteen. " * 2


def said(role: Any, *texts: str) -> Message:
    return Message(role, tuple(map(Block, texts)))


def engine_in(folder: Path, family: str = "llama-gqa", **given: Any) -> Engine:
    return Engine(model_of(family), Store.open(folder), **given)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with engine_in(tmp_path) as opened:
        yield opened


def asked(engine: Engine, messages: list[Message], **changes: Any) -> Answer:
    """The answer, which is also the one that an uncached side gives."""
    prompt = engine.conversation(messages)
    answer = engine.submit(prompt, SETTINGS, **changes).result()
    plain = prompt.answer(SETTINGS, mode="uncached", **changes)
    assert answer.token_ids == plain.token_ids
    assert answer.first_logits is not None
    assert plain.first_logits is not None
    assert apart(answer.first_logits, plain.first_logits) <= 1e-4
    return answer


def read(answer: Answer) -> int:
    return answer.tokens["from_cache"]


def borders(engine: Engine, messages: list[Message]) -> tuple[int, ...]:
    return engine.conversation(messages).borders(SETTINGS)


def test_a_conversation_that_goes_on_reads_all_of_its_blocks(engine: Engine) -> None:
    turns = [said("system", LONG, "Be brief."), said("user", LONG, "Well?")]
    assert read(asked(engine, turns)) == 0
    for words in ("So?", "And then? " * 20, "!"):
        turns = [*turns, said("assistant", "Yes. " * 5), said("user", words)]
        answer, reached = asked(engine, turns), borders(engine, turns)
        assert read(answer) == reached[-3], "up to the last block of the request before"
        assert read(asked(engine, turns)) >= reached[-1]


def test_a_block_that_differs_ends_what_is_read_at_the_block_before_it(engine: Engine) -> None:
    blocks = ["one " * 9, "two " * 40, "three " * 7, "four"]
    asked(engine, [said("user", *blocks)])
    for place in range(4):
        others = [said("user", *blocks[:place], "or this", *blocks[place + 1 :])]
        reached = borders(engine, others)[place - 1] if place else 0
        assert reached <= read(asked(engine, others)) < reached + CHUNK


def test_blocks_apart_and_blocks_together_are_not_the_same(engine: Engine) -> None:
    """Equal tokens are read although the blocks differ."""
    asked(engine, [said("user", LONG + "And this.", "So?")])
    split = [said("user", LONG, "And this.", "So?")]
    assert read(asked(engine, split)) > borders(engine, split)[0]


def test_who_begins_alike_need_not_wait_for_an_answer_that_is_under_way(engine: Engine) -> None:
    first = engine.conversation([said("user", LONG, "Well?")])
    ticket = engine.submit(first, SETTINGS, max_new_tokens=200)
    assert any(isinstance(event, FirstToken) for event in iter(ticket.events()))
    second = [said("user", LONG, "How?")]
    answer = engine.submit(engine.conversation(second), SETTINGS, max_new_tokens=1).result()
    assert not ticket.done
    assert read(answer) >= borders(engine, second)[0]
    assert len(ticket.result().token_ids) == 200


def test_the_end_of_an_answer_is_a_border(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [said("user", LONG)]
    words = asked(engine, turns, max_new_tokens=100).token_ids
    for count in range(20, 90):  # an answer that ends where its text has the same tokens
        text = engine.model.tokenizer.decode(words[:count])
        if engine.model.tokenize(text) == list(words[:count]) and words[count] not in words[:count]:
            break
    else:
        pytest.fail("the model says nothing that is text")
    monkeypatch.setattr(Model, "end_tokens", frozenset({words[count]}))
    answer = engine.submit(engine.conversation(turns), SETTINGS, max_new_tokens=100).result()
    assert (answer.stopped, answer.text) == ("eos", text)
    turns = [*turns, said("assistant", text), said("user", "So?")]
    assert count % CHUNK
    assert read(asked(engine, turns)) == borders(engine, turns)[1]


TEXTS = st.sampled_from(["", "a", " \n", "Two words.", "é, and more of it " * 5, LONG, "the end\n"])


@st.composite
def conversations(draw: Any) -> list[list[Message]]:
    """A conversation as it grows from request to request."""
    turn = st.lists(TEXTS, min_size=1, max_size=3)
    roles = draw(st.sampled_from([["user"], ["system", "user"]]))
    turns = [said(role, *draw(turn)) for role in roles]
    grown = [turns]
    for _ in range(draw(st.integers(1, 2))):
        turns = [*turns, said("assistant", *draw(turn)), said("user", *draw(turn))]
        grown.append(turns)
    return grown
