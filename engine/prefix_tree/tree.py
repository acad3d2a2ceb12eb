"""The prefix tree: what prompts that begin alike have computed, found at run time on token ids.

Nodes are found along a prompt's trail (`engine.prompt.trail`). Whoever reads one holds a lease of it and of
all before it. What nobody reads goes, the least recently used first and what follows before what it follows,
when the memory tier's budget asks for room: both count the same bytes. What is found there was computed in
sight of everything before it, so an answer that reads it is the one that scope `scaffold` gives.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from engine.attention.rope import move_keys
from engine.cache.segment_cache import SegmentCache
from engine.kv_cache.packed_kv_cache import empty_segment
from engine.prefix_tree.disk import DiskChunks, Piece, Stretch
from engine.prefix_tree.lease import Lease
from engine.prefix_tree.nodes import Extent, Node
from engine.prompt.recipe import Identity
from engine.prompt.trail import Chunk, Edge, Placed, Trail, names

FEWEST_ALIKE = 16  # tokens that are read of a chunk that is cut elsewhere; fewer are of the template
READ_OFTEN = 2  # times that a chunk was found, and is worth a file
_FEW = 64  # entries out of date that are not looked for


def alike(node: Node, edges: Sequence[Edge], done: int, past: int = 0) -> tuple[Node, int]:
    """Goes on by tokens behind a node of a trail, for text that is cut into other chunks, such as an answer.

    Args:
        node: the last node that follows the trail.
        edges: all edges of the trail.
        done: how many of them were followed.
        past: how many edges of the node follow it; 0 for all.

    Returns:
        The last node with the same tokens, and how many they are; 0 if they are too few, or if segments are
        placed in the prompt, of which only whole blocks are read.
    """
    if any(isinstance(edge, Placed) and edge.tokens for edge in edges):
        return node, 0
    last, more = node.alike(edges[done:], past)
    return (last, more) if more >= FEWEST_ALIKE else (node, 0)


@dataclass(frozen=True)
class Computed:
    """Keys and values that a sequence has computed.

    Attributes:
        positions: of its tokens, ascending.
        keys: [layers, kv_heads, tokens, head_dim], rotated for those positions.
        values: [layers, kv_heads, tokens, head_dim].
        seconds: what computing one of them took; 0 where that is not known.
    """

    positions: Sequence[int]
    keys: Tensor
    values: Tensor
    seconds: float = 0.0

    def row_of(self, edge: Edge) -> int | None:
        """The row of a chunk's first token, where all of its tokens are there."""
        row = bisect_left(self.positions, edge.start)
        last = row + edge.tokens - 1
        there = last < len(self.positions) and self.positions[row] == edge.start
        return row if there and self.positions[last] == edge.end - 1 else None


@dataclass(frozen=True)
class _Known:
    """How far a trail is known.

    Attributes:
        node: the node that ends there.
        edges: how many edges of the trail lead there.
        name: the name of the last of them, as it was: only the tree's lock keeps nodes from being split.
        passed: how many tokens they have.
    """

    node: Node
    edges: int
    name: str
    passed: int


