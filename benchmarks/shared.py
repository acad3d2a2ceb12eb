"""A layer's attention of many decoding prompts over text that they share: ChunkAttention's table 3.

Run it as `python -m benchmarks.shared [--tokens N …] [--shape own|grouped …] [--dtype bf16] [--rounds N]`.
The sides take turns over the same keys and values. `ours` reads what is shared once for all. `unaware`
reads it where it lies, in one call for all, but for each prompt by itself: pages that are shared in memory,
and a kernel that does not know it. `private` is one call over copies, one for each prompt. `reordered` is
ours with the shared text as eight modules that stand in another order in every prompt.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from benchmarks.drawn import spans
from benchmarks.machine import facts
from benchmarks.turns import Way, ratio, timed
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
TOKENS = (1024, 2048, 4096)
SHARES = (0.0, 0.5, 0.75, 1.0)
SIZE = 128  # of a head
MODULES = 8
_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@dataclass(frozen=True)
class Cell:
    """One cell of the grid.

    Attributes:
        shape: a name of `SHAPES`.
        tokens: of each prompt before the row that is computed.
        shared: how many of them all prompts share.
        readers: prompts.
        dtype: a name of `DTYPES`.
    """

    shape: str
    tokens: int
    shared: int
    readers: int = 32
    dtype: str = "bf16"


class Prompts:
    """The keys and values of a cell, as each side holds them.

    Args:
        cell: the cell.
        seed: of what is drawn.
    """

    def __init__(self, cell: Cell, seed: int = 0) -> None:
        self.cell = cell
        heads, kv_heads = SHAPES[cell.shape]
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(*shape, SIZE, generator=generator).to(DTYPES[cell.dtype])

        self.query = drawn(heads, cell.readers)
        self.new = drawn(2, kv_heads, cell.readers)
        self.common = drawn(2, kv_heads, cell.shared)
        # Each prompt's own tokens, one at least, and room for the row that is computed.
        shape = (2, cell.readers, kv_heads, cell.tokens + 2, SIZE)
        self.whole = torch.empty(shape, dtype=DTYPES[cell.dtype])
        self.whole[:, :, :, : cell.shared] = self.common[:, None]
        for one in self.whole[:, :, :, cell.shared : -1].unbind(1):
            one.copy_(drawn(2, kv_heads, cell.tokens + 1 - cell.shared))

    @property
    def own(self) -> Tensor:
        """What is each prompt's own, the row included, [2, readers, kv_heads, tokens, head_dim]."""
        return self.whole[:, :, :, self.cell.shared :]

    def packed(self) -> Tensor:
        """Queries of all prompts, scaled, [readers, kv_heads, group, head_dim]."""
        heads, kv_heads = SHAPES[self.cell.shape]
        scaled = (self.query * SIZE**-0.5).transpose(0, 1)
        return scaled.reshape(self.cell.readers, kv_heads, heads // kv_heads, SIZE)

    def add_row(self) -> None:
        """Writes the keys and values of the row that is computed."""
        self.whole[:, :, :, -1] = self.new.transpose(1, 2)

    def private(self) -> Tensor:
        """Attention over a copy for each prompt, [heads, readers, head_dim]."""
        self.add_row()
        out, _ = _FLASH(self.packed(), *self.whole, scale=1.0)
        return self._unpacked(out)

    def unaware(self) -> Tensor:
        """Attention over what is shared, read for each prompt by itself, and over what is its own."""
        self.add_row()
        query = self.packed()
        own, own_sum = _FLASH(query, *self.own, scale=1.0)
        if not self.cell.shared:
            return self._unpacked(own)
        seen = self.common[:, None].expand(-1, self.cell.readers, -1, -1, -1)
        out, log_sum = _FLASH(query, *seen, scale=1.0)
        share = torch.sigmoid(log_sum - own_sum)[..., None]
        return self._unpacked((out * share + own * (1 - share)).to(query.dtype))

    def _unpacked(self, out: Tensor) -> Tensor:
        return out.reshape(self.cell.readers, -1, SIZE).transpose(0, 1)


class Ours:
    """Our side of a cell.

    Args:
        prompts: its keys and values.
        modules: into how many segments the shared text is cut; several stand in another order in each prompt.
    """

    def __init__(self, prompts: Prompts, modules: int = 1) -> None:
        self.prompts = prompts
        cell, draw = prompts.cell, random.Random(0)
        network = _network(cell, moved=modules > 1)
        self._segments = [
            Segment(str(lo), tuple(range(hi - lo)), *(states[None, :, lo:hi] for states in prompts.common))
            for lo, hi in (spans(cell.shared, modules) if cell.shared else ())
        ]
        self._members: list[Member] = []
        self._batch = network.batch_cache()
        for own in prompts.own.unbind(1):
            order, placed, at = [*self._segments], list[Placement](), 0
            if modules > 1:
                draw.shuffle(order)
            for one in order:
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
        """What is done once in a pass, for all its layers."""
        self._order = self._batch.begin(self._members)

    def attend(self) -> Tensor:
        """Attention of all prompts, [heads, readers, head_dim], in the order of the pass."""
        key, value = self.prompts.new[:, :, self._order]
        query = self.prompts.query[:, self._order]
        return self._batch.attend(0, query, key, value, AttentionParams(SIZE**-0.5))

    def in_order(self) -> Tensor:
        """The same in the order of the prompts."""
        self.begin()
        return self.attend()[:, torch.tensor(self._order).argsort()]

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values as a loop counts them: segments, and the memory of each one's own."""
        placed = [one for member in self._members for one in member.kv.placements]
        return held_bytes(placed, (one.kv for one in self._members))


def _network(cell: Cell, *, moved: bool) -> Network:
    """A network whose one layer has heads of this shape; nothing but its attention is computed."""
    heads, kv_heads = SHAPES[cell.shape]
    config = LlamaConfig(
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=SIZE,
        intermediate_size=64,
        vocab_size=64,
    )
    rotary = Rotary(1e4 ** (-torch.arange(0, SIZE, 2) / SIZE)) if moved else None
    return Network(LlamaForCausalLM(config), AttentionSetup("segments", (rotary,)))


def measure(cell: Cell, rounds: int, say: Callable[[str], None], *, reordered: bool = True) -> dict[str, Any]:
    """Times the sides of a cell, which take turns.

    Returns:
        The cell, `apart` (the greatest difference between outputs of ours and of `private`), `median_ms` by
        side, `ratios` to ours with least and greatest, and `bytes` of keys and values by side.
    """
    prompts = Prompts(cell)
    ours = Ours(prompts)
    ways = sides(ours, reordered=reordered)
    with torch.inference_mode():
        apart = float((ours.in_order().float() - prompts.private().float()).abs().max())
        samples = timed(ways, rounds, 0, say)
    return {
        **{name: getattr(cell, name) for name in ("shape", "tokens", "shared", "readers", "dtype")},
        "apart": apart,
        "median_ms": {name: statistics.median(found) for name, found in samples.items()},
        "ratios": {name: ratio(samples, name, "ours") for name in samples if name != "ours"},
        "bytes": {"ours": ours.nbytes, "private": prompts.whole.nbytes},
    }


def sides(ours: Ours, *, reordered: bool = True) -> list[Way]:
    """The sides of a cell, to be run where nothing is differentiated.

    Args:
        ours: our side, over the keys and values that the others read too.
        reordered: whether the shared text is read in other orders too, where there is some.
    """
    prompts = ours.prompts
    ways = [
        Way("ours", lambda: _milliseconds(ours.attend), ours.begin),
        Way("unaware", lambda: _milliseconds(prompts.unaware)),
        Way("private", lambda: _milliseconds(prompts.private)),
    ]
    if prompts.cell.shared and reordered:
        other = Ours(prompts, MODULES)
        ways.append(Way("reordered", lambda: _milliseconds(other.attend), other.begin))
    return ways


def _milliseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def run(cells: Sequence[Cell], rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures cells of the grid: `results` as of `measure`, and `machine`."""
    return {"results": [measure(cell, rounds, say) for cell in cells], "machine": facts()}


def _main() -> None:
    from app.cli.base.output import print_json, say, table

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shared", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=list(TOKENS))
    parser.add_argument("--shape", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--readers", type=int, default=32)
    parser.add_argument("--dtype", choices=[name for name in DTYPES if name != "fp16"], default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    cells = [
        Cell(shape, tokens, int(tokens * share), given.readers, given.dtype)
        for shape in given.shape
        for tokens in given.tokens
        for share in SHARES
    ]
    report = run(cells, given.rounds, lambda _: None)
    if given.json:
        print_json(report)
        return
    rows = []
    for one in report["results"]:
        times, found, held = one["median_ms"], one["ratios"], one["bytes"]
        rows.append(
            [
                one["shape"],
                str(one["tokens"]),
                str(one["shared"]),
                f"{times['ours']:.1f}",
                f"{found['unaware']['ratio']:.2f}",
                f"{found['private']['ratio']:.2f}",
                f"{found['reordered']['ratio']:.2f}" if "reordered" in found else "",
                f"{held['private'] / held['ours']:.1f}",
            ]
        )
    say(table(["HEADS", "TOKENS", "SHARED", "OURS MS", "UNAWARE", "PRIVATE", "REORDERED", "BYTES"], rows))
    say(f"\n{given.readers} prompts, {given.dtype}; times and bytes of the others by ours")


if __name__ == "__main__":
    _main()
