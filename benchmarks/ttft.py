"""Time to first token, cached against uncached: from the text of a prompt, and from token ids.

The ways of `benchmarks.answers` begin at text, those of `benchmarks.forward` at token ids with the segments
in hand. All take turns in one run, so that a drifting clock hurts all alike (`benchmarks.turns`).
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.answers import Answers
from benchmarks.forward import Forward
from benchmarks.machine import machine
from benchmarks.turns import ratio, timed
from engine.base.choices import Quantize, Weights
from engine.base.errors import PromptCacheError
from engine.model.loading import load

RATIOS = (
    ("uncached", "cached"),
    ("uncached", "files_first"),
    ("cached_with_schema", "cached"),
    ("files_later", "cached"),
    ("files_first", "cached"),
    ("files_cold", "cached"),
    ("tokens_uncached", "tokens_cached"),
    ("tokens_cached", "tokens_floor"),
    ("tokens_copy", "tokens_cached"),
    ("tokens_concat", "tokens_cached"),
)


def run(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    weights: Weights = "auto",
    quantize: Quantize = "none",
    cached: int = 1024,
    modules: int = 8,
    new: int = 32,
    repeats: int = 5,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measures every way.

    Args:
        model: name of the model.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        weights: "auto", "packed" or "plain".
        quantize: how they are rounded: "none", "int8" or "int4".
        cached: tokens in all modules together.
        modules: how many there are.
        new: tokens that are computed after them.
        repeats: samples of each way, each after a run of the same way to warm up.
        seed: the seed of texts, tokens, and the orders in which the ways take turns.
        progress: called with a line of text now and then.

    Returns:
        `results` (name, params, samples_ms, median_ms), `ratios` ("over/under" → ratio of the medians, low
        and high of one round), `tokens` (of the prompt whose text is timed), `agreement`, `machine`.

    Raises:
        PromptCacheError: numbers that cannot be run, or a model that cannot be loaded.
    """
    if min(cached, modules, new, repeats) < 1 or cached < modules:
        raise PromptCacheError(
            "--cached, --modules, --new and --repeats must be at least 1, and --cached at least --modules."
        )
    say = progress or (lambda _: None)
    say(f"loading {model}")
    loaded = load(model, device=device, dtype=dtype, weights=weights, quantize=quantize)
    if cached + new + 1 >= loaded.context_length:
        raise PromptCacheError(
            f"{cached + new} tokens do not fit the model's {loaded.context_length}; lower --cached."
        )
    forward = Forward(loaded, cached, modules, new, seed, say)
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as folder:
        answers = Answers(loaded, Path(folder), cached=cached, modules=modules, new=new, seed=seed, say=say)
        try:
            samples = timed([*answers.ways(), *forward.ways()], repeats, seed, say)
        finally:
            answers.close()
    params = {
        "model": model,
        "dtype": loaded.dtype,
        "cached": cached,
        "modules": modules,
        "new": new,
        "seed": seed,
    }
    return {
        "results": [
            {"name": name, "params": params, "samples_ms": values, "median_ms": statistics.median(values)}
            for name, values in samples.items()
        ],
        "ratios": {
            f"{over}/{under}": ratio(samples, over, under) for over, under in RATIOS if over in samples
        },
        "tokens": answers.tokens,
        "agreement": forward.agreement(),
        "machine": machine(loaded),
    }
