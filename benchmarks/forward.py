"""The token level: from token ids, with the segments in hand, to the logits of the first token.

What a prompt costs before it is tokens (parsing, binding, planning, finding and reading segments) is not in
here; `benchmarks.answers` has it. Here the ways to attend to stored keys and values are compared:

- `uncached`: one pass over all tokens, with the same attention and only the last logits.
- `cached`: segments where they lie.
- `copy`: the paper's method; all modules are first copied into one buffer that is kept from run to run.
- `concat`: the same with fresh memory every time.
- `floor`: the new tokens alone, with nothing before them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from benchmarks.drawn import drawn_tokens, spans
from benchmarks.turns import Way
from engine.attention.rope import move_keys
from engine.base.segment import Placement, Segment
from engine.cache.encoder import encode
from engine.model.model import Model
from engine.prompt.recipe import Recipe, segment_key


@dataclass
class Forward:
    """Drawn tokens in modules of equal length.

    Args:
        model: the model that computes.
        cached: tokens in all modules together.
        modules: how many there are.
        new: tokens behind them.
        seed: the seed of the tokens.
        say: is told what goes on.
    """

    model: Model
    cached: int
    modules: int
    new: int
    seed: int
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        vocabulary = int(self.model.config.vocab_size)
        self.tokens = drawn_tokens(vocabulary, self.cached + self.new, self.seed)
        self.spans = spans(self.cached, self.modules)
        self.segments: list[Segment] = []
        for index, (lo, hi) in enumerate(self.spans):
            self.say(f"encoding tokens of module {index + 1} of {self.modules}")
            key = segment_key(self.model.fingerprint, self.model.dtype, self.tokens[lo:hi], ())
            recipe = Recipe(key, tuple(self.tokens[lo:hi]), "")
            self.segments.extend(encode(self.model, [recipe], {}))
        self.turned = [
            self._turned(segment, lo) for segment, (lo, _) in zip(self.segments, self.spans, strict=True)
        ]
        like = self.segments[0].keys
        shape = [*like.shape[:2], self.cached, like.shape[3]]
        self.buffer = Segment("buffer", (0,) * self.cached, like.new_zeros(shape), like.new_zeros(shape))

    def ways(self) -> list[Way]:
        """Every way, by its name with "tokens_" before it."""
        found = (self.uncached, self.in_place, self.copy, self.concat, self.floor)
        names = ("uncached", "cached", "copy", "concat", "floor")
        return [
            Way(f"tokens_{name}", _timer(self.model, way)) for name, way in zip(names, found, strict=True)
        ]

    def agreement(self) -> dict[str, float]:
        """Greatest difference between the logits of `cached` and of `copy`, and the logits' spread."""
        cached, copied = self.in_place(), self.copy()
        return {
            "max_difference": float((cached - copied).abs().max()),
            "spread": float(copied.float().std()),
        }

    def uncached(self) -> torch.Tensor:
        """Logits of the last token, [1, vocabulary], as of the methods below."""
        total = len(self.tokens)
        return self.model.network.forward(self.tokens, range(total), self.model.network.kv_cache((), total))

    def in_place(self) -> torch.Tensor:
        """The new tokens over the segments where they lie."""
        spans = zip(self.segments, self.spans, strict=True)
        return self._behind([Placement(segment, 0, hi - lo, lo) for segment, (lo, hi) in spans])

    def copy(self) -> torch.Tensor:
        """The new tokens over one kept buffer, filled each time."""
        for segment, (lo, hi) in zip(self.turned, self.spans, strict=True):
            self.buffer.keys[:, :, lo:hi].copy_(segment.keys)
            self.buffer.values[:, :, lo:hi].copy_(segment.values)
        return self._behind([Placement(self.buffer, 0, self.cached, 0)])

    def concat(self) -> torch.Tensor:
        """The new tokens over one fresh buffer."""
        keys = torch.cat([segment.keys for segment in self.turned], 2)
        values = torch.cat([segment.values for segment in self.turned], 2)
        fresh = Segment("fresh", (0,) * self.cached, keys, values)
        return self._behind([Placement(fresh, 0, self.cached, 0)])

    def floor(self) -> torch.Tensor:
        """The new tokens over nothing."""
        return self._behind([])

    def _behind(self, placements: list[Placement]) -> torch.Tensor:
        return _pass(self.model, self.tokens[self.cached :], self.cached, placements)

    def _turned(self, segment: Segment, start: int) -> Segment:
        """The segment as the paper stores it: keys at their place in the prompt."""
        keys = move_keys(segment.keys, self.model.rotaries, start)
        return Segment(segment.key, segment.token_ids, keys, segment.values)


def floor_way(model: Model, tokens: Sequence[int], start: int) -> Way:
    """The way `tokens_floor` for these tokens from a position on, without any module."""
    return Way("tokens_floor", _timer(model, lambda: _pass(model, tokens, start, [])))


def _pass(model: Model, tokens: Sequence[int], start: int, placements: list[Placement]) -> torch.Tensor:
    kv = model.network.kv_cache(placements, len(tokens))
    return model.network.forward(tokens, range(start, start + len(tokens)), kv)


def _timer(model: Model, way: Callable[[], torch.Tensor]) -> Callable[[], float]:
    def run() -> float:
        started = time.perf_counter()
        way()
        if model.network.device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - started) * 1000

    return run
