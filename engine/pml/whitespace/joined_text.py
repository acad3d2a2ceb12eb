"""Detects texts that read as one where they meet: words, sentences, or a mark that must begin a line.

Only the end and beginning of a text count, so many texts fall into few cases. Possible names and numbers are
allowed: `GPT` and `4`, `5` and `km`, `3.` and `14`, `file` and `1`. So are scripts without spaces between
words.
"""

from __future__ import annotations

import re
import unicodedata
from enum import Flag, auto
from functools import lru_cache
from typing import Final

_ENDS: Final = frozenset(".,;:!?)]…”»\"'")
_BEGINS: Final = frozenset("#([“„«\"'")
_UNSPACED: Final = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF))  # Thai and Lao, Burmese, Khmer
_LOOK: Final = 80  # characters that determine the end of a text
_CACHED: Final = 2**14  # texts, which rarely change between two checks of a document

# Markdown list, quotation, fence or table row
_BLOCK: Final = re.compile(r"[-*>][ \t]|```|~~~|\|(?!\|)(?:[ \t]|[^\n|]+\|[^\n|]+\|)")
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
_FINISHED: Final = re.compile(r"[.!?…][\"'”»)\]]*\Z")  # end of a sentence
_FENCE: Final = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_FENCE_END: Final = re.compile(r"(?:\A|\n)[ \t]*(?:```|~~~)\Z")


class End(Flag):
    """The end of a text."""

    NOTHING = 0
    SPACE = auto()
    UNSPACED = auto()
    LETTER = auto()
    DIGIT = auto()
    OTHER = auto()  # a numeral that is not a digit, such as `²`
    STOP = auto()  # closes a word or sentence
    WORD = auto()  # a word of several letters, not all capitals
    NUMBER = auto()  # a number that is not part of a name
    DECIMAL = auto()  # a digit and a mark that may be part of a number
    SENTENCE = auto()
    BLOCK = auto()  # a Markdown line that must end: a fence's end or a table row


class Begin(Flag):
    """The beginning of a text."""

    NOTHING = 0
    SPACE = auto()
    UNSPACED = auto()
    LETTER = auto()
    DIGIT = auto()
    START = auto()  # opens a word, or a heading
    LONG = auto()  # a word too long for a unit or suffix
    COUNT = auto()  # a number and a word after it
    ITEM = auto()  # the number of a list item
    BLOCK = auto()  # a Markdown mark that must begin a line


def end_of(text: str) -> End:
    """Classifies the end of a non-empty text."""
    # Only a fence and a table row depend on more than the tail.
    return _end_of(text if text[-1] in "`~|" else text[-_LOOK:])


def begin_of(text: str) -> Begin:
    """Classifies the beginning of a non-empty text."""
    return _begin_of(text if text[0] == "|" else text[:_LOOK])


@lru_cache(_CACHED)
def _end_of(text: str) -> End:
    last, tail = text[-1], text[-_LOOK:]
    if last.isspace():
        return End.SPACE
    if _unspaced(last):
        return End.UNSPACED
    kind = End.NOTHING
    if last.isalpha():
        word = _WORD.search(tail)
        return End.LETTER | (End.WORD if word and not word[1].isupper() else kind)
    if last.isdigit():
        return End.DIGIT | (End.NUMBER if _NUMBER.search(tail) else kind)
    if last.isalnum():
        return End.OTHER
    if last in _ENDS:
        kind |= End.STOP
        kind |= End.DECIMAL if _DECIMAL.search(tail) else End.NOTHING
        kind |= End.SENTENCE if _SENTENCE.search(tail) else End.NOTHING
    elif last == "|":
        kind |= End.BLOCK if _ROW.match(text, text.rfind("\n") + 1) else End.NOTHING
    elif last in "`~" and _FENCE_END.search(tail):
        kind |= End.BLOCK if len(_FENCE.findall(text)) % 2 == 0 else End.NOTHING
    return kind


@lru_cache(_CACHED)
def _begin_of(text: str) -> Begin:
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
        kind = Begin.DIGIT
        kind |= Begin.ITEM if _ITEM.match(text, 0, _LOOK) else Begin.NOTHING
        return kind | (Begin.COUNT if _COUNT.match(text, 0, _LOOK) else Begin.NOTHING)
    if first in _BEGINS:
        return Begin.START
    return Begin.BLOCK if _BLOCK.match(text) else Begin.NOTHING


def touch(end: End, begin: Begin) -> bool:
    """Whether two texts with this end and beginning read as one."""
    if joined(end, begin):
        return True
    if (end & End.BLOCK and not begin & Begin.SPACE) or (end & End.SENTENCE and begin & Begin.COUNT):
        return True
    if begin & Begin.LETTER:
        return bool(end & End.STOP or (end & End.NUMBER and begin & Begin.LONG))
    return bool(begin & Begin.START and end & (End.LETTER | End.DIGIT | End.OTHER | End.STOP))


def joined(end: End, begin: Begin) -> bool:
    """Whether an argument and the text next to it read as one.

    Quotation marks, brackets and commas are normal around an argument. Only letters that join to a word,
    digits that join to a number, and marks that must begin a line count.
    """
    if begin & Begin.BLOCK:
        return not end & End.SPACE
    if begin & Begin.ITEM and (end & End.WORD or (end & End.STOP and not end & End.DECIMAL)):
        return True
    return bool((end & End.LETTER and begin & Begin.LETTER) or (end & End.DIGIT and begin & Begin.DIGIT))


def begins_block(text: str) -> bool:
    """Whether a text begins with a block that must begin a line: heading, list, quotation, table or fence."""
    body = text[:_LOOK].lstrip(" \t")
    return any(mark.match(body) for mark in (_HEADING, _BLOCK, _ITEM))


def begins_number(text: str) -> bool:
    """Whether a text begins with a number that may not be a list, such as a date: no other item follows."""
    body = text[:_LOOK].lstrip(" \t")
    return bool(_ITEM.match(body)) and not _ITEMS.search(text)


def space_between(left: str, right: str) -> str:
    """Returns the white space to insert: a line break after a sentence or next to a block, else a space."""
    ended = end_of(left) & End.BLOCK or _FINISHED.search(left[-_LOOK:])
    return "\n" if ended or begins_block(right) else " "


def _unspaced(character: str) -> bool:
    """Whether a script has no spaces between words."""
    wide = unicodedata.east_asian_width(character) in "WF"
    return wide or any(first <= ord(character) <= last for first, last in _UNSPACED)
