"""Drawn joins, cancels and evictions in small memories: each answer is the one alone, and nothing stays."""

from __future__ import annotations

import gc
import tempfile
import time
from functools import cache
from pathlib import Path
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from engine.base.errors import CancelledError
from engine.batch import run as runs
from engine.batch.loop import BatchLoop
from engine.batch.ticket import Ticket
from engine.engine import Engine
from engine.store import Store
from tests.drawing import EVERY
from tests.engine.cases import model_of

WAIT = 60.0
FAMILIES = ("llama-gqa", "mistral-swa")
WORDS = "the river, the tree and all who walk along it in the morning, "
SCHEMA = (
    '<schema name="s">Read. <module name="a">alpha and its many friends walk along the river.</module>'
    f'<module name="b">beta sleeps. {WORDS * 2}</module></schema>'
)
PROMPTS = (
    "<prompt><a/><b/>go on</prompt>",
    "<prompt><b/>what?</prompt>",
    f"<prompt><b/><a/>{WORDS * 3}</prompt>",
    f"<prompt><b/><a/>{WORDS * 3}and so on</prompt>",
    f"<prompt>{WORDS * 4}</prompt>",
)
LENGTHS = (1, 2, 9, 40)


@cache
def alone(family: str) -> dict[tuple[int, int], tuple[int, ...]]:
    """The tokens of every answer by itself, by prompt and length."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine(model_of(family), Store.open(Path(folder))) as engine,
    ):
        schema = engine.schema(SCHEMA)
        return {
            (number, length): schema.prompt(text).answer(max_new_tokens=length, speculate="off").token_ids
            for number, text in enumerate(PROMPTS)
            for length in LENGTHS
        }


class Crowds(RuleBasedStateMachine):
    """Submit, cancel, drop, wait, evict, change the budget."""

    @initialize(family=st.sampled_from(FAMILIES), memory=st.sampled_from([0, 60_000, 200_000, 1 << 30]))
    def begin(self, family: str, memory: int) -> None:
        self.family = family
        self.ahead = patch.object(runs, "AHEAD", 8)  # so that memory is set aside again and again
        self.ahead.start()
        self.folder = tempfile.TemporaryDirectory()
        self.engine = Engine(model_of(family), Store.open(Path(self.folder.name)), memory)
        self.schema = self.engine.schema(SCHEMA)
        self.tickets: list[tuple[Ticket, tuple[int, int]]] = []

    @rule(number=st.integers(0, len(PROMPTS) - 1), length=st.sampled_from(LENGTHS))
    def submit(self, number: int, length: int) -> None:
        prompt = self.schema.prompt(PROMPTS[number])
        ticket = self.engine.submit(prompt, max_new_tokens=length, speculate="off")
        self.tickets.append((ticket, (number, length)))

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ticket, asked = self.tickets.pop(data.draw(st.integers(0, len(self.tickets) - 1)))
        ticket.cancel()
        try:
            answer = ticket.result(WAIT)
        except CancelledError:
            return
        assert answer.token_ids == alone(self.family)[asked], "its last step was under way"

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.tickets.pop(data.draw(st.integers(0, len(self.tickets) - 1)))

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        ticket, asked = self.tickets.pop(data.draw(st.integers(0, len(self.tickets) - 1)))
        assert ticket.result(WAIT).token_ids == alone(self.family)[asked]

    @rule()
    def evict(self) -> None:
        self.engine.memory_tier.clear()

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.05]))
    def go_on(self, seconds: float) -> None:
        time.sleep(seconds)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        for ticket, asked in self.tickets:
            assert ticket.result(WAIT).token_ids == alone(self.family)[asked]
        self.tickets.clear()
        loop, tier = self.engine.answerer, self.engine.memory_tier
        assert isinstance(loop, BatchLoop)
        until = time.monotonic() + WAIT
        while loop.busy:
            assert time.monotonic() < until
            time.sleep(0.002)
        gc.collect()
        assert tier.held == 0, "nobody reads a segment any more"
        tier.clear()
        assert tier.bytes == 0, "what is counted is what there is"
        self.engine.close()
        self.folder.cleanup()
        self.ahead.stop()


Crowds.TestCase.settings = settings(
    max_examples=25 if EVERY else 4,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_drawn_crowds = Crowds.TestCase
