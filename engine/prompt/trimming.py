"""What a chat template strips at the borders of turns: of which texts, and which of their tokens stay.

Integers and characters only; knows nothing of positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.pml import Part, RoleClose, RoleOpen
from engine.pml.parts import part_text
from engine.prompt.tools import Header

Cut = tuple[int, int]
"""How many characters a text loses at its start and at its end."""


def turn_texts(parts: Sequence[Part]) -> list[str]:
    """Returns the content of each turn of a bound prompt."""
    contents: list[str] = []
    inside = False
    for part in parts:
        if isinstance(part, RoleOpen):
            contents.append("")
        inside = isinstance(part, RoleOpen) or (inside and not isinstance(part, RoleClose))
        if inside:
            contents[-1] += part_text(part)
    return contents


def headers_of(parts: Sequence[Part]) -> list[Header]:
    """Returns what a chat template is told of each turn of a bound prompt besides its text."""
    opened = (part.node for part in parts if isinstance(part, RoleOpen))
    return [
        Header(turn.role, turn.fields, blank=not text and bool(turn.fields or turn.role == "tool"))
        for turn, text in zip(opened, turn_texts(parts), strict=True)
    ]


def cuts_of(parts: Sequence[Part], strips: Sequence[Cut]) -> dict[int, Cut]:
    """Returns which parts lose characters, by their place.

    Args:
        parts: the parts of a bound prompt, in order.
        strips: what each turn loses.
    """
    cuts: dict[int, Cut] = {}
    turn, inside = -1, False
    texts: list[int] = []
    for place, part in enumerate(parts):
        if isinstance(part, RoleOpen):
            turn, inside, texts = turn + 1, True, []
        elif isinstance(part, RoleClose):
            inside = False
            for side, count in enumerate(strips[turn]):
                _strip(parts, texts[::-1] if side else texts, side, count, cuts)
        elif inside:
            texts.append(place)
    return cuts


@dataclass(frozen=True)
class Remnant:
    """The tokens of a text that has lost characters, beside those of the whole text.

    Attributes:
        before: computed, as they are not the whole text's.
        lo: index in the whole text's tokens of the first that stays.
        kept: how many stay, and can be read from the segment.
        after: computed, as they are not the whole text's.
    """

    before: list[int]
    lo: int
    kept: int
    after: list[int]

    @property
    def moved(self) -> bool:
        """Whether what stays stands further behind the text's beginning than in the whole text."""
        return len(self.before) > self.lo


def remnant(text: str, cut: Cut, whole: Sequence[int], tokenize: Callable[[str], list[int]]) -> Remnant:
    """Tokenizes what is left of a text by itself, and finds the tokens that it shares with the whole.

    At a stripped end white space and a word may share a token, so that one is not shared.

    Args:
        text: all of it.
        cut: what it loses.
        whole: its tokens.
        tokenize: gives the tokens of a text.
    """
    left, right = cut
    wanted = tokenize(text[left : len(text) - right])
    ends = tokenize(text[left:]) if left else list(whole)
    tail = _common(ends[::-1], whole[::-1])
    start, stop = len(ends) - tail, _common(wanted, ends)
    if stop <= start:
        return Remnant(wanted, 0, 0, [])
    return Remnant(wanted[:start], len(whole) - tail, stop - start, wanted[stop:])


def _strip(parts: Sequence[Part], places: list[int], side: int, count: int, cuts: dict[int, Cut]) -> None:
    """Strips characters off one side of a turn: whole parts, and the part in which the count ends."""
    for place in places:
        if not count:
            return
        left, right = cuts.get(place, (0, 0))
        gone = min(count, len(part_text(parts[place])) - left - right)
        if gone:
            cuts[place] = (left, right + gone) if side else (left + gone, right)
        count -= gone


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two lists begin with alike."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
