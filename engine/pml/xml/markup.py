"""Reads comments, CDATA sections, declarations and processing instructions."""

from __future__ import annotations

import re
from typing import Final

from engine.pml.diagnostics.diagnostic import NOTHING, Edit, Fix, Span, quote, swap
from engine.pml.xml.elements import Chars
from engine.pml.xml.scanned_text import ScannedText

MAX_DASHES: Final = 100  # most places in one comment that a fix changes

_ENCODING: Final = re.compile(r"encoding\s*=\s*[\"']([^\"']*)")
_DOCTYPE_PART: Final = re.compile(r"\"[^\"]*\"|'[^']*'|[\[\]<>]")
_XML: Final = re.compile(r"<\?xml[\s?]")
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_SHORT_END: Final = re.compile(r"\]\](?=[ \t\r\n]*</)")
_END_TAGS: Final = re.compile(r"(?:[ \t]*</[a-z]+>)+$")
_FAR: Final = 80  # search distance for the tags around markup, in characters
_DASHES: Final = re.compile("-+")
_LIKE_COMMENT: Final = re.compile(r"<!(?:-(?!-)|[ \t]+--+)")
_LIKE_CDATA: Final = re.compile(r"<!\[?cdata\[", re.IGNORECASE)


def comment(scanned: ScannedText, mark: int) -> tuple[int, Chars]:
    """Reads the comment at `mark`; returns its end and its node."""
    text, report = scanned.text, scanned.report
    stop = scanned.find("-->", mark + 4)
    if stop < 0:
        end = scanned.rest_of_line(mark)
        follows = _BLANK.match(text, end)
        one_line = not follows or text.startswith("<", follows.end()) or follows.end() == len(text)
        fix = _ended(text, mark + 4, end) if one_line else ()
        report.add("E114", "a comment is never closed; write -->", Span(mark, end), "-->", fix)
        return max(end, mark + 4), Chars("", Span(mark, end), "comment")
    dashes = text.find("--", mark + 4, stop + 1)
    if dashes >= 0:
        message = "'--' is not allowed inside a comment; write one dash"
        report.add("E114", message, Span(dashes, dashes + 2), "-", _single(text, mark + 4, stop, True))
    return stop + 3, Chars("", Span(mark, stop + 3), "comment")


def _ended(text: str, start: int, end: int) -> tuple[Edit, ...]:
    """Returns the edits that end a comment at the end of its line."""
    body = text[start:end]
    tail = start + len(body.removesuffix(">").rstrip("-")) if body.endswith(("-", "->")) else end
    return (*_single(text, start, tail, False), Edit(Span(tail, end), "-->"))


def _single(text: str, start: int, stop: int, closed: bool) -> tuple[Edit, ...]:
    """Returns the edits that replace several dashes with one, or none before the end of a comment."""
    edits = []
    for run in _DASHES.finditer(text, start, stop):
        if closed and run.end() == stop:
            edits.append(Edit(Span(*run.span()), ""))
        elif run.end() - run.start() > 1:
            edits.append(Edit(Span(*run.span()), "-"))
        if len(edits) > MAX_DASHES:
            return ()
    return tuple(edits)


def cdata(scanned: ScannedText, mark: int) -> tuple[int, Chars]:
    """Reads the CDATA section at `mark`; returns its end and its node."""
    text, start = scanned.text, mark + len("<![CDATA[")
    stop = scanned.find("]]>", start)
    end = stop + 3
    if stop < 0:
        message = "a CDATA section is never closed; write ]]>"
        short = _SHORT_END.search(text, start)
        line_end = max(scanned.rest_of_line(mark), start)
        tag = _END_TAGS.search(text, max(start, line_end - _FAR), line_end)
        stop = short.start() if short else tag.start() if tag else line_end
        end = short.end() if short else stop
        follows = _BLANK.match(text, end)
        fix: tuple[Edit, ...] = ()
        if short or not follows or text.startswith("<", follows.end()) or follows.end() == len(text):
            fix = (Edit(Span(stop, end), "]]>"),)
        scanned.report.add("E114", message, Span(mark, end), "]]>", fix)
    raw = text[start:stop].replace("\r\n", "\n").replace("\r", "\n")
    return end, Chars(raw, Span(mark, end), "cdata")


