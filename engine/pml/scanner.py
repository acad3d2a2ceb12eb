"""A tolerant XML scanner with exact spans: it reports every fault, recovers, and gives a tree.

It knows XML only, nothing of PML's elements. Time is linear in the text, and nothing recurses, so the depth
of a document costs no stack.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections import Counter
from itertools import islice
from typing import Final

from engine.pml.diagnostics import Edit, Reporter, Span, quote, swap
from engine.pml.elements import Attribute, Chars, Element
from engine.pml.entities import decode

MAX_DEPTH: Final = 256
"""Elements nested deeper are reported and left out of the tree."""

MAX_ITEMS: Final = 40_000
"""Elements, attributes, comments and CDATA sections of a document; at the next one, reading ends."""

MAX_ENDS: Final = 200
"""The most characters of missing end tags that one fix writes."""

_NAME: Final = r"[A-Za-z_:\x80-\U0010FFFF][A-Za-z0-9_:.\-\x80-\U0010FFFF]*"
_OPEN: Final = re.compile(rf"<({_NAME})")
_CLOSE: Final = re.compile(rf"</({_NAME})?[ \t\r\n]*(>?)")
_TAGS: Final = re.compile(rf"<(/?)({_NAME})(?:[^<>]*(/)>)?")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ATTRIBUTE: Final = re.compile(rf"({_NAME})([ \t\r\n]*=)?[ \t\r\n]*")
_BARE_VALUE: Final = re.compile(r"[^\s<>\"'/=]+")
_JUNK: Final = re.compile(rf"(?!{_NAME})[^\s<>/](?:(?!{_NAME})[^\s<>/])*")
_ENCODING: Final = re.compile(r"encoding\s*=\s*[\"']([^\"']*)")
_DOCTYPE_PART: Final = re.compile(r"\"[^\"]*\"|'[^']*'|[\[\]<>]")
_KNOWN_PREFIXED: Final = ("xml:space", "xml:lang")


class _EnoughError(Exception):
    """Reading on would take more time or memory than a document may."""


class Scanner:
    """Scans one text; `scan` is its one public method."""

    def __init__(self, text: str, report: Reporter) -> None:
        self._text = text
        self._report = report
        self._holder = Element("", Span(0, 0), Span(0, 0), Span(0, len(text)))
        self._stack = [self._holder]
        self._open: Counter[str] = Counter()
        self._unfinished: Counter[str] = Counter()
        self._balance: Counter[str] | None = None
        self._missing: set[str] = set()
        self._rooted = False
        self._outside = False
        self._deep = False
        self._items = 0
        self._ends = (-1, "")  # where elements were ended last, and the end tags that are missing there
        self._swallows = False  # whether what is written after the text would belong to something unfinished
        self._broken = -1  # where the last unfinished tag was broken off

    def scan(self) -> Element | None:
        """Scans the text and returns its root element, or None where it holds no element."""
        try:
            self._scan()
        except _EnoughError:
            self._leave_rest()
        for child in self._holder.children:
            if isinstance(child, Element):
                return child
        return None

    def _scan(self) -> None:
        text, place = self._text, 0
        while place < len(text):
            mark = text.find("<", place)
            if mark < 0:
                mark = len(text)
            if mark > place:
                self._characters(place, mark)
            place = self._markup(mark) if mark < len(text) else mark
        self._close_rest()

    def _count(self, place: int) -> None:
        """Counts one more item that begins at `place`."""
        self._items += 1
        if self._items > MAX_ITEMS:
            message = (
                f"the document has more than {MAX_ITEMS} elements, attributes and comments; what follows is "
                "not read: split the document"
            )
            self._report.add("E120", message, Span(place, min(place + 1, len(self._text))))
            raise _EnoughError
        self._stop_if_hopeless()

    def _stop_if_hopeless(self) -> None:
        if self._report.hopeless:
            raise _EnoughError

    def first_tag(self) -> str | None:
        """The name of the root element, found without reading further."""
        mark = self._text.find("<")
        with contextlib.suppress(_EnoughError):
            while mark >= 0 and not self._rooted:
                mark = self._text.find("<", self._markup(mark))
        roots = [child.tag for child in self._holder.children if isinstance(child, Element)]
        return roots[0] if roots else None

    def _markup(self, mark: int) -> int:
        """Handles what begins with the `<` at `mark`; the answer is where it ends."""
        text = self._text
        if text.startswith("</", mark):
            self._stop_if_hopeless()
            return self._end_tag(mark)
        self._count(mark)
        opening = _OPEN.match(text, mark)
        if opening is not None:
            return self._start_tag(opening)
        if text.startswith("<!--", mark):
            return self._comment(mark)
        if text.startswith("<![CDATA[", mark):
            return self._cdata(mark)
        if text.startswith("<!", mark):
            return self._declaration(mark)
        if text.startswith("<?", mark):
            return self._instruction(mark)
        fix = () if mark == self._broken else swap(Span(mark, mark + 1), "&lt;")
        self._report.add("E109", "a plain '<' begins a tag; write &lt;", Span(mark, mark + 1), "&lt;", fix)
        self._add(Chars("<", Span(mark, mark + 1)))
        return mark + 1

    def _characters(self, start: int, end: int) -> None:
        raw = self._text[start:end]
        if len(self._stack) == 1:
            self._check_outside(raw, start)
            return
        at = raw.find("]]>")
        while at >= 0:
            span = Span(start + at, start + at + 3)
            self._report.instead("E109", "']]>' may not stand in text; write ]]&gt;", span, "]]&gt;")
            self._stop_if_hopeless()
            at = raw.find("]]>", at + 3)
        self._add(Chars(decode(raw, start, self._report), Span(start, end)))

    def _check_outside(self, raw: str, start: int) -> None:
        content = raw.strip(" \t\r\n\ufeff" if start == 0 else " \t\r\n")
        if not content:
            return
        begin = start + raw.index(content)
        self._report_outside(Span(begin, begin + len(content)), "text")

    def _report_outside(self, span: Span, what: str) -> None:
        if self._outside:
            return
        self._outside = True
        side = "after" if self._rooted else "before"
        self._report.add("E115", f"{what} stands {side} the root element; move it inside, or remove it", span)

    def _add(self, child: Element | Chars) -> None:
        host = self._stack[-1]
        if len(self._stack) == 1 and isinstance(child, Chars):
            if child.kind != "comment":
                self._report_outside(child.span, "text")
            return
        if len(self._stack) <= MAX_DEPTH + 1:
            host.children.append(child)

    # Tags

    def _start_tag(self, opening: re.Match[str]) -> int:
        tag, start = opening[1], opening.start()
        tag_span = Span(start + 1, opening.end())
        if ":" in tag:
            self._report.add(
                "E118", f"the element name {quote(tag)} has a prefix; PML has no namespaces", tag_span
            )
        element = Element(tag, tag_span, tag_span, tag_span)
        end, finished = self._attributes(element, opening.end())
        element.open_span = element.span = Span(start, end)
        if len(self._stack) == 1 and self._rooted:
            self._report_outside(tag_span, f"<{tag}>")
        first = not self._rooted
        opens = finished or first or self._has_own_end(tag)
        if not finished:
            message = f"the tag <{tag}> is not finished, its '>' is missing; write it"
            self._report.missing("E104", message, element.open_span, ">" if opens else "/>", end)
        self._rooted = True
        if len(self._stack) > MAX_DEPTH and not self._deep:
            self._deep = True
            message = (
                f"elements may be nested {MAX_DEPTH} deep; what is inside this <{tag}> and deeper is left out"
            )
            self._report.add("E117", message, tag_span)
        element.parent = self._stack[-1]
        if len(self._stack) <= MAX_DEPTH:
            self._stack[-1].children.append(element)
        if element.empty_tag:
            return end
        if opens:
            self._stack.append(element)
            self._open[tag] += 1
        else:
            element.empty_tag = True
            self._unfinished[tag] += 1
        return end

    def _has_own_end(self, tag: str) -> bool:
        """Whether the text has at least as many end tags as start tags of this name."""
        if self._balance is None:
            self._balance = Counter()
            for part in islice(_TAGS.finditer(self._text), MAX_ITEMS):
                self._balance[part[2]] += 1 if part[1] else 0 if part[3] else -1
        return self._balance[tag] >= 0

    def _end_tag(self, mark: int) -> int:
        match = _CLOSE.match(self._text, mark)
        if match is None:
            return mark + 2
        tag, end = match[1] or "", match.end()
        top = self._stack[-1].tag
        if not match[2]:
            end = mark + len(match[0].rstrip(" \t\r\n"))
            message = f"the closing tag </{tag} is not finished, its '>' is missing; write it"
            self._report.instead("E104", message, Span(mark, end), f"</{tag or top}>")
        if not tag:
            if match[2]:
                if top:
                    message = f"a closing tag names its element; write </{top}>"
                    self._report.instead("E106", message, Span(mark, end), f"</{top}>")
                else:
                    self._report.add("E106", "</> closes nothing; remove it", Span(mark, end))
            self._pop(end, top, mark, tag)
            return end
        if top != tag and self._near(tag, top) and (self._open[tag] or not self._unfinished[tag]):
            message = f"</{tag}> does not match <{top}>, which is open here; write both the same"
            self._report.instead("E106", message, Span(mark, end), f"</{top}>")
            self._pop(end, top, mark, tag)
        elif self._open[tag]:
            while self._stack[-1].tag != tag:
                self._never_closed(mark, f"</{tag}> comes first")
            self._pop(end, tag, mark, tag)
        elif self._unfinished[tag]:
            self._unfinished[tag] -= 1
        else:
            self._stray_end(tag, top, mark, end)
        return end

    def _stray_end(self, tag: str, top: str, mark: int, end: int) -> None:
        remedy = (
            f"<{top}> is open here; write </{top}>, or remove it"
            if top
            else "no element is open here; remove it"
        )
        self._report.add("E106", f"</{tag}> closes nothing: {remedy}", Span(mark, end))

    def _near(self, tag: str, top: str) -> bool:
        """Whether an end tag looks like a misspelling of the open element's name, or the other way round."""
        if not top or self._report.full:
            return False
        return difflib.SequenceMatcher(None, tag[:64], top[:64]).ratio() >= 0.8

    def _pop(self, end: int, tag: str, end_tag: int | None = None, end_name: str = "") -> None:
        """Ends the open element at `end`; `end_tag` is where its end tag begins, if it has one."""
        if len(self._stack) > 1:
            element = self._stack.pop()
            element.span = Span(element.span.start, end)
            element.close_span = None if end_tag is None else Span(end_tag, end)
            element.end_name = end_name
            self._open[tag] -= 1

    def _never_closed(self, end: int, why: str) -> None:
        element = self._stack[-1]
        name = element.get("name")
        label = f"<{element.tag} name={quote(name.value)}>" if name else f"<{element.tag}>"
        message = f"{label} is never closed ({why}); write </{element.tag}>"
        where, inner = self._ends
        ends = f"{inner if where == end else ''}</{element.tag}>"
        if len(ends) > MAX_ENDS or (self._swallows and end == len(self._text)):
            self._report.add("E105", message, element.open_span, f"</{element.tag}>")
        else:
            fix = (Edit(Span(end, end), ends),)
            self._report.add("E105", message, element.open_span, f"</{element.tag}>", fix)
            self._ends = (end, ends)
        element.closed = False
        self._pop(end, element.tag)

    def _close_rest(self) -> None:
        while len(self._stack) > 1:
            self._never_closed(len(self._text), "the document ends first")

    def _leave_rest(self) -> None:
        """Ends what is open without a word: its end was not looked for."""
        while len(self._stack) > 1:
            self._pop(len(self._text), self._stack[-1].tag)

    # Attributes

    def _attributes(self, element: Element, place: int) -> tuple[int, bool]:
        """Reads the attributes from `place` on; the answer is the tag's end and whether its `>` was there."""
        text, complained, last = self._text, False, place
        while True:
            spaced = _SPACE.match(text, place)
            begin = spaced.end() if spaced else place
            char = text[begin : begin + 1]
            if char == ">":
                return begin + 1, True
            if char == "/" and text.startswith("/>", begin):
                element.empty_tag = True
                return begin + 2, True
            if char in ("", "<"):
                self._broken = begin
                return last, False
            self._count(begin)
            found = _ATTRIBUTE.match(text, begin)
            if found is None:
                last = place = self._junk(begin, complained)
                complained = True
                continue
            if begin == place and element.attributes and not complained:
                span = Span(begin, begin + len(found[1]))
                self._report.add(
                    "E107", f"a space is missing before the attribute {quote(found[1])}; write one", span
                )
                complained = True
            place, closed = self._attribute(element, found, complained)
            complained = complained or not found[2]
            last = place
            if closed is not None:
                return closed, True

    def _junk(self, begin: int, complained: bool) -> int:
        junk = _JUNK.match(self._text, begin)
        end = junk.end() if junk else begin + 1
        if not complained:
            what = quote(self._text[begin:end])
            self._report.add("E107", f'{what} is no attribute; write name="value"', Span(begin, end))
        return end

    def _attribute(self, element: Element, found: re.Match[str], complained: bool) -> tuple[int, int | None]:
        """Reads one attribute: where it ends, and the end of the tag where only a lost quote gives it."""
        name, begin, name_end = found[1], found.start(), found.start() + len(found[1])
        if not found[2]:
            if not complained:
                message = f'the attribute {quote(name)} has no value; write {name}="…"'
                self._report.add("E107", message, Span(begin, name_end), f'{name}="…"')
            return name_end, None
        text, place = self._text, found.end()
        mark, closed = text[place : place + 1], None
        if mark in ("'", '"') and mark:
            start, end, after, closed = self._quoted(name, begin, place, mark)
        else:
            bare = _BARE_VALUE.match(text, place)
            start, end = place, bare.end() if bare else place
            after = end if bare else begin + len(found[0].rstrip(" \t\r\n"))
            hint = f'{name}="{text[start:end]}"'
            message = f"the value of the attribute {quote(name)} needs quotes; write {hint}"
            self._report.instead("E107", message, Span(begin, max(after, end)), hint)
        self._store(element, name, Span(start, end), Span(begin, after))
        return after, closed

    def _quoted(self, name: str, begin: int, place: int, mark: str) -> tuple[int, int, int, int | None]:
        """Value start, value end, attribute end, and the tag's end where the closing quote is lost."""
        text, start = self._text, place + 1
        line_end = self._report.lines.next_line(start)
        stop = self._find(mark, start)
        angle = text.find("<", start, stop if stop >= 0 else line_end)
        if stop >= 0 and angle < 0:
            return start, stop, stop + 1, None
        if 0 <= stop < line_end:
            message = f"'<' may not stand in the value of {quote(name)}; write &lt;"
            self._report.instead("E109", message, Span(angle, angle + 1), "&lt;")
            return start, stop, stop + 1, None
        limit = angle if 0 <= angle < line_end else line_end
        bracket = text.find(">", start, limit)
        if bracket < 0:
            end = start + len(text[start:limit].rstrip(" \t\r\n"))
            closed = None
        else:
            end = bracket - 1 if text.startswith("/", bracket - 1) and bracket > start else bracket
            closed = bracket + 1
        message = f"the value of the attribute {quote(name)} has no closing quote; add {mark}"
        self._report.missing("E107", message, Span(begin, end), mark, end)
        return start, end, end, closed

    def _store(self, element: Element, name: str, value: Span, span: Span) -> None:
        if ":" in name and name not in _KNOWN_PREFIXED:
            message = f"the attribute name {quote(name)} has a prefix; only xml:space and xml:lang are known"
            self._report.add("E118", message, Span(span.start, span.start + len(name)))
        if name in element.attributes:
            line = self._report.lines.line(element.attributes[name].span.start)
            message = f"the attribute {quote(name)} is already given at line {line}; keep one"
            self._report.add("E108", message, span)
            return
        raw = self._text[value.start : value.end]
        text = decode(raw, value.start, self._report, attribute=True)
        element.attributes[name] = Attribute(name, text, span, value)

    # Comments, CDATA, declarations

    def _find(self, needle: str, start: int) -> int:
        """`str.find`, remembering what is not there any more, so that repeated faults stay linear."""
        if needle in self._missing:
            return -1
        found = self._text.find(needle, start)
        if found < 0:
            self._missing.add(needle)
        return found

    def _rest_of_line(self, start: int, limit: int | None = None) -> int:
        line_end = self._report.lines.next_line(start)
        end = line_end if limit is None else min(line_end, limit)
        self._swallows = self._swallows or end == len(self._text)
        return start + len(self._text[start:end].rstrip(" \t\r\n"))

    def _comment(self, mark: int) -> int:
        stop = self._find("-->", mark + 4)
        if stop < 0:
            end = self._rest_of_line(mark)
            message, span = "a comment is never closed; write -->", Span(mark, end)
            if "-" in self._text[end - 1 : end] or "--" in self._text[mark + 4 : end]:
                self._report.add("E114", message, span, "-->")
            else:
                self._report.missing("E114", message, span, "-->", end)
            self._add(Chars("", Span(mark, end), "comment"))
            return max(end, mark + 4)
        dashes = self._text.find("--", mark + 4, stop + 1)
        if dashes >= 0:
            span = Span(dashes, dashes + 2)
            self._report.add("E114", "'--' may not stand inside a comment; remove one dash", span)
        self._add(Chars("", Span(mark, stop + 3), "comment"))
        return stop + 3

    def _cdata(self, mark: int) -> int:
        start = mark + len("<![CDATA[")
        stop = self._find("]]>", start)
        end = stop + 3
        if stop < 0:
            stop = end = max(self._rest_of_line(mark), start)
            message = "a CDATA section is never closed; write ]]>"
            self._report.missing("E114", message, Span(mark, end), "]]>", end)
        raw = self._text[start:stop].replace("\r\n", "\n").replace("\r", "\n")
        self._add(Chars(raw, Span(mark, end), "cdata"))
        return end

    def _declaration(self, mark: int) -> int:
        is_doctype = self._text[mark : mark + 9].upper() == "<!DOCTYPE"
        end = self._declaration_end(mark + 2)
        if is_doctype:
            message = "a DOCTYPE is not allowed, and neither are entities of one's own; remove it"
        else:
            message = "'<!' begins only comments and CDATA sections in PML; remove it, or write &lt;!"
        self._report.add("E111", message, Span(mark, end))
        return end

    def _declaration_end(self, place: int) -> int:
        """The end of a declaration with its internal subset, or of the line where it never ends."""
        if ">" in self._missing:
            return self._rest_of_line(place)
        depth = 0
        for part in _DOCTYPE_PART.finditer(self._text, place):
            if part[0] == "[":
                depth += 1
            elif part[0] == "]":
                depth -= 1
            elif part[0] == ">" and depth <= 0:
                return part.end()
            elif part[0] == "<" and depth <= 0:
                return self._rest_of_line(place, part.start())
        self._missing.add(">")
        return self._rest_of_line(place)

    def _instruction(self, mark: int) -> int:
        stop = self._find("?>", mark + 2)
        end = stop + 2 if stop >= 0 else max(self._rest_of_line(mark), mark + 2)
        raw = self._text[mark:end]
        if not re.match(r"<\?xml[\s?]", raw):
            message = "processing instructions are not allowed; remove it"
            self._report.add("E112", message, Span(mark, end))
            return end
        if self._text[:mark] not in ("", "\ufeff"):
            message = "an XML declaration may stand only at the very start; move it there, or remove it"
            self._report.add("E113", message, Span(mark, end))
            return end
        encoding = _ENCODING.search(raw)
        if encoding is not None and encoding[1].upper() not in ("UTF-8", "UTF8"):
            span = Span(mark + encoding.start(1), mark + encoding.end(1))
            message = (
                f"PML is written in UTF-8, not in {quote(encoding[1])}; save it as UTF-8 and say so here"
            )
            self._report.instead("E113", message, span, "UTF-8")
        elif stop < 0:
            message = "the XML declaration is not finished; write ?>"
            self._report.missing("E113", message, Span(mark, end), "?>", end)
        return end
