"""A planned prompt: its tokens by position, cut by origin and by author.

Needs neither a tokenizer nor tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.base.choices import PlacementPolicy
from engine.prompt.layout import TextRun
from engine.prompt.template.tokenizer import Together

Kind = Literal["anonymous", "module", "argument", "text"]


@dataclass(frozen=True)
class Piece:
    """Consecutive tokens of the prompt with one origin.

    Attributes:
        kind: anonymous or module text of the schema, an argument, or new text of the prompt.
        path: the path of the module; "module:parameter" for an argument; otherwise "".
        start: position of the first token.
        token_ids: the tokens.
        run: the schema's run that contains them, if they may be read from its segment.
        lo: their offset in that run.
        turn: whether it is an earlier turn of the conversation, whose segment is stored too.
        why: for computed schema text, the reason why no segment serves it; otherwise "".
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
        """The number of tokens."""
        return len(self.token_ids)

    @property
    def cached(self) -> bool:
        """Whether it is read from a segment."""
        return self.turn or (self.run is not None and self.run.cacheable)


@dataclass(frozen=True)
class Stretch:
    """Text of a prompt that one author wrote in one place.

    Attributes:
        part: the index of its part in the bound prompt; None for the begin token and the invitation to
            answer.
        together: the texts that were tokenized with it; None for a token without text.
        place: its index among these.
        tokens: number of tokens that begin in it.
    """

    part: int | None
    together: Together | None
    place: int
    tokens: int


@dataclass(frozen=True)
class PromptPlan:
    """Every token of a prompt in order, cut into pieces.

    Attributes:
        pieces: by ascending position; without gaps in compact placement.
        imports: paths of the imported modules.
        placement: the placement policy.
        stretches: the same tokens, cut by author.
        borders: for each block of a conversation, the position after its last token; a block without tokens
            repeats the previous one.
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
        """The positions of `token_ids`, ascending."""
        return [piece.start + i for piece in self.pieces for i in range(piece.tokens)]

    @property
    def end(self) -> int:
        """The position after the last token."""
        last = self.pieces[-1]
        return last.start + last.tokens

    @property
    def new_tokens(self) -> list[int]:
        """The computed tokens."""
        return [token for piece in self.pieces if not piece.cached for token in piece.token_ids]

    @property
    def new_positions(self) -> list[int]:
        """The positions of `new_tokens`, ascending."""
        return [p.start + i for p in self.pieces if not p.cached for i in range(p.tokens)]

    @property
    def total_tokens(self) -> int:
        """The number of tokens of the prompt."""
        return sum(piece.tokens for piece in self.pieces)

    @property
    def cached_tokens(self) -> int:
        """The number of tokens read from segments."""
        return sum(piece.tokens for piece in self.pieces if piece.cached)
