"""What a training example is: the pieces of a prompt, and questions with the answers they should get.

Knows nothing about tokens. Pieces are cut where the engine cuts a prompt, since each is tokenised alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["anonymous", "module", "argument"]
OPEN = "<|im_start|>{}\n"
CLOSE = "<|im_end|>\n"


@dataclass(frozen=True)
class Piece:
    """A run of text with the module path it belongs to ("" for anonymous text).

    `border` says that it opens or closes a chat turn, `seam` that it is the white space between two others.
    """

    text: str
    kind: Kind
    path: str = ""
    border: bool = False
    seam: bool = False


@dataclass(frozen=True)
class Turn:
    """One question and its answer; the turns of an example follow the same context, unseen by each other.

    `topic` says what kind of question it is, `place` which module (from 0) holds the answer, -1 where that
    has no meaning, and `wanted` what any good answer to a request for a plan says.
    """

    question: str
    answer: str
    topic: str = ""
    place: int = -1
    wanted: tuple[str, ...] = ()


@dataclass
class Example:
    """A context and the turns that may follow it.

    `open_user` says that the context ends inside a user turn, so a question continues that turn.
    """

    world: str
    pieces: list[Piece] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    open_user: bool = False
    subject: str = ""
    argument: str = ""

    def anonymous(self, text: str) -> None:
        """Adds text that stands outside every module, without the white space round it."""
        self.pieces.append(Piece(text.strip(), "anonymous"))

    def module(self, text: str, path: str) -> None:
        """Adds a module's text, without the white space round it."""
        self.pieces.append(Piece(text.strip(), "module", path))

    def module_with(self, before: str, argument: str, after: str, path: str) -> None:
        """Adds a module's text round the argument of its parameter, with the white space at the argument."""
        self.pieces += [
            Piece(before.lstrip(), "module", path),
            Piece(argument, "argument", path),
            Piece(after.rstrip(), "module", path),
        ]

    def role(self, role: str) -> None:
        """Opens a chat turn."""
        self.pieces.append(Piece(OPEN.format(role), "anonymous", border=True))

    def close(self) -> None:
        """Closes a chat turn."""
        self.pieces.append(Piece(CLOSE, "anonymous", border=True))


def question_pieces(example: Example, question: str) -> list[str]:
    """The texts that lead from the context, its seams included, to the first answer token."""
    opening = [question] if example.open_user else [OPEN.format("user"), question]
    return [*opening, CLOSE, OPEN.format("assistant")]


def joined(items: Sequence[str], word: str = "and") -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" {word} {items[-1]}"


def paragraph(r: random.Random, sentences: Sequence[str]) -> str:
    """Sentences in order; now and then a line ends between two of them."""
    share = r.choice([0.0, 0.15, 0.4, 1.0])
    text = sentences[0]
    for sentence in sentences[1:]:
        text += ("\n" if r.random() < share else " ") + sentence
    return text


def mixed(r: random.Random, facts: Sequence[str], filler: Callable[[], str], count: int) -> list[str]:
    """Facts in order with `count` filler sentences strewn among them."""
    sentences = list(facts)
    for _ in range(count):
        sentences.insert(r.randint(0, len(sentences)), filler())
    return sentences


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
