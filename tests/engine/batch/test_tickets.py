"""Prompts that are submitted: events, answers and faults for threads and asyncio, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from engine import Engine, Finished, FirstToken, PromptError, SettingsError
from engine.base.errors import CancelledError, ClosedError, DeadlockError
from engine.base.events import Event
from engine.batch.ticket import Ticket
from engine.inference.generate import Answering
from engine.inference.generation import Sequence, Step
from engine.prepared import PreparedPrompt
from engine.store import Store
from tests.drawing import EVERY
from tests.engine.cases import model_of

SCHEMA = (
    '<schema name="s"><user>Go. <module name="a">one</module><module name="b">two</module></user></schema>'
)
PROMPT = '<prompt schema="s"><a/><b/><user>So?</user></prompt>'
LONG = 1_000  # tokens of an answer that goes on until it is stopped


@pytest.fixture(params=[False, True], ids=["together", "one by one"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path / "store"), deterministic=request.param) as opened:
        yield opened


@pytest.fixture
def prompt(engine: Engine) -> PreparedPrompt:
    return engine.schema(SCHEMA).prompt(PROMPT)


@pytest.fixture(autouse=True)
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of so many tokens come to no end behind their first one, whatever the model says."""
    take, given = Sequence.take, Sequence.given

    def taken(sequence: Sequence, logits: Tensor) -> None:
        if not lasts(sequence):
            take(sequence, logits)
            return
        assert sequence.kv is not None
        sequence.kv.truncate(len(sequence.prefill.token_ids))

    def nothing(sequence: Sequence, since: float) -> Step:
        if not lasts(sequence):
            return given(sequence, since)
        time.sleep(0.001)
        return Step(None, "", None)

    def lasts(sequence: Sequence) -> bool:
        return sequence.params.max_new_tokens == LONG and bool(sequence.token_ids)

    monkeypatch.setattr(Sequence, "take", taken)
    monkeypatch.setattr(Sequence, "given", nothing)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it never comes"
        time.sleep(0.002)


def idle() -> bool:
    return "answers" not in {thread.name for thread in threading.enumerate()}


def begun(ticket: Ticket) -> None:
    """Waits for its first token."""
    for event in ticket.events():
        if isinstance(event, FirstToken):
            return


def endless(engine: Engine, prompt: PreparedPrompt) -> Ticket:
    return engine.submit(prompt, max_new_tokens=LONG)


@pytest.mark.parametrize("side", ["cached", "uncached"])
def test_a_ticket_gives_what_an_answer_gives(engine: Engine, prompt: PreparedPrompt, side: str) -> None:
    alone = prompt.answer(mode=side, max_new_tokens=6)
    ticket = engine.submit(prompt, mode=side, max_new_tokens=6)
    answer = ticket.result(60)
    assert (answer.token_ids, answer.text, answer.stopped) == (alone.token_ids, alone.text, alone.stopped)
    assert ticket.done
    assert ticket.side == side
    until(idle)


def test_events_can_be_read_late_and_twice(engine: Engine, prompt: PreparedPrompt) -> None:
    ticket = engine.submit(prompt, max_new_tokens=4)
    answer = ticket.result(60)
    first, again = list(ticket.events()), list(ticket.events())
    assert first == again
    assert first[-1] == Finished("cached", answer)


def test_asyncio_gets_events_and_answers(engine: Engine, prompt: PreparedPrompt) -> None:
    async def both() -> tuple[list[Event], str]:
        one, other = engine.submit(prompt, max_new_tokens=4), engine.submit(prompt, max_new_tokens=4)
        events = [event async for event in one]
        return events, (await other).text

    events, text = asyncio.run(both())
    assert isinstance(events[-1], Finished)
    assert events[-1].answer.text == text


