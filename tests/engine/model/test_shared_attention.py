"""Parts that rows read together, merged: attention over all that each sees, by whichever product."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.attention import bf16_upcast, shared_prefix
from engine.attention.kernels import AttentionParams, Scratch
from engine.attention.masks import Hidden
from engine.attention.shared_prefix import Found, index_of, merged, picked, read, read_own

HEADS, GROUP, SIZE, ROWS = 2, 3, 16, 5
RULES = {
    "plain": AttentionParams(1.0),
    "capped": AttentionParams(1.0, softcap=2.0),
    "sinks": AttentionParams(1.0, sinks=torch.linspace(-1, 3, HEADS * GROUP)),
}
PARTS = (((0, 1, 2, 3, 4), 40), ((0, 2, 3), 9), ((3, 4), 1), ((2,), 30))  # readers and tokens


def attention(query: Tensor, keys: Tensor, values: Tensor, rules: AttentionParams, seen: Tensor) -> Tensor:
    """One row by the definition: query [heads, group, size], keys and values [heads, tokens, size]."""
    scores = query @ keys.transpose(1, 2)
    if rules.softcap is not None:
        scores = rules.softcap * torch.tanh(scores / rules.softcap)
    scores = scores.masked_fill(~seen, -torch.inf)
    if rules.sinks is not None:
        scores = torch.cat([scores, rules.sinks.view(HEADS, GROUP, 1)], -1)
    return torch.softmax(scores, -1)[..., : keys.shape[1]] @ values


def apart(rules: AttentionParams, dtype: torch.dtype) -> float:
    """The greatest difference between rows that read parts together and each by the definition."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, SIZE, generator=generator)

    def given(states: Tensor) -> Tensor:
        return states.to(dtype)

    query, scratch = drawn(HEADS, ROWS, GROUP) * SIZE**-0.5, Scratch()
    own_keys, own_values = drawn(ROWS, HEADS, 7), drawn(ROWS, HEADS, 7)
    own_seen = torch.arange(7) < torch.tensor([1, 7, 3, 2, 5])[:, None]
    bias = torch.zeros(own_seen.shape).masked_fill_(~own_seen, -torch.inf).to(dtype)[:, None, None]
    part = read_own(given(query), given(own_keys), given(own_values), bias, rules, scratch)
    found = [Found(*part, slice(None))]
    read_by: list[list[tuple[Tensor, Tensor, Tensor]]] = [
        [(own_keys[row], own_values[row], own_seen[row])] for row in range(ROWS)
    ]
    for readers, tokens in PARTS:
        keys, values = drawn(HEADS, tokens), drawn(HEADS, tokens)
        hidden = torch.rand(len(readers), tokens, generator=generator) < 0.3
        hidden[-1] = tokens == 9  # one that sees none of it
        index = index_of(readers, ROWS, query.device)
        sight = Hidden(0, hidden) if tokens > 1 else Hidden()
        part = read(picked(given(query), index), given(keys), given(values), sight, rules, scratch)
        found.append(Found(*part, index))
        for row, unseen in zip(readers, hidden, strict=True):
            read_by[row].append((keys, values, ~unseen if tokens > 1 else torch.ones(1, dtype=torch.bool)))
    out = merged(found, rules, given(query))
    assert out.dtype == dtype
    wanted = [
        attention(query[:, row], *(torch.cat(states, 1) for states in (keys, values)), rules, torch.cat(seen))
        for row, (keys, values, seen) in enumerate(zip(*one, strict=True) for one in read_by)
    ]
    return float((out.float() - torch.stack(wanted, 1)).abs().max())


@pytest.mark.parametrize("rules", RULES)
def test_parts_are_merged_to_attention_over_all(rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert apart(RULES[rules], torch.float32) <= 1e-5
    monkeypatch.setattr(shared_prefix, "MOST_ROWS", {})
    assert apart(RULES[rules], torch.float32) <= 1e-5


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("wide", [True, False])
def test_bf16_differs_by_rounding(rules: str, wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16_upcast, "_here", lambda: wide)
    monkeypatch.setattr(bf16_upcast, "ROWS", 9)
    assert apart(RULES[rules], torch.bfloat16) <= 0.06
    monkeypatch.setattr(shared_prefix, "MOST_ROWS", {torch.bfloat16: 9})
    assert apart(RULES[rules], torch.bfloat16) <= 0.06


def test_rows_side_by_side_are_not_copied() -> None:
    states = torch.zeros(2, 6, 3, 4)
    for rows, copied in (((0, 1, 2, 3, 4, 5), False), ((2, 3, 4), False), ((1, 4), True)):
        taken = picked(states, index_of(rows, 6, states.device))
        assert taken.shape[1] == len(rows)
        assert (taken.untyped_storage().data_ptr() != states.untyped_storage().data_ptr()) == copied


@pytest.mark.parametrize("rules", ["plain", "sinks"])
def test_rows_that_read_one_part_each_have_what_it_gives(rules: str) -> None:
    generator = torch.Generator().manual_seed(1)
    query, found = torch.randn(HEADS, ROWS, GROUP, SIZE, generator=generator), list[Found]()
    wanted = torch.empty_like(query)
    for readers in ((0, 3), (1,), (2, 4)):
        index = index_of(readers, ROWS, query.device)
        keys, values = torch.randn(2, HEADS, 6, SIZE, generator=generator)
        part = read(picked(query, index), keys, values, Hidden(), RULES[rules], Scratch())
        found.append(Found(*part, index))
        for row in readers:
            seen = torch.ones(6, dtype=torch.bool)
            wanted[:, row] = attention(query[:, row], keys, values, RULES[rules], seen)
    out = merged(found, RULES[rules], query)
    assert (out - wanted).abs().max() <= 1e-5
    assert out.data_ptr() not in {one.out.data_ptr() for one in found}
