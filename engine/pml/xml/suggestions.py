"""Likely corrections: words of other markup languages, and edits that several errors share."""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import islice
from typing import Final

from engine.pml.diagnostics.diagnostic import Edit, Span, quote
from engine.pml.xml.elements import Chars, Element
from engine.pml.xml.names import HTML, NAME, NAME_RULE, RESERVED, ROLES

EMPTY: Final = ("param", "parameter", "scaffold", "include")  # elements without content

MEANT_ELEMENTS: Final = {
    "developer": "system",
    "instruction": "system",
    "instructions": "system",
    "human": "user",
    "ai": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "argument": "param",
    "input": "param",
    "slot": "param",
    "var": "param",
    "variable": "param",
    "block": "module",
    "section": "module",
    "choice": "union",
    "choose": "union",
    "either": "union",
    "oneof": "union",
    "switch": "union",
}  # elements of other languages and their PML names

MEANT_ATTRIBUTES: Final = {
    "id": ("name", "schema"),
    "key": ("name",),
    "name": ("schema", "modules"),
    "title": ("name",),
    "param": ("name",),
    "parameter": ("name",),
    "href": ("src",),
    "file": ("src",),
    "path": ("src",),
    "filename": ("src",),
    "max": ("len",),
    "maxlen": ("len",),
    "maxlength": ("len",),
    "max_length": ("len",),
    "max-tokens": ("len",),
    "max_tokens": ("len",),
    "tokens": ("len",),
    "size": ("len",),
    "value": ("default",),
    "names": ("modules",),
    "paths": ("modules",),
}  # attributes of other languages and their PML names, the likeliest first

_UNNAMEABLE: Final = re.compile(r"[\s/\\]+")
_MAX_NAME: Final = 60
_MAX_MOVED: Final = 50_000  # characters that one fix moves; fixes may be nested

_HTML_TAG: Final = re.compile(rf"<(?=/?(?:{HTML.pattern})[ \t\r\n/>])")
_MOST_TAGS: Final = 1000  # tags that one fix changes

_DIGITS: Final = re.compile("[0-9][0-9,_]*")
MAX_LENGTH: Final = 9_999_999  # most tokens of a parameter

_CHOICES: Final = {
    "false": ("false", "no", "off", "0", "never", "none"),
    "true": ("true", "yes", "on", "1", "always", "cache"),
    "preserve": ("preserve", "preserved", "keep", "pre", "true", "yes"),
    "default": ("default", "normal", "collapse", "false", "no"),
    "predicate": ("predicate", "bool", "boolean", "yesno", "yes/no", "noul", "binary"),
    "choice": ("choice", "choices", "class", "category", "enum", "label", "select"),
    "score": ("score", "rating", "scale", "level", "levels", "grade", "ordinal"),
    "json": ("json", "schema", "json_schema", "json-schema", "jsonschema", "object", "json_object"),
    "regex": ("regex", "regexp", "regular-expression", "pattern", "re"),
}  # common spellings of an attribute's values

_BLANK: Final = re.compile(r"\n[ \t\r]*\n")
_PROLOG: Final = re.compile(r"\ufeff?[ \t\r\n]*(?:<\?xml\b[^<>]*\?>[ \t\r\n]*)?")


def removed(text: str, span: Span) -> tuple[Edit, ...]:
    """Returns the edit that removes a span, and the white space before it if more follows."""
    start = span.start
    if start and text[start - 1] in " \t\r\n" and text[span.end : span.end + 1] in (*" \t\r\n/>", ""):
        start -= 1
    return (Edit(Span(start, span.end), ""),)


def escaped(element: Element) -> tuple[Edit, ...]:
    """Returns the edits that escape both tags of an element."""
    tags = [element.open_span, *([element.close_span] if element.close_span else [])]
    return tuple(Edit(Span(tag.start, tag.start + 1), "&lt;") for tag in tags)


def unwrapped(element: Element, end: str = "") -> tuple[Edit, ...]:
    """Returns the edits that remove both tags of an element (or write `end`); empty if one is missing."""
    if element.empty_tag:
        return (Edit(element.span, ""),)
    if not element.closed or element.close_span is None:
        return ()
    return (Edit(element.open_span, ""), Edit(element.close_span, end))


def wrapped(span: Span, before: str, after: str) -> tuple[Edit, ...]:
    """Returns the edits that insert text before and after a span."""
    return (Edit(Span(span.start, span.start), before), Edit(Span(span.end, span.end), after))


def html_as_text(text: str) -> tuple[Edit, ...]:
    """Returns the edits that escape the tags of HTML in a text."""
    found = islice(_HTML_TAG.finditer(text), _MOST_TAGS + 1)
    edits = tuple(Edit(Span(match.start(), match.end()), "&lt;") for match in found)
    return edits if len(edits) <= _MOST_TAGS else ()


