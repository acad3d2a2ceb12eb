"""Finds the tag and the part of it that is being typed in an incomplete document.

The PML parser reads the text before the tag; regular expressions match the tag itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from engine.pml.xml.elements import Element
from engine.pml.xml.reader import read

Part = Literal["tag", "end", "attribute", "value"]

_HIDDEN: Final = re.compile(r"<!--.*?(-->|\Z)|<!\[CDATA\[.*?(\]\]>|\Z)", re.DOTALL)
_NAME: Final = r"[^\s<>/\"'=]"
_TAG: Final = re.compile(rf"<(/?)({_NAME}*)")
_GIVEN: Final = re.compile(rf"\s+({_NAME}+)\s*=\s*(?:\"[^\"]*\"|'[^']*')")
_VALUE: Final = re.compile(rf"\s+({_NAME}+)\s*=\s*(?:\"([^\"]*)|'([^']*))\Z")
_WORD: Final = re.compile(rf"\s+({_NAME}*)\Z")
_FURTHER: Final = re.compile(rf"({_NAME}+)\s*=\s*(?:\"[^\"<]*\"|'[^'<]*')")
_LETTERS: Final = re.compile(rf"{_NAME}*")
_IN_VALUE: Final = re.compile(r"[^\"'<>\r\n]*")
_IN_TAG: Final = re.compile(r"[^<>]*")
_ASSIGNED: Final = re.compile(r"\s*=")
_GOES_ON: Final = re.compile(rf"{_NAME}*(?:\s*/?>|\s+{_NAME}+\s*=)")


@dataclass(frozen=True)
class TypingPlace:
    """A place in a tag."""

    part: Part  # kind of the typed word: start tag, end tag, attribute or value
    mark: int
    start: int  # start of the word
    end: int  # end of the word, possibly after the cursor
    typed: str  # the word up to the cursor; for a value, all of it up to the cursor
    chain: tuple[Element, ...]  # the open elements around the tag, outermost first
    tag: str = ""
    attribute: str = ""  # the attribute of the value
    given: frozenset[str] = frozenset()  # the other attributes of the tag
    goes_on: bool = False  # whether the tag has more text after its name, so completion inserts only the name


def typing_place(text: str, offset: int) -> TypingPlace | None:
    """Returns the typing place at an offset; None in text, comments and other places without completion."""
    before = text[:offset]
    mark = before.rfind("<")
    if mark < 0 or any(hidden.end() == offset and _open(hidden) for hidden in _HIDDEN.finditer(before)):
        return None
    opening = _TAG.match(before, mark)
    if opening is None:
        return None
    name, rest = opening[2], before[opening.end() :]
    if not rest:
        part: Part = "end" if opening[1] else "tag"
        end = _end_of(_LETTERS, text, offset)
        goes_on = _GOES_ON.match(text, offset) is not None
        return TypingPlace(
            part, mark, opening.start(2), end, name, open_elements(text[:mark]), name, goes_on=goes_on
        )
    return None if opening[1] else _in_attributes(text, offset, mark, name, rest)


def open_elements(text: str) -> tuple[Element, ...]:
    """Returns the open elements at the end of a text, outermost first."""
    element = read(text).root
    chain: list[Element] = []
    while element is not None and not element.closed:
        chain.append(element)
        inner = [child for child in element.children if isinstance(child, Element)]
        element = inner[-1] if inner else None
    return tuple(chain)


def _in_attributes(text: str, offset: int, mark: int, tag: str, rest: str) -> TypingPlace | None:
    others: set[str] = set()
    place = 0
    while match := _GIVEN.match(rest, place):
        others.add(match[1])
        place = match.end()
    value, word = _VALUE.match(rest, place), _WORD.match(rest, place)
    if value is None and word is None:
        return None
    start, chain = offset - len(rest), open_elements(text[:mark])
    if value is not None:
        group = 2 if value[2] is not None else 3
        begin, end = start + value.start(group), _end_of(_IN_VALUE, text, offset)
        return TypingPlace(
            "value", mark, begin, end, value[group], chain, tag, attribute=value[1], given=frozenset(others)
        )
    assert word is not None
    end = _end_of(_LETTERS, text, offset)
    others |= {further[1] for further in _FURTHER.finditer(text[end : _end_of(_IN_TAG, text, end)])}
    begin, goes_on = start + word.start(1), _ASSIGNED.match(text, end) is not None
    return TypingPlace(
        "attribute", mark, begin, end, word[1], chain, tag, given=frozenset(others), goes_on=goes_on
    )


def _end_of(pattern: re.Pattern[str], text: str, offset: int) -> int:
    match = pattern.match(text, offset)
    return match.end() if match else offset


def _open(hidden: re.Match[str]) -> bool:
    return not (hidden[1] or hidden[2])
