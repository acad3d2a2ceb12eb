"""Seams: the white space between the pieces of a turn, each a piece of its own tokens.

The engine strips the text of a module and keeps the white space that follows it apart, as part of that
module; white space between text and the module behind it belongs to the text. At the end of a turn none is
read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import takewhile

from training.worlds.example import Example, Piece

LINE, BLANK_LINE, SPACE, NOTHING = "\n", "\n\n", " ", ""
PROSE = {LINE: 0.72, SPACE: 0.16, BLANK_LINE: 0.08, NOTHING: 0.04}
LINES = {LINE: 0.78, BLANK_LINE: 0.22}  # where texts are laid out in lines, as code is
MIXED = 0.1  # of the examples draw every seam anew


def seam_texts(r: random.Random, example: Example) -> Callable[[], str]:
    """What the seams of an example are, one for each call: mostly the same throughout."""
    texts = [p.text for p in example.pieces if p.kind == "module"]
    in_lines = 2 * sum("\n" in text for text in texts) > len(texts)
    shares = LINES if in_lines or example.world == "code" else PROSE

    def drawn() -> str:
        return r.choices(list(shares), list(shares.values()))[0]

    if r.random() < MIXED:
        return drawn
    text = drawn()
    return lambda: text


def seamed(example: Example, text: Callable[[], str]) -> list[Piece]:
    """The pieces of an example with the seams that are read between them.

    Args:
        example: where its question continues the user's turn, a seam leads to that.
        text: what the next seam is; called once for each, "" leaves it out.
    """
    found: list[Piece] = []
    for piece in example.pieces:
        if found and not (found[-1].border or piece.border):
            found += _seam(found[-1].path, piece.path, text)
        found.append(piece)
    if example.open_user:
        found += _seam(found[-1].path, "", text)
    return found


def seam_owner(path: str, following: str) -> str:
    """The path that the seam between two pieces of these paths belongs to, "" for anonymous text.

    That is the outermost module that ends between them; where none does, the text that goes before.
    """
    if f"{following}/".startswith(f"{path}/") or not path:
        return path
    names = path.split("/")
    pairs = zip(names, following.split("/"), strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return "/".join(names[: shared + 1])


def _seam(path: str, following: str, text: Callable[[], str]) -> list[Piece]:
    if path == following:
        return []  # an argument and the text round it
    owner, drawn = seam_owner(path, following), text()
    return [Piece(drawn, "module" if owner else "anonymous", owner, seam=True)] if drawn else []
