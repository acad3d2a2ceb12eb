"""The trail of a prompt through its tokens: chunks of plain text, and placed segments.

Prompts that begin alike go the same way for as long as they do. An edge of plain text is a chunk of `CHUNK`
tokens, or of fewer where a segment or a gap follows, or where a block of a conversation ends; what is left at
a prompt's end is no edge. Plain is what a prompt computes: its new text, its arguments, the answer. It is
computed in sight of everything before it, as under the scope `scaffold`, so the keys and values of a chunk
are those of a segment whose context is all of the trail before it. A chunk is named like one, but its context
is one entry, the name of the edge before: so each token is hashed once, and two chunks have one name exactly
when they have the same tokens behind the same trail.

Pure integers and digests: no tensors, no files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from engine.prompt.pieces import PromptPlan
from engine.prompt.recipe import Identity, RecipeSlice, segment_key

CHUNK = 64  # tokens


class Chunk(NamedTuple):
    """Plain text: at most `CHUNK` tokens, from position `start` on."""

    start: int
    token_ids: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """How many tokens it has."""
        return len(self.token_ids)

    @property
    def end(self) -> int:
        """The position behind its last token."""
        return self.start + len(self.token_ids)


class Placed(NamedTuple):
    """Tokens `lo..hi` of a segment, from position `start` on."""

    start: int
    key: str
    lo: int
    hi: int

    @property
    def tokens(self) -> int:
        """How many tokens it places."""
        return self.hi - self.lo

    @property
    def end(self) -> int:
        """The position behind its last token."""
        return self.start + self.hi - self.lo


Edge = Chunk | Placed


@dataclass(frozen=True)
class Trail:
    """The edges of one prompt, by position.

    Attributes:
        edges: its chunks and placed segments; the last one is a chunk.
        end: the position behind the prompt's last token.
        borders: of a conversation, positions at which its blocks end.
    """

    edges: tuple[Edge, ...]
    end: int
    borders: frozenset[int] = frozenset()

    @classmethod
    def of_runs(
        cls, runs: Iterable[Chunk | Placed], end: int | None = None, borders: Iterable[int] = ()
    ) -> Trail:
        """Cuts a prompt into edges.

        Args:
            runs: plain text of any length, and placed segments, by position; those without tokens count for
                nothing, and texts side by side are one.
            end: the position behind the last token; None for the end of the last run.
            borders: positions at which a chunk ends, if text stands there.
        """
        cuts = sorted(set(borders))
        edges: list[Edge] = []
        start, reached, plain = 0, 0, list[int]()
        for run in runs:
            if run.tokens <= 0:
                continue
            assert run.start >= reached, "runs stand by position"
            if plain and (isinstance(run, Placed) or run.start != reached):
                edges.extend(_chunks(start, plain, cuts))
                plain = []
            if isinstance(run, Placed):
                edges.append(run)
            else:
                start = start if plain else run.start
                plain.extend(run.token_ids)
            reached = run.end
        last = [*_chunks(start, plain, cuts)]
        if last and last[-1].tokens < CHUNK and last[-1].end not in cuts:
            last.pop()
        edges.extend(last)
        while edges and isinstance(edges[-1], Placed):
            edges.pop()
        return cls(tuple(edges), reached if end is None else end, frozenset(cuts))

    @classmethod
    def of_plan(
        cls,
        plan: PromptPlan,
        slices: Sequence[RecipeSlice | None] = (),
        answer: Sequence[int] = (),
        *,
        repaired: int | None = None,
        closed: bool = False,
        salt: str = "",
    ) -> Trail:
        """The edges of a planned prompt, and of its answer.

        Args:
            plan: the plan of the prompt.
            slices: what each of its pieces reads, None where it is computed; empty where all are computed.
            answer: the tokens that were computed behind the prompt.
            repaired: the position of the first cached token that is computed again, where there is one: what
                stands behind it is not in sight of the segments as they are.
            closed: a chunk ends where the answer does, as for the next request it is a block.
            salt: stands at the beginning as an edge without tokens, so that another salt goes another way.
        """
        runs: list[Chunk | Placed] = []
        for piece, used in zip(plan.pieces, slices or [None] * len(plan.pieces), strict=True):
            if repaired is not None and piece.start + piece.tokens > repaired:
                break
            if used is None:
                runs.append(Chunk(piece.start, piece.token_ids))
            else:
                runs.append(Placed(used.start, used.recipe.key, used.lo, used.hi))
        else:
            runs.append(Chunk(plan.end, tuple(answer)))
        end = plan.end + len(answer)
        found = cls.of_runs(runs, end, (*plan.borders, end) if closed else plan.borders)
        return replace(found, edges=(Placed(0, salt, 0, 0), *found.edges)) if salt and found.edges else found

    def up_to(self, position: int) -> Trail:
        """The edges that end at a position or before it."""
        edges = list(self.edges)
        while edges and (edges[-1].end > position or isinstance(edges[-1], Placed)):
            edges.pop()
        return Trail(tuple(edges), min(self.end, position), self.borders)

    def legible(self, position: int) -> int:
        """Up to where a part of the trail is read that reaches up to a position.

        What stands before a named block, such as the opening of its turn, is not read where another block
        follows: so what is read are whole blocks, whatever their order.
        """
        if not self.borders or (self.edges and position == self.edges[-1].end):
            return position
        ends = (
            edge.end
            for edge in self.edges
            if edge.end <= position and (edge.end in self.borders or edge.tokens == CHUNK)
        )
        return max(ends, default=0)


def names(identity: Identity, before: str, passed: int, edges: Iterable[Edge]) -> Iterator[str]:
    """Names edges, each by the name of the one before and by what it is itself.

    Args:
        identity: the identity of the model.
        before: the name of the edge before the first of these; "" at the beginning of a prompt.
        passed: how many tokens stand before the first of these.
        edges: the edges, one behind the other.
    """
    for edge in edges:
        start = 0 if identity.relocatable else edge.start
        context = [(before, 0, passed, start - edge.start)] if before or edge.start else []
        token_ids: tuple[int, ...] = ()
        if isinstance(edge, Placed):
            context.append((edge.key, edge.lo, edge.hi, start))
        else:
            token_ids = edge.token_ids
        before = segment_key(identity.model, identity.dtype, token_ids, context, start)
        yield before
        passed += edge.tokens


def _chunks(start: int, token_ids: Sequence[int], cuts: Sequence[int]) -> Iterator[Chunk]:
    """Text from a position on, cut at some positions and every `CHUNK` tokens behind each."""
    end = start + len(token_ids)
    inner = cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]
    for lo, hi in pairwise((start, *inner, end)):
        for at in range(lo, hi, CHUNK):
            yield Chunk(at, tuple(token_ids[at - start : min(at + CHUNK, hi) - start]))
