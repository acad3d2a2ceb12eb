"""What could end a loop, an answer of another, or never end: each ends by itself, in words, and lets go."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.base.errors import CancelledError, ClosedError
from engine.base.events import Answer, Barred, Finished, FirstToken, Working
from engine.batch import run as runs
from engine.batch.loop import BatchLoop
from engine.batch.passes import Passes
from engine.batch.run import Run
from engine.batch.scheduler import Need
from engine.batch.ticket import Reply
from engine.engine import Engine
from engine.inference.generate import Answering
from engine.inference.generation import Sequence
from engine.inference.run_settings import RunSettings
from engine.inference.sampler import Sampler
from engine.inference.step_lock import WAITING
from engine.inference.submission import Submission
from engine.kv_cache.batched_kv_cache import Member
from engine.kv_cache.protocol import KVCache, Rows, Rowwise
from engine.model.network import Network
from engine.prefix_tree.tree import PrefixTree
from engine.prepared import PreparedPrompt
from engine.store import Store
from engine.store.index.database import FailedIndexError
from tests.engine.batch.test_loop import WAIT, alone, engine_in, prompts_of, settled
from tests.engine.cases import apart, model_of

LONG = "The river is long, and so is the list of those who have walked along it since it was found. "


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with engine_in(tmp_path) as engine:
        yield engine


def loop_of(engine: Engine) -> BatchLoop:
    loop = engine.answerer
    assert isinstance(loop, BatchLoop)
    return loop


def needed(engine: Engine, prompt: PreparedPrompt, settings: RunSettings) -> Need:
    """The memory that a prompt is admitted with."""
    (submission,) = prompt.submissions(settings)
    assert isinstance(submission, Submission)
    loop = loop_of(engine)
    return Run(
        submission, Reply("cached", lambda _: None), engine.segment_cache, loop.tree, lambda: None
    ).need


def test_no_more_memory_is_set_aside_than_the_context_has_room_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = prompts_of(engine)[0]
    size, planned = engine.model.bytes_per_token, prompt.submissions()[0].planned
    few, many = (needed(engine, prompt, RunSettings(max_new_tokens=n)) for n in (5, 1_000_000))
    assert few.segments == many.segments
    assert sum(few.segments.values()) == sum(one.recipe.tokens for one in planned.slices if one) * size
    assert few.own == (len(planned.plan.new_tokens) + 5) * size
    assert many.own == few.own + (runs.AHEAD - 5) * size, "the rest when it is needed"
    monkeypatch.setattr(runs, "AHEAD", 10_000_000)
    many = needed(engine, prompt, RunSettings(max_new_tokens=1_000_000))
    assert many.own == few.own + (engine.model.context_length - planned.plan.end - 5) * size


def test_a_prompt_without_company_says_what_it_says_alone_to_the_bit(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events, passes and figures, also where guesses are made and rounding keeps some from being taken."""
    monkeypatch.setattr(Sampler, "sure", lambda _, scores, *__: int(scores.argmax()) % 3 != 0)
    prompt = prompts_of(engine)[0]
    settings = RunSettings(max_new_tokens=100, speculate="on")
    prompt.answer(max_new_tokens=1)
    streamed = list(prompt.stream(settings, mode="cached"))
    found = list(engine.submit(prompt, settings).events())
    assert [type(event) for event in found] == [type(event) for event in streamed]
    one, other = (events[-1].answer for events in (found, streamed) if isinstance(events[-1], Finished))
    assert (one.token_ids, one.tokens, one.passes) == (other.token_ids, other.tokens, other.passes)
    assert torch.equal(one.first_logits, other.first_logits)
    assert one.tokens["repeated"] > 0, "there is a pass that gives no token"


def test_an_answer_that_is_kept_keeps_no_logits_of_others(engine: Engine) -> None:
    tickets = [engine.submit(one, max_new_tokens=2) for one in prompts_of(engine)]
    for ticket in tickets:
        logits = ticket.result(WAIT).first_logits
        assert logits is not None
        assert logits.untyped_storage().nbytes() == logits.nbytes


