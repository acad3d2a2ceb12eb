"""Many prompts at once against one after the other: `pml bench batch`.

What is answered, and how, stands in `benchmarks.crowd`; prompts that arrive by themselves in
`benchmarks.arrivals`, steps by the length of what is each prompt's own in `benchmarks.growing`.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.arrivals import by_rate
from benchmarks.crowd import DECODERS, KINDS, Crowd, Size
from benchmarks.growing import by_tail
from benchmarks.machine import machine
from benchmarks.turns import ratio, timed
from engine.base.choices import Quantize, Weights
from engine.base.errors import PromptCacheError
from engine.model.loading import load

FEW = 4  # prompts that are answered one after the other: a token takes as long whether more follow or not


def run(
    model: str,
    size: Size,
    *,
    prompts: Sequence[int] = (8,),
    device: str = "auto",
    dtype: str = "auto",
    weights: Weights = "auto",
    quantize: Quantize = "none",
    repeats: int = 5,
    seed: int = 0,
    private: bool = False,
    arrivals: bool = False,
    growing: bool = False,
    beside: bool = False,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measures every way.

    Args:
        model: name of the model.
        size: what is asked of every prompt.
        prompts: how many are answered at once; figures for each of these numbers.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        weights: "auto", "packed" or "plain".
        quantize: how they are rounded: "none", "int8" or "int4".
        repeats: samples of each way, each after a run of the same way to warm up.
        seed: the seed of texts, orders and arrivals, and of the orders in which the ways take turns.
        private: whether prompts that share nothing are answered too.
        arrivals: whether to time prompts that arrive by themselves; takes long.
        growing: whether to time steps by how much each prompt has of its own.
        beside: whether llama.cpp takes turns with ours, where it is installed; takes long.
        progress: called with a line of text now and then.

    Returns:
        `results` (name, params, samples_ms, median_ms, and of whole batches tokens_per_s and peak_bytes
        of keys and values of answers under way, None where nothing is shared: `growing` has the bytes of a
        copy for each prompt; and None where nobody counts them), `ratios` (name → time of a
        token one by one ÷ its own; of the newcomer, among others ÷ alone), `decoders` (what the others wait,
        None where there was no newcomer), `among` (how many these are), `arrivals` (as of `by_rate`, None
        where not asked for), `growing` (likewise, of `by_tail`), `beside` (likewise, of `batch_beside`),
        `alone` (why prompts cannot go together, in words), `machine`.

    Raises:
        PromptCacheError: numbers that cannot be run, or a model that cannot be loaded.
    """
    counts = list(dict.fromkeys(prompts))
    if not counts or min(counts) < 1 or repeats < 1:
        raise PromptCacheError("--prompts and --repeats must be at least 1.")
    say = progress or (lambda _: None)
    say(f"loading {model}")
    loaded = load(model, device=device, dtype=dtype, weights=weights, quantize=quantize)
    most = max(counts)
    asked = [("one_by_one", min(FEW, most))]
    asked += [(kind, count) for count in counts for kind in KINDS if private or kind != "private"]
    with (
        tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
        contextlib.closing(
            Crowd(loaded, Path(folder), size, most, seed, say, private=most if private or arrivals else 0)
        ) as crowd,
    ):
        samples = timed([*(crowd.way(*one) for one in asked), *crowd.newcomers()], repeats, seed, say)
        rates = by_rate(crowd, seed, say) if arrivals else None
        theirs = None
        if beside:
            from benchmarks import batch_beside

            theirs = batch_beside.beside(crowd, model, quantize, most, repeats, seed, say)
    tails = by_tail(loaded, size, most, repeats, seed, say) if growing else None

    params = {"model": model, "dtype": loaded.dtype, **vars(size), "seed": seed}
    results, per_token = list[dict[str, Any]](), dict[str, list[float]]()
    for kind, count in asked:
        name, tokens = f"{kind} {count}", count * size.new
        per_token[name] = [ms / tokens for ms in samples[name]]
        found = _result(kind, {**params, "prompts": count}, samples[name])
        rate = 1000 * tokens / found["median_ms"]
        # What a prompt alone reads is copied, and would count twice.
        held = None if kind == "private" else crowd.peaks[name] or None
        results.append({**found, "tokens_per_s": rate, "peak_bytes": held})
    (first, *others) = per_token
    ratios = {f"one_by_one/{name}": ratio(per_token, first, name) for name in others}
    waits = None
    if crowd.waits:
        results += [_result(name, params, samples[name]) for name in ("newcomer_alone", "newcomer")]
        ratios["newcomer/alone"] = ratio(samples, "newcomer", "newcomer_alone")
        steps, gaps = zip(*crowd.waits, strict=True)
        waits = {"step": statistics.median(steps), "gap": max(gaps)}
    return {
        "results": results,
        "ratios": ratios,
        "decoders": waits,
        "among": DECODERS,
        "arrivals": rates,
        "growing": tails,
        "beside": theirs,
        "alone": loaded.alone,
        "machine": machine(loaded),
    }


def _result(name: str, params: dict[str, Any], samples: list[float]) -> dict[str, Any]:
    return {"name": name, "params": params, "samples_ms": samples, "median_ms": statistics.median(samples)}
