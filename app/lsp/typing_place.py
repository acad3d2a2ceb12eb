"""Where somebody types in a document that is broken because they do: in which tag, in which part of it.

What stands before the tag is read by the parser of the language; the tag itself is looked at as text.
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
    """A place in a tag.

    Attributes:
        part: what is typed there: the name of a start tag, of an end tag, of an attribute, or a value.
        mark: where the tag begins.
        start: where the word begins that is typed.
        end: where its characters end, behind the cursor too.
        typed: the word up to the cursor; of a value all of it up to there.
        chain: the elements that are open round the tag, the outermost first.
        tag: the name of the tag.
        attribute: the attribute whose value is typed.
        given: the attributes that the tag has elsewhere.
        goes_on: whether the tag goes on behind its name already, so that only the name is to be written.
    """

    part: Part
    mark: int
    start: int
    end: int
    typed: str
    chain: tuple[Element, ...]
    tag: str = ""
    attribute: str = ""
    given: frozenset[str] = frozenset()
    goes_on: bool = False


def typing_place(text: str, offset: int) -> TypingPlace | None:
    """The place of an offset; None in text, in comments, and where nothing can be offered."""
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
    """The elements that are still open at the end of a text, the outermost first."""
    element = read(text).root
    chain: list[Element] = []
    while element is not None and not element.closed:
        chain.append(element)
        inner = [child for child in element.children if isinstance(child, Element)]
        element = inner[-1] if inner else None
    return tuple(chain)


def _in_attributes(text: str, offset: int, mark: int, tag: str, rest: str) -> TypingPlace | None:
    given: set[str] = set()
    place = 0
    while found := _GIVEN.match(rest, place):
        given.add(found[1])
        place = found.end()
    value, word = _VALUE.match(rest, place), _WORD.match(rest, place)
    if value is None and word is None:
        return None
    start, chain = offset - len(rest), open_elements(text[:mark])
    if value is not None:
        group = 2 if value[2] is not None else 3
        begin, end = start + value.start(group), _end_of(_IN_VALUE, text, offset)
        return TypingPlace(
            "value", mark, begin, end, value[group], chain, tag, attribute=value[1], given=frozenset(given)
        )
    assert word is not None
    end = _end_of(_LETTERS, text, offset)
    given |= {one[1] for one in _FURTHER.finditer(text[end : _end_of(_IN_TAG, text, end)])}
    begin, goes_on = start + word.start(1), _ASSIGNED.match(text, end) is not None
    return TypingPlace(
        "attribute", mark, begin, end, word[1], chain, tag, given=frozenset(given), goes_on=goes_on
    )


def _end_of(pattern: re.Pattern[str], text: str, offset: int) -> int:
    """Where what matches at an offset ends."""
    found = pattern.match(text, offset)
    return found.end() if found else offset


def _open(hidden: re.Match[str]) -> bool:
    return not (hidden[1] or hidden[2])
