"""Time per token of an answer over cached tokens, with plain weights and with others, which take turns.

A step of `engine.inference.generation` is timed, from one token to the text of the next. The first step, a
prefill, does not count; nor does the copy of the segments into one buffer before the second.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.drawn import drawn_tokens, spans
from benchmarks.machine import machine
from benchmarks.turns import Way, ratio, timed
from engine.base.choices import Quantize, Weights
from engine.base.errors import PromptCacheError
from engine.base.segment import Placement
from engine.cache.encoder import encode
from engine.inference.generation import Sequence
from engine.inference.prefill import Prefill
from engine.inference.run_settings import SamplingParams
from engine.model.loading import load
from engine.model.model import Model
from engine.prompt.recipe import Recipe, segment_key

SIDES: tuple[Weights, ...] = ("plain", "packed")
NEW = 4  # tokens behind the cached ones


def run(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    cached: int = 512,
    modules: int = 8,
    steps: int = 16,
    repeats: int = 5,
    seed: int = 0,
    sides: tuple[Weights, ...] = SIDES,
    quantize: Quantize = "none",
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measures a step of decoding.

    Args:
        model: name of the model, which is loaded once for each side.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16"; with rounded weights "auto" is "bf16".
        cached: tokens in all modules together.
        modules: how many there are.
        steps: tokens of an answer that are timed, at least 2.
        repeats: answers of each side, each after one to warm up.
        seed: the seed of tokens, and of the orders in which the sides take turns.
        sides: how weights lie.
        quantize: of one more side, whose weights are rounded.
        progress: called with a line of text now and then.

    Returns:
        `results` (name, params, weights, samples_ms of a step, median_ms), `ratios`, `machine`.

    Raises:
        PromptCacheError: numbers that cannot be run, or a model that cannot be loaded.
    """
    if min(cached, modules, repeats) < 1 or cached < modules or steps < 2:
        raise PromptCacheError(
            "--cached, --modules and --repeats must be at least 1, --cached at least --modules, --steps 2."
        )
    say = progress or (lambda _: None)
    loaded = {}
    if quantize != "none" and dtype == "auto":
        dtype = "bf16"  # rounded weights compute in it: else two things would be compared at once
    for side in sides:
        say(f"loading {model} with {side} weights")
        loaded[f"step_{side}"] = load(model, device=device, dtype=dtype, weights=side)
    if quantize != "none":
        say(f"loading {model} with {quantize} weights")
        loaded[f"step_{quantize}"] = load(model, device=device, dtype=dtype, quantize=quantize)
    first = next(iter(loaded.values()))
    if cached + NEW + steps + 1 >= first.context_length:
        raise PromptCacheError(
            f"{cached + NEW + steps} tokens do not fit the model's {first.context_length}; lower --cached."
        )
    ways = [Way(name, Decoding(one, cached, modules, steps, seed).time) for name, one in loaded.items()]
    samples = timed(ways, repeats, seed, say)
    params = {"model": model, "cached": cached, "modules": modules, "steps": steps}
    return {
        "results": [
            {
                "name": name,
                "params": {**params, "dtype": loaded[name].dtype, "seed": seed},
                "weights": loaded[name].weights,
                "samples_ms": values,
                "median_ms": statistics.median(values),
            }
            for name, values in samples.items()
        ],
        "ratios": {
            f"{over}/{under}": ratio(samples, over, under) for over, under in itertools.pairwise(samples)
        },
        "machine": machine(first),
    }


class Decoding:
    """Answers over drawn tokens in modules of equal length."""

    def __init__(self, model: Model, cached: int, modules: int, steps: int, seed: int) -> None:
        tokens = drawn_tokens(int(model.config.vocab_size), cached + NEW, seed)
        placements = []
        for lo, hi in spans(cached, modules):
            key = segment_key(model.fingerprint, model.dtype, tokens[lo:hi], ())
            (segment,) = encode(model, [Recipe(key, tuple(tokens[lo:hi]), "")], {})
            placements.append(Placement(segment, 0, hi - lo, lo))
        positions = range(cached, cached + NEW)
        self._model, self._steps = model, steps
        self._prefill = Prefill(placements, tokens[cached:], positions, tokens, cached + NEW)

    def time(self) -> float:
        """Milliseconds of the median step of one answer, the steps that begin it left out."""
        return statistics.median(self._answered(self._steps + 2)[1:])

    def mean(self, tokens: int) -> float:
        """Milliseconds of a token of one answer: the mean of all but the first, the copy before them too."""
        return statistics.fmean(self._answered(tokens))

    def _answered(self, tokens: int) -> list[float]:
        """Milliseconds of every step of an answer but the first."""
        sequence = Sequence(
            self._model, self._prefill, SamplingParams(max_new_tokens=tokens, speculate="off")
        )
        while len(sequence.token_ids) < tokens:
            sequence.ending = None  # random weights may end an answer anywhere
            sequence.step()
        return sequence.step_ms
