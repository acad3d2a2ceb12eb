"""The text that a chat template writes for one conversation, cut by author.

A template is a program and may write anything for any content. If it writes contents unchanged between texts
that do not depend on them, `between` finds the contents from these known texts. Otherwise the conversation is
rendered again with a code for the origin of each letter (`Masks`), and both texts are compared.
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
MOST_MASKED: Final = 1_000_000  # characters of masked contents
_ESCAPED = re.compile(r'["\\\x00-\x1f]')


Place = tuple[int, int]  # start and end in a text


class Said(NamedTuple):
    """Characters `lo:hi` of a content as the template writes them: one for one, or all for one character."""

    lo: int
    hi: int
    text: str


class Found(NamedTuple):
    """Part of a turn's content at a place in a rendering."""

    at: int
    turn: int
    said: Said


@dataclass(frozen=True)
class Rendering:
    """The text of one conversation.

    Attributes:
        begin: the spelling of the token that begins the text, if the template writes one.
        opens: the text before each turn's content.
        closes: the text after each turn's content.
        generation: the text after the last close, which invites the assistant to answer.
        contents: each turn's content as the template writes it, including words of the template inside it.
        trims: for each turn, whether the template strips white space at its start, and at its end.
        system: whether the template accepts system text; otherwise it is the first paragraph of the user
            turn.
        invites: whether the invitation changes the text.
        form: the form of tool calls.

    Text of the template may contain guarded words of authors; use `Tokenizer.rendered` to read it.
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
        """Returns only the first turns, without the invitation."""
        return replace(
            self,
            opens=self.opens[:count],
            closes=self.closes[:count],
            generation="",
            contents=self.contents[:count],
            trims=self.trims[:count],
        )

    def folded(self, length: int, border: str) -> Rendering:
        """Returns the rendering of a conversation whose first user turn begins with the system text.

        `length` is that of the system text, and `border` separates it from the user's text.
        """
        whole, rest = self.contents[0], length + len(border)
        system = [piece for piece in whole if isinstance(piece, Said) and piece.lo < length]
        system = [Said(lo, min(hi, length), text[: min(hi, length) - lo]) for lo, hi, text in system]
        user = [piece for piece in whole if isinstance(piece, str) or piece.hi > rest]
        user = [piece if isinstance(piece, str) else _behind(piece, rest) for piece in user]
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
    """Finds the contents of a conversation between the known texts around its turns.

    Returns:
        None if the text has other words than these and the contents, stripped or as JSON text.
    """
    place = len(turns.begin + turns.opens[0])
    if not text.startswith(turns.begin + turns.opens[0]):
        return None
    pieces: list[tuple[Said | str, ...]] = []
    for turn, content in enumerate(contents):
        behind = turns.closes[turn] + (
            turns.opens[turn + 1] if turn + 1 < len(contents) else turns.generation
        )
        for left, right in likely(turns, turn, content):
            hi = len(content) - right
            content_text = turns.read(turn, content[left:hi])
            if text.startswith(content_text + behind, place):
                quoted = turns.content(turn) == "quoted"
                pieces.append(tuple(_quoted(content, left, hi)) if quoted else _plain(content, left, hi))
                place += len(content_text + behind)
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
        tuple(pieces),
        turns.trims,
        invites=turns.invites,
        form=turns.form,
    )


def _plain(content: str, lo: int, hi: int) -> tuple[Said, ...]:
    return (Said(lo, hi, content[lo:hi]),) if lo < hi else ()


def _quoted(content: str, lo: int, hi: int) -> Iterator[Said]:
    """JSON text, cut so that each escape stands for one character."""
    for escape in _ESCAPED.finditer(content, lo, hi):
        yield from _plain(content, lo, escape.start())
        lo = escape.end()
        yield Said(lo - 1, lo, json.dumps(escape.group())[1:-1])
    yield from _plain(content, lo, hi)


class Masks:
    """Contents whose letters encode their origin.

    White space, digits, punctuation and the words that the template looks for stay unchanged, so the template
    mostly decides as it does for the real contents. Equal contents have equal masks. No character of a
    special token stays, because the author of each special token must be known.

    Args:
        contents: the contents of the turns; the attribute has them masked.
        words: texts that the template looks for.
        specials: finds the places of special tokens in a content.
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
        self.contents = [self._whole[places[text] : places[text] + len(text)] for text in contents]

    def find(self, text: str, masked: str, specials: Sequence[Place] = ()) -> list[Found] | None:
        """Finds the contents in `text`, of which `masked` is the rendering of the masks.

        Each special token belongs to one author. Returns None if the template decides differently for the
        masks.
        """
        if len(text) != len(masked):
            return None
        matches: list[Found] = []
        done = turn = reached = expected = 0
        while (mask := _MASK.search(masked, done)) is not None:
            at = mask.start()
            source = None if masked[at] == text[at] else self._source(masked[at], expected)
            if source is None:  # a letter of the template
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
            after = (match for match in turns if match > turn or (match == turn and lo >= reached))
            turn = next(after, turns[-1])
            reached = hi
            matches.append(Found(start, turn, Said(lo, hi, text[start:done])))
        return [_clear_of(match, specials) for match in matches] if _agree(text, masked, matches) else None

    def _extent(self, source: int) -> tuple[int, int]:
        """The extent of the content that contains a place."""
        number = bisect_right(self._starts, source) - 1
        return self._starts[number], (*self._starts, len(self._whole))[number + 1]

    def _source(self, mask: str, expected: int) -> int | None:
        """The origin of a mask: the first match after the previous one, otherwise any match."""
        place = expected + (ord(mask) - _FIRST - expected) % _LETTERS
        if place >= len(self._whole) or self._whole[place] != mask:
            place = self._whole.find(mask)
        return place if place >= 0 else None


