"""Finds the end of an unclosed element if indentation does not determine it.

A fix is offered only if every likely end gives the same text. Text after the start tag of an import may
belong inside or after it, so the user chooses.
"""

from __future__ import annotations

import re
from typing import Final

from engine.pml.diagnostics.diagnostic import Edit, Fix, Span, quote_text, swap
from engine.pml.diagnostics.spelling import Speller
from engine.pml.xml.elements import Element
from engine.pml.xml.names import ATTRIBUTES, RESERVED, ROLES
from engine.pml.xml.scanned_text import NAME_PATTERN, ScannedText
from engine.pml.xml.suggestions import EMPTY, MEANT_ELEMENTS, meant_element

MAX_ENDS: Final = 200  # characters of missing end tags that one fix writes

_FAR: Final = 20_000  # search distance for a tag without its `<`, in characters

_BARE_END: Final = re.compile(rf"(?<!<)/({NAME_PATTERN})[ \t]*>")
_BARE_START: Final = re.compile(
    rf"(?<![</\w.:-])({NAME_PATTERN})(?:[ \t\r\n]+[\w.:-]+=(?:\"[^\"<>]*\"|'[^'<>]*'))*[ \t\r\n]*>"
)

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_MANY: Final = 50  # limit of errors for that search

# hint, edits, and the choices if there is no single edit
Remedy = tuple[str, tuple[Edit, ...], tuple[Fix, ...]]


class Meanings:
    """The PML elements that names mean or resemble."""

    def __init__(self, speller: Speller) -> None:
        self._speller = speller
        self._known: dict[str, str | None] = {}

    def __getitem__(self, tag: str) -> str | None:
        if tag not in self._known:
            near = MEANT_ELEMENTS.get(tag.casefold())
            near = near or self._speller.nearest(tag, (*ATTRIBUTES, "parameter"))
            self._known[tag] = tag if tag in RESERVED else near
        return self._known[tag]


