"""Rows of many prompts in one pass: each has the logits that it has alone."""

from __future__ import annotations

import pytest
import torch

from engine.model.batched_kv_cache import Member
from engine.model.kv_cache import KVCache, Rows, Rowwise
from engine.model.model import Model
from engine.segment import Placement, Segment
from tests.engine.cases import apart, encoded, model_of
from tests.engine.tiny import FIXED, SEGMENTS

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
        worst = max(worst, apart(logits, want))
    return worst


def shared(model: Model, tokens: int, key: str = "k", first: int = 5) -> Segment:
    return encoded(model, key, [first + at % 200 for at in range(tokens)])


@pytest.mark.parametrize("family", [*SEGMENTS, *FIXED])
def test_a_shared_segment_is_read_by_all_as_by_each(family: str) -> None:
    model = model_of(family)
    segment = shared(model, 90)
    starts = (0, 0, 0) if family in FIXED else (0, 31, 4)
    prompts = [
        Prompt(model, [Placement(segment, 0, 90, start)], start + 90, 1 + at, at)
        for at, start in enumerate(starts)
    ]
    batch = model.network.batch_cache()
    assert passed(model, batch, [(one, one.prefill()) for one in prompts]) <= LIMIT
    for _ in range(4):
        assert passed(model, batch, [(one, one.step()) for one in prompts]) <= LIMIT
