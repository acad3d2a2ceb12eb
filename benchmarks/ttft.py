"""Time to first token, cached against uncached, on tokens of a given number in modules of equal length.

Every variant computes the first token of the same prompt; they take turns, so that a drifting clock
hurts all alike. Times run from token ids to the first token id.

- `uncached`: one pass over the whole prompt, with the same attention and only the last logits.
- `cached`: segments in memory.
- `cached_disk_warm`, `cached_disk_cold`: segments read from their files; the cold one after the operating
  system was asked to drop the files from its page cache.
- `floor`: the new tokens alone, with nothing before them.
- `copy`: the paper's method; all modules are first copied into one buffer that is kept from run to run.
- `concat`: the same with fresh memory every time.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import machine
from engine.encoder import encode
from engine.errors import StudioError
from engine.loading import load
from engine.model import Model
from engine.rotary import move_keys
from engine.segment import Placement, Segment, segment_key
from engine.store import Origin, Store

_ORIGIN = Origin("benchmark", "", "isolated", "benchmark", "benchmark")


def run(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    cached: int = 1024,
    modules: int = 8,
    new: int = 32,
    repeats: int = 5,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measures every variant.

    Args:
        model: name of the model.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        cached: tokens in all modules together.
        modules: how many there are.
        new: tokens that are computed after them.
        repeats: samples of each variant, after one to warm up.
        progress: called with a line of text now and then.

    Returns:
        `results` (name, params, samples_ms, median_ms), `ratios`, `agreement`, `machine`.

    Raises:
        StudioError: numbers that cannot be run, or a model that cannot be loaded.
    """
    if min(cached, modules, new, repeats) < 1 or cached < modules:
        raise StudioError(
            "--cached, --modules, --new and --repeats must be at least 1, and --cached at least --modules."
        )
    say = progress or (lambda _: None)
    say(f"loading {model}")
    loaded = load(model, device=device, dtype=dtype)
    if cached + new >= loaded.context_length:
        raise StudioError(
            f"{cached + new} tokens do not fit the model's {loaded.context_length}; lower --cached."
        )
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as folder:
        store = Store.open(Path(folder))
        try:
            bench = _Bench(loaded, store, cached, modules, new, say)
            samples = bench.sample(repeats)
        finally:
            store.close()
    params = {"model": model, "dtype": loaded.dtype, "cached": cached, "modules": modules, "new": new}
    medians = {name: statistics.median(values) for name, values in samples.items()}
    return {
        "results": [
            {"name": name, "params": params, "samples_ms": values, "median_ms": medians[name]}
            for name, values in samples.items()
        ],
        "ratios": {
            "uncached/cached": medians["uncached"] / medians["cached"],
            "cached/floor": medians["cached"] / medians["floor"],
            "copy/cached": medians["copy"] / medians["cached"],
            "concat/cached": medians["concat"] / medians["cached"],
            "cached_disk_warm/cached": medians["cached_disk_warm"] / medians["cached"],
            "cached_disk_cold/cached": medians["cached_disk_cold"] / medians["cached"],
        },
        "agreement": bench.agreement(),
        "machine": machine(loaded),
    }