def enclosed(text: str, opening: str, closing: str) -> tuple[Edit, ...]:
    """Returns the edits that wrap a document, after its XML declaration, in one element."""
    prolog = _PROLOG.match(text)
    start = prolog.end() if prolog else 0
    return wrapped(Span(start, max(start, len(text.rstrip(" \t\r\n")))), opening, closing)


def meant_element(element: Element) -> str | None:
    """Returns the PML element for one of another language; some need an attribute, or else they are text."""
    meant = MEANT_ELEMENTS.get(element.tag.casefold())
    return meant if meant in (*ROLES, "union") or element.attributes else None


def as_module(element: Element, taken: Container[str]) -> tuple[str, tuple[Edit, ...]]:
    """Returns the hint and edits that turn an element into a module of the same name."""
    if element.attributes or element.tag in taken or not NAME.fullmatch(element.tag):
        return "", ()
    hint, tags = f'<module name="{element.tag}">', element.renamed("module")
    return hint, tuple(Edit(tag.span, hint[1:-1]) if tag is tags[0] else tag for tag in tags)


def paragraph(element: Element, text: str) -> Span:
    """Returns the span of an element with the text and parameters around it, up to blank lines."""
    siblings = element.parent.children if element.parent else [element]
    at = siblings.index(element)
    start, end = element.span.start, element.span.end
    for piece in reversed(siblings[:at]):
        if not _is_inline(piece):
            break
        start = piece.span.start
        blank = list(_BLANK.finditer(text, start, piece.span.end)) if _is_text(piece) else []
        if blank:
            start = blank[-1].end()
            break
    for piece in siblings[at + 1 :]:
        if not _is_inline(piece):
            break
        end = piece.span.end
        blank = list(islice(_BLANK.finditer(text, piece.span.start, end), 1)) if _is_text(piece) else []
        if blank:
            end = blank[0].start()
            break
    whole = text[start:end]
    return Span(start + len(whole) - len(whole.lstrip()), start + len(whole.rstrip()))


def _is_inline(piece: Element | Chars) -> bool:
    return isinstance(piece, Chars) or (
        piece.tag in ("param", "parameter") and (piece.closed or piece.empty_tag)
    )


def _is_text(piece: Element | Chars) -> bool:
    return isinstance(piece, Chars) and piece.kind == "text"


def in_module(element: Element, name: str, taken: Container[str], span: Span) -> tuple[str, tuple[Edit, ...]]:
    """Returns the hint and edits that wrap a span, which contains an element, in a new module."""
    opening = f'<module name="{unlike(usable_name(name) or "part", taken)}">'
    if not (element.closed or element.empty_tag):
        return "", ()
    return f"{opening}…</module>", wrapped(span, opening, "</module>")


def moved(text: str, span: Span, place: int) -> tuple[Edit, ...]:
    """Returns the edits that move a span to another place; empty for a long one."""
    if span.end - span.start > _MAX_MOVED:
        return ()
    piece = text[span.start : span.end]
    return (Edit(span, ""), Edit(Span(place, place), f"{piece} " if place < span.start else f" {piece}"))


def nearest_length(value: str) -> int:
    """Returns the likely length in tokens, within the limits."""
    match = _DIGITS.search(value)
    digits = re.sub("[,_]", "", match[0]).lstrip("0") if match else "10"
    return min(max(int(digits[:8] or 1), 1), MAX_LENGTH)


def meant_choice(value: str, choices: tuple[str, ...]) -> str | None:
    """Returns the choice that a value is likely to mean."""
    word = value.strip().casefold()
    return next((choice for choice in choices if word in _CHOICES[choice]), None)


def meant_attribute(name: str, known: tuple[str, ...], given: Container[str]) -> str | None:
    """Returns PML's attribute for one of another language, unless it is already given."""
    meant = MEANT_ATTRIBUTES.get(name.casefold(), ())
    return next((other for other in meant if other in known and other not in given), None)


def name_advice(value: str) -> str:
    """Returns a valid name similar to `value` to write instead; the rule of names if there is none."""
    usable = usable_name(value)
    return f"write {quote(usable)} instead" if usable else NAME_RULE


def usable_name(value: str, taken: Container[str] = ()) -> str | None:
    """Returns a valid name similar to `value` and not in `taken`, or None if no character is usable."""
    cleaned = "".join(
        char if NAME.fullmatch(f"a{char}") else "-"
        for char in _UNNAMEABLE.sub("-", value[:_MAX_NAME].strip())
    )
    name = re.sub("-{2,}", "-", cleaned).strip("-")
    if not name:
        return None
    if not NAME.fullmatch(name):
        name = f"_{name}"
    return unlike(name, taken) if NAME.fullmatch(name) else None


def unlike(name: str, taken: Container[str]) -> str:
    """Returns the name, with a number if it is taken or an element of PML."""
    number, other = 2, name
    while other in taken or other in RESERVED:
        other = f"{name}-{number}"
        number += 1
    return other