def test_an_awaiting_task_that_is_cancelled_cancels_its_prompt(
    engine: Engine, prompt: PreparedPrompt
) -> None:
    ticket = endless(engine, prompt)

    async def impatient() -> None:
        await asyncio.wait_for(ticket, 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(impatient())
    with pytest.raises(CancelledError, match="Submit it again"):
        ticket.result(60)
    assert repr(ticket) == "<Ticket, cached, cancelled>"
    until(idle)


def test_a_cancelled_one_stops_and_those_behind_it_are_answered(
    engine: Engine, prompt: PreparedPrompt
) -> None:
    first, second, third = (
        endless(engine, prompt),
        endless(engine, prompt),
        engine.submit(prompt, max_new_tokens=2),
    )
    begun(first)
    second.cancel()
    with pytest.raises(CancelledError):  # while the first goes on
        second.result(60)
    assert not first.done
    with pytest.raises(TimeoutError, match="still being answered"):
        first.result(0.01)
    first.cancel()
    with pytest.raises(CancelledError):
        first.result(60)
    assert third.result(60).text
    third.cancel()
    assert third.result().text


def test_a_dropped_ticket_cancels_its_prompt(engine: Engine, prompt: PreparedPrompt) -> None:
    ticket = endless(engine, prompt)
    begun(ticket)
    del ticket
    gc.collect()
    until(idle)


def test_a_fault_of_one_ends_that_one_only(
    engine: Engine, prompt: PreparedPrompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Answering.prepare
    calls: list[Answering] = []

    def failing(work: Answering) -> Any:
        calls.append(work)
        if len(calls) == 1:
            raise MemoryError("no room")
        return (yield from prepare(work))

    monkeypatch.setattr(Answering, "prepare", failing)
    first, second = engine.submit(prompt, max_new_tokens=2), engine.submit(prompt, max_new_tokens=2)
    with pytest.raises(MemoryError, match="no room"):
        first.result(60)
    with pytest.raises(MemoryError):
        list(first.events())
    assert second.result(60).text
    assert "failed" in repr(first)


def _waits_for_what_was_cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("fault", [lambda: 1 / 0, sys.exit, _waits_for_what_was_cancelled])
def test_a_faulty_listener_keeps_nobody_waiting(
    engine: Engine, prompt: PreparedPrompt, caplog: pytest.LogCaptureFixture, fault: Callable[[], Any]
) -> None:
    first = engine.submit(prompt, max_new_tokens=2)
    first.when_done(fault)
    assert engine.submit(prompt, max_new_tokens=2).result(60).text
    assert "a callback of an answer failed" in caplog.text
    told: list[int] = []
    first.when_done(lambda: told.append(1))  # at once, as it has ended
    assert told == [1]


def test_what_is_told_of_an_answer_waits_for_no_other(engine: Engine, prompt: PreparedPrompt) -> None:
    first, other = endless(engine, prompt), endless(engine, prompt)
    faults: list[Exception] = []

    def wait() -> None:
        for asked in (first.result, lambda: other.result(0.5), lambda: list(other.events())):
            try:
                asked()
            except Exception as error:
                faults.append(error)
                if isinstance(error, TimeoutError):
                    return

    begun(first)
    first.when_done(wait)
    first.cancel()
    until(lambda: len(faults) > 1 and other.cancel() is None)
    with pytest.raises(CancelledError):
        other.result(60)
    assert [type(error) for error in faults] == [CancelledError, DeadlockError, DeadlockError]
    assert "cannot wait for it" in str(faults[1])


@pytest.mark.parametrize("deterministic", [False, True])
def test_closing_the_engine_ends_all_in_words(tmp_path: Path, deterministic: bool) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path / "store"), deterministic=deterministic)
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    tickets = [endless(engine, prompt) for _ in range(3)]
    begun(tickets[0])
    engine.close()
    until(idle)
    for ticket in tickets:
        with pytest.raises(ClosedError, match="The engine is closed"):
            ticket.result(60)
    with pytest.raises(ClosedError, match="The engine is closed"):
        engine.submit(prompt)


def test_what_is_wrong_is_told_at_once(engine: Engine, prompt: PreparedPrompt, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="mode"):
        engine.submit(prompt, mode="both")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="max_new_tokens"):
        engine.submit(prompt, max_new_tokens=0)
    with pytest.raises(PromptError, match="E402"):
        engine.submit(engine.schema(SCHEMA).prompt("<prompt><c/></prompt>"))
    with (
        Engine(engine.model, Store.open(tmp_path / "other")) as other,
        pytest.raises(SettingsError, match="another engine"),
    ):
        other.submit(prompt)


def test_many_submits_and_cancels_leave_nothing_behind(engine: Engine, prompt: PreparedPrompt) -> None:
    engine.submit(prompt, max_new_tokens=2).result(60)
    until(idle)
    gc.collect()
    before, held = threading.active_count(), engine.memory_tier.bytes
    tickets = [endless(engine, prompt) for _ in range(499 if EVERY else 99)]
    begun(tickets[0])
    for ticket in tickets[::2]:
        ticket.cancel()
    kept = engine.submit(prompt, max_new_tokens=2)
    for ticket in tickets[1::2]:
        ticket.cancel()
    assert kept.result(60).text
    for ticket in tickets:
        with pytest.raises(CancelledError):
            ticket.result(60)
    until(idle)
    assert threading.active_count() <= before
    assert engine.memory_tier.bytes == held
    assert prompt.answer(max_new_tokens=2).text  # whose turn it is was not forgotten
