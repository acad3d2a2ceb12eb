"""What a chat template writes for one conversation, cut by who wrote it.

A template is a program: it may write anything for any content. Where it writes contents between texts that do
not depend on them, these texts are known and the contents are found between them (`between`). Else the
conversation is rendered once more with every letter of the contents replaced by one that says where it comes
from (`Masks`), and both texts are compared.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Final, NamedTuple

from engine.prompt.conversation.tools import FORMS, Form
from engine.prompt.template.turns import System, Turns, likely

_FIRST, _LETTERS = 0x20000, 0xA6D0  # rare letters, without case
_MASK = re.compile(f"[{chr(_FIRST)}-{chr(_FIRST + _LETTERS - 1)}]")
MOST_MASKED: Final = 1_000_000
"""Characters of contents that are masked."""
_ESCAPED = re.compile(r'["\\\x00-\x1f]')


Place = tuple[int, int]
"""Where something begins and ends in a text."""


class Said(NamedTuple):
    """Characters `lo:hi` of a content as the template writes them: one for one, or all for one character."""

    lo: int
    hi: int
    text: str


class Found(NamedTuple):
    """What is said of a turn at a place in a rendering."""

    at: int
    turn: int
    said: Said


@dataclass(frozen=True)
class Rendering:
    """The text of one conversation.

    Attributes:
        begin: the spelling of the token that begins the text, where the template writes one.
        opens: the text before each turn's content.
        closes: the text after each turn's content.
        generation: the text after the last close, inviting the assistant to speak.
        contents: each turn's content as the template writes it, and the template's words within.
        trims: for each turn, whether the template strips white space at its start, and at its end.
        system: whether the template takes system text; else it is the first paragraph of the user turn.
        invites: whether the template writes otherwise when it is asked to invite the assistant.
        form: how calls of tools are written.

    Words of an author in what the template writes are guarded; `Tokenizer.rendered` reads them.
    """

    begin: str
    opens: tuple[str, ...]
    closes: tuple[str, ...]
    generation: str
    contents: tuple[tuple[Said | str, ...], ...]
    trims: tuple[tuple[bool, bool], ...]
    system: System = "kept"
    invites: bool = True
    form: Form = FORMS[0]

    def first(self, count: int) -> Rendering:
        """Returns the first turns alone; what invites the assistant is left to who comes after."""
        return replace(
            self,
            opens=self.opens[:count],
            closes=self.closes[:count],
            generation="",
            contents=self.contents[:count],
            trims=self.trims[:count],
        )

    def folded(self, length: int, border: str) -> Rendering:
        """Returns the rendering of a conversation whose system text begins its first user turn.

        Args:
            length: of the system text.
            border: what sets it apart from the user's.
        """
        whole, rest = self.contents[0], length + len(border)
        system = [one for one in whole if isinstance(one, Said) and one.lo < length]
        system = [Said(lo, min(hi, length), text[: min(hi, length) - lo]) for lo, hi, text in system]
        user = [one for one in whole if isinstance(one, str) or one.hi > rest]
        user = [one if isinstance(one, str) else _behind(one, rest) for one in user]
        between = border if system else ""
        (start, end), *trims = self.trims
        return replace(
            self,
            opens=(self.opens[0], "", *self.opens[1:]),
            closes=(between, *self.closes),
            contents=(tuple(system), tuple(user), *self.contents[1:]),
            trims=((start, False), (False, end), *trims),
            system="refused",
        )


def _behind(said: Said, place: int) -> Said:
    skipped = max(place - said.lo, 0)
    return Said(said.lo + skipped - place, said.hi - place, said.text[skipped:])


def between(text: str, turns: Turns, contents: Sequence[str]) -> Rendering | None:
    """Finds the contents of a conversation between the texts that stand round its turns.

    Returns:
        None where the text holds other words than these and the contents, stripped or as text of JSON.
    """
    place = len(turns.begin + turns.opens[0])
    if not text.startswith(turns.begin + turns.opens[0]):
        return None
    found: list[tuple[Said | str, ...]] = []
    for turn, content in enumerate(contents):
        behind = turns.closes[turn] + (
            turns.opens[turn + 1] if turn + 1 < len(contents) else turns.generation
        )
        for left, right in likely(turns, turn, content):
            hi = len(content) - right
            kept = turns.read(turn, content[left:hi])
            if text.startswith(kept + behind, place):
                quoted = turns.content(turn) == "quoted"
                found.append(tuple(_quoted(content, left, hi)) if quoted else _plain(content, left, hi))
                place += len(kept + behind)
                break
        else:
            return None
    if place != len(text):
        return None
    return Rendering(
        turns.begin,
        turns.opens,
        turns.closes,
        turns.generation,
        tuple(found),
        turns.trims,
        invites=turns.invites,
        form=turns.form,
    )


def _plain(content: str, lo: int, hi: int) -> tuple[Said, ...]:
    return (Said(lo, hi, content[lo:hi]),) if lo < hi else ()


def _quoted(content: str, lo: int, hi: int) -> Iterator[Said]:
    """Text of JSON, cut so that each escape stands for one character."""
    for found in _ESCAPED.finditer(content, lo, hi):
        yield from _plain(content, lo, found.start())
        lo = found.end()
        yield Said(lo - 1, lo, json.dumps(found.group())[1:-1])
    yield from _plain(content, lo, hi)


class Masks:
    """Contents whose letters say where they come from.

    White space, digits, signs and the words that the template itself looks for stay as they are, so that it
    mostly decides as it does over the contents themselves. Contents that are alike have the same masks. No
    character of a special token stays: whoever spells one must be known.

    Args:
        contents: of the turns.
        words: texts that the template looks for.
        specials: finds the places of special tokens in a content.

    Attributes:
        contents: with their masks.
    """

    def __init__(
        self, contents: Sequence[str], words: Iterable[str], specials: Callable[[str], Sequence[Place]]
    ) -> None:
        longest_first = sorted(filter(str.strip, words), key=len, reverse=True)
        spared = re.compile("|".join(map(re.escape, longest_first)) or "(?!)", re.IGNORECASE)
        places: dict[str, int] = {}
        self._turns: dict[int, list[int]] = {}
        self._whole = ""
        for turn, content in enumerate(contents):
            if content not in places:
                places[content] = len(self._whole)
                self._whole += _masked(content, len(self._whole), spared, specials(content))
            if content:
                self._turns.setdefault(places[content], []).append(turn)
        self._starts = list(self._turns)
        self.contents = [self._whole[places[one] : places[one] + len(one)] for one in contents]

    def find(self, text: str, masked: str, specials: Sequence[Place] = ()) -> list[Found] | None:
        """Finds the contents in a rendering.

        Args:
            text: the rendering.
            masked: the rendering over the masks.
            specials: the places of special tokens in the rendering: each is written by one author.

        Returns:
            What is said, by its place in the text. None where the template decides otherwise over the masks.
        """
        if len(text) != len(masked):
            return None
        found: list[Found] = []
        done = turn = reached = expected = 0
        while (mask := _MASK.search(masked, done)) is not None:
            at = mask.start()
            source = None if masked[at] == text[at] else self._source(masked[at], expected)
            if source is None:  # the template's own letter
                done = at + 1
                continue
            base, end = self._extent(source)
            lo, hi = source, source + 1
            while (
                at - (source - lo) > done
                and lo > base
                and masked[at - (source - lo) - 1] == self._whole[lo - 1]
            ):
                lo -= 1
            start, done = at - (source - lo), at + 1
            while done < len(masked) and hi < end and masked[done] == self._whole[hi]:
                done, hi = done + 1, hi + 1
            expected, lo, hi = hi, lo - base, hi - base
            turns = self._turns[base]
            after = (one for one in turns if one > turn or (one == turn and lo >= reached))
            turn = next(after, turns[-1])
            reached = hi
            found.append(Found(start, turn, Said(lo, hi, text[start:done])))
        return [_clear_of(one, specials) for one in found] if _agree(text, masked, found) else None

    def _extent(self, source: int) -> tuple[int, int]:
        """Where the content stands that a place lies in."""
        number = bisect_right(self._starts, source) - 1
        return self._starts[number], (*self._starts, len(self._whole))[number + 1]

    def _source(self, mask: str, expected: int) -> int | None:
        """The place of a mask in all contents: the first one from where the last was found, else any."""
        place = expected + (ord(mask) - _FIRST - expected) % _LETTERS
        if place >= len(self._whole) or self._whole[place] != mask:
            place = self._whole.find(mask)
        return place if place >= 0 else None


def _clear_of(found: Found, specials: Sequence[Place]) -> Found:
    """Leaves a special token to the template where only a part of its spelling was taken for a content's."""
    text, start = found.said.text, found.at
    end = start + len(text)
    for first, behind in specials:
        if first < start < behind < end:
            start = behind
        elif start < first < end < behind:
            end = first
    text = text[start - found.at : end - found.at]
    lo = found.said.lo + start - found.at
    return Found(start, found.turn, Said(lo, lo + len(text), text))


