"""Chunks of the prefix tree as files: an ordinary segment each, found by its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from engine.attention.rope import move_keys
from engine.base.errors import StoreError
from engine.base.segment import Segment
from engine.base.tiers import Outcome, Tier
from engine.cache.segment_cache import SegmentCache
from engine.kv_cache.packed_kv_cache import empty_segment
from engine.prefix_tree.nodes import Extent
from engine.prompt.recipe import TURN
from engine.prompt.trail import Chunk, Edge, Placed
from engine.store import Lookup, Origin
from engine.store.disk_space import Claim, file_bytes


@dataclass(frozen=True)
class Piece:
    """What a node is made of.

    Attributes:
        edges: chunks that lie side by side, or one placed segment.
        names: the name of each.
        extent: where the chunks lie; None of a placed segment.
    """

    edges: tuple[Edge, ...]
    names: tuple[str, ...]
    extent: Extent | None = None


@dataclass(frozen=True)
class Stretch:
    """Chunks of one node, as they lie in its extent from `lo` on."""

    extent: Extent
    lo: int
    edges: tuple[Edge, ...]
    names: tuple[str, ...]


class DiskChunks:
    """Reads chunks from a store, and has them written.

    Args:
        cache: the segments of a model, and their store.

    Attributes:
        unsaved: what could not be written, until an answer tells it.
    """

    def __init__(self, cache: SegmentCache) -> None:
        self.model, self.store, self._cache = cache.model, cache.store, cache
        self.unsaved = cache.untold

    @torch.inference_mode()
    def read(self, edges: Sequence[Edge], names: Sequence[str]) -> list[Piece]:
        """Reads the chunks that a trail goes on with, up to the first that is not there.

        Args:
            edges: the rest of a trail.
            names: the name of each.

        Returns:
            The pieces that were found, with the placed segments between them.
        """
        first = next((name for edge, name in zip(edges, names, strict=True) if isinstance(edge, Chunk)), None)
        if first is None or not self.store.contains([first]):
            return []
        pieces: list[Piece] = []
        found: list[tuple[Chunk, Segment]] = []
        served: list[Lookup] = []
        for edge, name in zip(edges, names, strict=True):
            if found and (isinstance(edge, Placed) or edge.start != found[-1][0].end):
                pieces.append(self._piece(found))
                found = []
            if isinstance(edge, Placed):
                pieces.append(Piece((edge,), (name,)))
                continue
            started = time.perf_counter()
            segment = self.store.load(name, edge.token_ids, self.model.form)
            if segment is None:
                break
            ms = (time.perf_counter() - started) * 1000
            served.append(Lookup(name, Tier.DISK, Outcome.HIT, "", segment.nbytes, ms))
            found.append((edge, segment))
        if found:
            pieces.append(self._piece(found))
        while pieces and pieces[-1].extent is None:
            pieces.pop()
        self._cache.note(served)
        return pieces

    @property
    def writable(self) -> bool:
        """Whether anything is to be written at all."""
        return self._cache.writable

    def claim(self, chunks: Iterable[Chunk], known: Mapping[str, int], beside: Iterable[str]) -> Claim:
        """Sets room aside for chunks that are to be written, and to stay: for what the store lacks of them.

        Args:
            chunks: the chunks.
            known: the position behind each of those that may be there, by name.
            beside: names of segments that are there or are about to be, and do not go for them.

        Raises:
            StoreError: there is none, or nobody can know.
        """
        form, dtype = self.model.form, str(self.model.form.dtype).removeprefix("torch.")
        there = known.keys() - self.store.lacks(known)
        ends = {known[name] for name in there}
        size = sum(
            file_bytes("plain", (form.layers, form.heads, one.tokens, form.size), dtype)
            for one in chunks
            if one.end not in ends
        )
        return self.store.room.claim(size, {*there, *beside})

    def write(
        self,
        stretches: Sequence[Stretch],
        schema: str,
        scope: str,
        *,
        claimed: bool = False,
        failed: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Has chunks written behind answers; waits only where much is unwritten.

        Args:
            stretches: the chunks, each behind what it follows, and held.
            schema: name of the schema that they were read for, which the list of the store shows.
            scope: what the segments between them saw, which that list shows too.
            claimed: whether room is set aside for them; else those are left out for which there is none.
            failed: told the name of each that could not be written; from another thread.

        Returns:
            How many are to be written.
        """
        origin = Origin(schema, TURN, scope, self.model.name, self.model.fingerprint)
        beside = None if claimed else {name for one in stretches for name in one.names}
        written = 0
        for one in stretches:
            lacking, lo = self.store.lacks(one.names), one.lo
            for edge, name in zip(one.edges, one.names, strict=True):
                if name in lacking:
                    segment = self._segment(one.extent, lo, edge, name)
                    seconds = one.extent.seconds * edge.tokens
                    ended = partial(self._ended, name, failed)
                    self.store.save_behind(segment, origin, seconds=seconds, beside=beside, ended=ended)
                    written += 1
                lo += edge.tokens
        return written

    def _ended(self, name: str, failed: Callable[[str], None], error: StoreError | None) -> None:
        if error is not None:
            failed(name)
            self.unsaved.add(error)

    @torch.inference_mode()
    def _segment(self, extent: Extent, lo: int, edge: Edge, name: str) -> Segment:
        """A chunk by itself: keys as at its own beginning."""
        assert isinstance(edge, Chunk)
        held, hi = extent.segment, lo + edge.tokens
        keys = move_keys(held.keys[:, :, lo:hi], self.model.rotaries, -lo)
        return Segment(name, edge.token_ids, keys, held.values[:, :, lo:hi])

    def _piece(self, found: Sequence[tuple[Chunk, Segment]]) -> Piece:
        """Chunks that follow each other, copied into one extent."""
        ids = tuple(token for chunk, _ in found for token in chunk.token_ids)
        names = tuple(segment.key for _, segment in found)
        took = self.store.seconds(names)
        each = sum(took.values()) / len(ids) if len(took) == len(names) else 0.0
        whole = empty_segment(self.model.form, names[0], ids, self.model.network.device)
        at = 0
        for chunk, segment in found:
            end = at + chunk.tokens
            device = whole.keys.device
            keys = move_keys(segment.keys.to(device), self.model.rotaries, at)
            whole.keys[:, :, at:end] = keys
            whole.values[:, :, at:end] = segment.values.to(device)
            at = end
        return Piece(
            tuple(chunk for chunk, _ in found), names, Extent(whole, found[0][0].start, seconds=each)
        )
