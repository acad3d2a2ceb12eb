"""What an answer reads of the prefix tree: held until it is read no more."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from engine.attention.rope import Rotaries, move_keys
from engine.base.releasable import Releasable
from engine.base.segment import Placement
from engine.cache.memory import MemoryTier
from engine.inference.prefill import Prefill
from engine.prefix_tree.nodes import Node


class Lease(Releasable):
    """The nodes of a trail, which stay until this is released. Made by `PrefixTree.acquire`.

    Args:
        tier: the memory tier, whose lock guards the nodes.
        node: the last one.
        limit: the position up to which they are read.
        exact: the position up to which they are nodes of the trail; behind it they have the same tokens, cut
            into other chunks. None if all are.
        give_back: takes the node back; called while the tier is locked.

    Attributes:
        end: the position behind the last token that is found.
    """

    def __init__(
        self,
        tier: MemoryTier,
        node: Node,
        limit: int,
        give_back: Callable[[Node], None],
        exact: int | None = None,
    ) -> None:
        self._tier, self._back = tier, give_back
        self._node: Node | None = node
        self.end = min(limit, node.end) if node.edges else 0
        self._whole = exact is None
        self.exact = self.end if exact is None else min(exact, self.end)

    @property
    def tokens(self) -> int:
        """How many tokens are read of the tree; those of placed segments are not among them."""
        return sum(placement.tokens for placement in self.placements())

    def nodes(self) -> list[Node]:
        """The nodes, by position; while the tier is locked."""
        assert self._node is not None, "the lease was released"
        return [*self._node.upward()][::-1]

    def chunks(self) -> dict[str, int]:
        """The position behind each chunk of the trail, by its name."""
        with self._tier.locked():
            nodes = [node for node in self.nodes() if node.extent is not None and not node.gone]
            return {
                name: edge.end
                for node in nodes
                for name, edge in zip(node.names, node.edges, strict=True)
                if self._whole or edge.end <= self.exact
            }

    def seconds(self) -> float | None:
        """What computing had taken of what is read of the tree; None where that is not known of all of it."""
        found = 0.0
        with self._tier.locked():
            for node in self.nodes():
                if node.extent is None or (tokens := min(node.end, self.end) - node.edges[0].start) <= 0:
                    continue
                if not node.extent.seconds:
                    return None
                found += tokens * node.extent.seconds
        return found

    def placements(self) -> tuple[Placement, ...]:
        """Where the chunks that were found stand, by position; one for what lies side by side in a tensor."""
        with self._tier.locked():
            return tuple(self._placements())

    def _placements(self) -> list[Placement]:
        found: list[Placement] = []
        for node in self.nodes():
            one = node.placement()
            if one is None or one.start >= self.end:
                continue
            hi = min(one.hi, one.lo + self.end - one.start)
            one = Placement(one.segment, one.lo, hi, one.start)
            last = found[-1] if found else None
            beside = last is not None and last.segment is one.segment
            if last is not None and beside and (last.hi, last.shift) == (one.lo, one.shift):
                found[-1] = Placement(last.segment, last.lo, one.hi, last.start)
            else:
                found.append(one)
        return found

    def borrowed(self, rotaries: Rotaries) -> tuple[list[int], Tensor, Tensor] | None:
        """Copies what is read behind `exact`, which the trail's own chunks lack; None if nothing is.

        Returns:
            Positions, and keys and values there, each [layers, kv_heads, tokens, head_dim].
        """
        parts = [
            (start, one, max(one.lo, one.lo + self.exact - one.start))
            for one in self.placements()
            if (start := max(one.start, self.exact)) < self.end and one.start + one.hi - one.lo > self.exact
        ]
        if not parts or self.exact == self.end:
            return None
        positions = [at for start, one, lo in parts for at in range(start, start + one.hi - lo)]
        keys = [move_keys(one.segment.keys[:, :, lo : one.hi], rotaries, one.shift) for _, one, lo in parts]
        values = [one.segment.values[:, :, lo : one.hi] for _, one, lo in parts]
        return positions, torch.cat(keys, 2), torch.cat(values, 2)

    def release(self) -> None:
        """Lets go of the nodes; a second time does nothing. May be called by the collector, at any point."""
        node, self._node = self._node, None
        if node is not None:
            give_back = self._back
            self._tier.later(lambda: give_back(node))

    def without(self, prefill: Prefill) -> Prefill:
        """What is computed and read before the first token, when what was found is read as well."""
        rest = bisect_left(prefill.positions, self.end)  # what is found reaches up to there without a gap
        return replace(
            prefill,
            placements=sorted([*prefill.placements, *self.placements()], key=lambda one: one.start),
            token_ids=prefill.token_ids[rest:],
            positions=prefill.positions[rest:],
        )
