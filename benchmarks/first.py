"""The first run: time to first token of a prompt of which nothing is stored, by that of one without a cache.

Every sample has a new engine and an empty store; the model and the prepared schema are in none.

- `uncached`: every token computed, nothing kept.
- `first`: what is missing is encoded, and written behind the answer.
- `first_sync`: the same, and all of it is on the disk before the first token.
- `first_written`: as `first`, and on until all of it is on the disk, when the answer has ended.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.answers import sources
from benchmarks.machine import machine
from benchmarks.turns import Way, ratio, timed
from engine.base.choices import Quantize, Weights
from engine.base.errors import PromptCacheError
from engine.base.events import Side
from engine.engine import Engine
from engine.model.loading import load
from engine.model.model import Model
from engine.store import Store

RATIOS = ("first", "first_sync", "first_written")


@dataclass(frozen=True)
class FirstRuns:
    """One prompt, each time for the first time.

    Attributes:
        model: the model that answers.
        schema: the text of the schema.
        prompt: the text of the prompt.
    """

    model: Model
    schema: str
    prompt: str

    def ways(self) -> list[Way]:
        """Every way."""
        return [
            Way("uncached", lambda: self.ask("uncached")["ttft_ms"]),
            Way("first", lambda: self.ask("cached")["ttft_ms"]),
            Way("first_sync", lambda: self.ask("cached", sync=True)["ttft_ms"]),
            Way("first_written", lambda: self.ask("cached")["written_ms"]),
        ]

    def ask(self, side: Side, *, sync: bool = False) -> dict[str, Any]:
        """One token of an answer: `ttft_ms`, `written_ms` until nothing is left to write, `tokens`."""
        with (
            tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
            Engine(self.model, Store.open(Path(folder))) as engine,
        ):
            schema = engine.schema(self.schema)
            started = time.perf_counter()
            answer = schema.prompt(self.prompt).answer(mode=side, max_new_tokens=1, sync=sync)
            engine.store.finish_writing()
            written_ms = (time.perf_counter() - started) * 1000
            stored = engine.store.stats().segments
        found = {"ttft_ms": answer.ttft_ms, "written_ms": written_ms, "tokens": answer.tokens}
        return {**found, "segments": stored}


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
    documents: tuple[str, str] | None = None,
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
        cached: tokens in all drawn modules together.
        modules: how many are drawn.
        new: tokens that are drawn behind them.
        documents: texts of a schema and a prompt in place of drawn ones.
        repeats: samples of each way, each after a run of the same way to warm up.
        seed: the seed of the texts, and of the orders in which the ways take turns.
        progress: called with a line of text now and then.

    Returns:
        `results` (name, params, samples_ms, median_ms), `ratios` ("over/uncached" → ratio of the medians, low
        and high of one round), `tokens` and `segments` of the first run, `machine`.

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
    runs = FirstRuns(loaded, *(documents or sources(loaded, cached, modules, new, seed)))
    about = runs.ask("cached")
    samples = timed(runs.ways(), repeats, seed, say)
    shape = {} if documents else {"cached": cached, "modules": modules, "new": new}
    params = {"model": model, "dtype": loaded.dtype, **shape, "seed": seed}
    return {
        "results": [
            {"name": name, "params": params, "samples_ms": values, "median_ms": statistics.median(values)}
            for name, values in samples.items()
        ],
        "ratios": {f"{name}/uncached": ratio(samples, name, "uncached") for name in RATIOS},
        "tokens": about["tokens"],
        "segments": about["segments"],
        "machine": machine(loaded),
    }
