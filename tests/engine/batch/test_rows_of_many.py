"""Rows of many prompts in one pass: each has the logits that it has alone."""

from __future__ import annotations

import pytest
import torch

from engine.base.segment import Placement, Segment
from engine.kv_cache import batched_kv_cache, tail_pool
from engine.kv_cache.batched_kv_cache import Member
from engine.kv_cache.protocol import KVCache, Rows, Rowwise
from engine.model.model import Model
from tests.drawing import each
from tests.engine.cases import apart, encoded, model_of
from tests.engine.tiny import SEGMENTS

LIMIT = 1e-4  # between logits in fp32


class Prompt:
    """A prompt that is prefilled by itself, and then decodes tokens that are given, alone or with others."""

    def __init__(self, model: Model, placements: list[Placement], end: int, own: int, seed: int) -> None:
        self.model, self.at = model, end
        drawn = torch.randint(3, 250, (own + 40,), generator=torch.Generator().manual_seed(seed)).tolist()
        self.own, self.later = drawn[:own], drawn[own:]
        self.kv: KVCache = model.network.kv_cache(placements, own + 40)
        self.alone: KVCache = model.network.kv_cache(placements, own + 40)
        self.taken = 0

    def prefill(self) -> Rows:
        return Rows(self.own, list(range(self.at, self.at + len(self.own))))

    def step(self) -> Rows:
        place = self.at + len(self.own) + self.taken
        self.taken += 1
        return Rows([self.later[self.taken - 1]], [place], 1, Rowwise())


def passed(model: Model, batch: object, wanted: list[tuple[Prompt, Rows]]) -> float:
    """Runs rows of prompts in one pass, and each alone; the greatest difference of logits."""
    members = [Member(one.kv, rows) for one, rows in wanted]
    found = model.network.forward_batch(members, batch)  # type: ignore[arg-type]
    worst = 0.0
    for (one, rows), logits in zip(wanted, found, strict=True):
        want = model.network.forward(rows.token_ids, rows.positions, one.alone, rows.keep)
        assert logits.shape == want.shape
        worst = max(worst, apart(logits, want) if rows.keep else 0.0)
    return worst


def shared(model: Model, tokens: int, key: str = "k", first: int = 5) -> Segment:
    return encoded(model, key, [first + at % 200 for at in range(tokens)])


def pieces(model: Model) -> tuple[Segment, Segment]:
    """Two modules."""
    return shared(model, 80, "one"), shared(model, 70, "two", 40)


@pytest.mark.parametrize("family", each(SEGMENTS, "llama-gqa", "mistral-swa", "smollm3", "gpt-oss"))
def test_modules_in_any_order_in_parts_and_with_hidden_tokens(family: str) -> None:
    """Readers of a segment stand at other places, see parts of it, or two of it, and not the same tokens."""
    model = model_of(family)
    one, two = pieces(model)
    prompts = [
        Prompt(model, [Placement(one, 0, 80, 0), Placement(two, 0, 70, 80)], 150, 3, 1),
        Prompt(model, [Placement(two, 0, 70, 0), Placement(one, 0, 80, 73)], 153, 2, 2),
        Prompt(
            model,
            [Placement(one, 0, 30, 0), Placement(one, 37, 80, 50), Placement(two, 0, 70, 99)],
            169,
            1,
            3,
        ),
        Prompt(model, [Placement(one, 10, 80, 6, (12, 79)), Placement(two, 5, 70, 76)], 141, 4, 4),
        Prompt(model, [Placement(one, 0, 80, 0), Placement(one, 10, 80, 90, (79,))], 170, 2, 5),
        Prompt(model, [], 0, 12, 6),
    ]
    batch = model.network.batch_cache()
    assert passed(model, batch, [(one, one.prefill()) for one in prompts]) <= LIMIT
    for _ in range(6):
        assert passed(model, batch, [(one, one.step()) for one in prompts]) <= LIMIT


@pytest.mark.parametrize("family", each(["llama-gqa", "gemma3", "gpt-oss"], "gpt-oss"))
def test_tails_outgrow_their_slots(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is longer from the beginning, one becomes so, and what nobody else reads goes along."""
    monkeypatch.setattr(tail_pool, "COLUMNS", 24)
    monkeypatch.setattr(batched_kv_cache, "COLUMNS", 24)
    model = model_of(family)
    one, two = pieces(model)
    mine = shared(model, 9, "mine", 90)
    prompts = [
        Prompt(model, [Placement(one, 0, 80, 0), Placement(two, 0, 70, 80)], 150, 40, 1),
        Prompt(model, [Placement(one, 0, 80, 0), Placement(mine, 0, 9, 80)], 89, 8, 2),
        Prompt(model, [Placement(one, 0, 80, 5)], 85, 3, 3),
        Prompt(model, [Placement(mine, 0, 9, 1), Placement(one, 0, 80, 10)], 90, 2, 4),
    ]
    batch = model.network.batch_cache()
    assert passed(model, batch, [(one, one.prefill()) for one in prompts]) <= LIMIT
    for _ in range(25):
        assert passed(model, batch, [(one, one.step()) for one in prompts]) <= LIMIT
    assert len(batch.slots) == 0


@pytest.mark.parametrize("family", each(["llama-gqa", "mistral-swa", "gpt-oss"], "mistral-swa"))
def test_slots_are_as_wide_as_the_longest_tail_needs(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_pool, "STEP", 8)
    model = model_of(family)
    segment = shared(model, 80)
    prompts = [Prompt(model, [Placement(segment, 0, 80, 0)], 80, own, own) for own in (3, 6, 4)]
    late = Prompt(model, [Placement(segment, 0, 80, 0)], 80, 30, 1)
    batch = model.network.batch_cache()
    assert passed(model, batch, [(one, one.prefill()) for one in [*prompts, late]]) <= LIMIT
    widths, slots = list[int](), list[int]()
    for step in range(30):
        several = [*prompts, late] if step >= 20 else prompts
        assert passed(model, batch, [(one, one.step()) for one in several]) <= LIMIT
        assert batch.slots.buffer is not None
        widths.append(batch.slots.buffer.shape[4])
        slots.append(batch.slots.buffer.shape[2])
    assert widths == [8] * 2 + [16] * 8 + [24] * 8 + [32] * 2 + [32] * 2 + [40] * 8
    assert set(slots) == {4}


def test_one_prompt_alone_is_computed_as_without_a_batch() -> None:
    model = model_of("llama-gqa")
    one, two = pieces(model)
    placed = [Placement(one, 0, 80, 0), Placement(two, 0, 70, 80), Placement(one, 40, 80, 150)]
    prompt = Prompt(model, placed, 190, 5, 1)
    batch, network = model.network.batch_cache(), model.network
    for rows in (prompt.prefill(), *(prompt.step() for _ in range(4))):
        (found,) = network.forward_batch([Member(prompt.kv, rows)], batch)
        if rows.rowwise is not None:
            prompt.alone.fold()
        want = network.forward(rows.token_ids, rows.positions, prompt.alone, rowwise=rows.rowwise)
        assert torch.equal(found, want)
    assert not prompt.kv.placements
