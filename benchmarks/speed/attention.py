"""Attention of a layer for many decoding prompts over shared text: table 3 of the ChunkAttention paper.

The sides take turns over the same keys and values.

- `ours`: reads the shared text once for all prompts.
- `unaware`: reads the shared text in place, but for each prompt by itself.
- `private`: reads a copy for each prompt.
- `reordered`: ours, with the shared text as eight modules in another order in each prompt.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from app.studio.sweeps.drawn import spans
from app.studio.sweeps.turns import Way
from benchmarks.base.case import SAME_TEXT, Case, Group, Report, Say, Sides, case, report_of
from benchmarks.base.options import command, narrate, pace_of
from benchmarks.peers.peer import milliseconds_of
from engine.attention.kernels import AttentionParams
from engine.attention.rope import Rotary
from engine.base.segment import Placement, Segment
from engine.batch.passes import held_bytes
from engine.kv_cache.batched_kv_cache import Member
from engine.kv_cache.protocol import Rows
from engine.model.hf_attention import AttentionSetup
from engine.model.model import DTYPES
from engine.model.network import Network

SHAPES = {"own": (32, 32), "grouped": (32, 4)}  # heads, and heads of keys
HELD = "keys and values, private ÷ ours"
_SIZE = 128  # of a head
_MODULES = 8
_APART = 0.1  # greatest difference of bf16 outputs ÷ their standard deviation
_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@dataclass(frozen=True)
class Cell:
    """A cell of the table."""

    shape: str  # a name of `SHAPES`
    tokens: int  # of each prompt before the computed row
    shared: int  # tokens that all prompts share
    readers: int = 32  # number of prompts
    dtype: str = "bf16"  # a name of `DTYPES`


class Prompts:
    """The keys and values of a cell."""

    def __init__(self, cell: Cell, seed: int = 0) -> None:
        self.cell = cell
        heads, kv_heads = SHAPES[cell.shape]
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(*shape, _SIZE, generator=generator).to(DTYPES[cell.dtype])

        self.query = drawn(heads, cell.readers)
        self.new = drawn(2, kv_heads, cell.readers)
        self.common = drawn(2, kv_heads, cell.shared)
        # Each prompt has at least one token of its own, and room for the computed row.
        shape = (2, cell.readers, kv_heads, cell.tokens + 2, _SIZE)
        self.whole = torch.empty(shape, dtype=DTYPES[cell.dtype])
        self.whole[:, :, :, : cell.shared] = self.common[:, None]
        for one in self.whole[:, :, :, cell.shared : -1].unbind(1):
            one.copy_(drawn(2, kv_heads, cell.tokens + 1 - cell.shared))

    @property
    def own(self) -> Tensor:
        """Each prompt's own keys and values with the row, [2, readers, kv_heads, tokens, head_dim]."""
        return self.whole[:, :, :, self.cell.shared :]

    def _packed(self) -> Tensor:
        """Writes the row; returns scaled queries, [readers, kv_heads, group, head_dim]."""
        self.whole[:, :, :, -1] = self.new.transpose(1, 2)
        heads, kv_heads = SHAPES[self.cell.shape]
        scaled = (self.query * _SIZE**-0.5).transpose(0, 1)
        return scaled.reshape(self.cell.readers, kv_heads, heads // kv_heads, _SIZE)

    def private(self) -> Tensor:
        """Attention over copies, [heads, readers, head_dim]."""
        out, _ = _FLASH(self._packed(), *self.whole, scale=1.0)
        return self._unpacked(out)

    def unaware(self) -> Tensor:
        """Attention over the shared text for each prompt by itself, and over its own text."""
        query = self._packed()
        own, own_sum = _FLASH(query, *self.own, scale=1.0)
        if not self.cell.shared:
            return self._unpacked(own)
        seen = self.common[:, None].expand(-1, self.cell.readers, -1, -1, -1)
        out, log_sum = _FLASH(query, *seen, scale=1.0)
        share = torch.sigmoid(log_sum - own_sum)[..., None]
        return self._unpacked((out * share + own * (1 - share)).to(query.dtype))

    def _unpacked(self, out: Tensor) -> Tensor:
        return out.reshape(self.cell.readers, -1, _SIZE).transpose(0, 1)


class Ours:
    """Our side of a cell. More than one module means another order in each prompt."""

    def __init__(self, prompts: Prompts, modules: int = 1) -> None:
        self.prompts = prompts
        cell, draw = prompts.cell, random.Random(0)
        network = _network(cell, moved=modules > 1)
        segments = [
            Segment(str(lo), tuple(range(hi - lo)), *(states[None, :, lo:hi] for states in prompts.common))
            for lo, hi in (spans(cell.shared, modules) if cell.shared else ())
        ]
        self._members: list[Member] = []
        self._batch = network.batch_cache()
        for own in prompts.own.unbind(1):
            placed, at = list[Placement](), 0
            for one in draw.sample(segments, len(segments)):
                placed.append(Placement(one, 0, one.tokens, at))
                at += one.tokens
            count = own.shape[2] - 1
            kv = network.kv_cache(placed, count + 1)
            kv.begin(range(at, at + count))
            assert kv.own is not None
            kv.own.append(0, own[0, :, :count], own[1, :, :count])
            kv.commit()
            self._members.append(Member(kv, Rows([0], [at + count])))
        self._order = list(range(cell.readers))

    def begin(self) -> None:
        """Does the work of a pass that all layers share."""
        self._order = self._batch.begin(self._members)

    def attend(self) -> Tensor:
        """Attention of all prompts, [heads, readers, head_dim], in the order of the pass."""
        key, value = self.prompts.new[:, :, self._order]
        query = self.prompts.query[:, self._order]
        return self._batch.attend(0, query, key, value, AttentionParams(_SIZE**-0.5))

    def in_order(self) -> Tensor:
        """Attention in the order of the prompts."""
        self.begin()
        return self.attend()[:, torch.tensor(self._order).argsort()]

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        placed = [one for member in self._members for one in member.kv.placements]
        return held_bytes(placed, (one.kv for one in self._members))


def _network(cell: Cell, *, moved: bool) -> Network:
    """A network with one layer of this shape, for its attention."""
    heads, kv_heads = SHAPES[cell.shape]
    config = LlamaConfig(
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=_SIZE,
        intermediate_size=64,
        vocab_size=64,
    )
    rotary = Rotary(1e4 ** (-torch.arange(0, _SIZE, 2) / _SIZE)) if moved else None
    return Network(LlamaForCausalLM(config), AttentionSetup("segments", (rotary,)))


@case
def cell(group: Group, say: Say, given: Cell) -> Sides:
    """The sides of a cell."""
    say(f"{group.name}: drawing keys and values")
    group.params = asdict(given)
    prompts = Prompts(given)
    ours = Ours(prompts)
    with torch.inference_mode():
        wanted = prompts.private().float()
        apart = float((ours.in_order().float() - wanted).abs().max() / wanted.std())
        group.values |= {SAME_TEXT: "yes" if apart <= _APART else "no", "distance ÷ spread": apart}
        group.values[HELD] = prompts.whole.nbytes / ours.nbytes
        ways = [
            Way("ours", _timer(ours.attend), ours.begin),
            Way("unaware", _timer(prompts.unaware)),
            Way("private", _timer(prompts.private)),
        ]
        if given.shared:
            other = Ours(prompts, _MODULES)
            ways.append(Way("reordered", _timer(other.attend), other.begin))
        yield ways


def table(readers: int, tokens: int) -> list[Case]:
    """All shapes, with all of the text shared and nothing shared."""
    return [
        cell(f"{shape} heads, {words}", Cell(shape, tokens, shared, readers))
        for shape in SHAPES
        for words, shared in (("all shared", tokens), ("nothing shared", 0))
    ]


def _timer(run: Callable[[], object]) -> Callable[[], float]:
    return lambda: milliseconds_of(run)


@command(model=False, prompts=32, tokens=4096, repeats=5, seed=0)
def attention(prompts: int, tokens: int, repeats: int, seed: int) -> Report:
    """Attention of one layer for many prompts, with all of their text shared and nothing shared.

    The keys and values are random. --tokens is the length of each prompt.
    """
    return report_of(table(prompts, tokens), pace_of(repeats, seed), narrate)
