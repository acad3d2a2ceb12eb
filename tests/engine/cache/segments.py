"""Segments of drawn numbers, for tests of the store that need no model."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.speed.kills import context
from engine.base.segment import Segment
from engine.store import Origin

ORIGIN = Origin("travel", "trip/tokyo", "anchored", "tiny", "f")

LOADED = ("tests.engine.cases",)
"""What the server of processes loads once, besides the engine, for all processes that tests start."""


def in_processes(work: Callable[..., None], *given: tuple[object, ...]) -> None:
    """Runs `work` with each tuple in a process of its own, all at once; each must end without an error."""
    workers = [context(*LOADED).Process(target=work, args=one) for one in given]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * len(workers)


def segment(key: str = "k", tokens: int = 5, seed: int = 0) -> Segment:
    """A segment of two layers, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, 3, 2, tokens, 8, generator=generator)
    return Segment(key, tuple(range(tokens)), keys.contiguous(), values.contiguous())
