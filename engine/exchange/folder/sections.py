"""Cuts a long text into parts, each for a module; the joined parts equal the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.exchange.base.errors import ExchangeError

LONG: Final = 4000  # a text of up to this number of characters is not cut at headings
_SHORT: Final = 600  # a section with fewer characters joins the next
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
    """A part of a text, verbatim, and its topic in a few words; the title is empty if unknown."""

    title: str
    text: str


@dataclass(frozen=True)
class Split:
    """How long texts are cut: into parts of at most `most` tokens, or at headings if it is None."""

    most: int | None = None
    count: Count | None = None

    def __call__(self, text: str) -> tuple[Section, ...]:
        """Returns the parts of a text; a short text is one part.

        Raises:
            ExchangeError: the maximum is too small, or there is no token counter.
        """
        if self.most is None:
            return by_headings(text)
        if self.count is None:
            raise ExchangeError("splitting by tokens needs a tokenizer; name the model")
        return by_tokens(text, self.most, self.count)


def by_headings(text: str, *, long: int = LONG, short: int = _SHORT) -> tuple[Section, ...]:
    """Cuts a text of more than `long` characters at headings of Markdown and reStructuredText.

    A section with fewer than `short` characters joins the next.
    """
    if len(text) <= long:
        return (Section("", text),)
    borders = list(_headings(text))
    if not borders or borders[0][0] > 0:
        borders.insert(0, (0, ""))
    sections: list[Section] = []
    title, start = "", 0
    ends = [at for at, _ in borders[1:]] + [len(text)]
    for (_, words), end in zip(borders, ends, strict=True):
        title = title or words
        if end - start >= short or end == len(text):
            sections.append(Section(title, text[start:end]))
            title, start = "", end
    if len(sections) > 1 and len(sections[-1].text) < short:
        last = sections.pop()
        sections[-1] = Section(sections[-1].title, sections[-1].text + last.text)
    return tuple(sections)


def _headings(text: str) -> Iterator[tuple[int, str]]:
    """The offsets of headings and their words; skips front matter, code and HTML comments."""
    front = _FRONT_MATTER.match(text)
    end: re.Pattern[str] | None = None  # of the current block without headings
    above = before = (0, "")  # the two previous lines, each with its offset
    for match in _LINES.finditer(text, front.end() if front else 0):
        line = match[0].rstrip("\r\n")
        behind = 0
        if end is None:
            end, behind = _opened(line)
        if end is not None:
            end = None if end.search(line, behind) else end
            line = ""
        elif hashes := _HASHES.match(line):
            yield match.start(), hashes[2]
        elif _UNDERLINE.match(line) and _is_title(before[1], line):
            over = above[1].strip() == line.strip()
            yield (above if over else before)[0], before[1].strip()
        above, before = before, (match.start(), line)


def _opened(line: str) -> tuple[re.Pattern[str] | None, int]:
    """For a line that begins a block without headings, the pattern that ends it and where to search."""
    if match := _FENCE.match(line):
        return re.compile(rf"^ {{0,3}}{match[1]}{match[1][0]}*[ \t]*$"), match.end()
    if match := _COMMENT.match(line):
        return _END_OF_COMMENT, match.end()
    if match := _VERBATIM.match(line):
        return _END_OF_VERBATIM, match.end()
    return None, 0


def _is_title(words: str, underline: str) -> bool:
    """Whether an underlined line is a heading; rules and table borders have blanks or bars."""
    stripped = words.strip()
    return (
        bool(stripped)
        and words[:1] not in " \t|>-*+"
        and len(underline.rstrip()) >= len(stripped)
        and not _UNDERLINE.match(words)
        and any(letter.isalnum() for letter in stripped)
    )


def by_tokens(text: str, most: int, count: Count) -> tuple[Section, ...]:
    """Cuts a text into parts of at most `most` tokens, between paragraphs if possible.

    Raises:
        ExchangeError: `most` is too small.
    """
    if most < _LEAST_TOKENS:
        short = f"parts of {most} tokens are too short"
        raise ExchangeError(f"{short}; give {_LEAST_TOKENS} or more")
    parts = list(_fitting(text, most, count, (_PARAGRAPHS, _LINES, _WORDS)))
    if len(parts) < 2:
        return (Section("", text),)
    return tuple(Section(_title(part), part) for part in parts)


def _fitting(text: str, most: int, count: Count, borders: Sequence[re.Pattern[str]]) -> Iterator[str]:
    """Cuts a text at the first kind of boundary; parts that are still too long are cut at finer ones."""
    if not borders:
        yield from _halves(text, most, count)
        return
    pieces = [match[0] for match in borders[0].finditer(text) if match[0]]
    joined, joined_tokens = "", 0
    for piece in pieces:
        tokens = count(piece)
        if joined and joined_tokens + tokens > most:
            yield from _checked(joined, most, count, borders[1:])
            joined, joined_tokens = "", 0
        if tokens > most:
            yield from _fitting(piece, most, count, borders[1:])
            continue
        joined, joined_tokens = joined + piece, joined_tokens + tokens
    if joined:
        yield from _checked(joined, most, count, borders[1:])


def _checked(text: str, most: int, count: Count, finer: Sequence[re.Pattern[str]]) -> Iterator[str]:
    """Checks a part whose pieces were counted separately: joined, they may have one token more."""
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