def _clear_of(found: Found, specials: Sequence[Place]) -> Found:
    """Gives a special token to the template if a content covers only part of its spelling."""
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
    """Whether two renderings are equal except for masks and their sources."""
    done = 0
    for at, _, piece in found:
        end = at + len(piece.text)
        pairs = zip(piece.text, masked[at:end], strict=True)
        if text[done:at] != masked[done:at] or any(a != b and not _MASK.match(b) for a, b in pairs):
            return False
        done = end
    return text[done:] == masked[done:]


def _masked(content: str, start: int, spared: re.Pattern[str], specials: Sequence[Place]) -> str:
    made = list(content)
    spared_places = {at for match in spared.finditer(content) for at in range(*match.span())}
    known = {at for place in specials for at in range(*place)}
    for at, letter in enumerate(content):
        if at in known or (letter.isalpha() and at not in spared_places):
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
    """Cuts a rendering at the places of its contents.

    Args:
        text: the rendering.
        uninvited: the rendering without the invitation.
        found: the parts of contents, by place in the text.
        contents: of the turns.
        known: the text around such turns if the template ignores contents.
        begin: the spelling of the token that may begin a text.
        specials: the places of special tokens in the rendering.
        guard: marks spellings of special tokens in moved words of an author.
    """
    count = len(contents)
    begin = begin if text.startswith(begin) else ""
    ends = pairwise((0, *chain.from_iterable(specials), len(text)))
    blank = "".join("\0" * (b - a) if place % 2 else text[a:b] for place, (a, b) in enumerate(ends))
    found = sorted([*found, *_without_letters(text, blank, found, contents, known)])
    text = text.removeprefix(begin)
    pieces, gaps = _gaps(text, [item._replace(at=item.at - len(begin)) for item in found], guard)
    opens, closes = [""] * count, [""] * count
    made: list[list[Said | str]] = [[] for _ in contents]
    last = -1
    for (turn, piece), gap in zip(pieces, gaps, strict=False):
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
    """Finds contents without letters that occur once between others; `blank` has no special tokens."""
    done = 0
    for turn, content in enumerate(contents):
        matches = [item for item in found if item.turn == turn]
        words = content.strip()
        if matches or not words or not found:
            done = max([done, *(item.at + len(item.said.text) for item in matches)])
            continue
        behind = min((item.at for item in found if item.turn > turn), default=len(text))
        for mark in (known.closes[turn - 1] if turn else "", known.opens[turn]) if known is not None else ():
            done += len(mark) if text.startswith(mark, done) else 0
        if blank.count(words, done, behind) == 1:
            at, lo = blank.index(words, done), content.index(words)
            yield Found(at, turn, Said(lo, lo + len(words), words))
            done = at + len(words)


def _gaps(
    text: str, found: Sequence[Found], guard: Callable[[str], str]
) -> tuple[list[tuple[int, Said]], list[str]]:
    """Content parts in the order of the turns, and the texts around them, including moved content."""
    pieces: list[tuple[int, Said]] = []
    gaps, done = [""], 0
    for at, turn, piece in found:
        gaps[-1] += text[done:at]
        done = at + len(piece.text)
        if pieces and (turn, piece.lo) < (pieces[-1][0], pieces[-1][1].hi):
            gaps[-1] += guard(piece.text)
        else:
            pieces.append((turn, piece))
            gaps.append("")
    gaps[-1] += text[done:]
    return pieces, gaps


def _shared_out(
    gap: str, last: int, turn: int, opens: list[str], closes: list[str], known: Turns | None
) -> str:
    """Assigns a gap to the turns between two contents, as far as their marks are known; returns the rest."""
    if known is None:
        return gap
    if last >= 0 and turn < len(opens) and not gap.startswith(known.closes[last]):
        if gap.endswith(known.opens[turn]):
            closes[last] = gap.removesuffix(known.opens[turn])
            return known.opens[turn]
        return gap
    marks = [(closes, known.closes, last)] if last >= 0 else []
    for number in range(last + 1, turn):
        marks += [(opens, known.opens, number), (closes, known.closes, number)]
    for where, texts, number in marks:
        if gap.startswith(texts[number]):
            where[number] = texts[number]
            gap = gap.removeprefix(texts[number])
    return gap
