"""Reports content outside the root element and suggests how to move it inside."""

from __future__ import annotations

import re
from typing import Final

from engine.pml.diagnostics.diagnostic import NOTHING, Edit, Reporter, Span
from engine.pml.xml.elements import Element
from engine.pml.xml.names import RESERVED
from engine.pml.xml.suggestions import enclosed

_MARKS: Final = ("<", "&", "]]>", "--")  # possible markup in text outside the root

_LOST_OPEN: Final = re.compile(r"(?:schema|prompt)(?:>|[ \t\r\n]+\w+[ \t]*=)")


class Outside:
    """Records content outside the root of one text, and reports it."""

    def __init__(self, text: str, report: Reporter) -> None:
        self._text, self._report = text, report
        self._first: tuple[Span, str] | None = None

    def note_text(self, raw: str, start: int) -> None:
        """Records text outside the root, except white space and a byte order mark."""
        content = raw.strip(" \t\r\n\ufeff" if start == 0 else " \t\r\n")
        if not content:
            return
        begin = start + raw.index(content)
        self.note(Span(begin, begin + len(content)), "text")

    def note(self, span: Span, what: str) -> None:
        """Records content outside the root; only the first is reported."""
        self._first = self._first or (span, what)

    def say(self, root: Element | None) -> None:
        """Reports content outside the root, once the whole root is known."""
        if self._first is None:
            return
        span, content = self._first
        after = root is not None and span.start > root.span.start
        message = f"{content} is {'after' if after else 'before'} the root element; "
        if content in ("<schema>", "<prompt>"):
            self._report.add("E115", f"{message}put it into a separate document", span)
            return
        if after and self._text[span.start : span.end] in (">", "/>"):
            self._report.add("E115", f"{message}remove it", span, NOTHING, (Edit(span, ""),))
            return
        hint, fix = self._moved_in(span, root, after) if root is not None else ("", ())
        self._report.add("E115", f"{message}move it inside, or remove it", span, hint, fix)

    def _moved_in(self, span: Span, root: Element, after: bool) -> tuple[str, tuple[Edit, ...]]:
        """Returns the edits that extend the root to the content before or after it."""
        text, opened, closing = self._text, root.open_span, root.close_span
        if not after and _LOST_OPEN.match(text, span.start):
            return f"<{text[span.start : span.start + 6]}", (Edit(Span(span.start, span.start), "<"),)
        if root.tag not in ("schema", "prompt"):
            if root.tag not in RESERVED or "</schema>" in text:
                return "", ()
            opening, end = '<schema name="my-schema">', "</schema>"
            return f"{opening}…{end}", enclosed(text, opening, end)
        finished = text.endswith(">", opened.start, opened.end)
        if not after:
            lead = text[span.start : opened.start]
            if any(mark in lead for mark in _MARKS) or root.empty_tag or not finished:
                return "", ()
            begin = Edit(Span(span.start, span.start), text[opened.start : opened.end])
            return f"<{root.tag}> before it", (begin, Edit(opened, ""))
        rest = text[root.span.end :]
        if "<" in rest and root.tag == "prompt":
            return "", ()  # it may contain imports
        last = len(text.rstrip(" \t\r\n"))
        if any(mark in rest for mark in _MARKS[1:]) or f"</{root.tag}" in rest or f"<{root.tag}" in rest:
            return "", ()
        hint = f"</{root.tag}> at the end"
        if root.empty_tag and finished:
            tail = Edit(Span(last, last), f"</{root.tag}>")
            return hint, (Edit(Span(opened.end - 2, opened.end), ">"), tail)
        if closing is None or root.end_name != root.tag or text[closing.end - 1] != ">":
            return "", ()
        return hint, (Edit(closing, ""), Edit(Span(last, last), f"</{root.tag}>"))
