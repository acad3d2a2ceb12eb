"""The trail of a prompt through its tokens: chunks of plain text, and placed segments.

Prompts share the trail of their common beginning. An edge of plain text is a chunk of `CHUNK` tokens. A chunk
is shorter before a segment, before a gap, and at the end of a conversation's block. The incomplete chunk at a
prompt's end is no edge. Plain text is everything that a prompt computes: new text, arguments and the answer.
It attends to everything before it, as in the scope `scaffold`. So the keys and values of a chunk equal those
of a segment whose context is the whole trail before it. The name of a chunk has the form of a segment's name,
but its context is one entry, the name of the edge before it. So each token is hashed once, and two chunks
share a name exactly if they have the same tokens after the same trail.

No tensors, no files.
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
        """The number of tokens."""
        return len(self.token_ids)

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + len(self.token_ids)


class Placed(NamedTuple):
    """Tokens `lo..hi` of a segment, from position `start` on."""

    start: int
    key: str
    lo: int
    hi: int

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.hi - self.lo

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + self.hi - self.lo


Edge = Chunk | Placed


@dataclass(frozen=True)
class Trail:
    """The edges of one prompt, by position.

    Attributes:
        edges: its chunks and placed segments; the last one is a chunk.
        end: the position after the prompt's last token.
        borders: positions where the blocks of a conversation end.
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
            runs: plain text of any length, and placed segments, by position; empty runs are ignored, and
                adjacent texts are joined.
            end: the position after the last token; None for the end of the last run.
            borders: positions where a chunk of text must end.
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
        """Returns the edges of a planned prompt and its answer.

        Args:
            plan: the plan of the prompt.
            slices: the slice for each piece, None if computed; empty if all are computed.
            answer: the tokens computed after the prompt.
            repaired: the position of the first recomputed cached token, if any; later text does not attend to
                the original segments.
            closed: whether a chunk ends with the answer, because the answer is a block of the next request.
            salt: an edge without tokens at the start, so that each salt has its own trail.
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
        trail = cls.of_runs(runs, end, (*plan.borders, end) if closed else plan.borders)
        return replace(trail, edges=(Placed(0, salt, 0, 0), *trail.edges)) if salt and trail.edges else trail

    def up_to(self, position: int) -> Trail:
        """Returns the edges that end at a position or before it."""
        edges = list(self.edges)
        while edges and (edges[-1].end > position or isinstance(edges[-1], Placed)):
            edges.pop()
        return Trail(tuple(edges), min(self.end, position), self.borders)

    def legible(self, position: int) -> int:
        """Returns the end of the part that is read from a trail that matches up to `position`.

        The part before a named block, such as the opening of its turn, is not read if another block follows.
        So only whole blocks are read, in any order.
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
    """Yields the names of edges; each name depends on the previous name and on the edge.

    Args:
        identity: the identity of the model.
        before: the name of the edge before the first one; "" at the beginning of a prompt.
        passed: number of tokens before the first edge.
        edges: consecutive edges.
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
    """Text from a position on, cut at given positions and every `CHUNK` tokens after each."""
    end = start + len(token_ids)
    inner = cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]
    for lo, hi in pairwise((start, *inner, end)):
        for at in range(lo, hi, CHUNK):
            yield Chunk(at, tuple(token_ids[at - start : min(at + CHUNK, hi) - start]))
