"""A step of many prompts by how much each has of its own: what they share is read once, the rest is not.

- `one_by_one`: a step of each prompt after that of the other.
- `private`: one for all, each with a copy of its own of what they share.
- `batch`: one for all over the same segments, in the same order.
- `batch_reordered`: one for all over the same segments, in another order in every prompt.

Keys and values are drawn: what they are does not matter to the time. A time is that of one step of all
prompts at once, the choice of the tokens not in it.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.agreement import mean_distance
from benchmarks.crowd import Size
from benchmarks.drawn import spans
from benchmarks.turns import Way, timed
from engine.base.segment import Placement, Segment
from engine.batch.passes import Passes, held_bytes
from engine.kv_cache.batched_kv_cache import Member
from engine.kv_cache.protocol import Rows, Rowwise
from engine.model.model import Model

KINDS = ("one_by_one", "private", "batch", "batch_reordered")
PARTS = 4  # of what is shared, that tails grow by
STEPS = 3  # of which the median counts


class Growing:
    """Prompts in the midst of their answers.

    Args:
        model: the model, which takes several prompts in one pass.
        size: what they share, and in how many modules.
        prompts: how many there are.
        seed: the seed of keys, values and orders.

    Attributes:
        held: the bytes of the keys and values of all prompts, by the name of a way.
    """

    def __init__(self, model: Model, size: Size, prompts: int, seed: int) -> None:
        self.held: dict[str, int] = {}
        self._model, self._size, self._prompts = model, size, prompts
        self._order = random.Random(seed)
        self._draw = torch.Generator().manual_seed(seed)
        self._segments = list[Segment]()
        for number, (lo, hi) in enumerate(spans(size.shared, size.modules)):
            keys, values = self._states(hi - lo)
            self._segments.append(Segment(f"m{number}", tuple(range(hi - lo)), keys, values))
        self._own = self._states(1)

    def way(self, kind: str, tail: int) -> Way:
        """Steps with so many tokens of each prompt's own: milliseconds. It is named after both."""
        name = f"{kind} {tail}"
        members: list[Member] = []

        def prepare() -> None:
            count = 1 if kind == "one_by_one" else self._prompts
            members[:] = [self._member(kind, tail, number) for number in range(count)]

        def run() -> float:
            taken = self._steps(members)
            placements = [placed for one in members for placed in one.kv.placements]
            self.held[name] = held_bytes(placements, (one.kv for one in members))
            members.clear()
            return taken * (self._prompts if kind == "one_by_one" else 1)

        return Way(name, run, prepare)

    def apart(self, tail: int) -> float:
        """How far the logits of steps of all prompts are from those of each by itself, at most.

        The latter go through the network without what lets several go together.

        Args:
            tail: tokens of each prompt's own.

        Returns:
            The `mean_distance` of the prompt that is furthest off.
        """
        found = list[float]()
        for kind in KINDS[1:]:
            members = [self._member(kind, tail, number) for number in range(self._prompts)]
            lengths = [one.kv.length for one in members]
            passes = Passes(self._model)
            together = passes.run(members)
            for one, length, logits in zip(members, lengths, together, strict=True):
                passes.leave(one.kv)
                one.kv.truncate(length)
                rows = one.rows.real
                alone = self._model.network.forward(rows.token_ids, rows.positions, one.kv, rows.keep)
                found.append(mean_distance(logits[:1], alone))
        return max(found)

    def _steps(self, members: Sequence[Member]) -> float:
        """Milliseconds of a step; the first one, in which tails find their places, does not count."""
        passes, taken = Passes(self._model), list[float]()
        for _ in range(STEPS + 1):
            lengths = [one.kv.length for one in members]
            started = time.perf_counter()
            passes.run(members)
            taken.append((time.perf_counter() - started) * 1000)
            for one, length in zip(members, lengths, strict=True):
                one.kv.truncate(length)
        return statistics.median(taken[1:])

    def _member(self, kind: str, tail: int, number: int) -> Member:
        """A prompt that is told from the others by its token, where nothing else tells them apart."""
        placements, at = list[Placement](), 0
        if kind != "private":
            segments = [*self._segments]
            if kind == "batch_reordered":
                self._order.shuffle(segments)
            for segment in segments:
                placements.append(Placement(segment, 0, segment.tokens, at))
                at += segment.tokens
        count, end = self._size.shared + tail - at, self._size.shared + tail
        idle = self._model.rows.idle  # a step by itself has them too
        kv = self._model.network.kv_cache(placements, count + 1 + idle)
        kv.begin(range(at, end))
        own = kv.own
        assert own is not None, "attention is not ours"
        for layer in range(self._model.layers):
            key, value = (states[layer].expand(-1, count, -1) for states in self._own)
            own.append(layer, key, value)
        kv.commit()
        positions = list(range(end, end + 1 + idle))
        return Member(kv, Rows([number] * len(positions), positions, len(positions), Rowwise(idle)))

    def _states(self, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        form, device = self._model.form, self._model.network.device
        shape = (2, form.layers, form.heads, tokens, form.size)
        keys, values = torch.randn(shape, generator=self._draw).to(form.dtype).to(device)
        return keys, values


def tails_of(size: Size) -> list[int]:
    """Tokens of each prompt's own, from one to as many as are shared."""
    return list(dict.fromkeys(max(1, size.shared * part // PARTS) for part in range(PARTS + 1)))


def by_tail(
    model: Model, size: Size, prompts: int, repeats: int, seed: int, say: Callable[[str], None]
) -> dict[str, Any] | None:
    """Times steps with tails from a token to as many as are shared; the ways take turns.

    Args:
        model: the model.
        size: what is shared.
        prompts: how many there are.
        repeats: samples of each way, each after one to warm up.
        seed: the seed of what is drawn, and of the turns.
        say: is told what goes on.

    Returns:
        `prompts`, `tails` (tokens), `tokens_per_s` and `bytes` (of keys and values in one step), both by
        kind, a figure for each tail. None of a model that takes one prompt at a time.
    """
    if model.alone:
        return None
    growing = Growing(model, size, prompts, seed)
    tails = tails_of(size)
    say("steps by what is each prompt's own")
    samples = timed([growing.way(kind, tail) for kind in KINDS for tail in tails], repeats, seed, say)
    medians = {name: statistics.median(taken) for name, taken in samples.items()}
    return {
        "prompts": prompts,
        "tails": tails,
        "tokens_per_s": {
            kind: [1000 * prompts / medians[f"{kind} {tail}"] for tail in tails] for kind in KINDS
        },
        "bytes": {kind: [growing.held[f"{kind} {tail}"] for tail in tails] for kind in KINDS},
    }
