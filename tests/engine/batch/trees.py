"""A prefix tree without a network: keys and values that say which trail they stand behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from engine.base.segment import Form, Segment
from engine.cache.fetched import Unsaved
from engine.cache.memory import MemoryTier
from engine.cache.segment_cache import SegmentCache
from engine.prefix_tree.lease import Lease
from engine.prefix_tree.nodes import Node
from engine.prefix_tree.tree import Computed, PrefixTree
from engine.prompt.recipe import Identity
from engine.prompt.trail import CHUNK, Chunk, Edge, Placed, Trail, names
from engine.store import Origin

CPU = torch.device("cpu")
FORM = Form(1, 1, 1, torch.float32)
IDENTITY = Identity("f", "fp32", relocatable=True)
CHUNK_BYTES = CHUNK * FORM.bytes_per_token


class Files:
    """What a tree asks of a store, without a disk."""

    def __init__(self) -> None:
        self.settings, self.read_only = SimpleNamespace(budget=1), ""
        self.held: dict[str, Segment] = {}
        self.origins: list[Origin] = []

    def contains(self, keys: Iterable[str]) -> set[str]:
        return set(keys) & set(self.held)

    def lacks(self, keys: Iterable[str]) -> set[str]:
        return set(keys) - set(self.held)

    def seconds(self, keys: Iterable[str]) -> dict[str, float]:
        assert set(keys) <= set(self.held)
        return {}

    def load(self, key: str, token_ids: Sequence[int], form: Form) -> Segment | None:
        found = self.held.get(key)
        assert found is None or found.token_ids == token_ids
        assert form == FORM
        return found

    def save_behind(
        self,
        segment: Segment,
        origin: Origin,
        *,
        seconds: float,
        beside: Collection[str] | None,
        ended: Callable[[None], None],
    ) -> None:
        assert segment.key not in self.held, "it was written before"
        assert seconds >= 0
        copied = Segment(segment.key, segment.token_ids, segment.keys.clone(), segment.values.clone())
        self.held[segment.key] = copied
        self.origins.append(origin)
        ended(None)


class Cache(SimpleNamespace):
    """What a tree asks of a segment cache, with its own rule for what may be written."""

    writable = SegmentCache.writable


def tree_over(tier: MemoryTier, files: Files) -> PrefixTree:
    """A tree of one number per token."""
    network = SimpleNamespace(device=CPU)
    model: Any = SimpleNamespace(
        fingerprint="f",
        dtype="fp32",
        relocatable=True,
        name="m",
        form=FORM,
        network=network,
        rotaries=(None,),
    )
    cache: Any = Cache(model=model, memory_tier=tier, store=files, note=lambda served: None, untold=Unsaved())
    return PrefixTree(cache)


def contents(edges: Sequence[Edge]) -> Tensor:
    """What stands at the last of these edges, one number per token, which knows all edges before it."""
    digest = names_of(edges)[-1]
    return torch.arange(edges[-1].tokens) + float(crc32(digest.encode()) % (1 << 22))


def names_of(edges: Sequence[Edge]) -> list[str]:
    return list(names(IDENTITY, "", 0, edges))


def computed(trail: Trail, first: int = 0) -> Computed:
    """What a sequence has computed of a trail from a position on; a new copy each time."""
    positions: list[int] = []
    found = [torch.zeros(0)]
    for at, edge in enumerate(trail.edges):
        if isinstance(edge, Chunk) and edge.start >= first:
            positions.extend(range(edge.start, edge.end))
            found.append(contents(trail.edges[: at + 1]))
    whole = torch.cat(found)[None, None, :, None]
    return Computed(positions, whole.clone(), whole + 0.5, seconds=1e-6)


def require_right(lease: Lease, trail: Trail) -> None:
    """What is read is what stands there, from the beginning to the lease's end, and nothing of modules."""
    expected, places = [torch.zeros(0)], list[int]()
    for at, edge in enumerate(trail.edges):
        if isinstance(edge, Chunk) and edge.start < lease.end:
            tokens = min(edge.end, lease.end) - edge.start
            expected.append(contents(trail.edges[: at + 1])[:tokens])
            places.extend(range(edge.start, edge.start + tokens))
    placements = lease.placements()
    assert [one.start + i for one in placements for i in range(one.tokens)] == places
    assert lease.tokens == len(places)
    read = [one.segment.keys[0, 0, one.lo : one.hi, 0] for one in placements]
    assert torch.equal(torch.cat([torch.zeros(0), *read]), torch.cat(expected))
    values = [one.segment.values[0, 0, one.lo : one.hi, 0] for one in placements]
    assert torch.equal(torch.cat([torch.zeros(0), *values]), torch.cat(expected) + 0.5)


def trail_to(node: Node) -> tuple[Edge, ...]:
    """All edges that lead to the end of a node."""
    return tuple(edge for one in reversed([*node.upward()]) for edge in one.edges)


def letters(word: str, rest: int = 0) -> Trail:
    """A trail that a word spells, and some tokens behind it.

    A small letter is a chunk, a capital one a placed segment of five tokens, a digit that many tokens of
    text, and a dash a gap.
    """
    runs: list[Edge] = []
    at = 0
    for letter in word:
        if letter == "-":
            at += 3
            continue
        if letter.isdigit():
            runs.append(Chunk(at, (int(letter),) * int(letter)))
        elif letter.isupper():
            runs.append(Placed(at, letter, 0, 5))
        else:
            runs.append(Chunk(at, tuple(range(ord(letter), ord(letter) + CHUNK))))
        at = runs[-1].end
    if rest:
        runs.append(Chunk(at, (0,) * rest))
    return Trail.of_runs(runs)
