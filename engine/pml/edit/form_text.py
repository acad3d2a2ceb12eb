"""Reads the texts of a document as a form shows them, and writes them back with the smallest edit.

A form shows a text without its indentation and escapes, and each parameter as `{{name}}`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from engine.pml.diagnostics.diagnostic import Edit, Span
from engine.pml.whitespace.rules import INLINE, SILENT, SPACE, Run, contents
from engine.pml.xml.elements import Chars, Element
from engine.pml.xml.escaping import escaped_text
from engine.pml.xml.names import NAME

SLOT: Final = re.compile(r"\{\{(" + NAME.pattern + r")\}\}")
_PIECE: Final = re.compile(r"&(lt|gt|amp|quot|apos);|\r\n?|\n|[^&\r\n]+")
_FIVE: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}


@dataclass(frozen=True)
class Token:
    """A part of a text, as a form shows it, and its start in the source.

    A `plain` part is written as it is shown. Any other part is one character, or a parameter.
    """

    shown: str
    start: int
    plain: bool


@dataclass(frozen=True)
class FormText:
    """A text between two elements.

    Attributes:
        tokens: its parts in order.
        span: its place, without the white space at its ends that is not part of the text.
        margin: the indentation of its lines.
        preserve: whether its white space is preserved.
        slots: whether `{{name}}` is a parameter.
        why: why a form cannot edit it, or "".
    """

    tokens: tuple[Token, ...]
    span: Span
    margin: str
    preserve: bool
    slots: bool
    why: str = ""

    @cached_property
    def text(self) -> str:
        """The text as a form shows it."""
        return "".join(token.shown for token in self.tokens)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for token in self.tokens:
            starts.append(starts[-1] + len(token.shown))
        return starts

    def place(self, at: int) -> int:
        """Returns the place in the source of a character of the text."""
        index = bisect_right(self._starts, at) - 1
        if index >= len(self.tokens):
            return self.span.end
        token = self.tokens[index]
        return token.start + (at - self._starts[index] if token.plain else 0)

    def atoms(self) -> list[tuple[int, int]]:
        """Returns the ranges of the parameters in the text."""
        pairs = zip(self.tokens, self._starts, strict=False)
        return [
            (at, at + len(token.shown)) for token, at in pairs if len(token.shown) > 1 and not token.plain
        ]

    def normal(self, text: str) -> str:
        """Returns a typed text without the white space that the rules of the language ignore."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if self.preserve:
            return text
        lines = [line if line.strip(SPACE) else "" for line in text.strip(SPACE).split("\n")]
        return "\n".join(lines)


def form_texts(element: Element, source: str, preserve: bool, slots: bool) -> list[FormText]:
    """Returns the texts of an element in document order; `slots` if it may have parameters."""
    groups: list[list[Chars | Element]] = [[]]
    for child in element.children:
        if isinstance(child, Chars) or child.tag in INLINE:
            groups[-1].append(child)
        else:
            groups.append([])
    found = [text for group in groups if (text := _read(group, source, preserve, slots)) is not None]
    wanted = _by_rules(element, source, preserve)
    if len(wanted) != len(found):
        wanted = [""] * len(found)
    return [
        text if text.why or text.text == rule else _locked(text.span, "The form cannot show its white space.")
        for text, rule in zip(found, wanted, strict=True)
    ]


def _by_rules(element: Element, source: str, preserve: bool) -> list[str]:
    """Returns the texts of an element by the white-space rules."""
    texts = [""]
    for item in contents(element, source, preserve):
        if isinstance(item, Run):
            texts[-1] += item.text
        elif item.tag in INLINE:
            texts[-1] += _slot(item)
        elif item.tag not in SILENT:
            texts.append("")
    return [text for text in texts if text.strip(SPACE)]


def _slot(param: Element) -> str:
    name = param.get("name")
    return f"{{{{{name.value if name else ''}}}}}"


def _locked(span: Span, why: str) -> FormText:
    return FormText((), span, "", False, False, why)


def _read(pieces: Sequence[Chars | Element], source: str, preserve: bool, slots: bool) -> FormText | None:
    """Returns the text of adjacent pieces, or None for white space and comments alone."""
    filled = [at for at, piece in enumerate(pieces) if isinstance(piece, Element) or piece.text.strip(SPACE)]
    if not filled:
        return None
    first, last = (0, len(pieces) - 1) if preserve else (filled[0], filled[-1])
    tokens: list[Token] = []
    why = ""
    for at, piece in enumerate(pieces):
        if isinstance(piece, Element):
            tokens.append(Token(_slot(piece), piece.span.start, False))
        elif piece.kind != "text":
            if first <= at <= last:
                why = why or ("It has a comment." if piece.kind == "comment" else "It has a CDATA section.")
        elif "&#" in (raw := source[piece.span.start : piece.span.end]):
            why = why or "It has a character reference."
        elif slots and SLOT.search(piece.text):
            why = why or "It has {{…}}, which a form reads as a parameter."
        else:
            tokens += _parts(raw, piece.span.start)
    if why:
        return _locked(_trimmed(source, Span(pieces[first].span.start, pieces[last].span.end)), why)
    if preserve:
        return FormText(tuple(tokens), Span(pieces[0].span.start, pieces[-1].span.end), "", True, slots)
    lines = _lines(tokens)
    margin = _margin(lines)
    span = _trimmed(source, Span(pieces[first].span.start, pieces[last].span.end))
    shown = [part for token in _dedented(lines, margin) if (part := _within(token, span)) is not None]
    return FormText(tuple(shown), span, margin, False, slots)


