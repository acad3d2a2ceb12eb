"""Small segments that are read side by side: they show every row what they show where they lie."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from engine.attention import bf16_upcast, masks
from engine.attention.kernels import Part
from engine.attention.masks import Block
from engine.attention.rope import Rotary, move_keys
from engine.attention.scratch import Scratch
from engine.base.segment import Placement, Segment
from engine.kv_cache import segment_kv_cache, small_segments
from engine.kv_cache.small_segments import Gathering, split
from engine.model.model import Model
from engine.model.network import Network
from tests.engine.cases import apart, encoded, model_of
from tests.engine.tiny import SEGMENTS, tiny_network


def placed(model: Model, draw: random.Random) -> tuple[list[Placement], list[int]]:
    """Segments in drawn places, out of order, some with hidden tokens; and the places of new tokens."""
    placements, free, at = [], [], draw.randrange(3)
    for number in range(draw.randint(small_segments.FEWEST, 7)):
        tokens = draw.randint(2, 6)
        segment = encoded(model, f"k{number}", [draw.randrange(20, 90) for _ in range(tokens)])
        lo = draw.randrange(tokens - 1)
        hidden = tuple(place for place in range(lo, tokens) if draw.random() < 0.2)
        if len(hidden) == tokens - lo:
            hidden = ()
        placements.append(Placement(segment, lo, tokens, at, hidden))
        free.extend(at + place - lo for place in hidden)
        at += tokens - lo
        between = draw.choice((0, 0, 1, 3))
        free.extend(range(at, at + between))
        at += between
    free.extend(range(at, at + 3))
    draw.shuffle(placements)
    return placements, free


def answered(network: Network, placements: list[Placement], rows: list[int]) -> torch.Tensor:
    """Logits of a pass over drawn tokens at these places, and of two tokens behind it, folded or not."""
    kv = network.kv_cache(placements, len(rows) + 2)
    tokens = [30 + place % 50 for place in rows]
    first = network.forward(tokens, rows, kv, keep=len(rows))
    kv.fold()
    later = [network.forward([40 + step], [rows[-1] + step], kv) for step in (1, 2)]
    return torch.cat([first, *later])


@pytest.mark.parametrize("family", SEGMENTS)
def test_gathered_segments_are_seen_as_where_they_lie(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(family)
    for seed in range(4):
        placements, rows = placed(model, random.Random(seed))
        with monkeypatch.context() as patch:
            patch.setattr(small_segments, "FEWEST", 1000)
            want = answered(model.network, placements, rows)
        assert split(placements)[0]
        assert apart(answered(model.network, placements, rows), want) <= 1e-4


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("family", SEGMENTS)
def test_rows_that_stand_far_apart_are_taken_in_blocks(
    family: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, built = model_of(family), list[int]()
    placements, free = placed(model, random.Random(3))
    rows = [*free[:-3:2], *free[-3:]]
    monkeypatch.setattr(small_segments, "FEWEST", 1 if small else 1000)
    want = answered(model.network, placements, rows)

    def counting(*args: Any) -> Block:
        built.append(args[1] - args[0])
        return Block(*args)

    monkeypatch.setattr(masks, "Block", counting)
    monkeypatch.setattr(masks, "SCATTERED_ROWS", 2)
    assert apart(answered(model.network, placements, rows), want) <= 1e-4
    assert built[:2] == [2, 2]


@pytest.mark.parametrize("family", ["llama-gqa", "mistral-swa", "gemma3", "gpt-oss"])
def test_large_and_small_segments_are_read_together(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(family)
    placements, rows = placed(model, random.Random(5))
    like = placements[0].segment.keys
    with monkeypatch.context() as patch:
        patch.setattr(small_segments, "FEWEST", 1000)
        want = answered(model.network, placements, rows)
    monkeypatch.setattr(small_segments, "FEWEST", 1)
    monkeypatch.setattr(small_segments, "MOST_NUMBERS", 4 * like.shape[1] * like.shape[3])
    small, large = split(placements)
    assert small
    assert large
    assert apart(answered(model.network, placements, rows), want) <= 1e-4


def test_gathered_keys_and_values_are_the_placed_ones() -> None:
    model = model_of("llama-gqa")
    placements, _ = placed(model, random.Random(2))
    run = Gathering(placements, model.rotaries)
    scratch, places, keys, values = Scratch(), [], [], []
    for placement in sorted(placements, key=lambda one: one.start):
        kept = [at for at in range(placement.lo, placement.hi) if at not in placement.hidden]
        places += [at + placement.shift for at in kept]
        keys.append(move_keys(placement.segment.keys[:, :, kept], model.rotaries, placement.shift))
        values.append(placement.segment.values[:, :, kept])
    assert run.positions.tolist() == places == sorted(places)
    for layer in range(len(model.rotaries)):
        got_keys, got_values = run.layer(layer, torch.float32, scratch)
        assert apart(got_keys, torch.cat(keys, 2)[layer]) <= 1e-6
        assert torch.equal(got_values, torch.cat(values, 2)[layer])


def test_what_is_large_few_or_overlaps_is_read_where_it_lies() -> None:
    like = torch.zeros(1, 2, 40, 8)
    segment = Segment("k", tuple(range(40)), like, like)
    small = [Placement(segment, 0, 40, start) for start in (0, 40, 100)]
    assert split(small) == (tuple(small), ())
    assert split(small[:2]) == ((), tuple(small[:2]))
    overlapping = [*small, Placement(segment, 0, 5, 50)]
    assert split(overlapping) == ((), tuple(overlapping))
    wide = torch.zeros(1, 2, 10_000, 8)
    large = Placement(Segment("l", tuple(range(10_000)), wide, wide), 0, 10_000, 200)
    assert split([*small, large]) == (tuple(small), (large,))


@pytest.mark.parametrize("faster", [False, True])
def test_gathered_in_bf16_is_no_further_from_fp32_than_apart(
    faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bf16_upcast, "_here", lambda: faster)
    model = model_of("llama-gqa")
    narrow = Network(tiny_network("llama-gqa").bfloat16(), model.network.setup)
    exact = Network(tiny_network("llama-gqa").bfloat16().float(), model.network.setup)
    apart_off, gathered_off = [], []
    for seed in range(6):
        placements, rows = placed(model, random.Random(seed))
        placements = [_in(one, torch.bfloat16) for one in placements]
        rows = [*rows, *range(rows[-1] + 1, rows[-1] + 150)]
        with monkeypatch.context() as patch:
            patch.setattr(small_segments, "FEWEST", 1000)
            want = answered(exact, [_in(one, torch.float32) for one in placements], rows)
            apart_off.append(apart(answered(narrow, placements, rows).float(), want))
        gathered_off.append(apart(answered(narrow, placements, rows).float(), want))
    assert sum(gathered_off) <= 1.3 * sum(apart_off)


def _in(placement: Placement, dtype: torch.dtype) -> Placement:
    segment = placement.segment
    converted = Segment(segment.key, segment.token_ids, segment.keys.to(dtype), segment.values.to(dtype))
    return Placement(converted, placement.lo, placement.hi, placement.start, placement.hidden)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_turn_in_place_is_a_rotation(interleaved: bool, dtype: torch.dtype) -> None:
    rotary = Rotary(1 / 100 ** (torch.arange(6) / 6), interleaved)
    cosine, sine = rotary.angles([3, -40, 0, 900, 17], torch.device("cpu"))
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    want = rotary.rotate(x, cosine, sine)
    rotary.turn(x, cosine, rotary.signed(sine), Scratch())
    assert apart(x.float(), want.float()) <= (1e-6 if dtype == torch.float32 else 0)


@pytest.mark.parametrize(("segments", "parts"), [(2, 3), (3, 2), (40, 2)])
def test_a_layer_reads_as_few_parts_however_many_small_segments_there_are(
    segments: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    attend = segment_kv_cache.attend_fused

    def counted(of: Sequence[Part], *given: Any) -> torch.Tensor:
        read.append(len(of))
        return attend(of, *given)

    monkeypatch.setattr(segment_kv_cache, "attend_fused", counted)
    model = model_of("llama-gqa")
    made = [encoded(model, f"k{number}", [30 + number, 31, 32]) for number in range(segments)]
    placements = [Placement(one, 0, 3, 3 * number) for number, one in enumerate(made)]
    end = 3 * segments
    model.network.forward([20, 21], [end, end + 1], model.network.kv_cache(placements, 2))
    assert read == [parts] * model.network.layers


def test_folded_segments_behind_much_new_text_stay_in_the_window() -> None:
    model = model_of("mistral-swa")
    made = [encoded(model, f"k{number}", [30 + number, 31, 32]) for number in range(3)]
    placements = [Placement(one, 0, 3, 20 + 3 * number) for number, one in enumerate(made)]
    rows, found = [*range(20), 29, 30], []
    for fold in (False, True):
        kv = model.network.kv_cache(placements, len(rows) + 1)
        model.network.forward([40 + place for place in rows], rows, kv)
        if fold:
            kv.fold()
            assert not kv.placements
        found.append(model.network.forward([50], [31], kv))
    assert apart(*found) <= 1e-4


def test_segments_of_which_all_is_hidden_are_read_by_nobody() -> None:
    model = model_of("llama-gqa")
    made = [encoded(model, f"k{number}", [30 + number, 31, 32]) for number in range(3)]
    hidden = [Placement(one, 0, 3, 3 * number, (0, 1, 2)) for number, one in enumerate(made)]
    found = [
        model.network.forward([20, 21], [9, 10], model.network.kv_cache(placements, 2))
        for placements in (hidden, [])
    ]
    assert apart(*found) <= 1e-5
