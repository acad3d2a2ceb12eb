"""Folders of maps for tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from engine.inference.step_lock import returned
from engine.maps.build import Built, building
from engine.maps.passes import MapPasses
from engine.maps.projector import Training
from engine.maps.store import BUDGET, MapStore
from engine.model.model import Model
from tests.engine.cases import model_of

QUICK = Training(pairs=256, epochs=3)


@cache
def passes_of(family: str = "llama-gqa") -> MapPasses:
    model = model_of(family)
    return MapPasses(model.network, model.name)


def texts(count: int = 24, seed: int = 0) -> list[list[int]]:
    """Texts of 4 to 7 tokens."""
    drawn = random.Random(seed)
    return [[drawn.randrange(5, 250) for _ in range(4 + number % 4)] for number in range(count)]


def build(
    folder: Path, corpus: Sequence[Sequence[int]], budget: int = BUDGET, **how: Any
) -> tuple[MapStore, Built]:
    store = MapStore.create(folder, model(), passes_of().heads, **how)
    return store, returned(building(passes_of(), store, corpus, budget, QUICK), None)


def model() -> Model:
    return model_of("llama-gqa")
