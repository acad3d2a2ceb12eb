"""Whether two texts that meet read as one: words, sentences, or a mark that has to begin a line.

A text is judged by what it ends and begins with, so that many texts that may meet make few cases. What may be
one name or number is left alone: `GPT` and `4`, `5` and `km`, `3.` and `14`, `file` and `1`. So are words of
scripts that put no spaces between them.
"""

from __future__ import annotations

import re
import unicodedata
from enum import Flag, auto
from typing import Final

_ENDS: Final = frozenset(".,;:!?)]…”»\"'")
_BEGINS: Final = frozenset("#([“„«\"'")
_UNSPACED: Final = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF))
"""Thai and Lao, Burmese, Khmer."""
_LOOK: Final = 80
"""How many characters of a text tell what it ends with."""

_BLOCK: Final = re.compile(r"[-*>][ \t]|```|~~~|\|(?!\|)(?:[ \t]|[^\n|]+\|[^\n|]+\|)")
"""A list, a quotation, a fence or a row of a table in Markdown."""
_ITEM: Final = re.compile(r"\d{1,3}[.)][ \t]+\S")
_ITEMS: Final = re.compile(r"\n[ \t]*\d{1,3}[.)][ \t]")
_COUNT: Final = re.compile(r"\d[\d.,]*[ \t]+[^\W\d_]")
_LONG: Final = re.compile(r"([^\W\d_]{3,})(?![\d_])")
_WORD: Final = re.compile(r"([^\W\d_]{2,})\Z")
_NUMBER: Final = re.compile(r"(?<![\w.,:/-])\d+(?:[.,]\d+)?\Z")
_DECIMAL: Final = re.compile(r"\d[.,:]\Z")
_SENTENCE: Final = re.compile(r"(?:[^\W\d_]{4}\.|[!?…])[\"'”»)\]]*\Z")
_ROW: Final = re.compile(r"[ \t]*\|(?:[ \t][^\n]*[ \t]|[^\n|]+\|[^\n]+)\|\Z")
_HEADING: Final = re.compile(r"#{1,6}[ \t]+\S")
_FINISHED: Final = re.compile(r"[.!?…][\"'”»)\]]*\Z")
"""The end of a sentence."""
_FENCE: Final = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_FENCE_END: Final = re.compile(r"(?:\A|\n)[ \t]*(?:```|~~~)\Z")


class End(Flag):
    """What a text ends with."""

    NOTHING = 0
    SPACE = auto()
    UNSPACED = auto()
    LETTER = auto()
    DIGIT = auto()
    OTHER = auto()
    """A numeral that is no digit, such as `²`."""
    STOP = auto()
    """What closes a word or a sentence."""
    WORD = auto()
    """A word, which is no letter alone and no abbreviation of capitals."""
    NUMBER = auto()
    """A number by itself, which is no part of a name."""
    DECIMAL = auto()
    """A digit and a mark that may be part of a number."""
    SENTENCE = auto()
    BLOCK = auto()
    """A line of Markdown that nothing may follow: the end of a fence, or the row of a table."""


class Begin(Flag):
    """What a text begins with."""

    NOTHING = 0
    SPACE = auto()
    UNSPACED = auto()
    LETTER = auto()
    DIGIT = auto()
    START = auto()
    """What opens a word, or a heading."""
    LONG = auto()
    """A word that is too long for a unit or an ending."""
    COUNT = auto()
    """A number and a word behind it."""
    ITEM = auto()
    """The number of a list."""
    BLOCK = auto()
    """A mark of Markdown that has to begin a line."""


def end_of(text: str) -> End:
    """What a text that is not empty ends with."""
    last, tail = text[-1], text[-_LOOK:]
    if last.isspace():
        return End.SPACE
    if _unspaced(last):
        return End.UNSPACED
    found = End.NOTHING
    if last.isalpha():
        word = _WORD.search(tail)
        return End.LETTER | (End.WORD if word and not word[1].isupper() else found)
    if last.isdigit():
        return End.DIGIT | (End.NUMBER if _NUMBER.search(tail) else found)
    if last.isalnum():
        return End.OTHER
    if last in _ENDS:
        found |= End.STOP
        found |= End.DECIMAL if _DECIMAL.search(tail) else End.NOTHING
        found |= End.SENTENCE if _SENTENCE.search(tail) else End.NOTHING
    elif last == "|":
        found |= End.BLOCK if _ROW.match(text, text.rfind("\n") + 1) else End.NOTHING
    elif last in "`~" and _FENCE_END.search(tail):
        found |= End.BLOCK if len(_FENCE.findall(text)) % 2 == 0 else End.NOTHING
    return found


def begin_of(text: str) -> Begin:
    """What a text that is not empty begins with."""
    first = text[0]
    if first.isspace():
        return Begin.SPACE
    if _unspaced(first):
        return Begin.UNSPACED
    if first.isalpha():
        word = _LONG.match(text, 0, _LOOK)
        long = word and (len(word[1]) > 3 or word[1].istitle())
        return Begin.LETTER | (Begin.LONG if long else Begin.NOTHING)
    if first.isdigit():
        found = Begin.DIGIT
        found |= Begin.ITEM if _ITEM.match(text, 0, _LOOK) else Begin.NOTHING
        return found | (Begin.COUNT if _COUNT.match(text, 0, _LOOK) else Begin.NOTHING)
    if first in _BEGINS:
        return Begin.START
    return Begin.BLOCK if _BLOCK.match(text) else Begin.NOTHING


def touch(end: End, begin: Begin) -> bool:
    """Whether two texts read as one where they meet, by what the first ends and the second begins with."""
    if joined(end, begin):
        return True
    if (end & End.BLOCK and not begin & Begin.SPACE) or (end & End.SENTENCE and begin & Begin.COUNT):
        return True
    if begin & Begin.LETTER:
        return bool(end & End.STOP or (end & End.NUMBER and begin & Begin.LONG))
    return bool(begin & Begin.START and end & (End.LETTER | End.DIGIT | End.OTHER | End.STOP))


def joined(end: End, begin: Begin) -> bool:
    """Whether an argument and what is beside it read as one.

    Quotation marks, brackets and commas belong round an argument, so only letters that make one word, digits
    that make one number, and marks that have to begin a line count.
    """
    if begin & Begin.BLOCK:
        return not end & End.SPACE
    if begin & Begin.ITEM and (end & End.WORD or (end & End.STOP and not end & End.DECIMAL)):
        return True
    return bool((end & End.LETTER and begin & Begin.LETTER) or (end & End.DIGIT and begin & Begin.DIGIT))


def begins_block(text: str) -> bool:
    """Whether a text begins with what has to begin a line: a heading, list, quotation, table or fence."""
    body = text[:_LOOK].lstrip(" \t")
    return any(mark.match(body) for mark in (_HEADING, _BLOCK, _ITEM))


def begins_number(text: str) -> bool:
    """Whether a text begins with a number that may be no list, as that of a day: no other item follows."""
    body = text[:_LOOK].lstrip(" \t")
    return bool(_ITEM.match(body)) and not _ITEMS.search(text)


def space_between(left: str, right: str) -> str:
    """What sets touching texts apart: a line break behind a sentence or beside a block, else a space."""
    ended = end_of(left) & End.BLOCK or _FINISHED.search(left[-_LOOK:])
    return "\n" if ended or begins_block(right) else " "


def _unspaced(character: str) -> bool:
    """Whether a script has no spaces between its words."""
    wide = unicodedata.east_asian_width(character) in "WF"
    return wide or any(first <= ord(character) <= last for first, last in _UNSPACED)
