"""Pairs start and end tags by count and indentation if some are missing.

Indentation counts if the document is laid out by it: an element is indented deeper than its parent, its
content deeper still, and its end tag aligns with its start tag. Otherwise the result is empty.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Final

from engine.pml.diagnostics.diagnostic import Edit, Span
from engine.pml.diagnostics.spelling import alike
from engine.pml.xml.names import RESERVED, ROLES
from engine.pml.xml.scanned_text import MAX_ITEMS, NAME_PATTERN
from engine.pml.xml.suggestions import EMPTY

_TAGS: Final = re.compile(rf"<([/\\]?)({NAME_PATTERN})(?:[^<>]*(/)>)?|<!--|<!\[CDATA\[")
_SPACE_MODE: Final = re.compile(r"xml:space\s*=\s*[\"'](\w+)")
_MOST_MISSING: Final = 50  # the layout is ignored if more tags are missing

_TURN: Final = re.compile(rf"<(?:{'|'.join(ROLES)})[\s/>]")
_MEMBER: Final = re.compile(r"</?module\b|<!--")


class TagCounts:
    """The number of end tags minus start tags of a text by name, counted on first use."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._counts: Counter[str] | None = None

    def __getitem__(self, tag: str) -> int:
        return self._known[tag]

    @cached_property
    def unopened(self) -> list[str]:
        """Names with more end tags than start tags, the longest first."""
        names = (tag for tag, number in self._known.items() if number > 0)
        return sorted(names, key=len, reverse=True)[:_MOST_MISSING]

    def one_misspelt(self, opened: str, closing: str) -> bool:
        """Whether a start tag and an end tag form a pair with one misspelt name."""
        return self[opened] < 0 < self[closing] and alike(opened, closing)

    @property
    def _known(self) -> Counter[str]:
        if self._counts is None:
            self._counts, hidden, missing = Counter(), 0, set[str]()
            for part in islice(_TAGS.finditer(self._text), MAX_ITEMS):
                if part.start() < hidden:
                    continue
                if part[2]:
                    self._counts[part[2]] += 1 if part[1] else 0 if part[3] else -1
                elif (ending := "-->" if part[0] == "<!--" else "]]>") not in missing:
                    hidden = self._text.find(ending, part.end())
                    if hidden < 0:
                        missing.add(ending)
        return self._counts


@dataclass(frozen=True, slots=True)
class Tag:
    """A start or end tag; `<a/>` is not included because it needs no partner."""

    name: str
    span: Span
    closing: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """The likely end of an unclosed element.

    Attributes:
        opened: the start of its start tag.
        place: its end.
        hint: the text to write there.
        edit: the edit that writes it.
    """

    opened: int
    place: int
    hint: str
    edit: Edit


@dataclass(frozen=True)
class Layout:
    """The pairing of a document's tags by indentation.

    Attributes:
        endings: the ends of unclosed elements, by place, inner ones first.
        starts: the edit that writes a missing start tag, by the place of its end tag.
        idle: the places of unmatched end tags with nothing to close.
        turned: the places of start tags written in place of an end tag of the same name.
    """

    endings: tuple[Ending, ...] = ()
    starts: dict[int, Edit] = field(default_factory=dict)
    idle: frozenset[int] = frozenset()
    turned: frozenset[int] = frozenset()


NO_LAYOUT: Final = Layout()


def layout_of(text: str, tags: Sequence[Tag], hidden: Sequence[Span], counts: TagCounts) -> Layout:
    """Pairs tags by indentation; lines in `hidden` (comments, CDATA sections and tags) do not count."""
    return _Matcher(text, _Lines(text, hidden), counts).match(tags)


class _Lines:
    """The non-blank lines of a text: their start, end and indentation."""

    def __init__(self, text: str, hidden: Sequence[Span]) -> None:
        self._text = text
        self.bodies: list[int] = []
        self.ends: list[int] = []
        covers = sorted(hidden, key=lambda span: span.start)
        starts, place = [span.start for span in covers], 0
        for line in text.split("\n"):
            body, end = place + len(line) - len(line.lstrip(" \t\r")), place + len(line.rstrip(" \t\r"))
            cover = bisect_right(starts, place) - 1
            covered = cover >= 0 and starts[cover] < place < covers[cover].end
            if body < end and not covered:
                self.bodies.append(body)
                self.ends.append(end)
            elif body < end:
                self.ends[-1] = end
            place += len(line) + 1

    def number(self, place: int) -> int:
        """Returns the number of the line of a place among non-blank lines."""
        return bisect_right(self.bodies, place) - 1

    def start(self, number: int) -> int:
        return self._text.rfind("\n", 0, self.bodies[number]) + 1

    def indent(self, number: int) -> str:
        return self._text[self.start(number) : self.bodies[number]]

    def own(self, place: int) -> str | None:
        """Returns the indentation of a place, or None if it does not begin its line."""
        number = self.number(place)
        return self.indent(number) if number >= 0 and self.bodies[number] == place else None

    def left_blank(self, number: int, indent: str) -> int | None:
        """Returns the end of the blank line before a line, if it has exactly this indentation."""
        place, end = self.ends[number - 1], self.start(number)
        for line in self._text[place:end].split("\n")[1:-1]:
            place = self._text.index("\n", place) + 1
            if line.rstrip("\r") == indent:
                return place + len(indent)
        return None


