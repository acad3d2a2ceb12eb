"""What a chat template leaves of the parts of a turn, and which of their tokens stay.

Integers and characters only; knows nothing of positions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from engine.pml import Part, RoleClose, RoleOpen
from engine.pml.tree.parts import part_text
from engine.prompt.conversation.tools import Header
from engine.prompt.template.rendered import Said

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
    """Returns what a chat template reads of each turn of a bound prompt besides its text."""
    opened = (part.node for part in parts if isinstance(part, RoleOpen))
    return [
        Header(turn.role, turn.fields, blank=not text and bool(turn.fields or turn.role == "tool"))
        for turn, text in zip(opened, turn_texts(parts), strict=True)
    ]


@dataclass(frozen=True)
class Share:
    """What a chat template writes of one part of a turn, or a stretch of it.

    Attributes:
        part: its number among the parts.
        text: as the template writes it.
        cut: what the part loses if all else of it stands there as it is; None where the template rewrites it.
    """

    part: int
    text: str
    cut: Cut | None

    @property
    def whole(self) -> bool:
        """Whether the part stands there as it is."""
        return self.cut == (0, 0)


def shares(texts: Sequence[str], said: Sequence[Said | str]) -> Iterator[Share | str]:
    """Cuts the content of a turn, as a template writes it, into its parts.

    Args:
        texts: of the parts of the turn.
        said: the content, with the template's own words in it.

    Yields:
        In order the words of the template, and of each part at least one share, unless the template leaves it
        out beside text that it writes.
    """
    ends = list(accumulate(map(len, texts)))
    found: list[tuple[int, int, int, str] | str] = []
    for one in said:
        if isinstance(one, str):
            found.append(one)
            continue
        part = bisect_right(ends, one.lo)
        while part < len(texts) and ends[part] - len(texts[part]) < one.hi:
            start = ends[part] - len(texts[part])
            lo, hi = max(one.lo, start), min(one.hi, ends[part])
            text = one.text[lo - one.lo : hi - one.lo] if len(one.text) == one.hi - one.lo else one.text
            if lo < hi:
                found.append((part, lo - start, hi - start, text))
            part += 1
    times = Counter(entry[0] for entry in found if not isinstance(entry, str))
    missing = [part for part in range(len(texts)) if part not in times]
    for entry in found:
        if isinstance(entry, str):
            yield entry
            continue
        part, lo, hi, text = entry
        while missing and missing[0] < part:
            yield _absent(missing.pop(0), texts)
        same = times[part] == 1 and text == texts[part][lo:hi]
        yield Share(part, text, (lo, len(texts[part]) - hi) if same else None)
    for part in missing:
        yield _absent(part, texts)


def _absent(part: int, texts: Sequence[str]) -> Share:
    """White space, or nothing, can be cut off whole; other text that is left out has been rewritten."""
    text = texts[part]
    return Share(part, "", None if text.strip() else (len(text), 0))


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


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two lists begin with alike."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