class PrefixTree:
    """The nodes of one model, within the budget of its memory tier. For any number of threads.

    Args:
        cache: the segments of the model, whose tier it lodges in and whose store it writes to.

    Attributes:
        tier: the memory tier; its lock guards the nodes.
        disk: the chunks in the store.
        root: the node where all trails begin.
    """

    def __init__(self, cache: SegmentCache) -> None:
        self.model, self.tier, self.disk = cache.model, cache.memory_tier, DiskChunks(cache)
        # Exact by construction, so what it keeps is not rounded, whatever the store's scheme.
        self._identity = Identity(self.model.fingerprint, self.model.dtype, self.model.relocatable)
        self.root = Node(None)
        self._bytes = 0
        self._idle: list[tuple[int, int, Node]] = []  # a heap of what may go; an entry may be out of date
        self._most_idle = _FEW
        self._numbers = count()
        self._loose: dict[Extent, None] = {}  # extents at whose end something lies no more
        self._marked: dict[Node, None] = {}  # to be written, with what stands before them
        self._often: dict[Node, None] = {}  # read often
        self.tier.lodge(self)

    @property
    def bytes(self) -> int:
        """Bytes of all keys and values that it keeps, each tensor counted once."""
        return self._bytes

    def acquire(self, trail: Trail, *, limit: int | None = None) -> Lease:
        """Finds the longest part of a trail that is known, in memory and then on disk, and holds it.

        Args:
            trail: the trail of a prompt.
            limit: the position from which on nothing is read; None for the last token's, from which the
                answer's first follows.
        """
        limit = trail.end - 1 if limit is None else limit
        edges = [edge for edge in trail.edges if edge.start < limit]
        with self._held(edges) as known:
            rest = edges[known.edges :]
            pieces = self.disk.read(rest, self._named(known, rest)) if rest else []
            with self.tier.locked():
                node = self._attached(known.node, pieces, kept=True) or known.node
                for one in node.upward():
                    one.reads += 1
                    if one.reads >= READ_OFTEN and not one.kept:
                        self._often[one] = None
                found, done = self.root.follow(edges)
                last, more = alike(node, edges, done) if found is node else (node, 0)
                if not more:
                    self._lock(node)
                    return Lease(self.tier, node, min(limit, trail.legible(node.end)), self._give_back)
                self._lock(last)
                end = (node.end if node.edges else 0) + more
                return Lease(self.tier, last, min(limit, end), self._give_back, node.end)

    def insert(self, trail: Trail, computed: Computed) -> int:
        """Takes in what a sequence has computed of a trail and the tree does not know yet, as copies.

        Args:
            trail: the trail of a prompt, or of a prompt and its answer.
            computed: the sequence's own keys and values; what stands before them in the trail is in the tree,
                or else nothing is taken in.

        Returns:
            How many tokens were taken in.
        """
        lease, taken = self.take_in(trail, computed)
        lease.release()
        return taken

    def take_in(self, trail: Trail, computed: Computed) -> tuple[Lease, int]:
        """Takes in like `insert`, and holds what is known of the trail then, however little room there is.

        Returns:
            The lease, and how many tokens were taken in.
        """
        while True:
            with self._held(trail.edges) as known:
                pieces = self._copied(known, trail.edges[known.edges :], computed)
                with self.tier.locked():
                    none = known.node.gone or not pieces
                    node = known.node if none else self._attached(known.node, pieces)
                    if node is None:
                        continue
                    self._lock(node)
                    taken = (
                        0 if none else sum(edge.tokens for one in pieces if one.extent for edge in one.edges)
                    )
                    return Lease(self.tier, node, trail.end, self._give_back), taken

    def mark(self, trail: Trail) -> int:
        """Has what is known of a trail written with the next `write`; returns up to which position."""
        with self.tier.locked():
            node, _ = self.root.follow(trail.edges)
            if node.edges:
                self._marked[node] = None
            return node.edges[-1].end if node.edges else 0

    def write(self, schema: str, scope: str, *, often: bool = True, along: Trail | None = None) -> int:
        """Has written, behind answers, what was marked, and what was read often.

        Args:
            schema: name of the schema that it was read for, which the list of the store shows.
            scope: what the segments between saw, which that list shows too.
            often: whether what was read often is written without a mark: it is what people wrote in prompts.
            along: of what was read often only what stands on this trail, and no other prompt's; None for all.

        Returns:
            How many chunks are to be written.
        """
        if not self.disk.writable:
            return 0
        with self.tier.locked():
            asked, self._marked = self._marked, {}
            if often:
                asked |= dict.fromkeys(self._taken_often(along))
            # What stands before is looked for first, and a node that was marked may have been split since.
            due = {
                one: None
                for node in asked
                for one in node.upward()
                if not (one.extent is None or one.kept or one.gone)
            }
            stretches = []
            for node in sorted(due, key=lambda node: node.passed):
                assert node.extent is not None
                self._lock(node)
                node.kept = True
                stretches.append(Stretch(node.extent, node.lo, node.edges, node.names))
        try:
            return self.disk.write(stretches, schema, scope)
        finally:
            with self.tier.locked():
                for node in due:
                    self._give_back(node, used=False)

    def write_held(
        self, lease: Lease, end: int, schema: str, scope: str, failed: Callable[[str], None]
    ) -> None:
        """Has what a lease holds written up to a position, as far as the store lacks it.

        Room is set aside for it.

        Args:
            lease: the nodes of a trail.
            end: the position; chunks that reach beyond it are not written.
            schema: as for `write`.
            scope: as for `write`.
            failed: told the name of each chunk that could not be written; from another thread.
        """
        stretches: list[Stretch] = []
        with self.tier.locked():
            for node in lease.nodes():
                count = sum(edge.end <= end for edge in node.edges)
                if node.extent is not None and not node.gone and count:
                    node.kept = node.kept or count == len(node.edges)
                    stretches.append(Stretch(node.extent, node.lo, node.edges[:count], node.names[:count]))
        self.disk.write(stretches, schema, scope, claimed=True, failed=failed)

    def _taken_often(self, along: Trail | None) -> list[Node]:
        """What was read often and is no more to be asked for; while the tier is locked."""
        found = [*self._often]
        if along is not None:
            node, _ = self.root.follow(along.edges)  # which may have split what was read often
            found = [one for one in node.upward() if one.reads >= READ_OFTEN and not one.kept]
        for one in found:
            self._often.pop(one, None)
        return found

    # What the tier asks of its lodger, while it is locked

    def oldest(self) -> int | None:
        """When what would go first was used last, by the tier's clock; None where nothing can go."""
        if any(not extent.read for extent in self._loose):
            return -1
        while self._idle and not (self._idle[0][2].idle and self._idle[0][2].used == self._idle[0][0]):
            heapq.heappop(self._idle)
        return self._idle[0][0] if self._idle else None

    def evict(self) -> None:
        """Lets go of that; of an extent at whose end something lies no more, of that end."""
        if not self._tighten():
            self._remove(heapq.heappop(self._idle)[2])

    def keys(self) -> set[str]:
        """The names of what is found now."""
        return {name for node in self.root.below() if node.extent is not None for name in node.names}

    def sizes(self) -> dict[str, int]:
        """The bytes of what is found now, by name."""
        size = self.model.bytes_per_token
        found = [node for node in self.root.below() if node.extent is not None]
        named = (pair for node in found for pair in zip(node.edges, node.names, strict=True))
        return {name: edge.tokens * size for edge, name in named}

    def drop(self, keys: set[str]) -> None:
        """Forgets chunks and all that follow them, and what follows these segments where they were placed."""
        for node in [*self.root.below()]:
            if node.gone:
                continue
            for at, (edge, name) in enumerate(zip(node.edges, node.names, strict=True)):
                if name in keys or (isinstance(edge, Placed) and edge.key in keys):
                    if at:
                        node.split(at)
                    self._cut(node)
                    break
        while self._tighten():
            pass

    # While the tier is locked

    def _lock(self, node: Node) -> None:
        for one in node.upward():
            one.readers += 1

    def _give_back(self, node: Node, *, used: bool = True) -> None:
        now, forgotten = self.tier.now(), False
        for one in [*node.upward()]:
            one.readers -= 1
            one.used = now if used else one.used
            if one.gone and not one.readers:
                self._free(one)
                forgotten = True
        while forgotten and self._tighten():
            pass
        last = next((one for one in node.upward() if not one.gone), None)
        if last is not None:
            self._offer(last)

    def _offer(self, node: Node) -> None:
        """Lets a node go when room is needed, if it may; a placed segment that leads nowhere goes at once."""
        if not node.idle:
            return
        if node.extent is None:
            self._remove(node)
            return
        heapq.heappush(self._idle, (node.used, next(self._numbers), node))
        if len(self._idle) > self._most_idle:
            valid = {one: entry for entry in self._idle if (one := entry[2]).idle and one.used == entry[0]}
            self._idle = sorted(valid.values())
            self._most_idle = 2 * len(self._idle) + _FEW

    def _remove(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None
        node.detach()
        node.gone = True
        self._free(node)
        self._offer(parent)

    def _cut(self, node: Node) -> None:
        """Has a node and all that follow it found no more."""
        parent = node.parent
        assert parent is not None
        node.detach()
        for one in [*node.below()]:
            one.gone = True
            one.children = {}
            if not one.readers:
                self._free(one)
        self._offer(parent)

    def _free(self, node: Node) -> None:
        self._marked.pop(node, None)
        self._often.pop(node, None)
        extent = node.extent
        node.leave()
        if extent is None:
            return
        if extent.nodes:
            self._loose[extent] = None
        else:
            self._loose.pop(extent, None)
            self._charge(-extent.segment.nbytes)

    def _tighten(self) -> bool:
        """Copies what is left of a tensor that nobody reads, where there is one; says whether there was."""
        for extent in self._loose:
            if not extent.read:
                held, extent.segment = extent.segment, extent.shortened()
                self._charge(extent.segment.nbytes - held.nbytes)
                del self._loose[extent]
                return True
        return False

    def _charge(self, size: int) -> None:
        self._bytes += size
        self.tier.charge(size)

    def _attached(self, node: Node, pieces: Sequence[Piece], *, kept: bool = False) -> Node | None:
        """Adds nodes behind one that is held.

        Returns:
            The last of them, offered to nobody yet; None where there are none, or somebody else has added the
            first meanwhile.
        """
        if not pieces or node.gone or pieces[0].edges[0] in node.children:
            return None
        for piece in pieces:
            child = Node(
                node, piece.edges, piece.names, node.past, piece.extent, used=self.tier.now(), kept=kept
            )
            node.children[piece.edges[0]] = child
            if piece.extent is not None:
                self._charge(piece.extent.segment.nbytes)
            node = child
        self._offer(node)
        return node

    # Unlocked

    @contextmanager
    def _held(self, edges: Sequence[Edge]) -> Iterator[_Known]:
        """Follows a trail, and holds the node where it leaves the tree."""
        with self.tier.locked():
            node, done = self.root.follow(edges)
            self._lock(node)
            known = _Known(node, done, node.name, node.past)
        try:
            yield known
        finally:
            with self.tier.locked():
                self._give_back(node)

    def _named(self, known: _Known, edges: Sequence[Edge]) -> tuple[str, ...]:
        return tuple(names(self._identity, known.name, known.passed, edges))

    @torch.inference_mode()
    def _copied(self, known: _Known, edges: Sequence[Edge], computed: Computed) -> list[Piece]:
        """Copies what was computed of these edges, up to the first of which something was not."""
        found: list[list[Edge]] = []
        for edge in edges:
            if isinstance(edge, Chunk) and computed.row_of(edge) is None:
                break
            last = found[-1][-1] if found else None
            if isinstance(edge, Chunk) and isinstance(last, Chunk) and last.end == edge.start:
                found[-1].append(edge)
            else:
                found.append([edge])
        while found and isinstance(found[-1][0], Placed):
            found.pop()
        named = iter(self._named(known, [edge for run in found for edge in run]))
        return [self._piece(run, tuple(next(named) for _ in run), computed) for run in found]

    def _piece(self, run: Sequence[Edge], named: tuple[str, ...], computed: Computed) -> Piece:
        if isinstance(run[0], Placed):
            return Piece(tuple(run), named)
        ids = tuple(token for edge in run if isinstance(edge, Chunk) for token in edge.token_ids)
        segment = empty_segment(self.model.form, named[0], ids, self.model.network.device)
        row = computed.row_of(run[0])
        assert row is not None
        rows = slice(row, row + len(ids))
        segment.keys.copy_(move_keys(computed.keys[:, :, rows], self.model.rotaries, -run[0].start))
        segment.values.copy_(computed.values[:, :, rows])
        return Piece(tuple(run), named, Extent(segment, run[0].start, seconds=computed.seconds))
