"""Text behind a changed line is read as an earlier prompt computed it, and checks limit the difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import Block, Engine, Message
from engine.base.events import Answer
from engine.inference.run_settings import RunSettings
from engine.prefix_tree.moved_text import PAUSE, MovedTexts
from engine.store import Store
from tests.engine.cases import apart, model_of

SETTINGS = RunSettings(max_new_tokens=12, temperature=0.0, hold_conversation=False)
LONG = "It was a bright cold day in April, and the clocks were striking thirteen. " * 4


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        yield engine


def at_once(work: Any) -> None:
    """Checks an answer as soon as it has ended."""
    for _ in work():
        pass


def asked(engine: Engine, texts: MovedTexts | None, *parts: str, salt: str = "") -> Answer:
    system, *turns = parts
    messages = [Message("system", (Block(system),))]
    messages += [Message("assistant" if n % 2 else "user", (Block(one),)) for n, one in enumerate(turns)]
    (submission,) = engine.conversation(messages, salt=salt).submissions(SETTINGS, mode="cached")
    return engine.answerer.submit(replace(submission, moved=texts)).result()


def test_text_behind_a_changed_line_is_read_and_counted_as_approximate(engine: Engine) -> None:
    texts = MovedTexts(engine.segment_cache, 1e9, at_once)
    first = asked(engine, texts, f"At 10:41. {LONG}", "One?")
    assert first.tokens.get("approximate", 0) == 0
    more = "One?", "Yes.", "Boats go up and down the river, and nobody has counted them for many a year now."
    made = asked(engine, texts, f"At 10:57. {LONG}", *more)
    moved = made.tokens["approximate"]
    assert moved > len(LONG) * 0.9
    assert moved <= made.tokens["read"] < made.tokens["prompt"]
    further = asked(engine, texts, f"At 23:00 or so. {LONG}", *more, "No.", "And three?")
    assert further.tokens["read"] > made.tokens["read"], "also what was computed behind moved text"
    assert len(texts.checks) == 2


def test_the_tree_stays_exact(engine: Engine) -> None:
    texts = MovedTexts(engine.segment_cache, 1e9, at_once)
    parts = f"At 10:57. {LONG}", "One?"
    asked(engine, texts, f"At 10:41. {LONG}", "One?")
    assert asked(engine, texts, *parts).tokens["approximate"]
    exact = asked(engine, None, *parts)
    assert exact.tokens["read"] < 64, "nothing approximate is read without being asked for"
    again, plain = asked(engine, None, *parts), model_alone(engine, parts)
    assert again.tokens["read"] > 200
    assert again.first_logits is not None
    assert plain.first_logits is not None
    assert apart(again.first_logits, plain.first_logits) <= 1e-4


def model_alone(engine: Engine, parts: tuple[str, ...]) -> Answer:
    system, question = parts
    messages = [Message("system", (Block(system),)), Message("user", (Block(question),))]
    return engine.conversation(messages).answer(SETTINGS, mode="uncached")


def test_a_text_at_its_old_place_behind_the_same_text_changes_nothing(engine: Engine) -> None:
    """Moved by no position and behind equal text, the states are those of the uncached side."""
    texts = MovedTexts(engine.segment_cache, 1e9, at_once)
    asked(engine, texts, LONG, "One?")
    engine.answerer.tree.drop(engine.answerer.tree.keys())  # type: ignore[union-attr]
    made, plain = asked(engine, texts, LONG, "One?"), model_alone(engine, (LONG, "One?"))
    assert made.tokens["approximate"] > 200
    assert made.token_ids == plain.token_ids
    assert texts.checks[-1] < 1e-6


def test_an_answer_beyond_the_limit_pauses_moving(engine: Engine) -> None:
    texts = MovedTexts(engine.segment_cache, 0.0, at_once)
    asked(engine, texts, f"At 10:41. {LONG}", "One?")
    moved = [
        asked(engine, texts, f"At 11:{number}. {LONG}", "One?").tokens.get("approximate", 0)
        for number in range(10, 12 + PAUSE)
    ]
    assert moved[0]
    assert moved[1 : PAUSE + 1] == [0] * PAUSE
    assert moved[PAUSE + 1], "then it is tried again"
    assert len(texts.checks) == 2


def test_a_conversation_that_is_read_exactly_stays_exact(engine: Engine) -> None:
    texts = MovedTexts(engine.segment_cache, 1e9, at_once)
    returning = "Boats go up and down the river, and nobody has counted them for many a year now."
    asked(engine, texts, LONG, returning, "Yes.", "And?")
    made = asked(engine, texts, LONG, returning, "Yes.", "And?", "No.", returning)
    assert made.tokens.get("approximate", 0) == 0, "a text that returns is not worth the exact rest"
    assert made.tokens["read"] > len(LONG)


def test_each_salt_has_its_own_texts(engine: Engine) -> None:
    texts = MovedTexts(engine.segment_cache, 1e9, at_once)
    asked(engine, texts, f"At 10:41. {LONG}", "One?", salt="a")
    assert not asked(engine, texts, f"At 10:57. {LONG}", "One?", salt="b").tokens.get("approximate")
    assert asked(engine, texts, f"At 10:57. {LONG}", "One?", salt="a").tokens["approximate"]


def test_evicted_text_is_computed(engine: Engine) -> None:
    texts = MovedTexts(engine.segment_cache, 1e9, at_once)
    asked(engine, texts, f"At 10:41. {LONG}", "One?")
    engine.memory_tier.clear()
    made = asked(engine, texts, f"At 10:57. {LONG}", "One?")
    assert made.tokens["read"] == 0
