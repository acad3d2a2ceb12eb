"""How exact segments are far out: against the model's own pass, and against that pass in fp64."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.base.segment import Placement
from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.model import Model
from tests.drawing import each
from tests.engine.cases import encoded
from tests.engine.tiny import tiny_network

ROWS = 16
FEW = 64


def tokens_of(count: int) -> list[int]:
    return torch.randint(3, 250, (count,), generator=torch.Generator().manual_seed(7)).tolist()


def read(model: Model, count: int, end: int) -> Tensor:
    """Logits of the last rows over segments that saw what stands before them, the last token at end - 1."""
    tokens, first = tokens_of(count), end - count
    borders = [0, count // 4, count // 2, count - ROWS]
    placed: list[tuple[int, Any]] = []
    for lo, hi in pairwise(borders):
        start = 0 if model.relocatable else first + lo
        context = [Placement(one, 0, one.tokens, start + at - lo) for at, one in placed]
        placed.append((lo, encoded(model, str(lo), tokens[lo:hi], context, start)))
    kv = model.network.kv_cache([Placement(one, 0, one.tokens, first + at) for at, one in placed], ROWS)
    return model.network.forward(tokens[-ROWS:], range(end - ROWS, end), kv, keep=ROWS)


FAST = ("gpt-oss", "gpt2")


@torch.no_grad()
def plain(network: Any, count: int, end: int) -> Tensor:
    """The same rows by the network's own attention, in one pass."""
    if network._can_set_attn_implementation():
        network.set_attn_implementation("eager")
    tokens, at = torch.tensor([tokens_of(count)]), torch.arange(end - count, end)[None]
    logits: Tensor = network(tokens, position_ids=at, use_cache=False).logits[0, -ROWS:]
    return logits


def in_fp64(family: str, length: int) -> Any:
    """The network with weights, angles and sums in fp64."""
    network = tiny_network(family, length=length)
    rotary = network.model.rotary_emb
    frequency = rotary.inv_freq.clone()

    def angles(_x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        turns = position_ids[..., None].double() * frequency.double()
        interleaved = family == "cohere"
        doubled = turns.repeat_interleave(2, -1) if interleaved else torch.cat([turns, turns], -1)
        return doubled.cos(), doubled.sin()

    network.double()
    rotary.forward = angles
    return network


@pytest.mark.parametrize(
    "family", each(["llama-gqa", "gemma3", "cohere", "gpt-oss", "gpt2", "gptj"], "gpt-oss", "gpt2")
)
@pytest.mark.parametrize("length", [100, 1000])
def test_prompts_of_real_length_equal_one_plain_pass(family: str, length: int) -> None:
    model = Model("tiny", tiny_network(family), byte_tokenizer(), "f")
    want = plain(tiny_network(family), length, length)
    assert (read(model, length, length) - want).abs().max() <= 1e-4


@pytest.mark.parametrize("family", ["llama-gqa", "cohere"])
@pytest.mark.parametrize("end", [4096, 30_000, 131_072])
def test_far_out_segments_are_no_further_from_fp64_than_the_model_itself(family: str, end: int) -> None:
    """Angles are rounded in fp32, by more the further out; turning a query exactly adds nothing to that."""
    model = Model("tiny", tiny_network(family, length=end), byte_tokenizer(), "f")
    true = plain(in_fp64(family, end), FEW, end)
    own = (plain(tiny_network(family, length=end), FEW, end) - true).abs().max()
    ours = (read(model, FEW, end) - true).abs().max()
    assert ours <= 1.5 * own + 1e-6 * true.std(), (ours, own)
