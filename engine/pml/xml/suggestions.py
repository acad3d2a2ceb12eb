"""What people mean by a mistake: words of other languages, and the edits that several faults share."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from engine.pml.diagnostics.diagnostic import Edit, Span
from engine.pml.xml.elements import Element
from engine.pml.xml.names import NAME, RESERVED, ROLES

EMPTY: Final = ("param", "parameter", "scaffold", "include")
"""Elements that hold nothing."""

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
}
"""Elements of other languages, and what a schema calls them."""

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
}
"""Attributes of other languages, and what PML calls them, the likeliest first."""

_UNNAMEABLE: Final = re.compile(r"[\s/\\]+")
_MAX_NAME: Final = 60
_MAX_MOVED: Final = 50_000
"""The longest stretch that a fix moves, in characters: they may be nested in one another."""

_DIGITS: Final = re.compile("[0-9][0-9,_]*")
MAX_LENGTH: Final = 9_999_999
"""The most tokens that a parameter may have."""

_CHOICES: Final = {
    "false": ("false", "no", "off", "0", "never", "none"),
    "true": ("true", "yes", "on", "1", "always", "cache"),
    "preserve": ("preserve", "preserved", "keep", "pre", "true", "yes"),
    "default": ("default", "normal", "collapse", "false", "no"),
}
"""What people write for the values that an attribute can have."""

_PROLOG: Final = re.compile(r"\ufeff?[ \t\r\n]*(?:<\?xml\b[^<>]*\?>[ \t\r\n]*)?")


def removed(text: str, span: Span) -> tuple[Edit, ...]:
    """The edit that takes a stretch away, and the white space before it where more follows."""
    start = span.start
    if start and text[start - 1] in " \t\r\n" and text[span.end : span.end + 1] in (*" \t\r\n/>", ""):
        start -= 1
    return (Edit(Span(start, span.end), ""),)


def escaped(element: Element) -> tuple[Edit, ...]:
    """The edits that make text of both tags of an element."""
    tags = [element.open_span, *([element.close_span] if element.close_span else [])]
    return tuple(Edit(Span(tag.start, tag.start + 1), "&lt;") for tag in tags)


def unwrapped(element: Element, end: str = "") -> tuple[Edit, ...]:
    """The edits that take both tags of an element away; none where one of them is missing.

    Args:
        element: the element.
        end: what is written in place of its end tag.
    """
    if element.empty_tag:
        return (Edit(element.span, ""),)
    if not element.closed or element.close_span is None:
        return ()
    return (Edit(element.open_span, ""), Edit(element.close_span, end))


def wrapped(span: Span, before: str, after: str) -> tuple[Edit, ...]:
    """The edits that write something before and after a stretch."""
    return (Edit(Span(span.start, span.start), before), Edit(Span(span.end, span.end), after))


def enclosed(text: str, opening: str, closing: str) -> tuple[Edit, ...]:
    """The edits that put all of a document behind its XML declaration into one element."""
    prolog = _PROLOG.match(text)
    start = prolog.end() if prolog else 0
    return wrapped(Span(start, max(start, len(text.rstrip(" \t\r\n")))), opening, closing)


def meant_element(element: Element) -> str | None:
    """The element of a schema that one of another language is; without attributes it is rather text."""
    meant = MEANT_ELEMENTS.get(element.tag.casefold())
    return meant if meant in (*ROLES, "union") or element.attributes else None


def as_module(element: Element, taken: Container[str]) -> tuple[str, tuple[Edit, ...]]:
    """What makes a module of an element that is named as one, as a hint and as edits."""
    if element.attributes or element.tag in taken or not NAME.fullmatch(element.tag):
        return "", ()
    hint, tags = f'<module name="{element.tag}">', element.renamed("module")
    return hint, tuple(Edit(tag.span, hint[1:-1]) if tag is tags[0] else tag for tag in tags)


def in_module(element: Element, name: str, taken: Container[str]) -> tuple[str, tuple[Edit, ...]]:
    """What puts an element into a module of its own, as a hint and as edits."""
    opening = f'<module name="{unlike(usable_name(name) or "part", taken)}">'
    if not (element.closed or element.empty_tag):
        return "", ()
    return f"{opening}…</module>", wrapped(element.span, opening, "</module>")


def moved(text: str, span: Span, place: int) -> tuple[Edit, ...]:
    """The edits that write a stretch of the source at another place; none for a long one."""
    if span.end - span.start > _MAX_MOVED:
        return ()
    piece = text[span.start : span.end]
    return (Edit(span, ""), Edit(Span(place, place), f"{piece} " if place < span.start else f" {piece}"))


def nearest_length(value: str) -> int:
    """The length in tokens that a value is likely to mean, within the limits."""
    found = _DIGITS.search(value)
    digits = re.sub("[,_]", "", found[0]).lstrip("0") if found else "10"
    return min(max(int(digits[:8] or 1), 1), MAX_LENGTH)


def meant_choice(value: str, choices: tuple[str, ...]) -> str | None:
    """Which of some choices a value is likely to mean."""
    word = value.strip().casefold()
    return next((choice for choice in choices if word in _CHOICES[choice]), None)


def meant_attribute(name: str, known: tuple[str, ...], given: Container[str]) -> str | None:
    """The attribute that PML has for one of another language, where it is not given already."""
    meant = MEANT_ATTRIBUTES.get(name.casefold(), ())
    return next((other for other in meant if other in known and other not in given), None)


def usable_name(value: str, taken: Container[str] = ()) -> str | None:
    """A name like a value that cannot be one, unlike those that are taken; None where nothing is left."""
    kept = "".join(
        char if NAME.fullmatch(f"a{char}") else "-"
        for char in _UNNAMEABLE.sub("-", value[:_MAX_NAME].strip())
    )
    name = re.sub("-{2,}", "-", kept).strip("-")
    if not name:
        return None
    if not NAME.fullmatch(name):
        name = f"_{name}"
    return unlike(name, taken) if NAME.fullmatch(name) else None


def unlike(name: str, taken: Container[str]) -> str:
    """The name, or the name with a number, that is neither taken nor one of PML's elements."""
    number, other = 2, name
    while other in taken or other in RESERVED:
        other = f"{name}-{number}"
        number += 1
    return other
