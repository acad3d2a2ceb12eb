"""Decodes character references and XML's five entities in text and attribute values."""

from __future__ import annotations

import html.entities
import re
from typing import Final

from engine.pml.diagnostics.diagnostic import NOTHING, Edit, Reporter, Span, quote, swap

_REFERENCE: Final = re.compile(
    r"&(?:#x([0-9A-Fa-f]{1,8});|#([0-9]{1,8});|([A-Za-z_][A-Za-z0-9_.\-]*);|(#[0-9A-Za-z]*;)?)"
)
_FIVE: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNFINISHED: Final = re.compile(r"&(?:lt|gt|amp|quot|apos)(?![A-Za-z0-9_.;\-])")
_LINE_END: Final = re.compile(r"\r\n?")
_ATTRIBUTE_SPACE: Final = re.compile(r"\r\n|[\t\n\r]")


def is_character(code: int) -> bool:
    """Whether XML allows the character with this code point."""
    return (
        code in (0x9, 0xA, 0xD)
        or 0x20 <= code <= 0xD7FF
        or 0xE000 <= code <= 0xFFFD
        or 0x10000 <= code <= 0x10FFFF
    )


def forbidden_character(text: str) -> str | None:
    """Returns the first character that XML forbids even as a reference."""
    match = _FORBIDDEN.search(text)
    return match[0] if match else None


def decode(raw: str, start: int, report: Reporter, attribute: bool = False) -> str:
    r"""Decodes a piece of source text at the offset `start`.

    Line ends become `\n`. In an attribute value, line ends and tabs become spaces, as XML requires. Invalid
    references are reported and stay unchanged.
    """
    if "&" not in raw:
        return _plain(raw, attribute) if attribute or "\r" in raw else raw
    pieces: list[str] = []
    place = 0
    for match in _REFERENCE.finditer(raw):
        if report.hopeless:
            break
        pieces.append(_plain(raw[place : match.start()], attribute))
        pieces.append(_resolve(match, start, report))
        place = match.end()
    pieces.append(_plain(raw[place:], attribute))
    return "".join(pieces)


def _plain(piece: str, attribute: bool) -> str:
    return _ATTRIBUTE_SPACE.sub(" ", piece) if attribute else _LINE_END.sub("\n", piece)


def _resolve(match: re.Match[str], start: int, report: Reporter) -> str:
    span = Span(start + match.start(), start + match.end())
    mark = Span(span.start, span.start + 1)
    number = int(match[1], 16) if match[1] else int(match[2]) if match[2] else None
    if number is not None:
        if is_character(number):
            return chr(number)
        message = f"{match[0]} is a character that XML forbids; remove it"
        report.add("E110", message, span, NOTHING, (Edit(span, ""),))
    elif match[3]:
        if match[3] in _FIVE:
            return _FIVE[match[3]]
        character = html.entities.html5.get(match[3] + ";", "")
        remedy = (
            f"write the character itself, or &#{ord(character)};"
            if len(character) == 1
            else "write &amp; for '&'"
        )
        message = (
            f"the entity {quote(match[0])} is unknown; PML has only &lt; &gt; &amp; &quot; &apos;: {remedy}"
        )
        if len(character) == 1:
            report.instead("E110", message, span, f"&#{ord(character)};")
        else:
            report.add("E110", message, span, "&amp;", swap(mark, "&amp;"))
    elif match[4]:
        message = (
            f"{quote(match[0])} is not a character reference; write &#N; with a number, or &amp; for '&'"
        )
        report.add("E110", message, span, "&amp;", swap(mark, "&amp;"))
    elif unfinished := _UNFINISHED.match(match.string, match.start()):
        hint, end = f"{unfinished[0]};", start + unfinished.end()
        message = f"the entity {unfinished[0]} is not finished; write {hint}"
        report.add("E109", message, mark, hint, (Edit(Span(end, end), ";"),))
    else:
        report.instead("E109", "a plain '&' would begin an entity; write &amp;", mark, "&amp;")
    return match[0]