def _agree(text: str, masked: str, found: Sequence[Found]) -> bool:
    """Whether two renderings are alike but for masks and what they stand for."""
    done = 0
    for at, _, said in found:
        end = at + len(said.text)
        pairs = zip(said.text, masked[at:end], strict=True)
        if text[done:at] != masked[done:at] or any(a != b and not _MASK.match(b) for a, b in pairs):
            return False
        done = end
    return text[done:] == masked[done:]


def _masked(content: str, start: int, spared: re.Pattern[str], specials: Sequence[Place]) -> str:
    made = list(content)
    kept = {at for one in spared.finditer(content) for at in range(*one.span())}
    known = {at for place in specials for at in range(*place)}
    for at, letter in enumerate(content):
        if at in known or (letter.isalpha() and at not in kept):
            made[at] = chr(_FIRST + (start + at) % _LETTERS)
    return "".join(made)


def traced(
    text: str,
    uninvited: str,
    found: Sequence[Found],
    contents: Sequence[str],
    known: Turns | None,
    begin: str,
    specials: Sequence[Place],
    guard: Callable[[str], str],
) -> Rendering:
    """Cuts a rendering at the places where contents were found.

    Args:
        text: the rendering.
        uninvited: the rendering that does not invite the assistant.
        found: what is said, by its place in the text.
        contents: of the turns.
        known: what stands round turns of such roles where the template does not look at contents.
        begin: the spelling of the token that may begin a text.
        specials: the places of special tokens in the rendering.
        guard: marks spellings of special tokens in words of an author that the template has moved.
    """
    count = len(contents)
    begin = begin if text.startswith(begin) else ""
    ends = pairwise((0, *chain.from_iterable(specials), len(text)))
    blank = "".join("\0" * (b - a) if place % 2 else text[a:b] for place, (a, b) in enumerate(ends))
    found = sorted([*found, *_without_letters(text, blank, found, contents, known)])
    text = text.removeprefix(begin)
    said, gaps = _gaps(text, [one._replace(at=one.at - len(begin)) for one in found], guard)
    opens, closes = [""] * count, [""] * count
    made: list[list[Said | str]] = [[] for _ in contents]
    last = -1
    for (turn, piece), gap in zip(said, gaps, strict=False):
        if turn != last:
            opens[turn] = _shared_out(gap, last, turn, opens, closes, known)
        elif gap:
            made[turn].append(gap)
        made[turn].append(piece)
        last = turn
    tail = gaps[-1]
    uninvited = uninvited.removeprefix(begin)
    generation = text[len(uninvited) :] if text.startswith(uninvited) else ""
    generation = generation if tail.endswith(generation) else ""
    tail = tail.removesuffix(generation)
    rest = _shared_out(tail, last, count, opens, closes, known)
    closes[-1] += rest
    return Rendering(
        begin,
        tuple(opens),
        tuple(closes),
        generation,
        tuple(map(tuple, made)),
        known.trims if known is not None else ((True, True),) * count,
        invites=text != uninvited,
    )


