"""Nodes of the prefix tree: runs of edges, and the memory that their keys and values lie in.

A node is a run of chunks that lie side by side in one piece of memory, or one placed segment, which lies in
no memory of the tree's. Where trails part within a node it is split between two chunks; both halves go on
lying where they lay. The tree's lock guards all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from engine.base.segment import Placement, Segment
from engine.prompt.trail import Chunk, Edge, Placed


@dataclass(eq=False)
class Extent:
    """Keys and values of chunks that were computed one behind the other: one tensor of each.

    Attributes:
        segment: the keys and values; named by its first chunk.
        start: the position of its first token.
        nodes: those that lie in it, each a stretch of the same trail; what lies there no more was at its end.
        seconds: what computing a token took; 0 where that is not known.
    """

    segment: Segment
    start: int
    nodes: set[Node] = field(default_factory=set)
    seconds: float = 0.0

    @property
    def lived_in(self) -> int:
        """Up to which token there are nodes."""
        return max((node.lo + node.tokens for node in self.nodes), default=0)

    @property
    def read(self) -> bool:
        """Whether somebody reads of it."""
        return any(node.readers for node in self.nodes)

    def shortened(self) -> Segment:
        """A copy of what is lived in."""
        end = self.lived_in
        held = self.segment
        keys, values = held.keys[:, :, :end].clone(), held.values[:, :, :end].clone()
        return Segment(held.key, held.token_ids[:end], keys, values)


@dataclass(eq=False)
class Node:
    """A run of chunks in one extent, or one placed segment.

    Attributes:
        parent: the node that it follows; None of the root.
        edges: the chunks, or the placed segment; none of the root.
        names: the name of each.
        passed: how many tokens of the trail stand before it.
        extent: where its keys and values lie; None of the root, of a placed segment, and once it is gone.
        lo: the place of its first token in the extent.
        children: what follows, by the first edge.
        readers: how many leases go through it or end here.
        reads: how often it was found.
        used: when that was last, by the tier's clock.
        kept: whether it is on the disk, or is to be.
        gone: whether it is found no more, and stays for its readers only.
    """

    parent: Node | None
    edges: tuple[Edge, ...] = ()
    names: tuple[str, ...] = ()
    passed: int = 0
    extent: Extent | None = None
    lo: int = 0
    children: dict[Edge, Node] = field(default_factory=dict)
    readers: int = 0
    reads: int = 0
    used: int = 0
    kept: bool = False
    gone: bool = False

    def __post_init__(self) -> None:
        if self.extent is not None:
            self.extent.nodes.add(self)

    @property
    def tokens(self) -> int:
        """How many tokens it has."""
        return sum(edge.tokens for edge in self.edges)

    @property
    def name(self) -> str:
        """The name of its last edge, "" of the root."""
        return self.names[-1] if self.names else ""

    @property
    def end(self) -> int:
        """The position behind its last token; 0 of the root."""
        return self.edges[-1].end if self.edges else 0

    @property
    def past(self) -> int:
        """How many tokens of the trail stand before what follows it."""
        return self.passed + self.tokens

    @property
    def idle(self) -> bool:
        """Whether it may go: nobody reads it, and nothing follows it."""
        return self.parent is not None and not (self.gone or self.readers or self.children)

    def upward(self) -> Iterator[Node]:
        """Itself and all before it but the root, the last first."""
        node: Node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def below(self) -> Iterator[Node]:
        """Itself and all that follow it."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def follow(self, edges: Sequence[Edge]) -> tuple[Node, int]:
        """Goes along a trail as far as there are nodes, and splits the last one where the trail leaves it.

        Args:
            edges: the edges behind this node.

        Returns:
            The node that ends where the trail leaves the tree, and how many of the edges were followed.
        """
        node, done = self, 0
        while done < len(edges) and (child := node.children.get(edges[done])) is not None:
            pairs = zip(child.edges, islice(edges, done, None), strict=False)
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            done += same
            if same < len(child.edges):
                return child.split(same), done
            node = child
        return node, done

    def alike(self, edges: Sequence[Edge], past: int = 0) -> tuple[Node, int]:
        """Goes on by tokens where `follow` ends, as chunks may be cut at other places.

        Args:
            edges: the edges behind this node, or behind the first `past` of its own edges.
            past: how many of its own edges were followed; 0 for all of them.

        Returns:
            The last node with equal tokens, and the number of equal tokens behind this one.
        """
        wanted = [*_text(edges)]
        node, done = self, 0
        branches = (
            [(self, self.edges[past:])] if past else [(one, one.edges) for one in self.children.values()]
        )
        at = edges[0].start if edges else 0
        while done < len(wanted):
            best = max(
                ((_same(branch, wanted, done, at), place) for place, (_, branch) in enumerate(branches)),
                default=(0, 0),
            )
            if not best[0]:
                break
            node, followed = branches[best[1]]
            done += best[0]
            if best[0] < sum(edge.tokens for edge in followed):
                break
            branches = [(one, one.edges) for one in node.children.values()]
        return node, done

    def split(self, at: int) -> Node:
        """Cuts it in two; it becomes the second part, so whoever reads up to its end still does.

        Args:
            at: how many edges the first part takes; some but not all.

        Returns:
            The first part.
        """
        assert self.parent is not None
        assert 0 < at < len(self.edges)
        first = Node(
            self.parent,
            self.edges[:at],
            self.names[:at],
            self.passed,
            self.extent,
            self.lo,
            {self.edges[at]: self},
            self.readers,
            self.reads,
            self.used,
            self.kept,
            self.gone,
        )
        if not self.gone:
            self.parent.children[self.edges[0]] = first
        self.parent, self.edges, self.names = first, self.edges[at:], self.names[at:]
        self.passed, self.lo = first.past, self.lo + first.tokens
        return first

    def detach(self) -> None:
        """Takes it out of its parent's children."""
        if self.parent is not None and self.parent.children.get(self.edges[0]) is self:
            del self.parent.children[self.edges[0]]

    def leave(self) -> None:
        """Gives up its place in its extent."""
        if self.extent is not None:
            self.extent.nodes.discard(self)
            self.extent = None

    def placement(self) -> Placement | None:
        """Where its chunks stand in a prompt; None of a placed segment and of the root."""
        if self.extent is None or isinstance(self.edges[0], Placed):
            return None
        return Placement(self.extent.segment, self.lo, self.lo + self.tokens, self.edges[0].start)


def _text(edges: Sequence[Edge]) -> Iterator[int]:
    """The tokens of the text with which edges begin."""
    end = edges[0].start if edges else 0
    for edge in edges:
        if isinstance(edge, Placed) or edge.start != end:
            return
        yield from edge.token_ids
        end = edge.end


def _same(edges: Sequence[Edge], wanted: Sequence[int], done: int, start: int) -> int:
    """How many tokens at the beginning of edges are those wanted from `done` on, at the same positions."""
    count = 0
    for edge in edges:
        if not isinstance(edge, Chunk) or edge.start != start + done + count:
            break
        pairs = zip(edge.token_ids, islice(wanted, done + count, None), strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        count += same
        if same < edge.tokens:
            break
    return count