class Endings:
    """Finds missing ends, inner ones first."""

    def __init__(self, scanned: ScannedText, meanings: Meanings) -> None:
        self._scanned, self._text, self._meanings = scanned, scanned.text, meanings
        self._last = (-1, "")  # the last place where elements ended, and the end tags missing there
        self._unknown = -1  # the last uncertain end

    def of(self, element: Element, end: int, root: str, depth: int) -> Remedy:
        """Returns the fix for an unclosed element.

        Args:
            element: the element.
            end: its latest possible end.
            root: the name of the root element.
            depth: the number of open elements, including the root.
        """
        tag, opened = element.tag, element.open_span
        closing, importing = f"</{tag}>", root == "prompt" and tag not in RESERVED
        if self._text.endswith(">", opened.start, opened.end) and opened.start != self._scanned.broken:
            if (slip := self._slip(element, depth, importing)) is not None:
                return slip
            if (lost := self.end_without_bracket(element, end)) is not None:
                return closing, (lost,), ()
            if importing:
                return self._of_import(element)
        if self._unknown != end and (place := self._place(element, end, root, depth)) is not None:
            if place != end:
                return closing, (Edit(Span(place, place), closing),), ()
            where, inner = self._last
            ends = f"{inner if where == end else ''}{closing}"
            if len(ends) <= MAX_ENDS and not (self._scanned.swallows and end == len(self._text)):
                self._last = (end, ends)
                return closing, (Edit(Span(end, end), ends),), ()
        self._unknown = end
        return closing, (), ()

    def _slip(self, element: Element, depth: int, importing: bool) -> Remedy | None:
        """Returns the fix if the start tag was not meant to open an element."""
        tag, opened, parent, meaning = (
            element.tag,
            element.open_span,
            element.parent,
            self._meanings[element.tag],
        )
        if tag.casefold() in MEANT_ELEMENTS:
            meaning = meant_element(element)
        glued = tag not in RESERVED and self._text[opened.start - 1 : opened.start].isalnum()
        if depth > 1 and (glued or (meaning is None and not importing)):
            fix = (Edit(Span(opened.start, opened.start + 1), "&lt;"),)
            return f"&lt;{tag}", () if importing else fix, ()
        if meaning in EMPTY and not importing:
            return "/>", _slash(element), ()
        if tag in RESERVED and (second := _second(element)) is not None:
            return f"</{tag}>", second, ()
        if parent is not None and parent.tag == tag and not element.attributes:
            return f"</{tag}>", (Edit(Span(opened.start + 1, opened.start + 1), "/"),), ()
        return None

    def end_without_bracket(self, element: Element, end: int) -> Edit | None:
        """Returns the edit that adds the missing `<` of an end tag in the text of an element."""
        return self._bracket(_BARE_END, element.tag, element.open_span.end, end)

    def start_without_bracket(self, tag: str, host: Element, end: int) -> Edit | None:
        """Returns the edit that adds the missing `<` of a start tag in the text of an element."""
        return self._bracket(_BARE_START, tag, host.open_span.end, end)

    def slash_too_many(self, tag: str, host: Element, end: int) -> Edit | None:
        """Returns the edit that removes the slash of the only `<tag/>` in `host` with content after it."""
        empty = [
            child
            for child in host.children
            if isinstance(child, Element) and child.tag == tag and child.empty_tag and not child.get("src")
        ]
        if len(empty) != 1 or not self._text[empty[0].span.end : end].strip() or tag in EMPTY:
            return None
        place = self._text.rfind("/", empty[0].span.start, empty[0].span.end)
        return Edit(Span(place, place + 1), "")

    def repeated(self, element: Element) -> Edit | None:
        """Returns the edit that removes a second, identical start tag."""
        opened = element.open_span
        tag = self._text[opened.start : min(opened.end, opened.start + _FAR)]
        blank = _BLANK.match(self._text, opened.end)
        place = blank.end() if blank else opened.end
        return Edit(Span(place, place + len(tag)), "") if self._text.startswith(tag, place) else None

    def _bracket(self, bare: re.Pattern[str], tag: str, start: int, end: int) -> Edit | None:
        if len(self._scanned.report.errors) > _MANY:
            return None
        matches = [
            match for match in bare.finditer(self._text, max(start, end - _FAR), end) if match[1] == tag
        ]
        return Edit(Span(matches[0].start(), matches[0].start()), "<") if len(matches) == 1 else None

    def _of_import(self, element: Element) -> Remedy:
        tag, lead = element.tag, _lead(element)
        inner = next((child for child in element.children if isinstance(child, Element)), None)
        if not lead.strip():
            empty = inner is None or inner.tag in ROLES
            return (f"<{tag}/>", _slash(element), ()) if empty else (f"</{tag}>", (), ())
        start = element.open_span.end
        limit = inner.open_span.start if inner else element.children[-1].span.end
        line_end = self._text.find("\n", start, limit)
        first = self._begins_line(element) and bool(self._text[start:line_end].strip()) and line_end >= 0
        place = start + len(self._text[start : line_end if first else limit].rstrip(" \t\r\n"))
        text = quote_text(" ".join(self._text[start:place].split()))
        behind = Fix(f"Write <{tag}/>: {text} then follows {tag}", _slash(element))
        closing = (Edit(Span(place, place), f"</{tag}>"),)
        inside = Fix(f"Write </{tag}> after {text}: it is then inside {tag}", closing)
        glued = not self._text[start : start + 1].isspace()
        return f"<{tag}/>", (), (inside, behind) if first or (glued and inner) else (behind, inside)

    def _begins_line(self, element: Element) -> bool:
        start = element.open_span.start
        line = self._text.rfind("\n", max(0, start - _FAR), start)
        return line >= 0 and not self._text[line + 1 : start].strip()

    def _place(self, element: Element, end: int, root: str, depth: int) -> int | None:
        """Returns the end of a PML element; None if it is uncertain."""
        lead = _lead(element)
        inner = next((child for child in element.children if isinstance(child, Element)), None)
        if depth == 1 or end == len(self._text):
            return end
        if inner is None:
            known = not any(map(str.isspace, lead.strip())) or (root == "prompt" and element.tag in ROLES)
            return end if known else None
        if element.tag in ROLES and inner.tag in ROLES and lead.strip():
            return len(self._text[: inner.open_span.start].rstrip(" \t\r\n"))
        return None


def _slash(element: Element) -> tuple[Edit, ...]:
    place = element.open_span.end - 1
    return (Edit(Span(place, place), "/"),)


def _lead(element: Element) -> str:
    """Returns the text before an element's first child element."""
    lead: list[str] = []
    for child in element.children:
        if isinstance(child, Element):
            break
        lead.append("" if child.kind == "comment" else child.text)
    return "".join(lead)


def _second(element: Element) -> tuple[Edit, ...] | None:
    """Returns the edits that turn a bare nested tag of the same name into the end tag."""
    for child in element.children:
        if isinstance(child, Element) and child.tag == element.tag and not child.attributes:
            if child.empty_tag:
                return swap(child.span, f"</{element.tag}>")
            if not child.closed:
                return (Edit(Span(child.span.start + 1, child.span.start + 1), "/"),)
    return None
