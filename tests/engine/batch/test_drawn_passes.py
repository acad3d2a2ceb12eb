"""Drawn sequences of passes: who joins, leaves, goes on alone, is set back or vanishes disturbs no other."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.segment import Placement, Segment
from engine.kv_cache.batched_kv_cache import BatchedKVCache, Member
from engine.kv_cache.protocol import KVCache, Rows, Rowwise
from engine.model.model import Model
from tests.drawing import EVERY, each
from tests.engine.cases import apart, encoded, model_of

CAPACITY = 300
LIMIT = 1e-4
ACTS = ("join", "step", "step", "step", "some", "alone", "leave", "back", "vanish", "chunk")


class Reader:
    """A prompt with a KV cache in the batch, and one of its own that nobody else touches."""

    def __init__(self, model: Model, placed: list[Placement], own: int) -> None:
        self.kv: KVCache = model.network.kv_cache(placed, CAPACITY)
        self.alone: KVCache = model.network.kv_cache(placed, CAPACITY)
        self.end = max((one.start + one.tokens for one in placed), default=0)
        self.prefill = own

    def rows(self, count: int, rowwise: Rowwise | None) -> Rows:
        first = self.end + self.kv.length
        positions = [*range(first, first + count)]
        return Rows([3 + at * 7 % 250 for at in positions], positions, 1, rowwise)

    @property
    def next(self) -> Rows:
        if not self.kv.length:
            return self.rows(self.prefill, None)
        return self.rows(1, Rowwise())


class Passes:
    """What is drawn, done; each pass is compared with passes of each alone."""

    def __init__(self, model: Model, segments: list[Segment]) -> None:
        self.model, self.segments = model, segments
        self.batch: BatchedKVCache = model.network.batch_cache()
        self.there: list[Reader] = []

    def act(self, act: str, number: int) -> None:
        if act == "join" or not self.there:
            self.there.append(Reader(self.model, self.placed(number), 1 + number % 5))
            return
        one = self.there[number % len(self.there)]
        if act == "step":
            self.run([(each, each.next) for each in self.there])
        elif act == "some":
            self.run([(each, each.next) for at, each in enumerate(self.there) if (number >> at) % 2])
        elif act == "alone":
            self.run([(one, one.next)])
        elif act == "leave":
            self.batch.leave(one.kv)
        elif act == "back" and one.kv.length > 1:
            length = 1 + number % (one.kv.length - 1)
            for kv in (one.kv, one.alone):
                kv.truncate(length)
        elif act == "vanish":
            self.there.remove(one)
        elif act == "chunk":
            self.run([(each, each.rows(4, None) if each is one else each.next) for each in self.there])

    def placed(self, number: int) -> list[Placement]:
        found, at = list[Placement](), number % 3
        for index in ([0, 1, 2], [2, 0, 0], [1], [2, 1, 0], [])[number % 5]:
            one, lo = self.segments[index], number % 7
            hidden = (lo + 1, lo + 20) if number % 4 == 3 else ()
            found.append(Placement(one, lo, one.tokens - number % 2, at, hidden))
            at += one.tokens - number % 2 - lo
        return found

    def run(self, wanted: list[tuple[Reader, Rows]]) -> None:
        if not wanted:
            return
        found = self.model.network.forward_batch([Member(one.kv, rows) for one, rows in wanted], self.batch)
        for (one, rows), logits in zip(wanted, found, strict=True):
            want = self.model.network.forward(rows.token_ids, rows.positions, one.alone)
            assert apart(logits, want) <= LIMIT
            assert one.kv.length == one.alone.length


def segments_of(model: Model) -> list[Segment]:
    long = encoded(model, "long", [5 + at % 90 for at in range(120)])
    return [
        long,
        encoded(model, "other", [60 + at % 90 for at in range(70)]),
        encoded(model, "short", range(100, 140)),
    ]


@pytest.mark.parametrize("family", each(["llama-gqa", "gemma3", "gpt-oss", "gemma2"], "llama-gqa", "gpt-oss"))
def test_drawn_passes(family: str) -> None:
    model = model_of(family)
    segments = segments_of(model)

    @settings(max_examples=12 if EVERY else 3, deadline=None)
    @given(acts=st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 200)), min_size=8, max_size=20))
    def drawn(acts: Any) -> None:
        passes = Passes(model, segments)
        for number in (3, 5, 8):
            passes.act("join", number)
        for act, number in acts:
            passes.act(act, number)
        kept = {id(one.kv.own) for one in passes.there}
        gc.collect()
        assert set(passes.batch.slots.places()) <= kept

    drawn()


def test_nothing_is_left_of_those_who_came_and_went() -> None:
    model = model_of("llama-gqa")
    passes = Passes(model, segments_of(model))
    for number in range(15):
        passes.there = [*passes.there[-3:], Reader(model, passes.placed(number), 2)]
        passes.act("step", 0)
    buffer = passes.batch.slots.buffer
    assert buffer is not None
    assert buffer.shape[2] <= 4
    for one in passes.there:
        passes.batch.leave(one.kv)
    assert (len(passes.batch.slots), passes.batch.slots.buffer) == (0, None)
    kept = [one.kv.own for one in passes.there]
    assert all(kv is not None and kv.memory is not None and kv.memory.shape[3] >= CAPACITY for kv in kept)