def _trimmed(source: str, span: Span) -> Span:
    raw = source[span.start : span.end]
    return Span(span.start + len(raw) - len(raw.lstrip(SPACE)), span.start + len(raw.rstrip(SPACE)))


def _parts(raw: str, start: int) -> list[Token]:
    parts = []
    for match in _PIECE.finditer(raw):
        named = match[1] is not None
        shown = _FIVE[match[1]] if named else "\n" if match[0][0] == "\r" else match[0]
        parts.append(Token(shown, start + match.start(), shown == match[0]))
    return parts


def _lines(tokens: Sequence[Token]) -> list[list[Token]]:
    """Returns the lines of a text; each line after the first begins with its line break."""
    lines: list[list[Token]] = [[]]
    for token in tokens:
        if token.shown == "\n":
            lines.append([])
        lines[-1].append(token)
    return lines


def _shown(line: Sequence[Token]) -> str:
    return "".join(token.shown for token in line)


def _margin(lines: Sequence[Sequence[Token]]) -> str:
    """Returns the common indentation by the white-space rules."""
    first, *rest = (_shown(line) for line in lines)
    filled = [line[1:] for line in rest if line.strip(SPACE)]
    if first.strip(SPACE) or not filled:
        return ""
    indents = [line[: len(line) - len(line.lstrip(" \t"))] for line in filled]
    return indents[0][: min(_alike(indents[0], indent) for indent in indents)]


def _alike(one: str, other: str) -> int:
    """Returns how many characters at the start of two texts are the same."""
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)


def _dedented(lines: Sequence[Sequence[Token]], margin: str) -> list[Token]:
    """Returns the tokens without indentation and without white space in blank lines."""
    kept = [*lines[0]]
    for line in lines[1:]:
        kept.append(line[0])
        if _shown(line).strip(SPACE):
            left = len(margin)
            for token in line[1:]:
                cut = min(left, len(token.shown)) if token.plain else 0
                left -= cut
                kept.append(Token(token.shown[cut:], token.start + cut, token.plain) if cut else token)
    return kept


def _within(token: Token, span: Span) -> Token | None:
    """Returns the part of a token in a span, or None."""
    if not token.plain:
        return token if span.start <= token.start < span.end else None
    start = max(token.start, span.start)
    shown = token.shown[start - token.start : max(0, span.end - token.start)]
    return Token(shown, start, True) if shown else None


def slots_of(text: str, slots: bool) -> list[re.Match[str]]:
    """Returns the parameters of a typed text."""
    return [*SLOT.finditer(text)] if slots else []


def changed_range(old: FormText, new: str) -> tuple[int, int, int]:
    """Returns the start of the changed part of a text, and its ends in the old and in the new text."""
    was = old.text
    head = _alike(was, new)
    most = min(len(was), len(new)) - head
    tail = min(most, _alike(was[::-1], new[::-1]))
    marks = [match.span() for match in slots_of(new, old.slots)]
    while True:
        before = head, tail
        for atoms, size in ((old.atoms(), len(was)), (marks, len(new))):
            for start, end in atoms:  # a parameter changes as a whole
                head = start if start < head < end else head
                tail = size - end if start < size - tail < end else tail
        if (head, tail) == before:
            break
    while tail and "]]>" in new[max(0, len(new) - tail - 2) : len(new) - tail + 2]:
        tail -= 1  # the form writes its ">" as an entity
    if head and was[head - 1] == "\n" and not old.preserve:
        head -= 1  # the indentation after the line break may change
    return head, len(was) - tail, len(new) - tail


def text_edit(source: str, old: FormText, new: str, params: dict[int, str]) -> Edit:
    """Returns the smallest edit that writes a text.

    Args:
        source: the document.
        old: the text in the document.
        new: the new text.
        params: the source of each parameter in the changed part, by its place in `new`.
    """
    head, old_end, new_end = changed_range(old, new)
    newline = "\r\n" if "\r\n" in source else "\n"
    written, at = "", head
    ends = {match.start(): match.end() for match in slots_of(new, old.slots)}
    while at < new_end:
        if at in params:
            written += params[at]
            at = ends[at]
            continue
        if new[at] == "\n":
            blank = at + 1 == len(new) or new[at + 1] == "\n"
            written += newline if blank else newline + old.margin
        else:
            written += "&gt;" if new[max(0, at - 2) : at + 1] == "]]>" else escaped_text(new[at])
        at += 1
    start = old.place(head)
    return Edit(Span(start, max(start, old.place(old_end))), written)
