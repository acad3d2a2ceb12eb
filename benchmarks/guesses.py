"""What guessing ahead spares: passes and time per token of whole answers, with guesses and without, in turns.

Counts are exact and the same in every run: an answer takes as many passes as it takes. Times are of the mean
token after the first one.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.turns import Way, ratio, timed
from engine.base.choices import Quantize, Speculate, Weights
from engine.base.errors import PromptCacheError
from engine.base.events import Answer
from engine.engine import Engine
from engine.prepared import PreparedPrompt

SIDES: tuple[Speculate, ...] = ("off", "on")


def run(
    model: str,
    prompts: Sequence[Path],
    schema: Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    weights: Weights = "auto",
    quantize: Quantize = "none",
    tokens: int = 128,
    repeats: int = 5,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measures every prompt at temperature 0.

    Args:
        model: name of the model.
        prompts: files over the schema, at least one.
        schema: its file.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        weights: how they lie.
        quantize: how they are rounded: "none", "int8" or "int4".
        tokens: of an answer, at most.
        repeats: answers of each side, each after one to warm up.
        seed: the seed of the orders in which the sides take turns.
        progress: called with a line of text now and then.

    Returns:
        `results`, one for each prompt: prompt, same_text, tokens, passes of both sides, drafted, accepted and
        repeated tokens, samples_ms of a token by side, ratio of the medians (on by off); and `machine`.

    Raises:
        PromptCacheError: numbers that cannot be run, or what `Engine.open` and its prompts raise.
    """
    if min(tokens, repeats) < 1:
        raise PromptCacheError("--tokens and --repeats must be at least 1.")
    say = progress or (lambda _: None)
    with (
        tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
        Engine.open(
            model, device=device, dtype=dtype, weights=weights, quantize=quantize, cache_dir=Path(folder)
        ) as engine,
    ):
        prepared = engine.schema(schema)
        results = []
        for path in prompts:
            say(path.name)
            asked = _Asked(prepared.prompt(path), tokens)
            ways = [Way(side, asked.timer(side)) for side in SIDES]
            results.append({"prompt": path.name, **asked.counts(timed(ways, repeats, seed, say))})
        return {"results": results, "machine": machine(engine.model)}


class _Asked:
    """One prompt, and the last answer of each side."""

    def __init__(self, prompt: PreparedPrompt, tokens: int) -> None:
        self._prompt, self._tokens = prompt, tokens
        self._answers: dict[str, Answer] = {}

    def timer(self, side: Speculate) -> Callable[[], float]:
        """What answers once and returns the time of a token."""

        def time() -> float:
            self._answers[side] = self._prompt.answer(max_new_tokens=self._tokens, speculate=side)
            return self._answers[side].tpot_ms

        return time

    def counts(self, samples: dict[str, list[float]]) -> dict[str, Any]:
        """What the answers took."""
        off, on = (self._answers[side] for side in SIDES)
        return {
            "same_text": on.text == off.text,
            "tokens": on.tokens["generated"],
            "passes": {"off": off.passes, "on": on.passes},
            **{name: on.tokens[name] for name in ("drafted", "accepted", "repeated")},
            "samples_ms": samples,
            "median_ms": {side: statistics.median(values) for side, values in samples.items()},
            "on/off": ratio(samples, "on", "off") if on.passes else None,
        }
