"""Other ways to pick a stored map of the same length: at random, the mean, by embeddings, and the best."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.maps.projector import map_distance, pooled
from engine.maps.reuse import MapReuse


class Controls:
    """The controls over one folder.

    Args:
        maps: the folder.
        alpha: the weight of a distance of maps, as in the training.
        seed: of the random choice.
    """

    def __init__(self, maps: MapReuse, alpha: float, seed: int = 0) -> None:
        self._maps, self._alpha, self._random = maps, alpha, random.Random(seed)
        self._by_length: dict[int, list[str]] = {}
        for key, entry in sorted(maps.store.entries.items()):
            self._by_length.setdefault(entry.rows, []).append(key)

    def random(self, tokens: Sequence[int]) -> Tensor:
        return self._of(self._random.choice(self._by_length[len(tokens)]))

    @functools.lru_cache(maxsize=64)  # noqa: B019 - one folder per run
    def mean(self, rows: int) -> Tensor:
        """The mean map of the entries of a length."""
        keys = self._by_length[rows]
        total = self._of(keys[0]).clone()
        for key in keys[1:]:
            total += self._of(key)
        return total / len(keys)

    def by_embedding(self, tokens: Sequence[int]) -> Tensor:
        """The maps of the entry with the nearest pooled input embeddings, by cosine similarity."""
        keys = self._by_length[len(tokens)]
        own = pooled(self._maps.passes.embedded(tokens)).cpu()
        return self._of(keys[int(F.cosine_similarity(self._inputs(len(tokens)), own).argmax())])

    @functools.lru_cache(maxsize=64)  # noqa: B019 - one folder per run
    def _inputs(self, rows: int) -> Tensor:
        found = [self._maps.store.load(key) for key in self._by_length[rows]]
        return torch.stack([one["inputs"][0].float() for one in found if one is not None])

    def best(self, own: Tensor, rows: int) -> tuple[Tensor, float]:
        """The maps nearest to a text's own [layers, heads, rows, rows], and their similarity (oracle)."""
        keys = self._by_length[rows]
        away = [self._alpha * float(map_distance(own, self._of(key)).mean()) for key in keys]
        least = min(range(len(keys)), key=away.__getitem__)
        return self._of(keys[least]), 1 / (1 + away[least])

    def _of(self, key: str) -> Tensor:
        found = self._maps.load(key)
        assert found is not None, "an entry is damaged"
        return found
