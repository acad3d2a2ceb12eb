"""A planned prompt: its tokens along the positions, cut by where they come from and by who wrote them.

Integers only; knows no tokenizer and no tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.choices import PlacementPolicy
from engine.prompt.layout import TextRun
from engine.prompt.tokenizer import Together

Kind = Literal["anonymous", "module", "argument", "text"]


@dataclass(frozen=True)
class Piece:
    """Consecutive tokens of the prompt that have one origin.

    Attributes:
        kind: anonymous or module text of the schema, an argument, or new text of the prompt.
        path: the path of the module; for an argument "module:parameter"; "" else.
        start: position of the first token.
        token_ids: the tokens.
        run: the schema's run that they belong to, where they may be read from its segment.
        lo: their place in that run.
        turn: an earlier turn of the conversation, whose segment is kept as well.
        why: for text of the schema that is computed, why it cannot be read from a segment; "" else.
    """

    kind: Kind
    path: str
    start: int
    token_ids: tuple[int, ...]
    run: TextRun | None = None
    lo: int = 0
    turn: bool = False
    why: str = ""

    @property
    def tokens(self) -> int:
        """How many tokens it has."""
        return len(self.token_ids)

    @property
    def cached(self) -> bool:
        """Whether it is read from a segment."""
        return self.turn or (self.run is not None and self.run.cacheable)


@dataclass(frozen=True)
class Stretch:
    """Text of a prompt that one author wrote in one place.

    Attributes:
        part: the place of its part among those of the bound prompt; None of what begins the text and of what
            invites the answer.
        together: the texts that it was tokenized with; None where it is a token that no text spells.
        place: its place among these.
        tokens: how many tokens begin in it.
    """

    part: int | None
    together: Together | None
    place: int
    tokens: int


@dataclass(frozen=True)
class PromptPlan:
    """Every token of a prompt in order, cut into pieces.

    Attributes:
        pieces: by ascending position; in compact placement without a gap.
        imports: paths of the imported modules.
        placement: how positions were given.
        stretches: the same tokens, cut by who wrote them.
        borders: of a conversation, for each of its blocks the position behind its last token; for one without
            tokens that of the block before.
    """

    pieces: tuple[Piece, ...]
    imports: frozenset[str] = frozenset()
    placement: PlacementPolicy = "compact"
    stretches: tuple[Stretch, ...] = field(default=(), compare=False)
    borders: tuple[int, ...] = ()

    @property
    def token_ids(self) -> list[int]:
        """All tokens of the prompt."""
        return [token for piece in self.pieces for token in piece.token_ids]

    @property
    def positions(self) -> list[int]:
        """The positions of these tokens, ascending."""
        return [piece.start + i for piece in self.pieces for i in range(piece.tokens)]

    @property
    def end(self) -> int:
        """The position behind the last token."""
        last = self.pieces[-1]
        return last.start + last.tokens

    @property
    def new_tokens(self) -> list[int]:
        """The tokens that are computed."""
        return [token for piece in self.pieces if not piece.cached for token in piece.token_ids]

    @property
    def new_positions(self) -> list[int]:
        """The positions of these tokens, ascending."""
        return [p.start + i for p in self.pieces if not p.cached for i in range(p.tokens)]

    @property
    def total_tokens(self) -> int:
        """Length of the prompt."""
        return sum(piece.tokens for piece in self.pieces)

    @property
    def cached_tokens(self) -> int:
        """How many tokens are read from segments."""
        return sum(piece.tokens for piece in self.pieces if piece.cached)
