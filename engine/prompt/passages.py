"""A planned prompt as text: what a model reads, cut by who wrote it, with the borders of its tokens.

Joined, the texts of all passages are what the tokenizer was given. No tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from engine.pml import ArgumentText, Bound, NewText, Part, RoleClose, RoleOpen, SchemaText, Span
from engine.pml.meetings import meetings
from engine.pml.parts import is_seam
from engine.prompt.chat_template import ChatFormat
from engine.prompt.pieces import Piece, PromptPlan, Stretch
from engine.prompt.recipe import RecipeSlice
from engine.prompt.tokenizer import Together
from engine.tiers import Tier

Author = Literal["template", "anonymous", "module", "argument", "text"]


@dataclass(frozen=True)
class Source:
    """Where a passage is written.

    Attributes:
        document: the document that it stands in.
        span: its place there; of what another file brings, the element that brings it.
    """

    document: Literal["schema", "prompt"]
    span: Span


@dataclass(frozen=True)
class Passage:
    """Text that one author wrote in one place.

    Attributes:
        author: the chat template, the schema outside of modules, a module, an argument, or the prompt itself.
        path: the path of the module; of an argument "module:parameter"; "" else.
        text: as the tokenizer is given it.
        tokens: how many tokens begin in it.
        start: the position of the first of them.
        cached: where the segment is that it is read from; None where it is computed each time.
        why: of text of the schema, why it is computed; "" else.
        bytes: the size of its keys and values in that segment.
        sees: how many tokens before it its segment saw when it was encoded.
        turn: the turn that it stands in, counted from 0; None where it stands in none.
        role: the role of that turn; "assistant" of what invites the answer.
        source: where it is written; None of what the chat template writes.
        seam: it is white space that sets apart what is beside it.
        meets: what is wrong where it meets what stands before it, in a sentence; "" where nothing is.
        borders: the characters with which tokens begin, several times where tokens share one; None where they
            were not asked for, or where the tokenizer cannot say.
        specials: the places of special tokens.
    """

    author: Author
    path: str
    text: str
    tokens: int
    start: int
    cached: Tier | None
    bytes: int
    sees: int
    turn: int | None
    role: str
    source: Source | None
    seam: bool = False
    meets: str = ""
    why: str = ""
    borders: tuple[int, ...] | None = None
    specials: tuple[tuple[int, int], ...] = ()


def saw_all(passages: Sequence[Passage]) -> bool:
    """Whether each text that is read from a segment saw all that stands before it in the prompt."""
    before: Passage | None = None
    for one in passages:
        same_run = (
            before is not None
            and before.cached is not None
            and (before.path, before.sees) == (one.path, one.sees)
        )
        if one.cached is not None and one.sees != one.start and not same_run:
            return False
        before = one
    return True


class Reader:
    """Cuts planned prompts into passages.

    Args:
        chat: the tokenizer and the chat template of the model.
        bytes_per_token: the size of the keys and values of one token.
    """

    def __init__(self, chat: ChatFormat, bytes_per_token: int) -> None:
        self._chat, self._bytes_per_token = chat, bytes_per_token

    def read(
        self,
        bound: Bound,
        plan: PromptPlan,
        slices: Sequence[RecipeSlice | None],
        tiers: Sequence[Tier],
        *,
        borders: bool = False,
    ) -> tuple[Passage, ...]:
        """Returns the passages of a prompt, in order.

        Args:
            bound: the prompt.
            plan: its plan.
            slices: what each piece of the plan reads, None where it is computed.
            tiers: where that is, for each piece.
            borders: also where tokens begin, for which the text is tokenized once more.
        """
        wrong = meetings(bound.parts, bound.schema)
        turns = list(_turns(bound.parts))
        starts: dict[int, list[int] | None] = {}
        found: list[Passage] = []
        for stretch, place in zip(plan.stretches, _pieces(plan), strict=True):
            text = self._text(stretch)
            if not text and not stretch.tokens:
                continue
            part = None if stretch.part is None else bound.parts[stretch.part]
            turn, role = (None, "") if stretch.part is None else turns[stretch.part]
            if part is None and found:
                role = "assistant" if turns else role
            author, path = _author(part)
            piece, used = place.piece, slices[place.index]
            cached = tiers[place.index] if piece.cached else None
            found.append(
                Passage(
                    author,
                    path,
                    text,
                    stretch.tokens,
                    place.position,
                    cached,
                    stretch.tokens * self._bytes_per_token if piece.cached else 0,
                    sum(seen.hi - seen.lo for seen in used.recipe.context) if used else 0,
                    turn,
                    role,
                    _source(part),
                    part is not None and is_seam(part),
                    wrong.get(stretch.part, "") if stretch.part is not None else "",
                    piece.why,
                    self._borders(stretch, starts) if borders else None,
                    tuple(self._chat.tokens.specials(text)) if author == "template" else (),
                )
            )
        return tuple(found)

    def _text(self, stretch: Stretch) -> str:
        if stretch.together is None:
            return self._chat.bos_text if stretch.tokens else ""
        return stretch.together.fragments[stretch.place].text

    def _borders(self, stretch: Stretch, known: dict[int, list[int] | None]) -> tuple[int, ...] | None:
        together = stretch.together
        if together is None:
            return (0,)
        if id(together) not in known:
            known[id(together)] = self._chat.tokens.starts(together)
        starts = known[id(together)]
        if starts is None:
            return None
        begin, end = _extent(together, stretch.place)
        return tuple(start - begin for start in starts if begin <= start < end)


@dataclass(frozen=True)
class _Place:
    """Where a stretch stands: its piece, that piece's index, and the position of its first token."""

    piece: Piece
    index: int
    position: int


def _pieces(plan: PromptPlan) -> Iterator[_Place]:
    """The places of the stretches of a plan."""
    index = passed = 0  # tokens of this piece that stand before the stretch
    for stretch in plan.stretches:
        while passed >= plan.pieces[index].tokens and index + 1 < len(plan.pieces):
            passed -= plan.pieces[index].tokens
            index += 1
        piece = plan.pieces[index]
        yield _Place(piece, index, piece.start + passed)
        passed += stretch.tokens


def _extent(together: Together, place: int) -> tuple[int, int]:
    """The characters of one of several adjacent texts."""
    ends = list(accumulate((len(one.text) for one in together.fragments), initial=0))
    return ends[place], ends[place + 1]


def _turns(parts: Sequence[Part]) -> Iterator[tuple[int | None, str]]:
    """The turn of each part, and its role."""
    turn, role, inside = -1, "", False
    for part in parts:
        if isinstance(part, RoleOpen):
            turn, role, inside = turn + 1, part.role, True
        yield (turn, role) if inside else (None, "")
        inside = inside and not isinstance(part, RoleClose)


def _author(part: Part | None) -> tuple[Author, str]:
    if isinstance(part, SchemaText):
        return ("module" if part.module else "anonymous"), part.module
    if isinstance(part, ArgumentText):
        return "argument", f"{part.module}:{part.param.name}"
    return ("text" if isinstance(part, NewText) else "template"), ""


def _source(part: Part | None) -> Source | None:
    if isinstance(part, SchemaText):
        return Source("schema", part.node.span)
    if isinstance(part, ArgumentText):
        return Source("prompt", part.span) if part.span else Source("schema", part.param.span)
    return Source("prompt", part.span) if isinstance(part, NewText) else None
