"""Many prompts at once: each has the answer that it has alone, in its turn, and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.base.errors import CancelledError, ModelError
from engine.base.events import Answer, FirstToken
from engine.base.segment import Placement, Segment
from engine.batch import run as runs
from engine.batch import scheduler
from engine.batch.loop import BatchLoop
from engine.batch.passes import Pass, held_bytes
from engine.engine import Engine
from engine.inference.generation import Sequence
from engine.model.network import Network
from engine.prepared import PreparedPrompt
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import apart, held_in_memory, model_of
from tests.engine.tiny import DENSE, FIXED, SEGMENTS

LIMIT = 1e-4
WAIT = 60
SCHEMA = (
    '<schema name="s">Read this. <module name="a">alpha and its many friends, of whom there are some more '
    'than a few, walk along the river every day.</module><module name="b">beta sleeps under the tree, and '
    "dreams of all the things that nobody has told yet to anybody at all.</module></schema>"
)
PROMPTS = (
    "<prompt><a/><b/>go on</prompt>",
    "<prompt><b/>what does it dream of?</prompt>",
    "<prompt><a/>who walks?</prompt>",
    "<prompt><b/><a/>and now in another order, please: who was told?</prompt>",
    "<prompt>nothing of all this</prompt>",
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with engine_in(tmp_path) as engine:
        yield engine


def engine_in(folder: Path, family: str = "llama-gqa") -> Engine:
    engine = Engine(model_of(family, chat=False), Store.open(folder))
    assert isinstance(engine.answerer, BatchLoop)
    return engine


def prompts_of(engine: Engine, *, placed: bool = False) -> list[PreparedPrompt]:
    """Prompts over one schema; only those that can stand in its places, or also in another order."""
    schema = engine.schema(SCHEMA)
    return [schema.prompt(text) for text in PROMPTS if not (placed and "<b/><a/>" in text)]


def alone(engine: Engine, prompts: list[PreparedPrompt], **settings: Any) -> list[Answer]:
    return [one.answer(**settings) for one in prompts]


def passes(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """How many rows each member brought, by pass."""
    found: list[list[int]] = []
    forward = Network.forward_batch

    def counted(network: Network, members: Any, *given: Any) -> list[Tensor]:
        found.append([len(one.rows.real.token_ids) for one in members])
        return forward(network, members, *given)

    monkeypatch.setattr(Network, "forward_batch", counted)
    return found


@pytest.mark.parametrize("family", [*SEGMENTS, *FIXED, *DENSE])
def test_every_answer_is_the_one_that_it_is_alone(family: str, tmp_path: Path) -> None:
    with engine_in(tmp_path, family) as engine:
        prompts = prompts_of(engine, placed=family in FIXED)
        wanted = alone(engine, prompts, max_new_tokens=6, speculate="off")
        tickets = [engine.submit(one, max_new_tokens=6) for one in prompts]
        found = [ticket.result(WAIT) for ticket in tickets]
    for one, other in zip(found, wanted, strict=True):
        assert one.token_ids == other.token_ids
        assert one.first_logits is not None
        assert other.first_logits is not None
        assert float((one.first_logits - other.first_logits).abs().max()) <= LIMIT
        assert one.text == other.text
        assert one.tokens["prompt"] == other.tokens["prompt"]


def test_they_go_through_together_and_a_long_prompt_in_chunks(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.answerer, "_rows", 8)
    made = passes(monkeypatch)
    prompts = prompts_of(engine)
    wanted = alone(engine, prompts, max_new_tokens=60, speculate="off")
    with engine.computing.step():  # so that all are there when the first pass begins
        tickets = [engine.submit(one, max_new_tokens=60) for one in prompts]
    found = [ticket.result(WAIT) for ticket in tickets]
    assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
    assert max(map(sum, made)) <= 8 + len(prompts), "rows of answers, and a prompt's within the budget"
    assert max(map(len, made)) == len(prompts)
    rows = sum(map(sum, made))
    assert len(made) < rows / 2, "they share passes"


def test_who_watches_is_told_of_every_pass_and_of_what_is_held(engine: Engine) -> None:
    loop, made = engine.answerer, list[Pass]()
    assert isinstance(loop, BatchLoop)
    loop.watcher = made.append
    first, *_, second, _ = prompts_of(engine)
    with engine.computing.step():
        tickets = [engine.submit(one, max_new_tokens=6, speculate="off") for one in (first, second)]
    answers = [ticket.result(WAIT) for ticket in tickets]
    after = [answer.tokens["generated"] - 1 for answer in answers]
    assert sum(one.answers for one in made) == sum(after)
    assert sum(one.rows for one in made) == sum(after) + sum(one.tokens["computed"] for one in answers)
    assert max(one.answers for one in made) == 2
    assert [one.ended for one in made] == sorted(one.ended for one in made)
    read = sum(one.nbytes for one in held_in_memory(engine).values())
    slots = 4 * 256 * engine.model.bytes_per_token
    assert read < max(one.nbytes for one in made) <= read + 2 * slots, "segments that both read count once"
    loop.watcher, told = None, len(made)
    engine.submit(first, max_new_tokens=2).result(WAIT)
    assert len(made) == told


def test_what_several_read_is_counted_once() -> None:
    segment = Segment("s", (1, 2, 3), torch.zeros(2, 1, 3, 4), torch.zeros(2, 1, 3, 4))
    placed = [Placement(segment, 0, 3, 0), Placement(segment, 1, 3, 7)]
    slots = torch.zeros(2, 2, 4, 1, 8, 4)
    caches: Any = [SimpleNamespace(own=SimpleNamespace(memory=slots[:, :, place])) for place in range(2)]
    caches += [SimpleNamespace(own=SimpleNamespace(memory=None)), SimpleNamespace(own=None)]
    assert held_bytes(placed, caches) == segment.nbytes + slots.nbytes
    assert held_bytes((), ()) == 0


def test_what_many_lack_is_encoded_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    encode = Network.encode

    def counted(network: Network, texts: Any) -> None:
        encoded.extend(text.segment.tokens for text in texts)
        encode(network, texts)

    monkeypatch.setattr(Network, "encode", counted)
    schema = engine.schema(SCHEMA)
    tickets = [engine.submit(schema.prompt(f"<prompt><a/>{n}</prompt>"), max_new_tokens=2) for n in range(16)]
    for ticket in tickets:
        ticket.result(WAIT)
    assert len(encoded) == 2, "the anonymous text and the module"


def test_what_one_lacks_is_encoded_in_parts_between_the_steps_of_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.answerer, "_rows", 16)
    schema = engine.schema(
        '<schema name="s"><module name="a">alpha</module>'
        f'<module name="long">{"and so on " * 30}</module></schema>'
    )
    first, second = (schema.prompt(f"<prompt><{name}/>go</prompt>") for name in ("a", "long"))
    wanted = second.answer(max_new_tokens=3, speculate="off")
    engine.store.clear()
    engine.memory_tier.clear()
    first.answer(max_new_tokens=1)
    made: list[tuple[str, int]] = []
    encode, forward = Network.encode, Network.forward_batch

    def encoded(network: Network, texts: Any) -> None:
        made.append(("encoded", sum(text.segment.tokens for text in texts)))
        encode(network, texts)

    def passed(network: Network, members: Any, *given: Any) -> list[Tensor]:
        made.append(("passed", len(members)))
        return forward(network, members, *given)

    monkeypatch.setattr(Network, "encode", encoded)
    monkeypatch.setattr(Network, "forward_batch", passed)
    decoder = engine.submit(first, max_new_tokens=400)
    next(event for event in decoder.events() if isinstance(event, FirstToken))
    found = engine.submit(second, max_new_tokens=3).result(WAIT)
    assert not decoder.done
    decoder.cancel()
    sizes = [count for kind, count in made if kind == "encoded"]
    assert len(sizes) > 300 / 16
    assert max(sizes) <= 16
    assert all(pair != ("encoded", "encoded") for pair in pairwise(kind for kind, _ in made))
    assert found.token_ids == wanted.token_ids
    assert apart(found.first_logits, wanted.first_logits) <= LIMIT


@pytest.mark.parametrize("family", each(["llama-gqa", "mistral-swa", "gpt-oss", "gpt2"], "mistral-swa"))
def test_the_newest_is_set_back_where_memory_is_full_and_goes_on_as_if_it_was_not(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "AHEAD", 16)
    back, taken = list[str](), list[int]()
    set_back = runs.Run.set_back

    def noted(run: runs.Run) -> None:
        back.append(run.submission.prompt.schema.tree.name)
        set_back(run)

    monkeypatch.setattr(runs.Run, "set_back", noted)
    with engine_in(tmp_path, family) as engine:
        prompts = prompts_of(engine, placed=family in FIXED)[:3]
        wanted = alone(engine, prompts, max_new_tokens=90, speculate="off")
        size, tier = engine.model.bytes_per_token, engine.memory_tier
        read = sum(segment.nbytes for segment in held_in_memory(engine).values())
        tier.budget = read + 220 * size  # of three prompts and their answers, which are more
        loop = engine.answerer
        assert isinstance(loop, BatchLoop)
        loop.watcher = lambda made: taken.append(tier.bytes)
        with engine.computing.step():
            tickets = [engine.submit(one, max_new_tokens=90, speculate="off") for one in prompts]
        found = [ticket.result(WAIT) for ticket in tickets]
        assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
        assert [one.text for one in found] == [one.text for one in wanted]
        assert back, "memory was full"
        assert all(one.passes < 90 for one in found), "what was given up is computed in one piece"
        assert max(taken) <= tier.budget
        settled(lambda: not loop.busy)
        assert tier.held == 0


def test_an_answer_may_be_long_without_keeping_others_out(tmp_path: Path) -> None:
    with engine_in(tmp_path) as engine:
        first, second, *_ = prompts_of(engine)
        size, made = engine.model.bytes_per_token, list[Pass]()
        engine.memory_tier.budget = 2_000 * size
        loop = engine.answerer
        assert isinstance(loop, BatchLoop)
        loop.watcher = made.append
        with engine.computing.step():
            tickets = [engine.submit(one, max_new_tokens=3_000) for one in (first, second)]
        settled(lambda: max((one.answers for one in made), default=0) == 2)
        for ticket in tickets:
            ticket.cancel()


def test_what_another_program_is_at_keeps_nobody_else_waiting(engine: Engine) -> None:
    names = [f"m{n}" for n in range(4)]
    text = "".join(f'<module name="{name}">{name} and its own text</module>' for name in names)
    schema = engine.schema(f'<schema name="s">{text}</schema>')
    prompts = [schema.prompt(f"<prompt><{name}/>go on</prompt>") for name in names]
    planned = prompts[0].tokenized.planned("anchored", "compact").slices
    key = next(one.recipe.key for one in planned if one is not None and one.recipe.path == "m0")
    with engine.store.try_compute_lock(key) as taken:
        assert taken
        barred = engine.submit(prompts[0], max_new_tokens=2)
        others = [engine.submit(one, max_new_tokens=2) for one in prompts[1:]]
        assert [one.result(WAIT).tokens["generated"] for one in others] == [2, 2, 2]
        assert not barred.done
    assert barred.result(WAIT).tokens["generated"] == 2


def test_a_short_prompt_is_read_beside_a_long_one(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.answerer, "_rows", 16)
    schema = engine.schema('<schema name="s"><module name="a">alpha</module></schema>')
    with engine.computing.step():
        long = engine.submit(schema.prompt(f"<prompt><a/>{'and so on ' * 60}</prompt>"), max_new_tokens=2)
        short = engine.submit(schema.prompt("<prompt><a/>go</prompt>"), max_new_tokens=2)
    assert short.result(WAIT).tokens["generated"] == 2
    assert not long.done
    assert long.result(WAIT).tokens["generated"] == 2


def test_what_becomes_an_answers_own_is_set_aside_within_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "AHEAD", 16)
    with engine_in(tmp_path) as engine:
        prompt, tier = prompts_of(engine)[0], engine.memory_tier
        prompt.answer(max_new_tokens=1)
        held, size = tier.bytes, engine.model.bytes_per_token
        ticket = engine.submit(prompt, max_new_tokens=3_000)
        next(event for event in ticket.events() if isinstance(event, FirstToken))
        assert held + runs.AHEAD * size <= tier.bytes < held + 3_000 * size
        settled(lambda: tier.bytes >= held + 2 * runs.AHEAD * size)
        ticket.cancel()
        settled(lambda: tier.bytes == held)
        tier.budget = held + 20 * size
        engine.submit(prompt, max_new_tokens=60).result(WAIT)
        settled(lambda: tier.bytes <= tier.budget)


def test_a_newcomer_answers_before_those_that_are_longer(engine: Engine) -> None:
    first, second, *_ = prompts_of(engine)
    long = engine.submit(first, max_new_tokens=400)
    next(event for event in long.events() if isinstance(event, FirstToken))
    assert engine.submit(second, max_new_tokens=2).result(WAIT).tokens["generated"] == 2
    assert not long.done
    long.cancel()


def test_who_cancels_is_out_within_a_step_and_the_others_go_on(engine: Engine) -> None:
    prompts = prompts_of(engine)
    wanted = alone(engine, prompts[:2], max_new_tokens=30, speculate="off")
    tickets = [engine.submit(one, max_new_tokens=30) for one in prompts[:2]]
    gone = engine.submit(prompts[2], max_new_tokens=400)
    next(event for event in gone.events() if isinstance(event, FirstToken))
    gone.cancel()
    with pytest.raises(CancelledError):
        gone.result(WAIT)
    assert [ticket.result(WAIT).token_ids for ticket in tickets] == [one.token_ids for one in wanted]


@pytest.mark.parametrize("place", ["take", "wanted"])
def test_a_fault_of_one_ends_that_one_only(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    prompts = prompts_of(engine)
    wanted = alone(engine, prompts, max_new_tokens=8, speculate="off")
    bad = wanted[2].tokens["prompt"]
    kept = getattr(Sequence, place)

    def failing(sequence: Sequence, *given: Any, **named: Any) -> Any:
        if len(sequence.prefill.prompt) == bad and len(sequence.token_ids) == 3:
            raise ModelError("what it computes is no number")
        return kept(sequence, *given, **named)

    monkeypatch.setattr(Sequence, place, failing)
    tickets = [engine.submit(one, max_new_tokens=8) for one in prompts]
    for number, ticket in enumerate(tickets):
        if number == 2:
            with pytest.raises(ModelError):
                ticket.result(WAIT)
        else:
            assert ticket.result(WAIT).token_ids == wanted[number].token_ids


def test_a_pass_that_fails_is_made_one_by_one(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = prompts_of(engine)
    wanted = alone(engine, prompts, max_new_tokens=8, speculate="off")
    run = Network.forward_batch

    def failing(network: Network, members: Any, *given: Any) -> Any:
        if len(members) > 1:
            raise MemoryError("none left")
        return run(network, members, *given)

    monkeypatch.setattr(Network, "forward_batch", failing)
    tickets = [engine.submit(one, max_new_tokens=8) for one in prompts]
    assert [ticket.result(WAIT).token_ids for ticket in tickets] == [one.token_ids for one in wanted]


def settled(done: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT
    while not done():
        assert time.monotonic() < until, "it does not settle"
        time.sleep(0.01)


class Wished:
    """A prompt that waits, for the scheduler."""

    def __init__(self, need: scheduler.Need, passed: int = 0) -> None:
        self.need, self.passed = need, passed


def test_one_whose_segments_are_there_may_pass_a_few_times() -> None:
    far, near = scheduler.Need({"far": 5}), scheduler.Need({"near": 5})
    resident = lambda need: "near" in need.segments  # noqa: E731
    assert scheduler.choose([Wished(far), Wished(far), Wished(near)], resident) == 2
    assert scheduler.choose([Wished(far, scheduler.PASSED), Wished(near)], resident) == 0
    many = [Wished(far) for _ in range(scheduler.LOOKED_AT)]
    assert scheduler.choose([*many, Wished(near)], resident) == 0


def test_what_is_read_by_several_is_counted_once() -> None:
    one = scheduler.Need({"a": 60}, own=10)
    assert scheduler.room(100, [one], scheduler.Need({"a": 60}, own=30))
    assert not scheduler.room(100, [one], scheduler.Need({"a": 60}, own=31))
    assert scheduler.room(260, [one], scheduler.Need({"b": 60}, own=10)), "what one reads may be copied"
    assert not scheduler.room(259, [one], scheduler.Need({"b": 60}, own=10))
    beside = scheduler.Need({"a": 60}, own=25, slot=20)
    assert scheduler.room(115, [one], beside), "slots are as wide as the longest"
    assert not scheduler.room(114, [one], beside)
    assert not scheduler.room(100, [one], scheduler.Need({"b": 60}, own=10))
    assert scheduler.room(1, [], one), "one prompt by itself is always taken"


@pytest.mark.parametrize(
    ("budget", "decoding", "prefills", "found"),
    [
        (8, 3, [10, 4], [3, 2]),
        (8, 3, [10, 1], [4, 1]),
        (8, 3, [2, 9], [2, 3]),
        (16, 0, [90, 30, 3, 2], [8, 3, 3, 2]),
        (4, 9, [5], [1]),
        (4, 9, [5, 1], [1, 0]),
        (8, 0, [], []),
    ],
)
def test_the_first_has_half_of_the_rows_and_the_shortest_come_before_more_of_it(
    budget: int, decoding: int, prefills: list[int], found: list[int]
) -> None:
    assert scheduler.shares(budget, decoding, prefills) == found


def test_a_model_that_takes_no_several_prompts_says_why(tmp_path: Path) -> None:
    with engine_in(tmp_path, "gptj") as engine:
        loop = engine.answerer
        assert isinstance(loop, BatchLoop)
        assert loop.alone
        assert loop.appetite == 2


def test_with_determinism_prompts_are_computed_one_by_one(tmp_path: Path) -> None:
    model = model_of("llama-gqa", chat=False)
    with Engine(model, Store.open(tmp_path), deterministic=True) as engine:
        prompts = prompts_of(engine)
        wanted = alone(engine, prompts, max_new_tokens=5)
        found = [engine.submit(one, max_new_tokens=5) for one in prompts]
        for ticket, answer in zip(found, wanted, strict=True):
            assert torch.equal(ticket.result(WAIT).first_logits, answer.first_logits)
    assert "the same bits" in engine.answerer.alone
