"""Reads the attributes of a start tag and suggests fixes for malformed ones.

At most one malformed attribute is reported per tag.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from engine.pml.diagnostics.diagnostic import NOTHING, Edit, Reporter, Span, quote
from engine.pml.xml.elements import Attribute, Element
from engine.pml.xml.entities import decode
from engine.pml.xml.names import ATTRIBUTES, NAME
from engine.pml.xml.scanned_text import NAME_PATTERN, ScannedText
from engine.pml.xml.suggestions import removed

_SPACE: Final = re.compile(r"[ \t\r\n]*")
# a correct attribute whose value needs no decoding
_CORRECT: Final = re.compile(r"[ \t\r\n]+(([A-Za-z_][A-Za-z0-9_.\-]*)=\"([^\"<&\t\r\n]*)\")(?=[ \t\r\n>]|/>)")
_ATTRIBUTE: Final = re.compile(rf"({NAME_PATTERN})([ \t\r\n]*=)?[ \t\r\n]*")
_WORDS: Final = "|".join(sorted({name for names in ATTRIBUTES.values() for name in names}))
_BARE: Final = r"(?:[^\s<>\"'/=]|/(?!>))+"
_BARE_VALUE: Final = re.compile(rf"{_BARE}(?:[ \t]+(?!(?:{_WORDS})\b)(?!{NAME_PATTERN}[ \t\r\n]*=){_BARE})*")
_JUNK: Final = re.compile(rf"(?!{NAME_PATTERN})[^\s<>/](?:(?!{NAME_PATTERN})[^\s<>/])*")
_GOES_ON: Final = re.compile(rf"[ \t\r\n]*(?:/?>|{NAME_PATTERN}[ \t\r\n]*=)")
_QUOTED: Final = r"(\"[^\"<>\n]*\"|'[^'<>\n]*')"
_NAMELESS: Final = re.compile(rf"=*[ \t]*{_QUOTED}(?=[ \t\r\n/>])")
_UNEQUAL: Final = re.compile(rf"[ \t]*{_QUOTED}(?=[ \t\r\n/>])")
_EQUALS: Final = re.compile(r"=+[ \t]*")
_LOOSE_END: Final = re.compile(r"\\>|/[ \t\r\n]+>")
_RUN_ON: Final = re.compile(rf"([^<>]*?)[ \t\r\n]+{NAME_PATTERN}[ \t\r\n]*=[ \t\r\n]*")
_INNER: Final = {
    mark: re.compile(rf"[^<>=\n{mark}]*{mark}(?:[^<>=\n{mark}]*{mark})*?(?=[ \t]*/?>|[ \t]+{NAME_PATTERN}=)")
    for mark in "\"'"
}
_LONGEST_RUN_ON: Final = 400
_DOUBLE: Final = "“”„‟«»″＂"
_SINGLE: Final = "‘’‚‛′＇`´"
_CURLY: Final = re.compile(
    rf"[{_DOUBLE}]([^{_DOUBLE}\"<>\n]*)[{_DOUBLE}\"]|[{_SINGLE}]([^{_SINGLE}\"'<>\n]*)[{_SINGLE}']"
)
_FIRST: Final = dict.fromkeys(("schema", "module", "param", "parameter", "arg"), "name") | {
    "prompt": "schema",
    "scaffold": "modules",
}  # likely attribute of a value without a name

_KNOWN_PREFIXED: Final = ("xml:space", "xml:lang")


@dataclass
class _Words:
    """Words in a tag that are not attributes; they become text if the tag is unfinished.

    Attributes:
        place: the start of the words.
        slash: whether they start with a slash, which ends the tag.
        errors: the number of errors before them.
        attributes: the attributes before them.
        number: the number of words.
    """

    place: int
    slash: bool
    errors: int
    attributes: dict[str, Attribute]
    number: int = 0

    def undone(self, element: Element, report: Reporter) -> int:
        """Removes the diagnostics and attributes of the words and returns the end of the tag."""
        if not report.full:
            del report.errors[self.errors :]
        element.attributes = self.attributes
        element.empty_tag = self.slash
        return self.place + self.slash


class AttributeScanner:
    """Reads attributes into elements."""

    def __init__(self, scanned: ScannedText) -> None:
        self._scanned = scanned
        self._text, self._report = scanned.text, scanned.report

    def read(self, element: Element, place: int) -> tuple[int, bool]:
        """Reads from `place` on; returns the tag's end and whether its `>` is present."""
        text, complained, last = self._text, False, place
        words: _Words | None = None
        while True:
            while (correct := _CORRECT.match(text, place)) and correct[2] not in element.attributes:
                self._scanned.count(correct.start(1))
                name, last = correct[2], correct.end()
                element.attributes[name] = Attribute(
                    name, correct[3], Span(*correct.span(1)), Span(*correct.span(3))
                )
                place = last
            spaced = _SPACE.match(text, place)
            begin = spaced.end() if spaced else place
            char = text[begin : begin + 1]
            if char == ">":
                return begin + 1, True
            if char == "/" and text.startswith("/>", begin):
                element.empty_tag = True
                return begin + 2, True
            if char in ("", "<"):
                self._scanned.broken = begin
                if words is not None and (words.number > 1 or words.slash):
                    return words.undone(element, self._report), False
                return last, False
            self._scanned.count(begin)
            if ending := _LOOSE_END.match(text, begin):
                if not complained:
                    message = f"{quote(ending[0])} does not end a tag; write />"
                    self._report.instead("E107", message, Span(*ending.span()), "/>")
                element.empty_tag = True
                return ending.end(), True
            match = _ATTRIBUTE.match(text, begin)
            if match is None or not match[2]:
                words = words or _Words(place, char == "/", len(self._report.errors), {**element.attributes})
            if match is None:
                last = place = self._junk(element, begin, complained)
                complained = True
                continue
            if begin == place and element.attributes and match[2] and not complained:
                span = Span(begin, begin + len(match[1]))
                message = f"a space is missing before the attribute {quote(match[1])}; write one"
                self._report.add("E107", message, span, "a space", (Edit(Span(begin, begin), " "),))
                complained = True
            place, closed = self._attribute(element, match, complained)
            complained = complained or not match[2]
            if words is not None and place == begin + len(match[1]):
                words.number += 1
            last = place
            if closed is not None:
                element.empty_tag = text[closed - 2] == "/"
                return closed, True

    def _junk(self, element: Element, begin: int, complained: bool) -> int:
        """Skips text that is not an attribute; returns its end."""
        value, name = _NAMELESS.match(self._text, begin), _FIRST.get(element.tag)
        if value is not None and name is not None and name not in element.attributes:
            hint, span = f"{name}={value[1]}", Span(begin, value.end())
            if not complained:
                space = "" if self._text[begin - 1] in " \t\r\n" else " "
                message = f"the value {quote(value[1])} has no name; write {hint}"
                self._report.add("E107", message, span, hint, (Edit(span, space + hint),))
            self._store(element, name, Span(value.start(1) + 1, value.end(1) - 1), span)
            return span.end
        junk = _JUNK.match(self._text, begin)
        end = value.end() if value else junk.end() if junk else begin + 1
        if not complained:
            quoted, span = quote(self._text[begin:end]), Span(begin, end)
            message = f'{quoted} is not an attribute; remove it, or write name="value"'
            lost = self._text[begin] == "=" and begin == element.tag_span.end  # a name runs into the tag's
            fix = (Edit(span, " "),) if not lost and _GOES_ON.match(self._text, end) else ()
            self._report.add("E107", message, span, NOTHING, fix)
        return end

    def _attribute(self, element: Element, found: re.Match[str], complained: bool) -> tuple[int, int | None]:
        """Reads one attribute; returns its end, and the tag's end if a missing quote determines it."""
        name, begin, name_end = found[1], found.start(), found.start() + len(found[1])
        if not found[2]:
            return self._unequal(element, name, begin, name_end, complained), None
        text, place = self._text, found.end()
        mark, closed = text[place : place + 1], None
        if mark in ("'", '"') and mark:
            start, end, after, closed = self._quoted(name, begin, place, mark)
        elif mark and mark in _DOUBLE + _SINGLE and (curly := _CURLY.match(text, place)):
            start, end = curly.span(1) if curly[1] is not None else curly.span(2)
            after = curly.end()
            hint = f'{name}="{text[start:end]}"'
            message = f"the value of the attribute {quote(name)} has curly quotes; write {hint}"
            marks = (Edit(Span(place, place + 1), '"'), Edit(Span(after - 1, after), '"'))
            self._report.add("E107", message, Span(begin, after), hint, marks)
        else:
            start, end, after = self._bare(name, begin, place, found)
        self._store(element, name, Span(start, end), Span(begin, after))
        return after, closed

    def _unequal(self, element: Element, name: str, begin: int, name_end: int, complained: bool) -> int:
        """Reads a name without `=`; returns the end."""
        value, plain = _UNEQUAL.match(self._text, name_end), name.rstrip(":") or name
        if value is not None and plain not in element.attributes:
            hint, span = f"{plain}={value[1]}", Span(begin, value.end())
            if not complained:
                space = "" if self._text[begin - 1] in " \t\r\n" else " "
                message = f"a = is missing before the value of the attribute {quote(plain)}; write {hint}"
                self._report.add("E107", message, span, hint, (Edit(span, space + hint),))
            self._store(element, plain, Span(value.start(1) + 1, value.end(1) - 1), span)
            return span.end
        first = _FIRST.get(element.tag, plain)
        tag_end = self._text.find(">", name_end, name_end + _LONGEST_RUN_ON)
        known = plain in (first, *ATTRIBUTES.get(element.tag, ())) or first in element.attributes
        known = known or re.search(rf"\b{first}\s*=", self._text[name_end:tag_end]) is not None
        if not known and NAME.fullmatch(plain):
            hint, span = f'{first}="{plain}"', Span(begin, name_end)
            if not complained:
                message = f"the value {quote(plain)} has no attribute; write {hint}"
                self._report.instead("E107", message, span, hint)
            self._store(element, first, Span(begin, begin + len(plain)), span)
            return name_end
        if not complained:
            message = f'the attribute {quote(name)} has no value; write {plain}="…"'
            self._report.add("E107", message, Span(begin, name_end), f'{plain}="…"')
        return name_end

    def _bare(self, name: str, begin: int, place: int, found: re.Match[str]) -> tuple[int, int, int]:
        """Reads a value without quotes; returns its start and end, and the end of the attribute."""
        text = self._text
        more = _EQUALS.match(text, place)
        place = more.end() if more else place
        again = _UNEQUAL.match(text, place) if more else None
        bare = _BARE_VALUE.match(text, place)
        if again is not None:
            start, end, after = again.start(1) + 1, again.end(1) - 1, again.end()
        elif bare is not None:
            start, end, after = place, bare.end(), bare.end()
            while start < end and text[start] in _DOUBLE + _SINGLE:
                start += 1
            while start < end and text[end - 1] in _DOUBLE + _SINGLE:
                end -= 1
            if text[after : after + 1] in ("'", '"'):
                after += 1
        else:
            start = end = place
            after = place if more else begin + len(found[0].rstrip(" \t\r\n"))
        hint = f"{name}={again[1]}" if again else f'{name}="{text[start:end]}"'
        message = f"the value of the attribute {quote(name)} needs quotes; write {hint}"
        self._report.instead("E107", message, Span(begin, max(after, end)), hint)
        return start, end, after

    def _quoted(self, name: str, begin: int, place: int, mark: str) -> tuple[int, int, int, int | None]:
        """Reads a quoted value; returns its start and end, and the ends of its attribute and tag."""
        text, start = self._text, place + 1
        line_end = self._report.lines.next_line(start)
        stop = self._scanned.find(mark, start)
        angle = text.find("<", start, stop if stop >= 0 else line_end)
        if stop >= 0 and angle < 0:
            end = self._run_on(start, stop)
            if end is not None:
                value_end, after = self._unclosed(name, begin, start, end, mark)
                return start, value_end, after, None
            stop = self._with_quotes(name, begin, stop, mark)
            return start, stop, stop + 1, None
        runs_on = text.find(">", start, angle) >= 0 and text[stop + 1 : stop + 2] not in ("", *" \t\r\n/>?")
        if 0 <= stop < line_end and not runs_on:
            message = f"'<' is not allowed in the value of {quote(name)}; write &lt;"
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
        value_end, after = self._unclosed(name, begin, start, end, mark)
        return start, value_end, after, closed

    def _with_quotes(self, name: str, begin: int, stop: int, mark: str) -> int:
        """Returns the end of a value that may contain its own quotes, and reports these."""
        more = _INNER[mark].match(self._text, stop + 1) if self._text[stop + 1 : stop + 2].isalnum() else None
        if more is None or len(more[0]) > _LONGEST_RUN_ON:
            return stop
        hint, end = "&quot;" if mark == '"' else "&apos;", more.end() - 1
        places = [at for at in range(stop, end) if self._text[at] == mark]
        message = f"the value of the attribute {quote(name)} contains {mark}; write {hint}"
        fix = tuple(Edit(Span(at, at + 1), hint) for at in places)
        self._report.add("E107", message, Span(begin, end + 1), hint, fix)
        return end

    def _run_on(self, start: int, stop: int) -> int | None:
        """Returns the end of a value without a closing quote that runs into the next attribute."""
        if self._text[stop + 1 : stop + 2] in ("", *" \t\r\n/>?") or stop - start > _LONGEST_RUN_ON:
            return None
        match = _RUN_ON.fullmatch(self._text, start, stop)
        return match.end(1) if match else None

    def _unclosed(self, name: str, begin: int, start: int, end: int, mark: str) -> tuple[int, int]:
        """Reports a value without a closing quote; returns the ends of the value and the attribute."""
        if end > start and self._text[end - 1] in _DOUBLE + _SINGLE + "\"'":
            message = (
                f"the value of the attribute {quote(name)} ends with another quote than it begins with; "
                f"write {mark}"
            )
            self._report.add("E107", message, Span(begin, end), mark, (Edit(Span(end - 1, end), mark),))
            return end - 1, end
        message = f"the value of the attribute {quote(name)} has no closing quote; add {mark}"
        self._report.missing("E107", message, Span(begin, end), mark, end)
        return end, end

    def _store(self, element: Element, name: str, value: Span, span: Span) -> None:
        report = self._report
        if ":" in name and name not in _KNOWN_PREFIXED:
            self._prefixed(element, name, span)
        if name in element.attributes:
            line = report.lines.line(element.attributes[name].span.start)
            message = f"the attribute {quote(name)} is already given at line {line}; keep one"
            first = element.attributes[name].value_span
            same = self._text[first.start : first.end] == self._text[value.start : value.end]
            report.add("E108", message, span, NOTHING, removed(self._text, span) if same else ())
            return
        raw = self._text[value.start : value.end]
        text = decode(raw, value.start, report, attribute=True)
        element.attributes[name] = Attribute(name, text, span, value)

    def _prefixed(self, element: Element, name: str, span: Span) -> None:
        local = name.strip(":").rpartition(":")[2]
        name_span = Span(span.start, span.start + len(name))
        message = f"the attribute name {quote(name)} has a prefix; only xml:space and xml:lang are known"
        if name.startswith("xmlns:") or not local or local in element.attributes:
            self._report.add("E118", message, name_span, NOTHING, removed(self._text, span))
        else:
            self._report.instead("E118", message, name_span, local)
