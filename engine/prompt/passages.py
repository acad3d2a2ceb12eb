"""Splits a planned prompt into passages: the text for the model, by author, with token boundaries.

The joined passages equal the tokenizer's input. No tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from engine.base.tiers import Tier
from engine.pml import ArgumentText, Bound, NewText, Part, RoleClose, RoleOpen, SchemaText, Span
from engine.pml.tree.parts import is_seam
from engine.pml.whitespace.joins import meetings
from engine.prompt.pieces import Piece, PromptPlan, Stretch
from engine.prompt.recipe import RecipeSlice
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.tokenizer import Together

Author = Literal["template", "anonymous", "module", "argument", "text"]


@dataclass(frozen=True)
class Source:
    """The origin of a passage.

    Attributes:
        document: the document that contains it.
        span: its place there; for text from another file, the element that includes the file.
    """

    document: Literal["schema", "prompt"]
    span: Span


@dataclass(frozen=True)
class Passage:
    """Text that one author wrote in one place.

    Attributes:
        author: the chat template, the schema outside modules, a module, an argument, or the prompt.
        path: the path of the module; "module:parameter" for an argument; otherwise "".
        text: the tokenizer's input.
        tokens: number of tokens that begin in it.
        start: the position of its first token.
        cached: the tier of its segment; None if computed in each request.
        why: for schema text, the reason why it is computed; otherwise "".
        bytes: the size of its keys and values in that segment.
        sees: number of earlier tokens in the segment's context.
        turn: index of its turn, from 0; None outside turns.
        role: the role of that turn; "assistant" for the invitation to answer.
        source: its origin; None for text of the chat template.
        seam: whether it is a white space separator.
        meets: the problem at its boundary with the previous text, as a sentence; "" without one.
        borders: offsets of characters that begin tokens, repeated if tokens share one; None if not requested,
            or if the tokenizer cannot report them.
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
    """Returns whether each cached passage attends to everything before it in the prompt."""
    before: Passage | None = None
    for passage in passages:
        same_run = (
            before is not None
            and before.cached is not None
            and (before.path, before.sees) == (passage.path, passage.sees)
        )
        if passage.cached is not None and passage.sees != passage.start and not same_run:
            return False
        before = passage
    return True


class Reader:
    """Splits planned prompts into passages."""

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
            slices: the slice for each piece of the plan, None if computed.
            tiers: the tier of each piece.
            borders: whether to report token boundaries, which takes a second tokenization.
        """
        wrong = meetings(bound.parts, bound.schema)
        turns = list(_turns(bound.parts))
        starts: dict[int, list[int] | None] = {}
        passages: list[Passage] = []
        for stretch, place in zip(plan.stretches, _pieces(plan), strict=True):
            text = self._text(stretch)
            if not text and not stretch.tokens:
                continue
            part = None if stretch.part is None else bound.parts[stretch.part]
            turn, role = (None, "") if stretch.part is None else turns[stretch.part]
            if part is None and passages:
                role = "assistant" if turns else role
            author, path = _author(part)
            piece, used = place.piece, slices[place.index]
            cached = tiers[place.index] if piece.cached else None
            passages.append(
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
        return tuple(passages)

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
    """Where a stretch stands: its piece, the piece's index, and the position of its first token."""

    piece: Piece
    index: int
    position: int


def _pieces(plan: PromptPlan) -> Iterator[_Place]:
    index = passed = 0  # tokens of this piece before the stretch
    for stretch in plan.stretches:
        while passed >= plan.pieces[index].tokens and index + 1 < len(plan.pieces):
            passed -= plan.pieces[index].tokens
            index += 1
        piece = plan.pieces[index]
        yield _Place(piece, index, piece.start + passed)
        passed += stretch.tokens


def _extent(together: Together, place: int) -> tuple[int, int]:
    """The character range of one of several adjacent texts."""
    ends = list(accumulate((len(fragment.text) for fragment in together.fragments), initial=0))
    return ends[place], ends[place + 1]


def _turns(parts: Sequence[Part]) -> Iterator[tuple[int | None, str]]:
    """The turn and the role of each part."""
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