@dataclass(slots=True)
class _Open:
    """An open start tag, with its indentation if it begins its line."""

    tag: Tag
    indent: str | None
    preserve: bool

    def holds(self, indent: str | None) -> bool:
        """Whether `indent` is deeper."""
        return indent is not None and self.indent is not None and _deeper(indent, self.indent)


class _Matcher:
    def __init__(self, text: str, lines: _Lines, counts: TagCounts) -> None:
        self._text, self._lines, self._counts = text, lines, counts
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._root = ""
        self._stack: list[_Open] = []
        self._unclosed: list[tuple[_Open, _Open | None, int]] = []
        self._strays: list[tuple[Tag, _Open]] = []
        self._turned: list[int] = []

    def match(self, tags: Sequence[Tag]) -> Layout:
        """Returns the pairing; empty if indentation pairs the tags no better than their order."""
        self._root = tags[0].name if tags else ""
        for tag in tags:
            if not tag.closing:
                self._open(tag)
            elif not self._stack or not self._close(tag):
                return NO_LAYOUT
        self._end(0, len(self._text))
        lost, stray = (
            Counter(ending.tag.name for ending, *_ in self._unclosed),
            Counter(t.name for t, _ in self._strays),
        )
        if any(lost[name] and stray[name] for name in lost):
            return NO_LAYOUT
        endings = [self._ending(*ending) for ending in self._unclosed]
        return Layout(
            tuple(sorted((ending for ending in endings if ending), key=lambda ending: ending.place)),
            {tag.span.start: edit for tag, above in self._strays if (edit := self._beginning(tag, above))},
            frozenset(tag.span.start for tag, above in self._strays if self._is_idle(tag, above)),
            frozenset(self._turned),
        )

    def _open(self, tag: Tag) -> None:
        if tag.name in EMPTY and self._root == "schema" and self._counts[tag.name] < 0:
            return  # it is closed at once
        if self._is_turned(tag):
            self._stack.pop()
            self._turned.append(tag.span.start)
            return
        mode = _SPACE_MODE.search(self._text, tag.span.start, tag.span.end)
        above = self._stack[-1].preserve if self._stack else False
        preserve = mode[1] == "preserve" if mode else above
        self._stack.append(_Open(tag, self._lines.own(tag.span.start), preserve))

    def _is_turned(self, tag: Tag) -> bool:
        """Whether a start tag follows one of its name, and two end tags of that name are missing."""
        bare, top = (
            tag.span.end - tag.span.start == len(tag.name) + 2,
            self._stack[-1] if self._stack else None,
        )
        if top is None or top.tag.name != tag.name or not bare or self._counts[tag.name] > -2:
            return False
        return top.indent is not None and top.indent == self._lines.own(tag.span.start)

    def _close(self, tag: Tag) -> bool:
        """Finds the element of an end tag; False if indentation and order disagree."""
        indent, top = self._lines.own(tag.span.start), self._stack[-1]
        paired = top.tag.name == tag.name or self._counts.one_misspelt(top.tag.name, tag.name)
        aligned = indent is not None and top.indent == indent
        paired = paired or (aligned and self._counts[top.tag.name] < 0 < self._counts[tag.name])
        if paired and (indent is None or top.indent is None or top.indent == indent):
            self._stack.pop()
            return True
        if len(self._unclosed) + len(self._strays) > _MOST_MISSING:
            return False
        for place in range(len(self._stack) - 1, -1, -1):
            element = self._stack[place]
            if element.tag.name == tag.name and (indent is None or element.indent == indent):
                self._end(place + 1, tag.span.start)
                self._stack.pop()
                return True
        if self._counts[tag.name] <= 0:
            return False
        self._strays.append((tag, top))
        return True

    def _end(self, place: int, end: int) -> None:
        """Ends the elements above a place of the stack, inner ones first."""
        while len(self._stack) > place:
            element = self._stack.pop()
            self._unclosed.append((element, self._stack[-1] if self._stack else None, end))

    def _ending(self, one: _Open, above: _Open | None, limit: int) -> Ending | None:
        lines, tag, indent = self._lines, one.tag, one.indent
        if above is None or indent is None or not above.holds(indent) or one.preserve:
            return None
        first = lines.number(tag.span.start)
        after = first + 1
        while after < len(lines.bodies) and _deeper(lines.indent(after), indent):
            after += 1
        gaps = (at for at in range(first + 2, after) if lines.left_blank(at, indent) is not None)
        gap = next(gaps, None) if tag.name == "union" else None  # the line of its end tag, without the tag
        after = gap or after
        if gap is None and not self._is_end(after, limit, indent, above):
            return None
        importing = self._root == "prompt" and tag.name not in RESERVED
        within, end = self._text[tag.span.end : lines.ends[first]], lines.ends[after - 1]
        turn = _TURN.search(self._text, tag.span.end, end) if importing else None
        if (after == first + 1 and (not within or importing)) or turn:
            if not importing or self._text[tag.span.end : turn.start() if turn else end].strip():
                return None
            slash = Edit(Span(tag.span.end - 1, tag.span.end - 1), "/")
            return Ending(tag.span.start, tag.span.end, f"<{tag.name}/>", slash)
        closing = f"</{tag.name}>"
        blank = None if within else lines.left_blank(after, indent)
        place = end if blank is None else blank
        written = closing if within or blank is not None else f"{self._newline}{indent}{closing}"
        return Ending(tag.span.start, place, closing, Edit(Span(place, place), written))

    def _is_end(self, line: int, limit: int, indent: str, above: _Open) -> bool:
        known = line < len(self._lines.bodies) and self._lines.bodies[line] <= limit
        return known and self._parts(line, indent, above)

    def _parts(self, line: int, indent: str, above: _Open) -> bool:
        """Whether a line ends the element before it: it is a sibling, or ends the parent."""
        closing = self._text.startswith(f"</{above.tag.name}", self._lines.bodies[line])
        return self._lines.indent(line) == (above.indent if closing else indent)

    def _beginning(self, tag: Tag, above: _Open) -> Edit | None:
        """Returns the edit that writes a missing start tag without attributes."""
        lines, opening = self._lines, f"<{tag.name}>"
        if tag.name not in (*ROLES, "union") or above.preserve:
            return None
        line, indent = lines.number(tag.span.start), lines.own(tag.span.start)
        if indent is None:
            body = lines.bodies[line]
            alone = tag.span.end == lines.ends[line] and "<" not in self._text[body : tag.span.start]
            follows = self._text[lines.ends[line - 1] - 1] == ">" if line else False
            asking = self._root == above.tag.name == "prompt"
            sure = alone and follows and (asking or above.holds(lines.indent(line)))
            return Edit(Span(body, body), opening) if sure else None
        begin = self._block(line, indent, above)
        if begin is None or begin == line or not self._may_hold(tag.name, begin, line):
            return None
        place = lines.left_blank(begin, indent)
        if place is not None:
            return Edit(Span(place, place), opening)
        place = lines.start(begin)
        return Edit(Span(place, place), f"{indent}{opening}{self._newline}")

    def _block(self, line: int, indent: str, above: _Open) -> int | None:
        """Returns the first of the deeper lines before a line; None if the layout is unclear."""
        lines, begin = self._lines, line
        if not above.holds(indent):
            return None
        while begin > 0 and _deeper(lines.indent(begin - 1), indent):
            begin -= 1
        known = begin and (
            lines.indent(begin - 1) == indent or lines.bodies[begin - 1] == above.tag.span.start
        )
        return begin if known else None

    def _may_hold(self, name: str, begin: int, end: int) -> bool:
        """Whether an element of a name may contain some lines."""
        lines, bodies = self._lines, self._lines.bodies
        if self._root == "prompt":
            return "<" not in self._text[bodies[begin] : bodies[end]]
        depth = min(len(lines.indent(line)) for line in range(begin, end))
        outer = [bodies[line] for line in range(begin, end) if len(lines.indent(line)) == depth]
        if name == "union":
            return all(_MEMBER.match(self._text, place) for place in outer)
        return not any(self._text.startswith(f"<{role}", place) for place in outer for role in ROLES)

    def _is_idle(self, tag: Tag, above: _Open) -> bool:
        """Whether an end tag is alone on its line and the layout has nothing that it can close."""
        line, indent = self._lines.number(tag.span.start), self._lines.own(tag.span.start)
        return indent is not None and self._block(line, indent, above) == line


def _deeper(indent: str, than: str) -> bool:
    return len(indent) > len(than) and indent.startswith(than)
