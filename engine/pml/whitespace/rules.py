"""The white-space rules of PML: converts an element's characters to text runs and separators.

A *text run* is the text between two elements; a comment does not end it. Runs and the parameters between them
form one *paragraph*, up to the next other element. A paragraph is dedented as a whole, without the white
space at its ends. White space at the end of a container is ignored. Between a paragraph and another element,
or between two elements, it is a *seam*. White space around a parameter stays. Text that begins on the line of
the tag before it has no known indentation, so the lines after it stay unchanged.

A seam is two line breaks for a blank line, one for a line break, else a space. It is empty next to a turn. A
`<scaffold>`, a `<decide>` and an `<answer-format>` count as comments. With `xml:space="preserve"` all
characters are text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from engine.pml.diagnostics.diagnostic import Span
from engine.pml.xml.elements import Chars, Element

SPACE: Final = " \t\r\n"  # XML's white space; a no-break space is text

INLINE: Final = ("param", "parameter")


_BARE: Final = ("system", "user", "assistant")
SILENT: Final = ("scaffold", "decide", "answer-format")  # elements without text in the prompt


@dataclass(slots=True)
class Run:
    """A normalised text run and the separators around it.

    Attributes:
        text: the text; empty for white space alone.
        span: its place, without the white space at its ends.
        before: the separator from the element or start tag before it.
        after: the separator from the element after it; empty before an end tag.
    """

    text: str
    span: Span
    before: str = ""
    after: str = ""


@dataclass(slots=True)
class _Raw:
    text: str
    pieces: list[Chars]


def preserves(element: Element, inherited: bool) -> bool:
    """Whether white space is preserved inside an element."""
    mode = element.get("xml:space")
    return inherited if mode is None else mode.value == "preserve"


def contents(element: Element, source: str, preserve: bool) -> list[Run | Element]:
    """Returns the children of an element: its elements, and its text runs by the rules above."""
    result: list[Run | Element] = []
    paragraph: list[_Raw | Element] = []
    preceding: Element | None = None
    for item in _raw_items(element, preserve):
        if isinstance(item, Element) and item.tag not in INLINE:
            if item.tag not in SILENT:
                if paragraph:
                    sides = (_seams(preceding), _seams(item))
                    result.extend(_paragraph(paragraph, source, preserve, sides))
                    paragraph = []
                preceding = item
            result.append(item)
        else:
            paragraph.append(item)
    if paragraph:
        result.extend(_paragraph(paragraph, source, preserve, (_seams(preceding), False)))
    return result


def separator(space: str) -> str:
    """Returns the separator for white space."""
    breaks = space.count("\n")
    return "\n\n" if breaks > 1 else "\n" if breaks else " " if space else ""


def normalise(text: str) -> str:
    """Dedents and strips the text of an argument."""
    paragraph = [_Raw(text, [Chars(text, Span(0, len(text)))])]
    items = _paragraph(paragraph, text, False, (False, False))
    return "".join(item.text for item in items if isinstance(item, Run))


def _seams(element: Element | None) -> bool:
    """Whether white space next to an element is a separator; None is the start tag."""
    return element is None or element.tag not in _BARE


def _raw_items(element: Element, preserve: bool) -> Iterator[_Raw | Element]:
    """Yields elements and joined text; the content of an unclosed parameter counts as text after it."""
    pieces: list[Chars] = []
    pending = list(reversed(element.children))
    while pending:
        child = pending.pop()
        if isinstance(child, Chars):
            pieces.append(child)
            continue
        if child.tag in SILENT and element.tag in ("schema", "prompt"):
            pieces.append(Chars("", child.span, "comment"))
            yield child
            continue
        if pieces:
            yield _join(pieces, preserve)
            pieces = []
        yield child
        if child.tag in INLINE and not child.closed:
            pending.extend(reversed(child.children))
    if pieces:
        yield _join(pieces, preserve)


def _join(pieces: list[Chars], preserve: bool) -> _Raw:
    """Joins the pieces of a run. A comment on its own lines is removed with its line end."""
    if len(pieces) == 1 and pieces[0].kind != "comment":
        return _Raw(pieces[0].text, pieces)
    parts: list[str] = []
    after_comment = False
    blank_line = spaced = False
    for piece in pieces:
        if piece.kind == "comment":
            after_comment = True
            continue
        part = piece.text
        if after_comment and not preserve:
            stripped = part.lstrip(" \t")
            if blank_line and stripped.startswith("\n"):
                part = stripped[1:]
                parts[-1] = parts[-1].rstrip(" \t")
            elif spaced:
                part = stripped
        after_comment = False
        if not part:
            continue
        parts.append(part)
        last = part.rfind("\n")
        blank_line = not part[last + 1 :].strip(SPACE) and (last >= 0 or blank_line)
        spaced = part[-1] in " \t"
    return _Raw("".join(parts), pieces)


def _paragraph(
    items: list[_Raw | Element] | list[_Raw], source: str, preserve: bool, sides: tuple[bool, bool]
) -> Iterator[Run | Element]:
    """Yields the runs and parameters of a paragraph; `sides` if white space at its ends is a separator."""
    last = len(items) - 1
    if last == 0 and not preserve and isinstance(items[0], _Raw) and not items[0].text.strip(SPACE):
        if items[0].text and all(sides):
            span = Span(items[0].pieces[0].span.start, items[0].pieces[-1].span.end)
            yield Run("", span, separator(items[0].text))
        return
    margin = "" if preserve else _margin(items)
    for place, item in enumerate(items):
        if isinstance(item, Element):
            yield item
            continue
        span = Span(item.pieces[0].span.start, item.pieces[-1].span.end)
        if preserve:
            if item.text:
                yield Run(item.text, span)
            continue
        text, before, after = _dedent(item.text, margin, followed=place < last), "", ""
        if place == 0:
            before = separator(_start(item.text)) if sides[0] else ""
            text = text.lstrip(SPACE)
        if place == last:
            after = separator(_end(item.text)) if sides[1] else ""
            text = text.rstrip(SPACE)
        if text or before or after:
            yield Run(text, _trimmed(item.pieces, source), before, after)


def _start(text: str) -> str:
    return text[: len(text) - len(text.lstrip(SPACE))]


def _end(text: str) -> str:
    return text[len(text.rstrip(SPACE)) :]


def _margin(items: list[_Raw | Element] | list[_Raw]) -> str:
    """Returns the common indentation of all lines of a paragraph."""
    margin: str | None = None
    last = len(items) - 1
    for place, item in enumerate(items):
        if isinstance(item, Element):
            if place == 0:
                return ""
            continue
        lines = item.text.split("\n")
        if place == 0 and (lines[0].strip(SPACE) or (len(lines) == 1 and last > 0)):
            return ""
        for number, line in enumerate(lines[1:], start=2):
            body = line.lstrip(" \t")
            if not body and not (number == len(lines) and place < last):
                continue
            indent = line[: len(line) - len(body)]
            if margin != indent:
                margin = indent if margin is None else _common(margin, indent)
            if not margin:
                return ""
    return margin or ""


def _common(left: str, right: str) -> str:
    length = next((at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
    return left[: min(len(left), len(right)) if length is None else length]


def _dedent(text: str, margin: str, *, followed: bool) -> str:
    """Removes the margin from every line but the first; blank lines become empty.

    If a parameter follows (`followed`), the last line is not blank.
    """
    if "\n" not in text:
        return text
    first, *rest = text.split("\n")
    lines = [line.removeprefix(margin) if line.strip(SPACE) else "" for line in rest]
    if followed:
        lines[-1] = rest[-1].removeprefix(margin)
    return "\n".join((first, *lines))


def _trimmed(pieces: list[Chars], source: str) -> Span:
    """Returns the span of a run's text, without comments and white space at its ends."""
    filled = [piece for piece in pieces if piece.kind != "comment" and piece.text.strip(SPACE)]
    if not filled:
        return Span(pieces[0].span.start, pieces[-1].span.end)
    head, tail = filled[0], filled[-1]
    start, end = head.span.start, tail.span.end
    if head.kind == "text":
        raw = source[start : head.span.end]
        start += len(raw) - len(raw.lstrip(SPACE))
    if tail.kind == "text":
        end = tail.span.start + len(source[tail.span.start : end].rstrip(SPACE))
    return Span(start, end)
