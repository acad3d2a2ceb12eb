"""The text that a chat template leaves of the parts of a turn, and the tokens that remain.

Independent of positions and tensors.
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

Cut = tuple[int, int]  # number of characters removed at the start and at the end


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
    """Returns the headers of the turns of a bound prompt, the chat template's input besides texts."""
    opened = (part.node for part in parts if isinstance(part, RoleOpen))
    return [
        Header(turn.role, turn.fields, blank=not text and bool(turn.fields or turn.role == "tool"))
        for turn, text in zip(opened, turn_texts(parts), strict=True)
    ]


@dataclass(frozen=True)
class Share:
    """The text that a chat template writes for one part of a turn, or for a range of it.

    Attributes:
        part: the index of the part.
        text: the written text.
        cut: the number of removed characters at each end; None if the template rewrites the part.
    """

    part: int
    text: str
    cut: Cut | None

    @property
    def whole(self) -> bool:
        """Whether the part is unchanged."""
        return self.cut == (0, 0)


def shares(texts: Sequence[str], said: Sequence[Said | str]) -> Iterator[Share | str]:
    """Cuts the content of a turn, as a template writes it, into its parts.

    Yields:
        In order, the template's words and at least one share of each part, except of a part that the template
        replaces by its own text.
    """
    ends = list(accumulate(map(len, texts)))
    entries: list[tuple[int, int, int, str] | str] = []
    for p in said:
        if isinstance(p, str):
            entries.append(p)
            continue
        part = bisect_right(ends, p.lo)
        while part < len(texts) and ends[part] - len(texts[part]) < p.hi:
            start = ends[part] - len(texts[part])
            lo, hi = max(p.lo, start), min(p.hi, ends[part])
            text = p.text[lo - p.lo : hi - p.lo] if len(p.text) == p.hi - p.lo else p.text
            if lo < hi:
                entries.append((part, lo - start, hi - start, text))
            part += 1
    times = Counter(entry[0] for entry in entries if not isinstance(entry, str))
    missing = [part for part in range(len(texts)) if part not in times]
    for entry in entries:
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
    """The share of a missing part: white space is cut off, other text counts as rewritten."""
    text = texts[part]
    return Share(part, "", None if text.strip() else (len(text), 0))


@dataclass(frozen=True)
class Remnant:
    """The tokens of a text that loses characters, compared to the tokens of the whole text.

    Attributes:
        before: computed tokens that differ from the whole text's.
        lo: index of the first remaining token in the whole text.
        kept: number of remaining tokens, which the segment provides.
        after: computed tokens that differ from the whole text's.
    """

    before: list[int]
    lo: int
    kept: int
    after: list[int]

    @property
    def moved(self) -> bool:
        """Whether the remaining tokens stand further from the text's beginning than in the whole text."""
        return len(self.before) > self.lo


def remnant(text: str, cut: Cut, whole: Sequence[int], tokenize: Callable[[str], list[int]]) -> Remnant:
    """Tokenizes the rest of a text on its own, and finds the tokens that it shares with the whole text.

    At a stripped end, white space and a word may share a token, which the remnant then does not have.
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
    """The length of the common beginning."""
    count = 0
    for token, other in zip(first, second, strict=False):
        if token != other:
            break
        count += 1
    return count