def declaration(scanned: ScannedText, mark: int, inside: bool) -> int:
    """Rejects the declaration at `mark` and returns its end; `inside` if it is in the root."""
    text = scanned.text
    end = _declaration_end(scanned, mark + 2)
    for like, begin, close in ((_LIKE_COMMENT, "<!--", "-->"), (_LIKE_CDATA, "<![CDATA[", "]]>")):
        match = like.match(text, mark)
        if match is not None and mark != scanned.broken and scanned.find(close, match.end()) >= 0:
            what = "a comment" if begin == "<!--" else "a CDATA section"
            fix = swap(Span(*match.span()), begin)
            scanned.report.add("E111", f"{what} must begin with {begin}", Span(mark, end), begin, fix)
            return end
    if text[mark : mark + 9].upper() == "<!DOCTYPE":
        what = "a DOCTYPE is not allowed, and neither are custom entities"
    else:
        what = "'<!' must begin a comment or CDATA section in PML"
    _refuse(scanned, "E111", what, Span(mark, end), inside)
    return end


def _declaration_end(scanned: ScannedText, place: int) -> int:
    """Returns the end of a declaration with its internal subset, or of the line if it never ends."""
    if scanned.lacks(">"):
        return scanned.rest_of_line(place)
    depth = 0
    for part in _DOCTYPE_PART.finditer(scanned.text, place):
        if part[0] == "[":
            depth += 1
        elif part[0] == "]":
            depth -= 1
        elif part[0] == ">" and depth <= 0:
            return part.end()
        elif part[0] == "<" and depth <= 0:
            return scanned.rest_of_line(place, part.start())
    scanned.give_up(">")
    return scanned.rest_of_line(place)


def instruction(scanned: ScannedText, mark: int, inside: bool) -> int:
    """Reads the XML declaration at `mark` and rejects any other instruction; returns its end."""
    text, report = scanned.text, scanned.report
    stop = scanned.find("?>", mark + 2)
    end = stop + 2 if stop >= 0 else max(scanned.rest_of_line(mark), mark + 2)
    if not _XML.match(text, mark):
        _refuse(scanned, "E112", "processing instructions are not allowed", Span(mark, end), inside)
        return end
    if mark > 1 or text[:mark] not in ("", "\ufeff"):
        first = len(text[: scanned.start].rstrip(" \t\r\n"))
        message = "an XML declaration must be at the very start; move it there, or remove it"
        if mark == scanned.start and stop >= 0:
            blank = (Edit(Span(first, mark), ""),)
            report.add("E113", message, Span(mark, end), "it at the very start", blank)
        else:
            fix = () if mark == scanned.broken else (Edit(Span(mark, end), ""),)
            report.add("E113", message, Span(mark, end), NOTHING, fix)
        return end
    encoding = _ENCODING.search(text, mark, end)
    if encoding is not None and encoding[1].upper() not in ("UTF-8", "UTF8"):
        span = Span(encoding.start(1), encoding.end(1))
        message = f"PML is UTF-8, not {quote(encoding[1])}; save it as UTF-8 and write that here"
        report.instead("E113", message, span, "UTF-8")
    elif stop < 0:
        message = "the XML declaration is not finished; write ?>"
        report.missing("E113", message, Span(mark, end), "?>", end)
    return end


def _refuse(scanned: ScannedText, code: str, what: str, span: Span, inside: bool) -> None:
    """Reports unsupported markup, which can be removed, or read as text inside an element."""
    text, begin = scanned.text, scanned.text[span.start : span.start + 2]
    removed, hint = (Edit(span, ""),), f"&lt;{begin[1:]}"
    if span.start == scanned.broken:
        scanned.report.add(code, f"{what}; remove it", span, hint if inside else "")
    elif not inside:
        scanned.report.add(code, f"{what}; remove it", span, NOTHING, removed)
    else:
        remedy = f"remove it, or write {hint} for literal text"
        before, after = text[max(0, span.start - _FAR) : span.start], text[span.end : span.end + _FAR]
        alone = before.rstrip().endswith(">") and re.match(r"\s*<(?!/)", after) is not None
        escaped = swap(Span(span.start, span.start + 1), "&lt;")
        as_text = Fix(f"Write {hint}: the model then reads it", escaped)
        gone = Fix("Remove it: the model does not read it", removed)
        choices = (gone, as_text) if alone else (as_text, gone)
        scanned.report.add(code, f"{what}; {remedy}", span, hint, (), choices)
