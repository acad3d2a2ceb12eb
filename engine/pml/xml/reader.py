"""Reads bytes or text into a tree of elements: decoding, size, forbidden characters, and lxml's check."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import lxml.etree as ET

from engine.files.text_files import BOM, MAX_BYTES, EncodingError, decode
from engine.pml.diagnostics.diagnostic import (
    MAX_ERRORS,
    NOTHING,
    Edit,
    LineIndex,
    Reporter,
    Span,
    quote,
    swap,
)
from engine.pml.xml.elements import Element
from engine.pml.xml.names import NAME, NAME_RULE
from engine.pml.xml.scanner import Scanner
from engine.pml.xml.sniff import binary_kind, other_kind
from engine.pml.xml.suggestions import usable_name
from engine.pml.xml.tag_pairing import NO_LAYOUT

_POSITION: Final = re.compile(r", line \d+, column \d+$")
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Document:
    """A document: its text, its root element if any, and the reporter of its errors."""

    text: str
    root: Element | None
    report: Reporter


def read(source: str | bytes, *, prompt: bool = False) -> Document:
    """Reads a document, in place of a prompt or not. Never raises: every error is in the reporter."""
    if _too_large(source):
        report = Reporter(LineIndex())
        message = "the document is larger than 5 MB; move long modules into files of their own with src"
        report.add("E102", message, Span(0, 0))
        return Document("", None, report)
    text, undecoded = _decode(source) if isinstance(source, bytes) else (source, None)
    report = Reporter(LineIndex(text))
    if undecoded is not None:
        report.add("E101", undecoded[1], undecoded[0])
    other = other_kind(text, prompt=prompt)
    if other is not None:
        message = f"this is {other.what}, not PML; {other.remedy}"
        report.add("E121", message, other.span, other.command)
        return Document(text, None, report)
    for match in islice(_FORBIDDEN.finditer(text), MAX_ERRORS):
        code = ord(match[0])
        span, message = Span(*match.span()), f"the character U+{code:04X} is not allowed in XML; remove it"
        glued = text[span.start - 1 : span.start] in ("<", "/", "&")  # a tag may begin without the character
        report.add("E103", message, span, NOTHING, () if glued else (Edit(span, ""),))
    scanner, known = Scanner(text, report), replace(report, errors=[*report.errors])
    root = scanner.scan()
    if {"E105", "E106"} & {diagnostic.code for diagnostic in report.errors} and (
        layout := scanner.layout()
    ) != NO_LAYOUT:
        report = known
        root = Scanner(text, report, layout).scan()
    report.tear()
    if root is None and not report.errors:
        message = 'the document is empty; begin with <schema name="…"> or <prompt schema="…">'
        report.add("E116", message, Span(0, len(text)))
    if root is not None and not report.errors:
        _second_opinion(text, root, report)
    return Document(text, root, report)


def _too_large(source: str | bytes) -> bool:
    if isinstance(source, bytes) or len(source) > MAX_BYTES:
        return len(source) > MAX_BYTES
    if len(source) * 4 <= MAX_BYTES:
        return False
    return len(source.encode("utf-8", "surrogatepass")) > MAX_BYTES


def _decode(data: bytes) -> tuple[str, tuple[Span, str] | None]:
    """Decodes the bytes and returns the text with the first encoding error."""
    try:
        return decode(data), None
    except EncodingError as error:
        body = data.removeprefix(BOM)
        if error.wide:
            text = body.decode(_codec(body), "replace")
            return text, (Span(0, min(1, len(text))), "the document is UTF-16; save it as UTF-8")
        kind = binary_kind(body)
        if kind is not None:
            return "", (Span(0, 0), f"the document is {kind}, not text; use a UTF-8 text file")
        at = len(body[: error.at].decode("utf-8"))
        message = f"byte 0x{body[error.at]:02X} is not UTF-8; save the document as UTF-8"
        return body.decode("utf-8", "replace"), (Span(at, at + 1), message)


def _codec(body: bytes) -> str:
    """Returns the UTF-16 codec, by the byte order mark or else the first zero byte."""
    if body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    return "utf-16-be" if body[:1] == b"\0" else "utf-16-le"


def _second_opinion(text: str, root: Element, report: Reporter) -> None:
    """Parses a text without errors with lxml, and reports any error that lxml finds."""
    parser = ET.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        ET.fromstring(text.removeprefix("\ufeff").encode("utf-8"), parser)
    except ET.XMLSyntaxError as error:
        _check_names(root, report)
        if report.errors:
            return
        line, column = error.position
        place = report.lines.offset(line or 1, column or 1)
        reason = _POSITION.sub("", error.msg or "") or "the parser gives no reason"
        message = f"the document is not well-formed XML: {reason}"
        report.add("E199", message, Span(place, min(place + 1, len(text))))


def _check_names(root: Element, report: Reporter) -> None:
    """Reports elements and attributes whose names contain forbidden characters."""
    pending = [root]
    while pending:
        element = pending.pop()
        pending.extend(child for child in reversed(element.children) if isinstance(child, Element))
        if _is_unnameable(element.tag):
            usable = usable_name(element.tag)
            message = f"{quote(element.tag)} cannot name an element: {NAME_RULE}"
            fix = element.renamed(usable) if usable else ()
            report.add("E301", message, element.tag_span, usable or "", fix)
        for attribute in element.attributes.values():
            if _is_unnameable(attribute.name):
                usable = usable_name(attribute.name, element.attributes)
                message = f"{quote(attribute.name)} cannot name an attribute: {NAME_RULE}"
                span = attribute.name_span
                report.add("E301", message, span, usable or "", swap(span, usable))


def _is_unnameable(name: str) -> bool:
    return ":" not in name and not NAME.fullmatch(name)
