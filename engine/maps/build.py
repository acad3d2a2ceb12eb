"""Builds a folder of maps: runs each text once, then trains the projectors."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch

from engine.base.errors import MapsError
from engine.base.events import Working
from engine.maps.features import Features
from engine.maps.passes import MapPasses
from engine.maps.projector import Training, pooled, trained
from engine.maps.store import BUDGET, MapStore, key_of


@dataclass(frozen=True)
class Built:
    """The result of a build.

    Attributes:
        new: the number of texts that were run.
        known: texts whose maps were there.
        left_out: texts for which the budget has no room.
        losses: the mean loss of each epoch of the training; empty if nothing was trained.
    """

    new: int
    known: int
    left_out: int
    losses: tuple[float, ...]


def building(
    passes: MapPasses,
    store: MapStore,
    texts: Sequence[Sequence[int]],
    budget: int = BUDGET,
    plan: Training | None = None,
) -> Generator[Working, None, Built]:
    """Builds a folder of maps. What is finished stays if the generator ends early.

    Entries of these texts are not evicted for each other: if they fill the budget, the other texts are left
    out. Entries of earlier builds go, the least recently used first.

    Args:
        passes: the model's passes.
        store: the folder.
        texts: the tokens of each text.
        budget: the most bytes of all entries.
        plan: how to train; None for the default.

    Yields:
        Working, before each text that is run and during the training.

    Raises:
        MapsError: the folder cannot be written, another program builds it, or it has no entries.
        ModelError: the model computes invalid numbers.
    """
    if budget < 1:
        raise MapsError(f"the budget is {budget} bytes; it must be at least 1.")
    by_key = {key_of(tokens): tokens for tokens in texts if len(tokens)}
    known = by_key.keys() & store.entries.keys()
    new, full = 0, False
    with store.building():
        for number, (key, tokens) in enumerate(by_key.items()):
            if key in known or full:
                continue
            yield Working("uncached", "texts", number, len(by_key))
            found = passes.record(tokens)
            embedded = passes.embedded(tokens)
            read = [embedded, *(found.inputs if store.made.by_layer else ())]
            inputs = torch.stack([pooled(states) for states in read])
            full = not store.add(key, found.maps, inputs, budget, by_key)
            new += not full
        if not store.entries:
            raise MapsError(f"no maps fit the budget of {budget:,} bytes. Raise it (--budget).")
        losses: tuple[float, ...] = ()
        if new or not _is_trained(store):
            losses = yield from _train(store, plan or Training())
    return Built(new, len(known), len(by_key) - len(by_key.keys() & store.entries.keys()), losses)


def _is_trained(store: MapStore) -> bool:
    with contextlib.suppress(MapsError):
        return {*store.entries} <= {*Features.open(store).keys}
    return False


def _train(store: MapStore, plan: Training) -> Generator[Working, None, tuple[float, ...]]:
    loaded = {key: found["inputs"].float() for key in sorted(store.entries) if (found := store.load(key))}
    keys, inputs = tuple(loaded), torch.stack([*loaded.values()], 1)
    projector, losses = yield from trained(store, keys, inputs, plan)
    with torch.inference_mode():
        vectors = projector(inputs)
    if not vectors.isfinite().all():
        raise MapsError("The training of the projector gave invalid numbers. Lower its rate.")
    Features(keys, vectors, projector, tuple(losses)).save(store)
    return tuple(losses)