def _without_letters(
    text: str, blank: str, found: Sequence[Found], contents: Sequence[str], known: Turns | None
) -> Iterator[Found]:
    """Contents without letters, where they stand once between others; `blank` has no special tokens."""
    done = 0
    for turn, content in enumerate(contents):
        own = [one for one in found if one.turn == turn]
        words = content.strip()
        if own or not words or not found:
            done = max([done, *(one.at + len(one.said.text) for one in own)])
            continue
        behind = min((one.at for one in found if one.turn > turn), default=len(text))
        for mark in (known.closes[turn - 1] if turn else "", known.opens[turn]) if known is not None else ():
            done += len(mark) if text.startswith(mark, done) else 0
        if blank.count(words, done, behind) == 1:
            at, lo = blank.index(words, done), content.index(words)
            yield Found(at, turn, Said(lo, lo + len(words), words))
            done = at + len(words)


def _gaps(
    text: str, found: Sequence[Found], guard: Callable[[str], str]
) -> tuple[list[tuple[int, Said]], list[str]]:
    """What is said in the order of the turns, and the texts round it; there too what the template moves."""
    said: list[tuple[int, Said]] = []
    gaps, done = [""], 0
    for at, turn, piece in found:
        gaps[-1] += text[done:at]
        done = at + len(piece.text)
        if said and (turn, piece.lo) < (said[-1][0], said[-1][1].hi):
            gaps[-1] += guard(piece.text)
        else:
            said.append((turn, piece))
            gaps.append("")
    gaps[-1] += text[done:]
    return said, gaps


def _shared_out(
    gap: str, last: int, turn: int, opens: list[str], closes: list[str], known: Turns | None
) -> str:
    """Gives a gap to the turns from the end of one to the beginning of another, as far as it is known."""
    if known is None:
        return gap
    if last >= 0 and turn < len(opens) and not gap.startswith(known.closes[last]):
        if gap.endswith(known.opens[turn]):
            closes[last] = gap.removesuffix(known.opens[turn])
            return known.opens[turn]
        return gap
    marks = [(closes, known.closes, last)] if last >= 0 else []
    for one in range(last + 1, turn):
        marks += [(opens, known.opens, one), (closes, known.closes, one)]
    for where, texts, one in marks:
        if gap.startswith(texts[one]):
            where[one] = texts[one]
            gap = gap.removeprefix(texts[one])
    return gap
