"""A tolerant XML scanner with exact spans: reports every error, recovers, and returns a tree.

It uses only the element names of PML: text that looks like a tag but cannot be one, as in pasted code, stays
text. Time is linear in the text. The scanner does not recurse, so depth needs no stack.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from typing import Final

from engine.pml.diagnostics.diagnostic import NOTHING, Edit, Fix, Reporter, Span, quote
from engine.pml.diagnostics.spelling import Speller
from engine.pml.xml import markup
from engine.pml.xml.attribute_scanner import AttributeScanner
from engine.pml.xml.elements import Chars, Element
from engine.pml.xml.entities import decode
from engine.pml.xml.names import RESERVED, ROLES
from engine.pml.xml.outside_root import Outside
from engine.pml.xml.scanned_text import NAME_PATTERN, EnoughError, ScannedText
from engine.pml.xml.suggestions import EMPTY
from engine.pml.xml.tag_pairing import NO_LAYOUT, Layout, Tag, TagCounts, layout_of
from engine.pml.xml.unclosed import Endings, Meanings

MAX_DEPTH: Final = 256  # deeper elements are reported and left out of the tree

_MAX_APART: Final = 4000  # characters between a start tag and its end tag for a common fix

_OPEN: Final = re.compile(rf"<({NAME_PATTERN})")
_BELOW: Final = re.compile(rf"(?:/{NAME_PATTERN})+(?=[ \t\r\n>]|/>)")
_CLOSE: Final = re.compile(rf"</([ \t/]*)({NAME_PATTERN}(?:/{NAME_PATTERN})*)?[ \t\r\n]*(>?)")
_CLOSE_REST: Final = re.compile(
    rf"(?:[ \t]*{NAME_PATTERN}[ \t]*=[ \t]*(?:\"[^\"<>\n]*\"|'[^'<>\n]*'))*[ \t]*/?>"
)
_WHOLE: Final = re.compile(
    rf"<{NAME_PATTERN}(?:[ \t\r\n]+{NAME_PATTERN}[ \t\r\n]*=[ \t\r\n]*(?:\"[^\"<]*\"|'[^'<]*'))*[ \t\r\n]*/?>"
)
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_TAIL: Final = re.compile(r"[^<>\n]*")
_ASSIGNED: Final = re.compile(r"[\w.\-][ \t]*=(?!=)")
_SPACED: Final = re.compile(rf"<([ \t]+)(/?)({NAME_PATTERN})(?=([^<>]*)>)")
_BACKSLASH: Final = re.compile(rf"<\\({NAME_PATTERN})[ \t]*>")


class Scanner:
    """Scans one text; `layout` pairs its tags by indentation if they do not pair."""

    def __init__(self, text: str, report: Reporter, layout: Layout = NO_LAYOUT) -> None:
        self._text = text
        self._report = report
        self._scanned = ScannedText(text, report)
        self._attributes = AttributeScanner(self._scanned)
        self._speller = Speller()
        self._meanings = Meanings(self._speller)
        self._holder = Element("", Span(0, 0), Span(0, 0), Span(0, len(text)))
        self._stack = [self._holder]
        self._open: Counter[str] = Counter()
        self._unfinished: Counter[str] = Counter()
        self._root = ""
        self._rooted = False
        self._outside = Outside(text, report)
        self._deep = False
        self._prefixed: list[Element] = []
        self._nested_ends: set[int] = set()  # end tags that the fix of their start tag changes
        self._swapped = -1  # the second of two swapped end tags
        self._ended = (-1, "")  # end and name of the last end tag
        self._counts = TagCounts(text)
        self._endings = Endings(self._scanned, self._meanings)
        self._layout, self._due = layout, [*reversed(layout.endings)]
        self._tags: list[Tag] = []
        self._hidden: list[Span] = []

    def scan(self) -> Element | None:
        """Scans the text and returns its root element, or None without any element."""
        try:
            self._scan()
        except EnoughError:
            self._leave_rest()
        elements = [child for child in self._holder.children if isinstance(child, Element)]
        for element in self._prefixed:
            self._say_prefixed(element)
        self._outside.say(elements)
        return elements[0] if elements else None

    def _scan(self) -> None:
        text, place = self._text, 0
        while place < len(text):
            mark = text.find("<", place)
            if mark < 0:
                mark = len(text)
            place = self._end_by_layout(place, mark)
            if mark > place:
                self._characters(place, mark)
            place = self._markup(mark) if mark < len(text) else mark
        self._close_rest()

    def _end_by_layout(self, place: int, mark: int) -> int:
        """Closes elements that end before `mark` by indentation; returns the new place."""
        while self._due and self._due[-1].place <= mark:
            ending = self._due.pop()
            if ending.place > place:
                self._characters(place, ending.place)
                place = ending.place
            element = self._stack[-1]
            if element.open_span.start == ending.opened:
                line = self._report.lines.line(element.open_span.start)
                lost = self._endings.end_without_bracket(element, mark)
                why = f"the indentation of line {line} determines its end"
                self._say_open(element, why, ending.hint, (lost or ending.edit,))
                self._pop(place, element.tag)
        return place

    def layout(self) -> Layout:
        """Returns the pairing of tags by indentation, after a scan."""
        return layout_of(self._text, self._tags, self._hidden, self._counts)

    def first_tag(self) -> str | None:
        """Returns the name of the root element without scanning further."""
        mark = self._text.find("<")
        with contextlib.suppress(EnoughError):
            while mark >= 0 and not self._rooted:
                mark = self._text.find("<", self._markup(mark))
        roots = [child.tag for child in self._holder.children if isinstance(child, Element)]
        return roots[0] if roots else None

    def _markup(self, mark: int) -> int:
        """Reads the markup at `mark`; returns its end."""
        text, inside = self._text, len(self._stack) > 1
        if text.startswith("</", mark):
            self._scanned.stop_if_hopeless()
            return self._end_tag(mark)
        self._scanned.count(mark)
        opening = _OPEN.match(text, mark)
        if opening is not None:
            return self._start_tag(opening)
        if text.startswith(("<!--", "<![CDATA["), mark):
            read = markup.comment if text.startswith("<!--", mark) else markup.cdata
            end, chars = read(self._scanned, mark)
            self._hidden.append(Span(mark, end))
            self._add(chars)
            return end
        if text.startswith("<!", mark):
            return markup.declaration(self._scanned, mark, inside)
        if text.startswith("<?", mark):
            return markup.instruction(self._scanned, mark, inside)
        if (turned := _BACKSLASH.match(text, mark)) and self._open[turned[1]]:
            return self._backslash(turned)
        return self._plain(mark, "a plain '<' would begin a tag; write &lt;")

    def _plain(self, mark: int, message: str) -> int:
        """Reports a `<` that begins no tag and reads it as text; returns its end."""
        spaced = _SPACED.match(self._text, mark)
        edit, hint = Edit(Span(mark, mark + 1), "&lt;"), "&lt;"
        if spaced and self._is_tag(spaced[3], spaced[4]):
            edit, hint = Edit(Span(*spaced.span(1)), ""), f"<{spaced[2]}{spaced[3]}"
            message = f"a tag begins with its name, without a space; write {hint}"
        elif self._doubles(mark):
            edit, hint, message = (
                Edit(Span(mark, mark + 1), ""),
                NOTHING,
                "a tag begins with one '<'; remove one",
            )
        fix = () if mark == self._scanned.broken else (edit,)
        self._report.add("E109", message, Span(mark, mark + 1), hint, fix)
        self._add(Chars("<", Span(mark, mark + 1)))
        return mark + 1

    def _is_tag(self, name: str, rest: str) -> bool:
        """Whether text after `< ` is a tag: `rest` follows the name."""
        return name in RESERVED or rest.endswith("/") or (self._root == "prompt" and self._counts[name] > 0)

    def _doubles(self, mark: int) -> bool:
        """Whether a `<` stands directly before a tag."""
        opening = _OPEN.match(self._text, mark + 1)
        if opening is None:
            return self._text.startswith("</", mark + 1)
        begins = self._text[mark - 1 : mark] in ("", *" \t\r\n>")
        return begins and (opening[1] in RESERVED or self._root == "prompt")

    def _backslash(self, turned: re.Match[str]) -> int:
        r"""Reads `<\name>` as an end tag; returns its end."""
        mark, end, tag = turned.start(), turned.end(), turned[1]
        message = f"'\\' does not begin a closing tag; write </{tag}>"
        fix = (Edit(Span(mark, end), f"</{tag}>"),)
        self._report.add("E109", message, Span(mark, mark + 1), f"</{tag}>", fix)
        self._tags.append(Tag(tag, Span(mark, end), True))
        while self._stack[-1].tag != tag:
            self._never_closed(mark, f"<\\{tag}> comes first")
        self._pop(end, tag, mark, tag)
        return end

    def _characters(self, start: int, end: int) -> None:
        raw = self._text[start:end]
        if len(self._stack) == 1:
            self._outside.note_text(raw, start)
            return
        at = raw.find("]]>")
        while at >= 0:
            span = Span(start + at, start + at + 3)
            last = not raw[at + 3 :].strip(" \t\r\n")  # it may end a CDATA section without a start
            fix = () if last else (Edit(span, "]]&gt;"),)
            self._report.add("E109", "']]>' is not allowed in text; write ]]&gt;", span, "]]&gt;", fix)
            self._scanned.stop_if_hopeless()
            at = raw.find("]]>", at + 3)
        self._add(Chars(decode(raw, start, self._report), Span(start, end)))

    def _add(self, child: Element | Chars) -> None:
        host = self._stack[-1]
        if len(self._stack) == 1 and isinstance(child, Chars):
            if child.kind != "comment":
                self._outside.note(child.span, "text")
            return
        if len(self._stack) <= MAX_DEPTH + 1:
            host.children.append(child)

    def _start_tag(self, opening: re.Match[str]) -> int:
        start, name_end = opening.start(), opening.end()
        glued = self._text.startswith("=", name_end) and self._lost_name(opening[1])
        if glued:  # an attribute follows the name without a space
            name_end = start + 1 + len(glued)
            message = f"a space is missing before the attribute {quote(opening[1][len(glued) :])}; write one"
            fix = (Edit(Span(name_end, name_end), " "),)
            self._report.add("E107", message, Span(name_end, opening.end()), "a space", fix)
        below = _BELOW.match(self._text, name_end) if self._root == "prompt" else None
        if not glued and below is None and self._is_text(opening):
            message = (
                f"'<' before {quote(opening[1])} does not begin a tag; write &lt;, or put code into CDATA "
                "or a file with src"
            )
            return self._plain(start, message)
        name_end = below.end() if below else name_end
        names = self._text[start + 1 : name_end].split("/")
        tag = names[-1]
        tag_span = Span(name_end - len(tag), name_end)
        element = Element(tag, tag_span, tag_span, tag_span)
        if start in self._layout.turned:
            return self._turned_tag(tag, name_end)
        if ":" in tag:
            self._prefixed.append(element)
        end, finished = self._attributes.read(element, name_end)
        element.open_span = element.span = Span(start, end)
        if len(names) > 1:
            self._say_nested(element, names, finished)
        if len(self._stack) == 1 and self._rooted:
            self._outside.note(tag_span, f"<{tag}>")
        first = not self._rooted
        opens = finished or first or self._counts[tag] >= 0
        self._hidden.append(element.open_span)
        if not finished:
            self._say_unfinished(element, end, ">" if opens or element.empty_tag else "/>")
        self._rooted, self._root = True, self._root or tag
        if len(self._stack) > MAX_DEPTH and not self._deep:
            self._deep = True
            message = (
                f"elements may be nested {MAX_DEPTH} deep; deeper elements inside this <{tag}> are ignored"
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
            self._tags.append(Tag(tag, element.open_span, False))
        else:
            element.empty_tag = True
            self._unfinished[tag] += 1
        return end

    def _turned_tag(self, tag: str, name_end: int) -> int:
        """Reads a start tag in place of its element's end tag; returns its end."""
        place = name_end - len(tag)
        start = place - 2 if self._text.startswith("/<", place - 2) else place - 1
        fix = (Edit(Span(start, place), "</"),)
        self._say_open(self._stack[-1], f"another <{tag}> comes first", f"</{tag}>", fix)
        self._pop(name_end + 1, tag)
        return name_end + 1

    def _say_unfinished(self, element: Element, end: int, ending: str) -> None:
        """Reports a start tag without `>`; an unopened end tag separates its name from the text after it."""
        tag = element.tag
        lost = self._lost_name(tag)
        if lost and ending == "/>":
            tag, end, ending = lost, element.tag_span.start + len(lost), ">"
        message = f"the tag <{tag}> is not finished, its '>' is missing; write it"
        self._report.missing("E104", message, element.open_span, ending, end)

    def _lost_name(self, tag: str) -> str | None:
        """Returns the name of an unopened end tag with which a start tag's name begins."""
        return next((name for name in self._counts.unopened if tag != name and tag.startswith(name)), None)

    def _is_text(self, opening: re.Match[str]) -> bool:
        """Whether text that begins like a tag is none: not a PML element, no attributes, no end tag."""
        tag = opening[1]
        if tag in RESERVED or len(self._stack) == 1:
            return False
        tail = _TAIL.match(self._text, opening.end())
        if tail is None or _WHOLE.match(self._text, opening.start()):
            return False
        if self._root == "prompt" and tail[0].startswith("/"):
            return tag.endswith(":")  # an address, or an unfinished import
        words = tail[0].strip(" \t\r/\\")
        if not words or _ASSIGNED.search(tail[0]):
            return False
        if self._root == "prompt" and all(re.fullmatch(NAME_PATTERN, word) for word in words.split()):
            return False  # an unfinished attribute
        return self._meanings[tag] is None and self._counts[tag] < 0

    def _say_nested(self, element: Element, names: list[str], finished: bool) -> None:
        """Reports a tag that names a path, such as `<a/b/>`."""
        *outer, last = names
        opened = "".join(f"<{name}>" for name in outer)
        closed = "".join(f"</{name}>" for name in reversed(outer))
        start, end = element.open_span.start, element.open_span.end
        hint, span = f"{opened}<{last}/>{closed}", Span(start + 1, element.tag_span.end)
        begin = Edit(Span(start, span.end), f"{opened}<{last}")
        fix: tuple[Edit, ...] = ()
        closing = f"</{'/'.join(names)}>"
        place = self._text.find(closing, end, end + _MAX_APART)
        if finished and element.empty_tag:
            fix = (begin, Edit(Span(end, end), closed))
        elif finished and place >= 0:
            self._nested_ends.add(place)
            fix = (begin, Edit(Span(place, place + len(closing)), f"</{last}>{closed}"))
        self._report.add("E107", f"a tag names one element; nest them: {hint}", span, hint, fix)

    def _say_prefixed(self, element: Element) -> None:
        local = element.tag.strip(":").rpartition(":")[2]
        message = f"the element name {quote(element.tag)} has a prefix; PML has no namespaces"
        fix = element.renamed(local) if local else ()
        self._report.add("E118", message, element.tag_span, local, fix)

    def _end_tag(self, mark: int) -> int:
        match = _CLOSE.match(self._text, mark)
        if match is None:
            return mark + 2
        path, end = match[2] or "", match.end()
        tag, top = path.rpartition("/")[2], self._stack[-1].tag
        if not match[3] and top and path != top and path.startswith(top) and not self._open[path]:
            end = mark + len("</") + len(match[1]) + len(top)  # text follows the tag's name directly
            message = f"the closing tag </{top} is not finished, its '>' is missing; write it"
            self._report.missing("E104", message, Span(mark, end), ">", end)
            self._pop(end, top, mark)
            return end
        if not match[3]:
            end = self._unfinished_end(mark, tag or top, end)
        if not tag:
            if match[3]:
                if top:
                    message = f"a closing tag names its element; write </{top}>"
                    self._report.instead("E106", message, Span(mark, end), f"</{top}>")
                else:
                    fix = (Edit(Span(mark, end), ""),)
                    self._report.add("E106", "</> closes nothing; remove it", Span(mark, end), NOTHING, fix)
            self._pop(end, top, mark, tag)
            return end
        if match[3] and (match[1] or (path != tag and mark not in self._nested_ends)):
            message = f"a closing tag is </, the name of one element, and >; write </{tag}>"
            self._report.instead("E106", message, Span(mark, end), f"</{tag}>")
        written = tag if self._text.startswith(tag, mark + 2) else ""
        before, self._ended = self._ended, (end, tag)
        if match[3] and tag == path:
            self._tags.append(Tag(tag, Span(mark, end), True))
        if mark == self._swapped or (top != tag and self._swaps(tag, top, mark, end)):
            self._pop(end, top, mark)
        elif top != tag and not self._unfinished[tag] and self._is_misspelt(tag, top, mark):
            message = f"</{tag}> does not match <{top}>, which is open here; write both the same"
            if tag in RESERVED and top not in RESERVED:
                self._report.add(
                    "E106", message, Span(mark, end), tag, (Edit(self._stack[-1].tag_span, tag),)
                )
            else:
                self._report.instead("E106", message, Span(mark, end), f"</{top}>")
            self._pop(end, top, mark, written)
        elif self._open[tag]:
            while self._stack[-1].tag != tag:
                self._never_closed(mark, f"</{tag}> comes first")
            self._pop(end, tag, mark, written)
        elif self._unfinished[tag]:
            self._unfinished[tag] -= 1
        else:
            repeated = before[1] == tag and not self._text[before[0] : mark].strip(" \t\r\n")
            self._stray_end(tag, top, Span(mark, end), repeated)
        return end

    def _is_misspelt(self, tag: str, top: str, mark: int) -> bool:
        if not top or self._report.full or not self._counts[top] < 0 < self._counts[tag]:
            return False
        return self._counts.one_misspelt(top, tag) or self._endings.ends(self._stack[-1], tag, mark)

    def _swaps(self, tag: str, top: str, mark: int, end: int) -> bool:
        """Whether an end tag and the next one are swapped; reports it."""
        if len(self._stack) < 3 or self._stack[-2].tag != tag or self._counts[tag] or self._counts[top]:
            return False
        second = _CLOSE.match(self._text, self._after_blank(end))
        if second is None or second[1] or second[2] != top or not second[3]:
            return False
        self._swapped = second.start()
        message = f"</{tag}> and </{top}> are swapped; swap them back"
        names = Span(mark + 2, mark + 2 + len(tag)), Span(*second.span(2))
        fix = (Edit(names[0], top), Edit(names[1], tag))
        self._report.add("E106", message, Span(mark, end), f"</{top}></{tag}>", fix)
        return True

    def _unfinished_end(self, mark: int, tag: str, end: int) -> int:
        """Reports a closing tag without `>`, or with extra text; returns its end."""
        more = "\n" not in self._text[mark:end]
        rest = _CLOSE_REST.match(self._text, end) if more else None
        end = rest.end() if rest else mark + len(self._text[mark:end].rstrip(" \t\r\n"))
        problem = "may contain only its name" if rest else "is not finished, its '>' is missing"
        message = f"the closing tag </{tag} {problem}; write </{tag}>"
        self._report.instead("E104", message, Span(mark, end), f"</{tag}>")
        return end

    def _stray_end(self, tag: str, top: str, span: Span, repeated: bool) -> None:
        """Reports an end tag without a start tag; `repeated` if it follows another with its name."""
        hint = NOTHING
        fix: tuple[Edit, ...] = (Edit(span, ""),)
        idle = span.start in self._layout.idle
        once = tag in (*ROLES, "schema", "prompt") or (self._root == "prompt" and tag not in RESERVED)
        sure = repeated and (idle or once)
        beginning = self._layout.starts.get(span.start)
        start = self._endings.start(tag, self._stack[-1], span, self._counts[tag])
        if start is not None:
            hint, fix, remedy, sure = start[0], (start[1],), start[2], True
        elif beginning is not None:
            hint, fix, sure = f"<{tag}>", (beginning,), True
            remedy = f"<{tag}> is missing; write it before its content"
        elif not top:
            remedy = "no element is open here; remove it"
        elif tag in RESERVED:
            remedy = f"<{top}> is open here; write </{top}>, or write the start tag <{tag}>, or remove it"
        elif self._root == "prompt" and (near := self._speller.nearest(tag, ROLES)):
            remedy = f"no <{near}> is open here; remove it"
        elif self._root == "prompt" and (top == "prompt" or top not in RESERVED):
            remedy = f"write <{tag}/> to import it, or remove it"
            if not repeated:
                hint, fix = f"<{tag}/>", (Edit(span, f"<{tag}/>"),)
                sure = idle or self._after_blank(self._stack[-1].open_span.end) >= span.start
        else:
            hint = f"&lt;/{tag}>"
            remedy, fix = f"write {hint} for literal text", (Edit(Span(span.start, span.start + 1), "&lt;"),)
            sure = not any(self._counts[element.tag] < 0 for element in self._stack[1:MAX_DEPTH])
        last = top == "prompt" and self._after_blank(span.end) == len(self._text)
        if not sure or last or span.start == self._scanned.broken:
            fix = ()  # the last one may be the missing end of the prompt
        self._report.add("E106", f"</{tag}> closes nothing: {remedy}", span, hint, fix)

    def _after_blank(self, place: int) -> int:
        blank = _BLANK.match(self._text, place)
        return blank.end() if blank else place

    def _pop(self, end: int, tag: str, end_tag: int | None = None, end_name: str = "") -> None:
        """Ends the open element at `end`; `end_tag` is the start of its end tag, if any."""
        if len(self._stack) > 1:
            element = self._stack.pop()
            element.span = Span(element.span.start, end)
            element.close_span = None if end_tag is None else Span(end_tag, end)
            element.end_name = end_name
            self._open[tag] -= 1

    def _never_closed(self, end: int, why: str) -> None:
        element = self._stack[-1]
        self._say_open(element, why, *self._endings.of(element, end, self._root, len(self._stack) - 1))
        self._pop(end, element.tag)

    def _say_open(
        self, element: Element, why: str, hint: str, fix: tuple[Edit, ...], choices: tuple[Fix, ...] = ()
    ) -> None:
        place = element.open_span.end
        importing = self._root == "prompt" and element.tag not in RESERVED
        if self._text.startswith(">/", place - 1) and (importing or element.tag in EMPTY):
            hint, fix, choices = f"<{element.tag}/>", (Edit(Span(place - 1, place + 1), "/>"),), ()
        repeated = self._endings.repeated(element)
        if repeated is not None:
            hint, fix, choices = "one start tag", (repeated,), ()
        name = element.get("name")
        label = f"<{element.tag} name={quote(name.value)}>" if name else f"<{element.tag}>"
        message = f"{label} is never closed ({why}); write {hint}"
        if element.tag not in RESERVED and not hint.startswith("&lt;"):
            message += f", or &lt;{element.tag} for literal text"
        self._report.add("E105", message, element.open_span, hint, fix, choices)
        element.closed = False

    def _close_rest(self) -> None:
        while len(self._stack) > 1:
            self._never_closed(len(self._text), "the document ends first")

    def _leave_rest(self) -> None:
        """Ends open elements without diagnostics, because the rest is not scanned."""
        while len(self._stack) > 1:
            self._pop(len(self._text), self._stack[-1].tag)
