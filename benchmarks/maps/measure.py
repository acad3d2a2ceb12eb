"""Runs each text in all ways, in turns, and notes its vectors and times."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.maps.controls import Controls
from engine.maps.features import Nearest
from engine.maps.passes import MapPasses
from engine.maps.reuse import MapReuse

Tell = Callable[[int, int, str], None]
CONTROLS = ("random map", "mean map", "nearest by embedding", "oracle")
BASELINES = ("LazyFormer", "SAN")


@dataclass
class Row:
    """A text: its similarity to the nearest entry, and for each way its vector and milliseconds."""

    tokens: int
    similarity: float | None = None  # None without an entry of equal length
    best: float | None = None  # the true similarity of the best entry
    vectors: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    ms: dict[str, float] = field(default_factory=dict)
    layer_hits: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        named = ("tokens", "similarity", "best", "ms", "layer_hits")
        return {name: getattr(self, name) for name in named}


class Clock:
    """Adds up the time in attention layers while it runs."""

    def __init__(self, passes: MapPasses) -> None:
        self._parts, self.ms, self._began = passes.attention, 0.0, 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self.ms = 0.0
        hooks = [
            hook
            for part in self._parts
            for hook in (part.register_forward_pre_hook(self._begin), part.register_forward_hook(self._end))
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _begin(self, *_: object) -> None:
        self._began = time.perf_counter()

    def _end(self, *_: object) -> None:
        self.ms += (time.perf_counter() - self._began) * 1000


def plain_states(passes: MapPasses, tokens: Sequence[int]) -> Tensor:
    """The final hidden state of the last token, as the engine computes it for one text."""
    network, rows = passes.network, len(tokens)
    with network.headless():
        return network.forward(tokens, range(rows), network.kv_cache((), rows), 1)


@dataclass
class Measurement:
    """What runs the texts.

    Attributes:
        maps: the folder.
        controls: other choices of an entry.
        sharing: for each baseline the layer whose map each layer reads.
        thresholds: those of AttnCache-f.
    """

    maps: MapReuse
    controls: Controls
    sharing: dict[str, list[int]]
    thresholds: Sequence[float]

    def rows(self, texts: Sequence[Sequence[int]], tell: Tell) -> list[Row]:
        """Runs all texts; the ways of each are in a random order."""
        order = random.Random(0)
        found = []
        clock = Clock(self.maps.passes)
        for number, tokens in enumerate(texts):
            tell(number, len(texts), "texts")
            row = Row(len(tokens))
            ways = self._timed(row, tokens)
            names = list(ways)
            order.shuffle(names)
            for name in names:
                started = time.perf_counter()
                with clock.running():
                    states = ways[name]()
                if states is not None:
                    row.ms[name] = (time.perf_counter() - started) * 1000
                    row.ms[f"{name}, attention"] = clock.ms
                    row.vectors[name] = _vector(states)
            self._control(row, tokens)
            found.append(row)
        return found

    def _timed(self, row: Row, tokens: Sequence[int]) -> dict[str, Callable[[], Tensor | None]]:
        passes = self.maps.passes
        ways: dict[str, Callable[[], Tensor | None]] = {
            "plain": lambda: plain_states(passes, tokens),
            "AttnCache": lambda: self._nearest(row, tokens),
        }
        for name, first in self.sharing.items():
            ways[name] = lambda first=first: passes.shared(tokens, first)  # type: ignore[misc]
        for threshold in self.thresholds:
            ways[f"AttnCache-f {threshold}"] = lambda at=threshold: self._by_layer(row, tokens, at)  # type: ignore[misc]
        return ways

    def _nearest(self, row: Row, tokens: Sequence[int]) -> Tensor | None:
        """Reads the nearest entry whatever its similarity, so that all thresholds can be compared."""
        started = time.perf_counter()
        found = self.maps.nearest(tokens)
        row.ms["search"] = (time.perf_counter() - started) * 1000
        if found is None:
            return None
        row.similarity = found[1]
        started = time.perf_counter()
        maps = self.maps.load(found[0])
        row.ms["load"] = (time.perf_counter() - started) * 1000
        return None if maps is None else self.maps.passes.mapped(tokens, maps)

    def _by_layer(self, row: Row, tokens: Sequence[int], threshold: float) -> Tensor:
        self.maps.threshold = threshold
        states, hits = self.maps.states_by_layer(tokens)
        row.layer_hits[f"AttnCache-f {threshold}"] = hits
        return states

    def _control(self, row: Row, tokens: Sequence[int]) -> None:
        if row.similarity is None:
            return
        passes = self.maps.passes
        best, row.best = self.controls.best(passes.record(tokens).maps, len(tokens))
        chosen = {
            "random map": self.controls.random(tokens),
            "mean map": self.controls.mean(len(tokens)),
            "nearest by embedding": self.controls.by_embedding(tokens),
            "oracle": best,
        }
        for name, maps in chosen.items():
            row.vectors[name] = _vector(passes.mapped(tokens, maps))


def _vector(states: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = states[-1].float().cpu().numpy()
    return found


def by_corpus(maps: MapReuse, keys: Sequence[str], texts: Sequence[Sequence[int]]) -> dict[int, list[float]]:
    """The similarity of the nearest entry of each text among the first entries of a corpus; 0 without any."""
    places = {key: place for place, key in enumerate(maps.features.keys)}
    ordered = [places[key] for key in keys if key in places]
    found = {}
    with torch.inference_mode():
        features = [maps.features_of(tokens) for tokens in texts]
    for part in (8, 4, 2, 1):
        own = ordered[: max(1, len(ordered) // part)]
        rows = [maps.store.entries[maps.features.keys[place]].rows for place in own]
        nearest = Nearest(maps.features.vectors[0, own], rows)
        hits = [nearest.find(one, len(tokens)) for one, tokens in zip(features, texts, strict=True)]
        found[len(own)] = [0.0 if hit is None else hit[1] for hit in hits]
    return found