@dataclass
class _Bench:
    model: Model
    store: Store
    cached: int
    modules: int
    new: int
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        vocabulary = int(self.model.config.vocab_size)
        total = self.cached + self.new
        self.tokens: list[int] = torch.randint(0, vocabulary, (total,), generator=generator).tolist()
        borders = [self.cached * i // self.modules for i in range(self.modules + 1)]
        self.spans = list(itertools.pairwise(borders))
        self.segments: list[Segment] = []
        for index, (lo, hi) in enumerate(self.spans):
            self.say(f"encoding module {index + 1} of {self.modules}")
            key = segment_key(self.model.fingerprint, self.model.dtype, self.tokens[lo:hi], ())
            segment = encode(self.model, key, self.tokens[lo:hi], ())
            self.store.save(segment, _ORIGIN)
            self.segments.append(segment)
        self.turned = [
            self._turned(segment, lo) for segment, (lo, _) in zip(self.segments, self.spans, strict=True)
        ]
        shape = list(self.segments[0].keys.shape)
        shape[2] = self.cached
        like = self.segments[0].keys
        self.buffer = Segment("buffer", (0,) * self.cached, like.new_zeros(shape), like.new_zeros(shape))

    def _turned(self, segment: Segment, start: int) -> Segment:
        """The segment as the paper stores it: keys at their place in the prompt."""
        keys = move_keys(segment.keys, self.model.rotaries, start)
        return Segment(segment.key, segment.token_ids, keys, segment.values)

    def sample(self, repeats: int) -> dict[str, list[float]]:
        variants: dict[str, Callable[[], Any]] = {
            "uncached": self.uncached,
            "cached": lambda: self._prefill(self.segments),
            "cached_disk_warm": lambda: self._prefill(self._from_disk()),
            "cached_disk_cold": lambda: self._prefill(self._from_disk()),
            "floor": self.floor,
            "copy": self.copy,
            "concat": self.concat,
        }
        samples: dict[str, list[float]] = {name: [] for name in variants}
        for turn in range(repeats + 1):
            for name, variant in variants.items():
                if name == "cached_disk_cold":
                    self._drop_page_cache()
                started = time.perf_counter()
                variant()
                self._wait()
                if turn:
                    samples[name].append((time.perf_counter() - started) * 1000)
            self.say(f"turn {turn} of {repeats}")
        return samples

    def agreement(self) -> dict[str, float]:
        """Greatest difference between the logits of `cached` and of `copy`, and the logits' spread."""
        cached, copied = self._prefill(self.segments), self.copy()
        return {
            "max_difference": float((cached - copied).abs().max()),
            "spread": float(copied.float().std()),
        }

    def uncached(self) -> torch.Tensor:
        total = len(self.tokens)
        return self.model.forward(self.tokens, range(total), self.model.key_values((), total))

    def floor(self) -> torch.Tensor:
        positions = range(self.cached, self.cached + self.new)
        return self.model.forward(self.tokens[self.cached :], positions, self.model.key_values((), self.new))

    def copy(self) -> torch.Tensor:
        for segment, (lo, hi) in zip(self.turned, self.spans, strict=True):
            self.buffer.keys[:, :, lo:hi].copy_(segment.keys)
            self.buffer.values[:, :, lo:hi].copy_(segment.values)
        return self._forward([Placement(self.buffer, 0, self.cached, 0)])

    def concat(self) -> torch.Tensor:
        keys = torch.cat([segment.keys for segment in self.turned], 2)
        values = torch.cat([segment.values for segment in self.turned], 2)
        return self._forward(
            [Placement(Segment("fresh", (0,) * self.cached, keys, values), 0, self.cached, 0)]
        )

    def _prefill(self, segments: list[Segment]) -> torch.Tensor:
        spans = zip(segments, self.spans, strict=True)
        return self._forward([Placement(segment, 0, hi - lo, lo) for segment, (lo, hi) in spans])

    def _forward(self, placements: list[Placement]) -> torch.Tensor:
        positions = range(self.cached, self.cached + self.new)
        kv = self.model.key_values(placements, self.new)
        return self.model.forward(self.tokens[self.cached :], positions, kv)

    def _from_disk(self) -> list[Segment]:
        read = []
        self.store.expect_soon(segment.key for segment in self.segments)
        for segment in self.segments:
            found = self.store.load(segment.key, segment.token_ids)
            assert found is not None, "a segment that was just written is gone"
            read.append(found)
        return read

    def _drop_page_cache(self) -> None:
        os.sync()
        for path in (self.store.folder / "files").iterdir():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def _wait(self) -> None:
        if self.model.network.device.type == "cuda":
            torch.cuda.synchronize()
