"""Trained projectors with the features of a folder's entries, and the search for the nearest entry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from engine.base.errors import MapsError
from engine.files import atomic
from engine.maps.projector import FEATURES, Projector
from engine.maps.store import MapStore

_FILE = "projector.safetensors"
_PARTS = ("first", "first_bias", "second", "second_bias")


@dataclass(frozen=True)
class Features:
    """Projectors, and what they make of the entries of a folder.

    Attributes:
        keys: the entries.
        vectors: [projectors, entries, 128].
        projector: the projectors.
        losses: the mean loss of each epoch of the training.
    """

    keys: tuple[str, ...]
    vectors: Tensor
    projector: Projector
    losses: tuple[float, ...]

    def save(self, store: MapStore) -> None:
        """Writes the projectors into a folder; raises MapsError if it cannot."""
        tensors = {name: getattr(self.projector, name).detach().contiguous() for name in _PARTS}
        tensors["vectors"] = self.vectors.contiguous()
        notes = {"keys": json.dumps(self.keys), "losses": json.dumps(self.losses)}
        notes["digest"] = _digest(tensors)
        try:
            with atomic.writing(store.path, _FILE) as file:
                file.write(save(tensors, notes))
        except OSError as error:
            raise MapsError(f"{store.path / _FILE} cannot be written: {error.strerror or error}.") from None

    @staticmethod
    def open(store: MapStore) -> Features:
        """Reads the projectors of a folder.

        Raises:
            MapsError: they are missing, because a build was stopped, or damaged.
        """
        fix = f"Run pml maps build again: it keeps the {len(store.entries)} entries of {store.path}."
        try:
            data = (store.path / _FILE).read_bytes()
            tensors = load(data)
            notes = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
            if notes["digest"] != _digest(tensors):
                raise ValueError("its digest differs")
            count, width, _ = tensors["first"].shape
            projector = Projector(count, width)
            projector.load_state_dict({name: tensors[name] for name in _PARTS})
            losses: list[Any] = json.loads(notes["losses"])
            keys: list[Any] = json.loads(notes["keys"])
            projector.eval().requires_grad_(False)
            return Features(tuple(keys), tensors["vectors"], projector, tuple(losses))
        except FileNotFoundError:
            raise MapsError(f"{store.path} has no trained projector. {fix}") from None
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise MapsError(f"{store.path / _FILE} is damaged ({error}). Delete it. {fix}") from None


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = xxhash.xxh3_128()
    for name in sorted(tensors):
        digest.update(tensors[name].numpy().data)
    return digest.hexdigest()


class Nearest:
    """Finds the entry of a length with the nearest features: a graph (HNSW) for each length.

    Args:
        vectors: the features, float32 [entries, 128].
        rows: the length of each entry.

    Raises:
        MapsError: usearch is not installed.
    """

    def __init__(self, vectors: Tensor, rows: Sequence[int]) -> None:
        try:
            from usearch.index import Index
        except ImportError:
            raise MapsError(
                "Attention maps are found with the package usearch: pip install 'prompt-cache-studio[maps]'"
            ) from None
        self._graphs: dict[int, Any] = {}
        lengths = torch.tensor(rows, dtype=torch.int64)
        for length in sorted(set(rows)):
            places = (lengths == length).nonzero()[:, 0]
            graph = self._graphs[length] = Index(ndim=FEATURES, metric="l2sq", dtype="f32")
            graph.add(places.numpy(), vectors[places].numpy(), threads=1)

    def find(self, features: Tensor, rows: int) -> tuple[int, float] | None:
        """Returns the nearest entry of a length and its similarity; None without any."""
        graph = self._graphs.get(rows)
        if graph is None:
            return None
        found = graph.search(features.numpy(), 1, threads=1)
        if not len(found.keys):
            return None
        return int(found.keys[0]), similarity(max(0.0, float(found.distances[0])) ** 0.5)


def similarity(distance: float) -> float:
    """Returns the similarity of two texts, 0 to 1: 1 / (1 + distance), in five digits, as features round."""
    return round(1 / (1 + distance), 5)
