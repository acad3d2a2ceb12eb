"""Finds the end of an unclosed element if indentation does not determine it.

A fix is offered only if every likely end gives the same text. Text after the start tag of an import may
belong inside or after it, so the user chooses.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Final

from engine.pml.diagnostics.diagnostic import Edit, Fix, Span, quote_text, swap
from engine.pml.diagnostics.spelling import Speller
from engine.pml.xml.elements import Element
from engine.pml.xml.names import ATTRIBUTES, HTML, HTML_ATTRIBUTES, RESERVED, ROLES
from engine.pml.xml.scanned_text import NAME_PATTERN, ScannedText
from engine.pml.xml.suggestions import EMPTY, MEANT_ELEMENTS, meant_element

MAX_ENDS: Final = 200  # characters of missing end tags that one fix writes

_FAR: Final = 20_000  # search distance for a tag without its `<`, in characters

_BARE_END: Final = re.compile(rf"(?<!<)/({NAME_PATTERN})[ \t]*>")
_BARE_START: Final = re.compile(
    rf"(?<![</\w.:-])({NAME_PATTERN})(?:[ \t\r\n]+[\w.:-]+=(?:\"[^\"<>]*\"|'[^'<>]*'))*[ \t\r\n]*>"
)

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_LEFT_BLANK: Final = re.compile(r"[ \t\r]*\n(?=[ \t\r]*\n)")
_MOST_ENDS: Final = 5  # likely ends of a union
_SHOWN: Final = 30  # characters of text in the title of a fix
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
                return self._of_import(element, end, depth)
        if self._unknown != end and (place := self._place(element, end, root, depth)) is not None:
            if place != end:
                return closing, (Edit(Span(place, place), closing),), ()
            where, inner = self._last
            ends = f"{inner if where == end else ''}{closing}"
            if len(ends) <= MAX_ENDS and not (self._scanned.swallows and end == len(self._text)):
                self._last = (end, ends)
                return closing, (Edit(Span(end, end), ends),), ()
        unknown, self._unknown = self._unknown, end
        return closing, (), () if unknown == end or importing else self._ends(element, end)

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
        fix = (Edit(Span(opened.start, opened.start + 1), "&lt;"),)
        asking = importing and parent is not None and parent.tag in ROLES
        if depth > 1 and (glued or (meaning is None and not importing)):
            return f"&lt;{tag}", () if importing and not asking else fix, ()
        html = HTML.fullmatch(tag) is not None and all(map(HTML_ATTRIBUTES.fullmatch, element.attributes))
        if depth == 1 and html:
            return f"&lt;{tag}", (), ()
        if (asking or (importing and html)) and parent is not None:  # a turn contains only text
            text = Fix(f"Write &lt;{tag}: the tag is then read as text", fix)
            slash = Fix(f"Write <{tag}/> to import {tag}", _slash(element))
            begins = not html and not self._text[parent.open_span.end : opened.start].strip()
            return f"&lt;{tag}", (), (slash, text) if begins else (text, slash)
        if meaning in EMPTY and not importing:
            return "/>", _slash(element), ()
        if tag in RESERVED and (second := _second(element)) is not None:
            return f"</{tag}>", second, ()
        if parent is not None and parent.tag == tag and not element.attributes:
            return f"</{tag}>", (Edit(Span(opened.start + 1, opened.start + 1), "/"),), ()
        return None

    def end_without_bracket(self, element: Element, end: int) -> Edit | None:
        """Returns the edit that repairs the end tag of an element: its `<` is missing, or it is `<tag/>`."""
        tag, last = element.tag, element.children[-1] if element.children else None
        if isinstance(last, Element) and last.tag == tag and last.empty_tag and not last.attributes:
            return Edit(last.span, f"</{tag}>")
        return self._bracket(_BARE_END, tag, element.open_span.end, end)

    def start(self, tag: str, host: Element, span: Span, missing: int) -> tuple[str, Edit, str] | None:
        """Returns the hint, the edit and the remedy for a malformed start tag of an unopened end tag.

        Args:
            tag: the name in the end tag.
            host: the open element around it.
            span: the end tag.
            missing: the number of start tags of that name that are missing.
        """
        if (lost := self._bracket(_BARE_START, tag, host.open_span.end, span.start)) is not None:
            return f"<{tag}", lost, "the < of its start tag is missing; write it"
        empty = [
            child
            for child in host.children
            if isinstance(child, Element) and child.tag == tag and child.empty_tag and not child.get("src")
        ]
        if len(empty) == 1 and self._text[empty[0].span.end : span.start].strip() and tag not in EMPTY:
            place = self._text.rfind("/", empty[0].span.start, empty[0].span.end)
            remedy = f"the / in its start tag closes <{tag}/> at once; remove the /"
            return f"<{tag}>", Edit(Span(place, place + 1), ""), remedy
        body, mark, rest = self._text[span.end : span.end + _FAR].partition("</")
        if missing > 1 and mark and body.strip() and "<" not in body and rest.startswith(f"{tag}>"):
            slash = Edit(Span(span.start + 1, span.start + 2), "")
            return f"<{tag}>", slash, f"the / makes it an end tag; write <{tag}>"
        return None

    def ends(self, element: Element, tag: str, mark: int) -> bool:
        """Whether an end tag of another name ends an element, by the module's name or the indentation."""
        name = element.get("name")
        if name is not None and name.value == tag:
            return True
        start = self._text.rfind("\n", max(0, mark - _FAR), mark)
        first = self._text.rfind("\n", max(0, element.open_span.start - _FAR), element.open_span.start)
        indent = self._text[start + 1 : mark]
        same = indent == self._text[first + 1 : element.open_span.start] and not indent.strip()
        return same and 0 <= first < start

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

    def _of_import(self, element: Element, end: int, depth: int) -> Remedy:
        tag, lead = element.tag, _lead(element)
        inner = next((child for child in element.children if isinstance(child, Element)), None)
        if not lead.strip():
            if inner is None or inner.tag in ROLES:
                return f"<{tag}/>", _slash(element), ()
            last = _elements(element)[-1]
            gap = _LEFT_BLANK.match(self._text, last.span.end)  # perhaps the line of the missing tag
            place = gap.end() if gap else last.span.end
            place = place if depth <= 2 else len(self._text[:end].rstrip(" \t\r\n"))
            ended = (Edit(Span(place, place), f"</{tag}>"),)
            inside = Fix(f"Write </{tag}> behind it: <{inner.tag}/> is then inside {tag}", ended)
            behind = Fix(f"Write <{tag}/>: <{inner.tag}/> then follows {tag}", _slash(element))
            return f"</{tag}>", (), (inside, behind)
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
        turn = next((child for child in _elements(element) if child.tag in ROLES), None)
        if element.tag in ROLES and turn is not None and (turn is not inner or lead.strip()):
            return len(self._text[: turn.open_span.start].rstrip(" \t\r\n"))
        return None

    def _ends(self, element: Element, end: int) -> tuple[Fix, ...]:
        """Returns the choices for an end that the text and the children of an element do not determine."""
        closing, children = f"</{element.tag}>", _elements(element)
        last = len(self._text[:end].rstrip(" \t\r\n"))
        if element.tag == "union":
            members = [*takewhile(lambda child: child.tag == "module", children)][:_MOST_ENDS]
            places = {f"after {_label(member)}": member.span.end for member in members[1:] or members}
        elif children:
            start = len(self._text[: children[0].open_span.start].rstrip(" \t\r\n"))
            places = {
                f"before {_label(children[0])}": start,
                f"behind it: {_label(children[0])} is then inside": last,
            }
            if children[0].tag != element.tag or not _lead(element).strip():
                places = dict(reversed(places.items()))
        else:
            said = quote_text(" ".join(_lead(element).split())[-_SHOWN:])
            places = {f"after {said}": last}
        return tuple(
            Fix(f"Write {closing} {where}", (Edit(Span(at, at), closing),)) for where, at in places.items()
        )


def _elements(element: Element) -> list[Element]:
    return [child for child in element.children if isinstance(child, Element)]


def _label(element: Element) -> str:
    name = element.get("name")
    return f'<{element.tag} name="{name.value}">' if name else f"<{element.tag}>"


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
