"""Rows of many prompts where one call reads what they share: each has the logits that it has alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.base.segment import Placement
from engine.kv_cache import batched_kv_cache, packed_segments, tail_pool
from tests.drawing import each
from tests.engine.batch.test_rows_of_many import LIMIT, Prompt, passed, pieces, shared
from tests.engine.cases import model_of
from tests.engine.sequences import InPlainTorch, in_plain_torch
from tests.engine.tiny import FIXED, SEGMENTS


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[InPlainTorch]:
    yield from in_plain_torch(monkeypatch)


def test_a_layer_takes_one_call_for_what_is_shared_and_one_for_the_tails(stand_in: InPlainTorch) -> None:
    model = model_of("llama-gqa")
    one, two = pieces(model)
    orders = ([(one, 0), (two, 80)], [(two, 0), (one, 70)], [(one, 3), (two, 83)])
    prompts = [
        Prompt(model, [Placement(segment, 0, segment.tokens, at) for segment, at in order], 153, own, own)
        for own, order in enumerate(orders, 2)
    ]
    batch = model.network.batch_cache()
    assert passed(model, batch, [(prompt, prompt.prefill()) for prompt in prompts]) <= LIMIT
    assert passed(model, batch, [(prompt, prompt.step()) for prompt in prompts]) <= LIMIT
    stand_in.calls.clear()
    assert passed(model, batch, [(prompt, prompt.step()) for prompt in prompts]) <= LIMIT
    assert len(stand_in.calls) == 2 * model.layers
    group = 4
    laid, tails = stand_in.calls[:2]
    assert laid == [(3 * group, 70), (3 * group, 80)]
    assert [keys for rows, keys in tails if rows] == [4, 5, 6]
    assert batch.nbytes == batch.slots.buffer.nbytes + 150 * model.bytes_per_token  # type: ignore[union-attr]
    keys, _ = batch.slots.buffer[:, 0]  # type: ignore[index]
    assert keys.transpose(1, 2).flatten(0, 1).data_ptr() == keys.data_ptr(), "tails are copied in every layer"
    batch.leave(prompts[0].kv)
    assert batch.nbytes == batch.slots.buffer.nbytes  # type: ignore[union-attr]


@pytest.mark.parametrize("family", each([*SEGMENTS, *FIXED], "llama-gqa", "gemma2", "gpt-oss", "gpt2"))
def test_rows_read_by_few_calls_as_alone(
    family: str, stand_in: InPlainTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other places, parts, two of one, hidden tokens, windows; short slices together, long ones apart."""
    monkeypatch.setattr(packed_segments, "MOST_LAID", 100)
    monkeypatch.setattr(tail_pool, "COLUMNS", 24)
    monkeypatch.setattr(batched_kv_cache, "COLUMNS", 24)
    model = model_of(family)
    one, two = pieces(model)
    if family in FIXED:
        placed = [[Placement(one, 0, 80, 0)]] * 3
    else:
        placed = [
            [Placement(one, 0, 80, 0), Placement(two, 0, 70, 80)],
            [Placement(two, 0, 70, 0), Placement(one, 0, 80, 73)],
            [Placement(one, 10, 80, 6, (12, 79)), Placement(two, 5, 70, 76)],
            [Placement(one, 0, 80, 0), Placement(one, 10, 80, 90, (79,))],
            [],
        ]
    prompts = [
        Prompt(model, own, max((one.start + one.tokens for one in own), default=0), 17 + 2 * at, at)
        for at, own in enumerate(placed)
    ]
    batch = model.network.batch_cache()
    assert passed(model, batch, [(one, one.prefill()) for one in prompts]) <= LIMIT
    for _ in range(9):
        assert passed(model, batch, [(one, one.step()) for one in prompts]) <= LIMIT
    capped = getattr(model.config, "attn_logit_softcapping", None) is not None
    assert (len(stand_in.calls) > 2 * 9) != capped


@pytest.mark.parametrize("family", ["llama-gqa", "gemma3", "gpt-oss"])
def test_who_comes_and_goes_is_laid_out_anew(family: str, stand_in: InPlainTorch) -> None:
    model = model_of(family)
    one, two = pieces(model)
    mine = shared(model, 90, "mine", 70)
    a = Prompt(model, [Placement(one, 0, 80, 0), Placement(two, 0, 70, 80)], 150, 2, 1)
    b = Prompt(model, [Placement(two, 0, 70, 0), Placement(one, 0, 80, 70)], 150, 3, 2)
    c = Prompt(model, [Placement(mine, 0, 90, 0), Placement(one, 0, 80, 90)], 170, 4, 3)
    batch = model.network.batch_cache()
    assert passed(model, batch, [(each, each.prefill()) for each in (a, b, c)]) <= LIMIT
    for there in ((a, b), (a, b, c), (b, c), (c, a), (a, b, c)):
        for _ in range(2):
            assert passed(model, batch, [(each, each.step()) for each in there]) <= LIMIT
    assert stand_in.calls
