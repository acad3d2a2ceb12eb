"""Answers that share passes: each says what it says alone, and what goes wrong with one ends that one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.base.errors import ModelError
from engine.base.segment import Placement, Segment
from engine.batch.passes import Passes
from engine.checkpoint.synthetic import byte_tokenizer
from engine.inference.generation import Sequence
from engine.inference.prefill import Prefill
from engine.inference.run_settings import RunSettings
from engine.kv_cache import batched_kv_cache
from engine.kv_cache.batched_kv_cache import Member
from engine.model.model import Model
from tests.engine.cases import encoded, model_of
from tests.engine.tiny import DENSE, tiny_network

GREEDY = RunSettings(max_new_tokens=9)


def module(model: Model, key: str, first: int, tokens: int = 70) -> Segment:
    return encoded(model, key, [first + at % 90 for at in range(tokens)])


def prefill(placements: list[Placement], own: int, seed: int) -> Prefill:
    """A prompt of segments one behind the other, and new tokens behind them."""
    generator = torch.Generator().manual_seed(seed)
    tokens: list[int] = torch.randint(3, 250, (own,), generator=generator).tolist()
    start = max((one.start + one.tokens for one in placements), default=0)
    read = [token for one in placements for token in one.segment.token_ids[one.lo : one.hi]]
    return Prefill(placements, tokens, range(start, start + own), read + tokens, start + own)


def prompts_over(model: Model, *, moved: bool) -> list[Prefill]:
    """Prompts over the same two modules, in both orders where they move."""
    one, two = module(model, "one", 5), module(model, "two", 100)
    first, second = Placement(one, 0, 70, 0), Placement(two, 0, 70, 70)
    turned = [Placement(two, 0, 70, 0), Placement(one, 0, 70, 70)] if moved else [first, second]
    return [prefill(placed, 3 + at, at) for at, placed in enumerate(([first, second], turned, [first], []))]


def alone(model: Model, prompt: Prefill, settings: RunSettings = GREEDY) -> list[int]:
    sequence = Sequence(model, prompt, settings)
    while sequence.ending is None:
        sequence.step()
    return sequence.token_ids


def step(passes: Passes, sequences: list[Sequence]) -> None:
    """Gives each the next token; those that do not know it yet share a pass."""
    computing = [one for one in sequences if not one.ahead]
    rows = [one.wanted() for one in computing]
    members = [Member(one.kv, row) for one, row in zip(computing, rows, strict=True) if one.kv is not None]
    for one, logits in zip(computing, passes.run(members) if members else [], strict=True):
        one.take(logits)
    for one in sequences:
        one.given(0.0)


def finish(passes: Passes, sequences: list[Sequence]) -> None:
    while running := [one for one in sequences if one.ending is None]:
        step(passes, running)


def test_what_is_drawn_and_what_is_guessed_is_what_it_is_alone() -> None:
    model = model_of("llama-gqa")
    drawn = RunSettings(max_new_tokens=9, temperature=1.5, seed=4)
    guessed = RunSettings(max_new_tokens=30, speculate="on")
    prompts = prompts_over(model, moved=True)
    asked = [drawn, guessed, GREEDY, guessed]
    together = [Sequence(model, one, how) for one, how in zip(prompts, asked, strict=True)]
    finish(Passes(model), together)
    found = [one.token_ids for one in together]
    assert found == [alone(model, one, how) for one, how in zip(prompts, asked, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_by_itself_is_computed_to_the_bit_as_without_passes(dtype: torch.dtype) -> None:
    model = Model("tiny", tiny_network("llama-gqa").to(dtype), byte_tokenizer(), "f")
    one, two, three = (Placement(module(model, str(at), at), 0, 70, 70 * at) for at in range(3))
    for placed in ([one, two, three], [two], []):
        prompt = prefill(placed, 3, 0)
        by_itself, passed = Sequence(model, prompt, GREEDY), Sequence(model, prompt, GREEDY)
        passes = Passes(model)
        while by_itself.ending is None:
            by_itself.step()
            step(passes, [passed])
            assert by_itself.logits is not None
            assert passed.logits is not None
            assert torch.equal(by_itself.logits, passed.logits)


def test_a_pass_that_fails_counts_nothing_and_can_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama-gqa")
    prompts = prompts_over(model, moved=True)
    sequences, passes = [Sequence(model, one, GREEDY) for one in prompts], Passes(model)
    for _ in range(2):
        step(passes, sequences)
    rows = [one.wanted() for one in sequences]
    members = [Member(one.kv, row) for one, row in zip(sequences, rows, strict=True) if one.kv is not None]
    lengths = [one.kv.length for one in members]

    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(batched_kv_cache, "merged", full)
        with pytest.raises(MemoryError):
            passes.run(members)
    assert [one.kv.length for one in members] == lengths
    for one, logits in zip(sequences, passes.run(members), strict=True):
        one.take(logits)
        one.given(0.0)
    finish(passes, sequences)
    assert [one.token_ids for one in sequences] == [alone(model, one) for one in prompts]


@pytest.mark.parametrize("family", DENSE)
def test_a_model_that_takes_one_at_a_time_says_why(family: str) -> None:
    model = model_of(family)
    passes = Passes(model)
    assert "its own attention code" in passes.alone
    assert passes.alone in model.probe.summary
    prompt = prefill([], 4, 1)
    sequences = [Sequence(model, prompt, GREEDY) for _ in range(2)]
    with pytest.raises(ModelError, match="one by one: the model has its own attention code"):
        step(passes, sequences)
    finish(passes, sequences[:1])
    assert sequences[0].token_ids == alone(model, prompt)


def reads(
    monkeypatch: pytest.MonkeyPatch, model: Model, prompts: list[Prefill]
) -> tuple[list[int], int, list[Sequence]]:
    """Tokens of each part that a step of decoding reads for rows together, and its calls over tails."""
    sequences, passes = [Sequence(model, one, GREEDY) for one in prompts], Passes(model)
    for _ in range(2):
        step(passes, sequences)
    tokens, own = list[int](), [0]
    read, read_own = batched_kv_cache.read, batched_kv_cache.read_own

    def counted(query: Any, keys: Any, *others: Any) -> Any:
        tokens.append(keys.shape[1])
        return read(query, keys, *others)

    def counted_own(*given: Any) -> Any:
        own[0] += 1
        return read_own(*given)

    with monkeypatch.context() as patched:
        patched.setattr(batched_kv_cache, "read", counted)
        patched.setattr(batched_kv_cache, "read_own", counted_own)
        step(passes, sequences)
    return tokens, own[0], sequences


@pytest.mark.parametrize("readers", [2, 7])
def test_a_pass_reads_each_segment_once_for_all(readers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama-gqa")
    one, two, three = (module(model, str(at), at, 70 + at) for at in (5, 40, 80))
    orders = (
        [Placement(one, 0, 75, 0), Placement(two, 0, 110, 75), Placement(three, 0, 150, 185)],
        [Placement(three, 0, 150, 0), Placement(one, 0, 75, 150), Placement(two, 0, 110, 225)],
    )
    prompts = [prefill(orders[at % 2], 2, at) for at in range(readers)]
    tokens, own, sequences = reads(monkeypatch, model, prompts)
    assert sorted(tokens) == sorted([75, 110, 150] * model.layers)
    assert own == model.layers
    for sequence in sequences:
        assert sequence.kv is not None
        assert len(sequence.kv.placements) == 3, "what others read was copied"


def test_what_one_reads_and_what_is_short_lies_in_its_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama-gqa")
    shared, short = module(model, "shared", 5), module(model, "short", 50, 12)
    mine = module(model, "mine", 90)
    prompts = [
        prefill([Placement(shared, 0, 70, 0), Placement(short, 0, 12, 70), Placement(mine, 0, 70, 82)], 2, 0),
        prefill([Placement(short, 0, 12, 0), Placement(shared, 0, 70, 12)], 2, 1),
    ]
    tokens, own, sequences = reads(monkeypatch, model, prompts)
    assert (tokens, own) == ([70] * model.layers, model.layers)
    held = [one.kv for one in sequences if one.kv is not None]
    assert [[one.segment for one in kv.placements] for kv in held] == [[shared], [shared]]
    assert [kv.length for kv in held] == [4, 4], "what was copied counts as new"
    assert [one.token_ids for one in sequences] == [alone(model, one)[:3] for one in prompts]


def test_many_short_pieces_that_others_read_are_not_copied() -> None:
    """Five of 60 tokens are more than a slot has room for; what no other reads is copied all the same."""
    model = model_of("llama-gqa")
    short = [module(model, f"short {at}", 5 * at, 60) for at in range(5)]
    mine = module(model, "mine", 90, 50)
    prompts = [
        prefill([Placement(one, 0, one.tokens, 60 * at) for at, one in enumerate([*order, *own])], 2, number)
        for number, (order, own) in enumerate([(short, [mine]), (short[::-1], [])])
    ]
    sequences, passes = [Sequence(model, one, GREEDY) for one in prompts], Passes(model)
    finish(passes, sequences)
    held = [one.kv for one in sequences if one.kv is not None]
    assert [[one.segment for one in kv.placements] for kv in held] == [short, short[::-1]]
    assert [one.token_ids for one in sequences] == [alone(model, one) for one in prompts]


def test_what_a_waiting_prompt_will_read_is_not_copied() -> None:
    model = model_of("llama-gqa")
    placed = [Placement(module(model, str(at), at), 0, 70, 70 * at) for at in range(3)]
    for others, left in ((), 0), (([placed[1]],), 1):
        sequence, passes = Sequence(model, prefill(placed, 2, 0), GREEDY), Passes(model)
        for _ in range(2):
            rows = sequence.wanted()
            assert sequence.kv is not None
            (logits,) = passes.run([Member(sequence.kv, rows)], others)
            sequence.take(logits)
            sequence.given(0.0)
        assert len(sequence.kv.placements) == left
