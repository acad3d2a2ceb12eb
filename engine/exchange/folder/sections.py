"""A long text cut into parts that are worth a module each; the parts joined are the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.exchange.base.errors import ExchangeError

LONG: Final = 4000
"""Characters up to which a text is not cut at its headings."""

_SHORT: Final = 600  # a section with fewer characters stays with what follows
_LEAST_TOKENS: Final = 16
_HASHES: Final = re.compile(r" {0,3}(#{1,3})[ \t]+(.+?)[ \t]*#*[ \t]*$")
_UNDERLINE: Final = re.compile(r"([=\-~^\"*+#])\1{2,}[ \t]*$")
_FENCE: Final = re.compile(r" {0,3}(```+|~~~+)")
_COMMENT: Final = re.compile(r" {0,3}<!(?=--)")
_END_OF_COMMENT: Final = re.compile(r"-->")
_VERBATIM: Final = re.compile(r" {0,3}<(?:pre|script|style|textarea)(?=[\s>]|$)", re.IGNORECASE)
_END_OF_VERBATIM: Final = re.compile(r"</(?:pre|script|style|textarea)>", re.IGNORECASE)
_FRONT_MATTER: Final = re.compile(r"---[ \t\r]*\n(?=[^\n]*\S)(?:[^\n]*\n)*?(?:---|\.\.\.)[ \t\r]*(?:\n|\Z)")
_PARAGRAPHS: Final = re.compile(r".*?(?:\n[ \t]*(?=\n)\n+|\Z)", re.DOTALL)
_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
_WORDS: Final = re.compile(r"\s*\S+\s*|\s+")
Count = Callable[[str], int]


@dataclass(frozen=True)
class Section:
    """A part of a text.

    Attributes:
        title: what it is about, in a few words; empty where nothing tells.
        text: verbatim.
    """

    title: str
    text: str


@dataclass(frozen=True)
class Split:
    """How long texts are cut.

    Attributes:
        most: the most tokens of a part; None to cut at headings.
        count: how many tokens a text has, by the tokenizer of the model that will read it.
    """

    most: int | None = None
    count: Count | None = None

    def __call__(self, text: str) -> tuple[Section, ...]:
        """The parts of a text, one where it is short enough.

        Raises:
            ExchangeError: parts of so few tokens make no sense, or nothing counts tokens.
        """
        if self.most is None:
            return by_headings(text)
        if self.count is None:
            raise ExchangeError("parts by tokens need a tokenizer; name the model that will read them")
        return by_tokens(text, self.most, self.count)


def by_headings(text: str, *, long: int = LONG, short: int = _SHORT) -> tuple[Section, ...]:
    """Cuts a text at headings of Markdown and reStructuredText.

    Args:
        text: the text.
        long: characters up to which it is not cut.
        short: a section with fewer characters goes with the one behind it.
    """
    if len(text) <= long:
        return (Section("", text),)
    borders = list(_headings(text))
    if not borders or borders[0][0] > 0:
        borders.insert(0, (0, ""))
    found: list[Section] = []
    title, start = "", 0
    ends = [at for at, _ in borders[1:]] + [len(text)]
    for (_, words), end in zip(borders, ends, strict=True):
        title = title or words
        if end - start >= short or end == len(text):
            found.append(Section(title, text[start:end]))
            title, start = "", end
    if len(found) > 1 and len(found[-1].text) < short:
        last = found.pop()
        found[-1] = Section(found[-1].title, found[-1].text + last.text)
    return tuple(found)


def _headings(text: str) -> Iterator[tuple[int, str]]:
    """Where headings begin, with their words; front matter, code and comments of HTML have none."""
    front = _FRONT_MATTER.match(text)
    end: re.Pattern[str] | None = None  # of the block that shows no headings
    above = before = (0, "")  # the two lines before, each with its place
    for match in _LINES.finditer(text, front.end() if front else 0):
        line = match[0].rstrip("\r\n")
        behind = 0
        if end is None:
            end, behind = _opened(line)
        if end is not None:
            end = None if end.search(line, behind) else end
            line = ""
        elif found := _HASHES.match(line):
            yield match.start(), found[2]
        elif _UNDERLINE.match(line) and _is_title(before[1], line):
            over = above[1].strip() == line.strip()
            yield (above if over else before)[0], before[1].strip()
        above, before = before, (match.start(), line)


def _opened(line: str) -> tuple[re.Pattern[str] | None, int]:
    """What ends the block without headings that a line begins, and from where on; None if it begins none."""
    if found := _FENCE.match(line):
        return re.compile(rf"^ {{0,3}}{found[1]}{found[1][0]}*[ \t]*$"), found.end()
    if found := _COMMENT.match(line):
        return _END_OF_COMMENT, found.end()
    if found := _VERBATIM.match(line):
        return _END_OF_VERBATIM, found.end()
    return None, 0


def _is_title(words: str, underline: str) -> bool:
    """Whether a line with another below it is a heading: rules and borders of tables have blanks or bars."""
    stripped = words.strip()
    return (
        bool(stripped)
        and words[:1] not in " \t|>-*+"
        and len(underline.rstrip()) >= len(stripped)
        and not _UNDERLINE.match(words)
        and any(one.isalnum() for one in stripped)
    )


def by_tokens(text: str, most: int, count: Count) -> tuple[Section, ...]:
    """Cuts a text into parts of at most so many tokens, between paragraphs where that is possible.

    Raises:
        ExchangeError: `most` is too small.
    """
    if most < _LEAST_TOKENS:
        short = f"parts of {most} tokens are too short to say anything"
        raise ExchangeError(f"{short}; give {_LEAST_TOKENS} or more")
    parts = list(_fitting(text, most, count, (_PARAGRAPHS, _LINES, _WORDS)))
    if len(parts) < 2:
        return (Section("", text),)
    return tuple(Section(_title(part), part) for part in parts)


def _fitting(text: str, most: int, count: Count, borders: Sequence[re.Pattern[str]]) -> Iterator[str]:
    """Parts of a text, cut at the first kind of border, and at finer ones what is still too long."""
    if not borders:
        yield from _halves(text, most, count)
        return
    pieces = [found[0] for found in borders[0].finditer(text) if found[0]]
    held, held_tokens = "", 0
    for piece in pieces:
        tokens = count(piece)
        if held and held_tokens + tokens > most:
            yield from _checked(held, most, count, borders[1:])
            held, held_tokens = "", 0
        if tokens > most:
            yield from _fitting(piece, most, count, borders[1:])
            continue
        held, held_tokens = held + piece, held_tokens + tokens
    if held:
        yield from _checked(held, most, count, borders[1:])


def _checked(text: str, most: int, count: Count, finer: Sequence[re.Pattern[str]]) -> Iterator[str]:
    """A part whose pieces were counted one by one: together they may have a token more."""
    if count(text) <= most:
        yield text
    else:
        yield from _halves(text, most, count) if not finer else _fitting(text, most, count, finer)


def _halves(text: str, most: int, count: Count) -> Iterator[str]:
    if len(text) < 2 or count(text) <= most:
        yield text
        return
    middle = len(text) // 2
    yield from _halves(text[:middle], most, count)
    yield from _halves(text[middle:], most, count)


def _title(part: str) -> str:
    """The first heading of a part, or its first words."""
    heading = next(_headings(part), None)
    return heading[1] if heading else " ".join(part.split(maxsplit=5)[:5])
