"""Drawn uses of a prefix tree, compared with a model in plain Python, with a recount after every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.base.segment import Segment
from engine.cache.memory import MemoryTier
from engine.prefix_tree.lease import Lease
from engine.prompt.trail import Chunk, Edge, Placed, Trail
from tests.drawing import draws
from tests.engine.batch.trees import (
    CHUNK_BYTES,
    CPU,
    Files,
    computed,
    letters,
    names_of,
    require_right,
    trail_to,
    tree_over,
)

WAYS = ("aabbabMabba", "aabbab3Na-b", "aaMb", "Mab3Na")
WORDS = st.builds(
    lambda way, cut, more, rest: letters(way[:cut] + more, rest),
    st.sampled_from(WAYS),
    st.integers(0, 11),
    st.text("abM", max_size=3),
    st.sampled_from([0, 0, 1, 63]),
)
PLENTY = 1 << 30


@dataclass
class Held:
    """A lease, and which edges it holds that are still found."""

    lease: Lease
    trail: Trail
    edges: tuple[Edge, ...]


class Uses(RuleBasedStateMachine):
    """Insert, look up, acquire, release, split, evict, write, forget, begin anew."""

    @initialize(chunks=st.sampled_from([0, 1, 3, 8, 20, None]))
    def begin(self, chunks: int | None) -> None:
        self.budget = PLENTY if chunks is None else chunks * CHUNK_BYTES
        self.files = Files()
        self.tier = MemoryTier(self.budget, CPU)
        self.tree = tree_over(self.tier, self.files)
        self.held: list[Held] = []
        self.known: set[tuple[Edge, ...]] = set()  # trails whose last chunk was taken in and not forgotten

    def found(self, edges: Sequence[Edge], *, disk: bool = True) -> int:
        """How many edges there are, where nothing was evicted; up to a chunk."""
        best, memory = 0, True
        for at, edge in enumerate(edges, 1):
            if not isinstance(edge, Chunk):
                continue
            memory = memory and tuple(edges[:at]) in self.known
            if not memory and not (disk and names_of(edges[:at])[-1] in self.files.held):
                break
            best = at
        return best

    @rule(trail=WORDS, whole=st.booleans())
    def answer(self, trail: Trail, whole: bool) -> None:
        lease = self.tree.acquire(trail)
        self.tree.insert(trail, computed(trail, 0 if whole else lease.end))
        self.learn(trail, len(trail.edges))
        require_right(lease, trail)
        lease.release()

    @rule(trail=WORDS)
    def insert_without_what_stands_before(self, trail: Trail) -> None:
        if trail.edges:
            before = self.found(trail.edges, disk=False)
            taken = self.tree.insert(trail, computed(trail, trail.edges[-1].start))
            last = before >= len(trail.edges) - 1 or not any(
                isinstance(edge, Chunk) for edge in trail.edges[before:-1]
            )
            assert not taken or last
            if taken:
                self.learn(trail, len(trail.edges))

    @rule(trail=WORDS, back=st.sampled_from([0, 1, 40, 64, 100]))
    def acquire(self, trail: Trail, back: int) -> None:
        limit = None if back == 0 else trail.end - back
        most = [edge for edge in trail.edges if edge.start < (trail.end - 1 if limit is None else limit)]
        sure = max((self.common(most, one.edges) for one in self.held), default=0)
        expected = self.found(most)
        lease = self.tree.acquire(trail, limit=limit)
        edges = tuple(edge for edge in most if edge.start < lease.end)
        chunks = [at for at, edge in enumerate(edges, 1) if isinstance(edge, Chunk)]
        reached = chunks[-1] if chunks else 0
        assert reached <= expected
        assert reached >= self.found(most[:sure])
        if self.budget == PLENTY:
            assert reached == expected
        self.learn(trail, reached)
        self.held.append(Held(lease, trail, edges))

    @staticmethod
    def common(edges: Sequence[Edge], others: Sequence[Edge]) -> int:
        same = 0
        while same < min(len(edges), len(others)) and edges[same] == others[same]:
            same += 1
        return same

    def learn(self, trail: Trail, edges: int) -> None:
        for at in range(1, edges + 1):
            if isinstance(trail.edges[at - 1], Chunk):
                self.known.add(tuple(trail.edges[:at]))

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99), twice=st.booleans())
    def release(self, which: int, twice: bool) -> None:
        one = self.held.pop(which % len(self.held))
        one.lease.release()
        if twice:
            one.lease.release()

    @rule(trail=WORDS)
    def mark(self, trail: Trail) -> None:
        upto = self.tree.mark(trail)
        assert self.tree.write("s", "anchored") >= 0
        lease = self.tree.acquire(trail)
        for at, edge in enumerate(trail.edges, 1):
            if isinstance(edge, Chunk) and edge.end <= upto:
                assert names_of(trail.edges[:at])[-1] in self.files.held
        self.learn(trail, len([edge for edge in trail.edges if edge.start < lease.end]))
        lease.release()

    @rule()
    def write(self) -> None:
        self.tree.write("s", "anchored")

    @rule(trail=WORDS, at=st.integers(0, 9))
    def forget(self, trail: Trail, at: int) -> None:
        """A chunk by its name, or a segment that stands between."""
        if not trail.edges:
            return
        edges = tuple(trail.edges[: at % len(trail.edges) + 1])
        edge = edges[-1]
        key = edge.key if isinstance(edge, Placed) else names_of(edges)[-1]
        self.tier.drop([key])
        self.files.held.pop(key, None)

        def gone(one: Sequence[Edge]) -> int | None:
            if isinstance(edge, Placed):
                placed = [i for i, seen in enumerate(one) if isinstance(seen, Placed) and seen.key == key]
                return placed[0] if placed else None
            return len(edges) - 1 if tuple(one[: len(edges)]) == edges else None

        self.known = {one for one in self.known if gone(one) is None}
        for one in self.held:
            one.edges = one.edges[: gone(one.edges)]

    @rule(size=st.integers(1, 200))
    def hold_a_segment_for_a_while(self, size: int) -> None:
        states = torch.zeros(1, 1, size, 1)
        with self.tier.add(Segment(f"segment {size}", (1,) * size, states, states.clone())):
            self.recount()

    @rule()
    def begin_anew(self) -> None:
        for one in self.held:
            one.lease.release()
        self.held, self.known = [], set()
        self.tier = MemoryTier(self.budget, CPU)
        self.tree = tree_over(self.tier, self.files)

    @invariant()
    def recount(self) -> None:
        if not hasattr(self, "tree"):
            return
        nodes = [node for node in self.tree.root.below() if node is not self.tree.root]
        for node in nodes:
            edges = trail_to(node)
            assert node.parent is not None
            assert node.parent.children[node.edges[0]] is node
            assert list(node.names) == names_of(edges)[-len(node.edges) :]
            assert node.past == sum(edge.tokens for edge in edges)
            assert node.readers == sum(one.edges[: len(edges)] == edges for one in self.held)
            assert not node.gone
            if node.extent is None:
                assert len(node.edges) == 1
                assert isinstance(node.edges[0], Placed)
                assert node.children or node.readers
                continue
            ids = tuple(token for edge in node.edges for token in edge.token_ids)  # type: ignore[union-attr]
            assert node.extent.segment.token_ids[node.lo : node.lo + node.tokens] == ids
            assert node.extent.start + node.lo == node.edges[0].start
            assert node in node.extent.nodes
        for one in self.held:
            require_right(one.lease, one.trail)
        read = {id(p.segment): p.segment for one in self.held for p in one.lease.placements()}
        extents = {node.extent for node in nodes if node.extent is not None}
        whole = {id(one.segment): one.segment for one in extents} | read
        assert self.tree.bytes == sum(one.nbytes for one in whole.values())
        storages = {s.untyped_storage().data_ptr(): s for x in whole.values() for s in (x.keys, x.values)}
        assert self.tree.bytes == sum(s.untyped_storage().nbytes() for s in storages.values()) or not whole
        others = self.tier.bytes - self.tree.bytes
        kept = sum(one.nbytes for one in read.values())
        found = self.tier.keys()
        segments = sum(8 * int(key.split()[1]) for key in found if key.startswith("segment "))
        assert others == segments
        assert self.tier.bytes <= max(self.budget, kept + segments)

    def teardown(self) -> None:
        if not hasattr(self, "tree"):
            return
        for one in self.held:
            one.lease.release()
        self.held = []
        self.recount()
        self.tier.budget = 0
        self.tier.drop([])
        assert (self.tier.bytes, self.tree.bytes) == (0, 0)
        assert [*self.tree.root.below()] == [self.tree.root]


TestUses = Uses.TestCase
TestUses.settings = settings(max_examples=draws(60), stateful_step_count=40)
