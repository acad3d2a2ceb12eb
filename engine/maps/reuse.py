"""Looks up the maps of the most similar stored text, for passes that read them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.base.errors import MapsError
from engine.maps.features import Features, Nearest
from engine.maps.passes import MapPasses
from engine.maps.projector import pooled
from engine.maps.store import MapStore
from engine.model.model import Model

THRESHOLD = 0.99


@dataclass
class Reused:
    """How often stored maps were used, and the time that the search took.

    Attributes:
        texts: looked-up texts.
        hits: those that read stored maps.
        search_ms: time of features and search.
        load_ms: time to load maps.
    """

    texts: int = 0
    hits: int = 0
    search_ms: float = 0.0
    load_ms: float = 0.0


class MapReuse:
    """Stored maps for texts whose nearest neighbour is similar enough (AttnCache).

    Args:
        store: the folder.
        passes: the model's passes.
        threshold: the least similarity, from 0 to 1.

    Raises:
        MapsError: the threshold is out of range, the folder has no projector, or usearch is missing.

    Attributes:
        store: the folder.
        passes: the model's passes.
        threshold: the least similarity.
        features: the projectors, and the features of all entries.
        used: counts and times.
    """

    def __init__(self, store: MapStore, passes: MapPasses, threshold: float = THRESHOLD) -> None:
        if not 0 <= threshold <= 1 or math.isnan(threshold):
            raise MapsError(f"the threshold is {threshold}; it must be a number from 0 to 1.")
        self.store, self.passes, self.threshold = store, passes, threshold
        self.features, self.used = Features.open(store), Reused()
        known = [place for place, key in enumerate(self.features.keys) if key in store.entries]
        self._keys = [self.features.keys[place] for place in known]
        rows = [store.entries[key].rows for key in self._keys]
        layers = range(len(self.features.vectors))
        self._nearest = [Nearest(self.features.vectors[layer, known], rows) for layer in layers]

    @staticmethod
    def open(folder: Path, model: Model, threshold: float = THRESHOLD) -> MapReuse:
        """Opens a folder for a model.

        Raises:
            MapsError: the folder or the threshold cannot be used, or usearch is missing.
            ModelError: the model's attention has another form.
        """
        return MapReuse(MapStore.open(folder, model), MapPasses(model.network, model.name), threshold)

    @torch.inference_mode()
    def features_of(self, tokens: Sequence[int]) -> Tensor:
        """Returns the features of a text, [128]."""
        return self._features(0, self.passes.embedded(tokens))

    def nearest(self, tokens: Sequence[int]) -> tuple[str, float] | None:
        """Returns the key and the similarity of the nearest text of equal length; None without any."""
        return self._found(0, self.features_of(tokens), len(tokens))

    def maps(self, tokens: Sequence[int]) -> Tensor | None:
        """Returns the maps of all layers for a text, in the model's format; None if no text is similar."""
        self.used.texts += 1
        started = time.perf_counter()
        found = self.nearest(tokens) if len(tokens) else None
        self.used.search_ms += (time.perf_counter() - started) * 1000
        if found is None or found[1] < self.threshold:
            return None
        loaded = self.load(found[0])
        self.used.hits += loaded is not None
        return loaded

    def load(self, key: str) -> Tensor | None:
        """Returns an entry's maps in the model's format and on its device; None if it is damaged or gone."""
        started = time.perf_counter()
        network = self.passes.network
        with self.store.in_use(key):
            found = self.store.load(key)
            maps = None if found is None else found["maps"].to(network.device, network.dtype)
        self.used.load_ms += (time.perf_counter() - started) * 1000
        return maps

    def states(self, tokens: Sequence[int]) -> Tensor | None:
        """Returns a text's final hidden states [rows, hidden] from stored maps; None if none are similar."""
        maps = self.maps(tokens)
        return None if maps is None else self.passes.mapped(tokens, maps)

    def states_by_layer(self, tokens: Sequence[int]) -> tuple[Tensor, int]:
        """Searches in each layer (AttnCache-f); returns final hidden states, and the layers with a hit.

        Raises:
            MapsError: the folder was built without the inputs of layers.
        """
        if len(self._nearest) == 1:
            raise MapsError(f"{self.store.path} was built without the inputs of layers.")
        hits = 0

        def choose(layer: int, states: Tensor) -> Tensor | None:
            nonlocal hits
            found = self._found(layer + 1, self._features(layer + 1, states), len(tokens))
            if found is None or found[1] < self.threshold:
                return None
            with self.store.in_use(found[0]):
                loaded = self.store.load(found[0])
            hits += loaded is not None
            return None if loaded is None else loaded["maps"][layer].to(states.device)

        return self.passes.chosen(tokens, choose), hits

    def _features(self, projector: int, states: Tensor) -> Tensor:
        """The features of states [rows, hidden]; inputs are rounded as stored ones are."""
        return self.features.projector.one(projector, pooled(states).cpu().half().float())

    def _found(self, projector: int, features: Tensor, rows: int) -> tuple[str, float] | None:
        found = self._nearest[projector].find(features, rows)
        return None if found is None else (self._keys[found[0]], found[1])