def test_a_tail_of_no_numbers_harms_nobody_who_gets_its_slot() -> None:
    model = model_of("llama-gqa")
    passes = Passes(model)

    def begun(seed: int, own: int) -> KVCache:
        kv = model.network.kv_cache((), 60)
        drawn = torch.randint(3, 250, (own,), generator=torch.Generator().manual_seed(seed))
        model.network.forward(drawn.tolist(), range(own), kv)
        return kv

    def step(*caches: KVCache) -> list[Tensor]:
        return passes.run([Member(kv, Rows([7], [kv.length], 1, Rowwise())) for kv in caches])

    broken, long, short, alone = begun(0, 30), begun(1, 44), begun(2, 4), begun(2, 4)
    step(broken, long, short)
    step(alone)
    assert broken.own is not None
    assert broken.own.memory is not None
    with torch.inference_mode():
        broken.own.memory.fill_(torch.nan)
    passes.forget(broken)
    _, logits = step(long, short)
    assert apart(logits, *step(alone)) <= 1e-4
    assert passes.nbytes
    for kv in (long, short, alone):
        passes.forget(kv)
    assert passes.nbytes == 0


@pytest.mark.parametrize("place", ["waiting", "under way"])
def test_what_fails_while_it_is_let_go_of_ends_all_the_same(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    prompts = prompts_of(engine)
    wanted = alone(engine, prompts[1:2], max_new_tokens=30)
    close = Run.close
    failing: list[Run] = []

    def closed(run: Run) -> None:
        close(run)
        if run.reply.cancelled:
            failing.append(run)
            raise RuntimeError("it does not let go")

    monkeypatch.setattr(Run, "close", closed)
    if place == "waiting":
        with engine.computing.step():
            gone, stays = (engine.submit(one, max_new_tokens=30) for one in prompts[:2])
            gone.cancel()
    else:
        gone = engine.submit(prompts[0], max_new_tokens=900)
        stays = engine.submit(prompts[1], max_new_tokens=30)
        next(event for event in gone.events() if isinstance(event, FirstToken))
        gone.cancel()
    with pytest.raises(CancelledError):
        gone.result(WAIT)
    assert stays.result(WAIT).token_ids == wanted[0].token_ids
    assert len(failing) == 1
    settled(lambda: not loop_of(engine).busy)


def test_a_step_that_fails_ends_all_and_the_next_prompts_are_answered(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = prompts_of(engine)

    def failing(*_: object) -> int:
        raise ValueError("no policy")

    with monkeypatch.context() as patched:
        patched.setattr("engine.batch.scheduler.choose", failing)
        tickets = [engine.submit(one, max_new_tokens=2) for one in prompts]
        for ticket in tickets:
            with pytest.raises(ValueError, match="no policy"):
                ticket.result(WAIT)
    assert engine.submit(prompts[0], max_new_tokens=2).result(WAIT).tokens["generated"] == 2


def test_an_error_that_is_kept_holds_no_keys_and_values(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = prompts_of(engine)
    made: list[weakref.ref[KVCache]] = []
    kv_cache, take = Network.kv_cache, Sequence.take

    def noted(network: Network, *given: Any) -> KVCache:
        kv = kv_cache(network, *given)
        made.append(weakref.ref(kv))
        return kv

    def failing(sequence: Sequence, logits: Tensor) -> None:
        if len(sequence.token_ids) == 1:
            raise RuntimeError("not this one")
        take(sequence, logits)

    monkeypatch.setattr(Network, "kv_cache", noted)
    monkeypatch.setattr(Sequence, "take", failing)
    tickets = [engine.submit(one, max_new_tokens=3) for one in prompts[:3]]
    errors = []
    for ticket in tickets:
        with pytest.raises(RuntimeError, match="not this one") as raised:
            ticket.result(WAIT)
        errors.append(raised.value)
    assert len(made) == len(errors) == 3
    settled(lambda: gc.collect() >= 0 and not any(one() for one in made))


def test_what_cannot_be_kept_spoils_no_answer(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = prompts_of(engine)[0]
    wanted = prompt.answer(max_new_tokens=3)

    def full(*_: object) -> int:
        raise MemoryError("none left")

    monkeypatch.setattr(PrefixTree, "insert", full)
    assert engine.submit(prompt, max_new_tokens=3).result(WAIT).token_ids == wanted.token_ids
    settled(lambda: not loop_of(engine).busy)
    assert engine.memory_tier.held == 0


def test_text_of_a_prompt_that_is_not_for_the_disk_is_not_written_for_another(engine: Engine) -> None:
    schema = engine.schema('<schema name="talk"><module name="m">Some rules.</module></schema>')
    private = schema.prompt(f"<prompt><m/>{LONG * 2}</prompt>")
    for _ in range(3):
        assert engine.submit(private, max_new_tokens=1).result(WAIT).text is not None
    stored = RunSettings(max_new_tokens=1, store_conversation=True)
    other = schema.prompt(f"<prompt><m/>Something else. {LONG * 2}</prompt>")
    engine.submit(other, stored).result(WAIT)
    engine.store.finish_writing()
    assert engine.store.clear(conversation=True) == 0
    for _ in range(3):
        engine.submit(other, stored).result(WAIT)
    engine.store.finish_writing()
    assert engine.store.clear(conversation=True) >= 2


def test_what_the_tree_could_not_store_is_told(engine: Engine) -> None:
    tree = loop_of(engine).tree
    assert tree.disk.unsaved is engine.segment_cache.untold


@pytest.mark.parametrize("family", ["gptj", "falcon-alibi"])
def test_a_model_that_takes_one_prompt_at_a_time_reads_each_in_one_piece(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cache is laid out for all positions of the first pass, among which there may be gaps."""
    with engine_in(tmp_path, family) as engine:
        monkeypatch.setattr(engine.answerer, "_rows", 4)
        prompts = prompts_of(engine, placed=True)
        asked = {"mode": "uncached", "placement": "schema", "max_new_tokens": 4}
        wanted = [one.answer(**asked) for one in prompts]  # type: ignore[arg-type]
        with engine.computing.step():
            tickets = [engine.submit(one, **asked) for one in prompts]  # type: ignore[arg-type]
        for ticket, other in zip(tickets, wanted, strict=True):
            answer = ticket.result(WAIT)
            assert answer.token_ids == other.token_ids
            assert torch.equal(answer.first_logits, other.first_logits)


def test_who_waits_for_memory_keeps_nobody_from_guessing(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path), memory=0) as engine:
        prompts = prompts_of(engine)[:2]
        wanted = alone(engine, prompts, max_new_tokens=60, speculate="on")
        with engine.computing.step():
            tickets = [engine.submit(one, max_new_tokens=60, speculate="on") for one in prompts]
        found = [ticket.result(WAIT) for ticket in tickets]
    assert [(one.token_ids, one.passes) for one in found] == [(one.token_ids, one.passes) for one in wanted]
    assert sum(one.tokens["accepted"] for one in found) > 0


def test_others_pass_who_waits_for_another_program(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = engine.schema(
        '<schema name="s"><module name="a">alpha alpha</module><module name="b">beta beta</module></schema>'
    )
    barred, other = schema.prompt("<prompt><a/>go</prompt>"), schema.prompt("<prompt><b/>go on</prompt>")
    other.answer(max_new_tokens=1)
    there, prepare = threading.Event(), Answering.prepare
    begun: list[Answering] = []

    def prepared(work: Answering) -> Any:
        begun.append(work)
        while begun[0] is work and not there.is_set():
            yield Barred("cached", "another program encodes a", 0, 1)
        return (yield from prepare(work))

    monkeypatch.setattr(Answering, "prepare", prepared)
    waits = engine.submit(barred, max_new_tokens=2)
    settled(lambda: bool(begun))
    assert engine.submit(other, max_new_tokens=2).result(WAIT).tokens["generated"] == 2
    assert not waits.done
    there.set()
    assert waits.result(WAIT).tokens["generated"] == 2


@pytest.mark.parametrize("what", ["new text", "a module"])
@pytest.mark.parametrize("family", ["llama-gqa", "falcon"])
def test_a_long_pass_that_nobody_wants_is_left_between_two_layers(
    tmp_path: Path, family: str, what: str
) -> None:
    with engine_in(tmp_path, family) as engine:
        text = LONG * 3
        schema = engine.schema(f'<schema name="s"><module name="m">{text}</module></schema>')
        prompt = schema.prompt(f"<prompt>{'<m/>go' if what == 'a module' else text}</prompt>")
        module = engine.model.network.module
        first, second, *_ = next(
            part for part in module.modules() if isinstance(part, torch.nn.ModuleList) and len(part) > 1
        )
        made, tickets, there = list[int](), list[Any](), threading.Event()

        def cancel(*_: Any) -> None:
            there.wait(10)
            tickets[0].cancel()

        hooks = [
            first.register_forward_pre_hook(cancel),
            second.register_forward_pre_hook(lambda *_: made.append(1)),
        ]
        tickets.append(engine.submit(prompt, max_new_tokens=2))
        there.set()
        with pytest.raises(CancelledError):
            tickets[0].result(WAIT)
        for hook in hooks:
            hook.remove()
        assert not made, "the second layer was never come to"
        assert engine.submit(prompt, max_new_tokens=2).result(WAIT).tokens["generated"] == 2
        settled(lambda: not loop_of(engine).busy)
        assert engine.memory_tier.held == 0


@pytest.mark.parametrize("submitted", [True, False])
def test_an_index_that_fails_at_the_end_takes_no_answer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, submitted: bool
) -> None:
    prompt = prompts_of(engine)[0]
    wanted = prompt.answer(max_new_tokens=4)
    engine.segment_cache.unsaved()

    def lacks(*_: Any) -> set[str]:
        raise FailedIndexError("the index is no database any more")

    monkeypatch.setattr(Store, "lacks", lacks)
    found = (
        engine.submit(prompt, max_new_tokens=4).result(WAIT) if submitted else prompt.answer(max_new_tokens=4)
    )
    assert found.token_ids == wanted.token_ids
    gc.collect()
    assert "no database" in str(engine.segment_cache.unsaved())


def test_who_waits_for_a_step_of_another_answer_is_told_and_can_cancel(tmp_path: Path) -> None:
    with engine_in(tmp_path) as engine:
        engine.computing.patience = 0.02
        prompt = prompts_of(engine)[0]
        with engine.computing.step():
            ticket = engine.submit(prompt, max_new_tokens=2)
            (event,) = islice(ticket.events(), 1)
            assert isinstance(event, Working)
            assert event.what == WAITING
            ticket.cancel()
            with pytest.raises(CancelledError):
                ticket.result(WAIT)
        assert engine.submit(prompt, max_new_tokens=2).result(WAIT).tokens["generated"] == 2


@pytest.mark.parametrize("how", ["cancelled", "closed", "dropped"])
def test_who_leaves_while_it_is_prepared_lets_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Between two passes over what must be encoded."""
    engine = engine_in(tmp_path)
    begun, prepare, ended = threading.Event(), Answering.prepare, threading.Event()

    def prepared(work: Answering) -> Any:
        try:
            found = yield from prepare(work)
            begun.set()
            while not ended.is_set():
                yield Working("cached", "encoding", 0, 1)
            return found
        finally:
            ended.set()

    monkeypatch.setattr(Answering, "prepare", prepared)
    ticket = engine.submit(prompts_of(engine)[0], max_new_tokens=2)
    assert begun.wait(WAIT)
    if how == "closed":
        engine.close()
        with pytest.raises(ClosedError):
            ticket.result(WAIT)
    elif how == "cancelled":
        ticket.cancel()
        with pytest.raises(CancelledError):
            ticket.result(WAIT)
    del ticket
    gc.collect()
    assert ended.wait(WAIT)
    settled(lambda: not loop_of(engine).busy)
    assert engine.memory_tier.held == 0
    if how != "closed":
        engine.close()


def test_a_listener_may_submit_the_next_prompt(engine: Engine) -> None:
    prompt, found = prompts_of(engine)[0], list[Any]()
    ended = threading.Event()

    def another() -> None:
        found.append(engine.submit(prompt, max_new_tokens=1))
        ended.set()

    engine_ticket = engine.submit(prompt, max_new_tokens=1)
    engine_ticket.when_done(another)
    assert isinstance(engine_ticket.result(WAIT), Answer)
    assert ended.wait(WAIT)
    assert isinstance(found[0].result(WAIT), Answer)


def test_a_prompt_that_comes_while_the_engine_is_closed_is_told(tmp_path: Path) -> None:
    """The engine is open when it is asked, and closed when the prompt is taken in."""
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    prompt = prompts_of(engine)[0]
    (submission,) = prompt.submissions(max_new_tokens=1)
    with engine.computing.step():
        ticket = engine.answerer.submit(submission)
        engine.computing.close()
    with pytest.raises(ClosedError):
        ticket.result(WAIT)
    engine.close()
