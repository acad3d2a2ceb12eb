"""Reports content outside the root element and suggests how to move it inside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from engine.pml.diagnostics.diagnostic import NOTHING, Edit, Fix, Reporter, Span
from engine.pml.xml.elements import Element
from engine.pml.xml.names import RESERVED, ROLES
from engine.pml.xml.suggestions import enclosed

_MARKS: Final = ("<", "&", "]]>", "--")  # possible markup in text outside the root

_FENCE: Final = r"(?:`{3,}|~{3,})[ \t]*[\w+-]*"  # begins or ends a code block of Markdown
_IDLE: Final = re.compile(rf"/?>|{_FENCE}")
_FENCED: Final = re.compile(rf"{_FENCE}[ \t]*\n|(?:.*\n)?[ \t]*{_FENCE}", re.DOTALL)

_TURN: Final = re.compile(rf"[ \t\r\n]*<(?:{'|'.join(ROLES)})>")
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

    def say(self, elements: Sequence[Element]) -> None:
        """Reports content outside the root; `elements` are the root and all elements after it."""
        if self._first is None:
            return
        (span, content), root = self._first, elements[0] if elements else None
        after = root is not None and span.start > root.span.start
        message = f"{content} is {'after' if after else 'before'} the root element; "
        if content in ("<schema>", "<prompt>"):
            message, kind = f"{message}put it into a separate document", content[1:-1]
            others = [other for other in elements if other.tag_span == span and other.closed]
            removed = tuple(Fix(f"Remove {content}…</{kind}>", (Edit(other.span, ""),)) for other in others)
            self._report.add("E115", message, span, choices=removed)
            return
        piece = self._text[span.start : span.end]
        whole = span
        if root is not None:  # with the white space to the root
            whole = Span(root.span.end, span.end) if after else Span(span.start, root.span.start)
        gone = (Edit(whole if "<" not in self._text[whole.start : whole.end] else span, ""),)
        if _IDLE.fullmatch(piece) or not any(map(str.isprintable, piece)):
            self._report.add("E115", f"{message}remove it", span, NOTHING, gone)
            return
        hint, fix = self._moved_in(span, root, after) if root is not None else ("", ())
        choices: tuple[Fix, ...] = ()
        if _FENCED.match(piece) if after else _FENCED.fullmatch(piece):
            moved = (Fix(f"Write {hint}: the model then reads it", fix),) if fix else ()
            hint, fix, choices = "", (), (Fix("Remove it: no part of the document", gone), *moved)
        self._report.add("E115", f"{message}move it inside, or remove it", span, hint, fix, choices)

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
            return f"<{root.tag}> before it", (begin, Edit(self._line(opened), ""))
        rest = text[root.span.end :]
        if "<" in rest and root.tag == "prompt" and not _TURN.match(rest):
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
        return hint, (Edit(self._line(closing), ""), Edit(Span(last, last), f"</{root.tag}>"))

    def _line(self, tag: Span) -> Span:
        """Returns the span of a tag, with the line break before it if the tag has a line of its own."""
        before = self._text[: tag.start].rstrip(" \t\r\n")
        alone = "\n" in self._text[len(before) : tag.start] and self._text.startswith(("\n", "\r\n"), tag.end)
        return Span(len(before), tag.end) if alone else tag
