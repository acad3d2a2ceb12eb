"""Predicts which tokens of a prompt the cache holds and which must be computed, without computing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.base.tiers import Outcome, Tier
from engine.cache.fetched import Request
from engine.cache.segment_cache import SegmentCache, wanted
from engine.inference.submission import Submission
from engine.prefix_tree.nodes import Node
from engine.prefix_tree.tree import PrefixTree, alike
from engine.prompt.pieces import Piece
from engine.prompt.recipe import Identity
from engine.prompt.trail import Chunk, Edge, Placed, Trail, names

PLAIN = "new text"
"""The reason for computing new text: no earlier prompt begins with the same tokens up to here."""


@dataclass(frozen=True)
class Part:
    """Consecutive tokens of a prompt from one source.

    Attributes:
        kind: "anonymous" or "module" text of a schema, an "argument", or new "text".
        path: the module path, "module:parameter" for an argument, or "".
        start: position of the first token.
        tokens: number of tokens.
        tier: the tier to read from; "none" if they must be computed.
        outcome: hit or miss.
        reason: why it is a miss; "" for a hit.
    """

    kind: str
    path: str
    start: int
    tokens: int
    tier: Tier
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Outlook:
    """The parts of a prompt, by position."""

    parts: tuple[Part, ...]

    @property
    def total(self) -> int:
        """Tokens of the prompt."""
        return sum(part.tokens for part in self.parts)

    @property
    def read(self) -> int:
        """Tokens that the cache holds."""
        return sum(part.tokens for part in self.parts if part.outcome == Outcome.HIT)

    def to_json(self) -> dict[str, Any]:
        """Returns counts and parts."""
        computed = self.total - self.read
        parts = [asdict(part) for part in self.parts]
        return {"total": self.total, "read": self.read, "computed": computed, "parts": parts}


def outlook(cache: SegmentCache, tree: PrefixTree | None, submission: Submission) -> Outlook:
    """Looks up each part of a prompt, with a tree of computed prefixes if the engine has one.

    The segments are not locked, so they can be evicted at any time.
    """
    planned, settings = submission.planned, submission.settings
    tier_of = cache.tiers(wanted(planned.slices))
    request = Request(submission.prompt.schema.label, settings.scope, store_turns=settings.store_conversation)
    in_memory = on_disk = 0
    if tree is not None and settings.repair == "none" and submission.planned.scope is not None:
        salt = submission.prompt.schema.spec.identity.salt_digest
        in_memory, on_disk = _known(cache, tree, Trail.of_plan(planned.plan, planned.slices, salt=salt))
    parts: list[Part] = []
    for piece, used in zip(planned.plan.pieces, planned.slices, strict=True):
        if used is None:
            bounds = ((Tier.MEMORY, in_memory), (Tier.DISK, on_disk), (Tier.NONE, planned.plan.end))
            parts.extend(_cut(piece, bounds))
            continue
        tier = tier_of(used.recipe)
        cached = tier != Tier.NONE
        reason = "" if cached else str(cache.reason(used.recipe, request))
        outcome = Outcome.HIT if cached else Outcome.MISS
        parts.append(Part(piece.kind, piece.path, piece.start, piece.tokens, tier, outcome, reason))
    return Outlook(tuple(parts))


def _cut(piece: Piece, bounds: Sequence[tuple[Tier, int]]) -> Iterator[Part]:
    """Splits text at the ends of its prefixes in memory and on disk."""
    kind, path, start, end = piece.kind, piece.path, piece.start, piece.start + piece.tokens
    for tier, bound in bounds:
        upto = min(max(bound, start), end)
        if upto > start:
            if tier == Tier.NONE:
                yield Part(kind, path, start, upto - start, tier, Outcome.MISS, piece.why or PLAIN)
            else:
                yield Part(kind, path, start, upto - start, tier, Outcome.HIT)
        start = upto


def _known(cache: SegmentCache, tree: PrefixTree, trail: Trail) -> tuple[int, int]:
    """The ends of a trail's prefixes in memory and on disk, as `PrefixTree.acquire` finds them."""
    limit = trail.end - 1
    edges = [edge for edge in trail.edges if edge.start < limit]
    with tree.tier.locked():
        done, name, node, past = _followed(tree, edges)
        more = alike(node, edges, done, past)[1]
    reached = edges[done - 1].end if done else 0
    rest = edges[done:]
    model = cache.model
    identity = Identity(model.fingerprint, model.dtype, model.relocatable)
    passed = sum(edge.tokens for edge in edges[:done])
    named = [*zip(rest, names(identity, name, passed, rest), strict=True)]
    chunks = [name for edge, name in named if isinstance(edge, Chunk)]
    stored = cache.store.contains(chunks[:1]) and cache.store.contains(chunks)
    whole = reached
    for edge, name in named:
        if isinstance(edge, Placed):
            continue
        if name not in stored:
            break
        whole = edge.end
    if more and whole == reached:
        return (min(limit, reached + more),) * 2
    read = min(limit, trail.legible(whole))
    return min(reached, read), read


def _followed(tree: PrefixTree, edges: Sequence[Edge]) -> tuple[int, str, Node, int]:
    """The number of edges in the tree, the name and node of the last, and how many edges of it if not all.

    For a locked tier. Splits no node.
    """
    node, done = tree.root, 0
    while done < len(edges) and (child := node.children.get(edges[done])) is not None:
        same = 0
        while same < len(child.edges) and done + same < len(edges):
            if child.edges[same] != edges[done + same]:
                break
            same += 1
        done += same
        if same < len(child.edges):
            return done, child.names[same - 1], child, same
        node = child
    return done, node.name, node, 0
