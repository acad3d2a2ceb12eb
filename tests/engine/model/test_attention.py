"""What rows may see, and attention over keys in several places, against the definitions written out."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.attention import masks as masks_module
from engine.attention.kernels import AttentionParams, Part, attend, pack, rows_at_once, unpack
from engine.attention.masks import Block, Hidden, Masks
from engine.attention.scratch import Scratch
from engine.base.segment import Placement, Segment
from tests.engine.cases import apart, model_of

CPU = torch.device("cpu")
HEADS, KV_HEADS, SIZE = 6, 2, 8


def segment(tokens: int) -> Segment:
    empty = torch.zeros(1, 1, tokens, 1)
    return Segment("s", tuple(range(tokens)), empty, empty)


def drawn(seed: int, *, ascending: bool) -> tuple[list[Placement], Tensor, int]:
    """Placements, positions of a tail, and how many of those are of the last pass."""
    draw = random.Random(seed)
    placements = []
    for _ in range(draw.randrange(4)):
        tokens = draw.randrange(1, 9)
        lo = draw.randrange(tokens)
        hidden = tuple(place for place in range(lo, tokens) if draw.random() < 0.3)
        placements.append(Placement(segment(tokens), lo, tokens, draw.randrange(-10, 40), hidden))
    earlier, rows = draw.randrange(6), draw.randrange(1, 12)
    at = sorted(draw.sample(range(60), earlier + rows))
    if not ascending:
        at = draw.sample(at[:earlier], earlier) + at[earlier:]
    return placements, torch.tensor(at), rows


def defined(placements: list[Placement], positions: Tensor, rows: int, window: int | None) -> Tensor:
    """[rows, keys of all placements and of the tail], true where a row sees a key."""
    at = positions.tolist()
    earlier = len(at) - rows
    lines = []
    for row, place in enumerate(at[earlier:]):

        def near(key: int, place: int = place) -> bool:
            return window is None or place - key < window

        line = [
            p.start + i <= place and p.lo + i not in p.hidden and near(p.start + i)
            for p in placements
            for i in range(p.tokens)
        ]
        lines.append(line + [i <= earlier + row and near(key) for i, key in enumerate(at)])
    return torch.tensor(lines)


def seen(placements: list[Placement], total: int, blocks: tuple[Block, ...]) -> Tensor:
    """The same, as blocks say it."""

    def told(hidden: Hidden, rows: int, keys: int) -> Tensor:
        found = torch.ones(rows, keys, dtype=torch.bool)
        seen = keys - hidden.beyond
        if hidden.mask is not None:
            found[:, seen - hidden.mask.shape[1] : seen] &= ~hidden.mask
        found[:, seen:] = False
        found[: hidden.before] = False
        found[:, : hidden.gone] = False
        return found

    lines = []
    for block in blocks:
        tail = torch.zeros(block.rows, total, dtype=torch.bool)
        tail[:, block.tail] = told(block.own, block.rows, block.tail.stop - block.tail.start)
        placed = [told(h, block.rows, p.tokens) for h, p in zip(block.placed, placements, strict=True)]
        lines.append(torch.cat([*placed, tail], 1))
    return torch.cat(lines)


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("window", [None, 1, 5, 1000])
@pytest.mark.parametrize("most", [1, 3, 100])
def test_blocks_say_what_rows_see(window: int | None, most: int, ascending: bool) -> None:
    for seed in range(60):
        placements, positions, rows = drawn(seed, ascending=ascending)
        masks = Masks(placements, positions, rows, ascending=ascending)
        blocks = masks.blocks(window, most, CPU)
        assert [block.rows for block in blocks[:-1]] == [most] * (len(blocks) - 1)
        told = seen(placements, len(positions), blocks)
        assert torch.equal(told, defined(placements, positions, rows, window)), seed


def test_a_window_leaves_most_of_the_tail_unread() -> None:
    masks = Masks((), torch.arange(1000), 1, ascending=True)
    (block,) = masks.blocks(16, 1, CPU)
    assert (block.tail, block.own) == (slice(984, 1000), Hidden())


@pytest.mark.parametrize(
    ("family", "kinds"), [("llama-gqa", 1), ("mistral-swa", 1), ("gemma3", 2), ("gpt-oss", 2)]
)
def test_layers_of_one_window_share_what_was_built(
    family: str, kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, built = model_of(family), list[int]()

    def counting(*args: Any) -> Block:
        built.append(1)
        return Block(*args)

    kv = model.network.kv_cache((), 20)
    model.network.forward(range(5, 20), range(15), kv)
    monkeypatch.setattr(masks_module, "Block", counting)
    model.network.forward([3], [15], kv)
    assert (len(built), model.layers) == (kinds, 3)


def parts_of(generator: torch.Generator, rows: int) -> list[Part]:
    """Three parts with queries of their own; the first is not seen by the first rows."""
    found = []
    for tokens, before in ((4, 2), (7, 0), (rows, 0)):
        query = pack(torch.randn(HEADS, rows, SIZE, generator=generator), KV_HEADS)
        keys, values = torch.randn(2, KV_HEADS, tokens, SIZE, generator=generator)
        mask = torch.rand(rows, tokens, generator=generator) < 0.3
        found.append(Part(query, keys, values, Hidden(before, mask)))
    last = found[-1]
    triangle = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    return [*found[:-1], Part(last.query, last.keys, last.values, Hidden(0, triangle))]


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("sinks", [False, True])
def test_attention_over_parts_is_one_softmax_over_all_of_them(softcap: float | None, sinks: bool) -> None:
    generator, rows, group = torch.Generator().manual_seed(0), 5, HEADS // KV_HEADS
    parts = parts_of(generator, rows)
    extra = torch.randn(HEADS, generator=generator) if sinks else None
    rules = AttentionParams(1.0, None, softcap, extra)
    scores, values = [], []
    for part in parts:
        of_heads = unpack(part.query, rows) @ part.keys.repeat_interleave(group, 0).transpose(1, 2)
        of_heads = of_heads if softcap is None else softcap * torch.tanh(of_heads / softcap)
        hidden = part.hidden.mask.clone() if part.hidden.mask is not None else None
        assert hidden is not None
        hidden[: part.hidden.before] = True
        scores.append(of_heads.masked_fill(hidden, -torch.inf))
        values.append(part.values.repeat_interleave(group, 0))
    if extra is not None:
        scores.append(extra[:, None, None].expand(-1, rows, 1))
        values.append(torch.zeros(HEADS, 1, SIZE))
    weights = torch.softmax(torch.cat(scores, 2), -1)
    out, told = attend(parts, rules, rows, Scratch())
    assert apart(unpack(out, rows), weights @ torch.cat(values, 1)) <= 1e-6
    keys = sum(part.keys.shape[1] for part in parts)
    assert apart(unpack(told, rows), weights[:, :, :keys]) <= 1e-6


def test_packing_is_undone() -> None:
    query = torch.randn(HEADS, 5, SIZE)
    packed = pack(query, KV_HEADS)
    assert packed.shape == (KV_HEADS, 5 * HEADS // KV_HEADS, SIZE)
    assert torch.equal(unpack(packed, 5), query)


def test_scores_at_once_are_bounded() -> None:
    like = torch.zeros(1)
    assert rows_at_once(8, 1024, like) == (48 << 20) // (8 * 1024 * 4)
    assert rows_at_once(8, 1 << 40, like) == 1


def test_scratch_is_reused_and_grows() -> None:
    scratch, like = Scratch(), torch.zeros(1)
    large = scratch.take("a", (4, 5), like)
    assert scratch.take("a", (2, 3), like).data_ptr() == large.data_ptr()
    assert scratch.take("b", (2, 3), like).data_ptr() != large.data_ptr()
    assert scratch.take("a", (6, 5), like).shape == (6, 5)
    assert scratch.take("a", (2, 3), like.bfloat16()).dtype == torch.bfloat16
