"""Recognises files that are not PML, and names the command that imports them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from engine.pml.diagnostics.diagnostic import Span
from engine.pml.xml.names import RESERVED

_PML: Final = re.compile(rf"<(?:{'|'.join(sorted(RESERVED))})\b", re.IGNORECASE)
_START: Final = re.compile(r"\ufeff?[ \t\r\n]*")
_HTML: Final = re.compile(r"<(?:!doctype[ \t\r\n]+html|html|head|body)\b", re.IGNORECASE)
_XML: Final = re.compile(r"<(?:\?xml\b|!DOCTYPE\b|[A-Za-z][^<>]{0,400}\bxmlns\b)")
_JSON: Final = re.compile(r"\{[ \t\r\n]*(?:\"|\})|\[[ \t\r\n]*[\[{\"]")
_JINJA: Final = re.compile(r"\{%|\{\{")
_YAML: Final = re.compile(
    r"(?:---[ \t]*\r?\n)?(?:- )?[A-Za-z_][\w-]*:(?:[ \t]*\r?\n[ \t]*-?[ \t]*| [^\n]*\n)[\w -]+:"
)
_PYTHON: Final = re.compile(
    r"^(?:from[ \t]+[\w.]+[ \t]+import[ \t]|import[ \t]+[\w.]+[ \t]*$"
    r"|(?:async[ \t]+)?def[ \t]+\w+\(|class[ \t]+\w+[:(])",
    re.MULTILINE,
)
_LINE_END: Final = re.compile(r"[\r\n]|\Z")
_PLAIN: Final = "plain text (or Markdown)"
_WRAPPED: Final = '<prompt schema="…">…</prompt>'
_FOLDER: Final = "pml import FOLDER -o schema.pml"
_MAGIC: Final = {
    b"%PDF": "a PDF",
    b"PK\x03\x04": "an archive (.zip, .docx, .xlsx and others)",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
    b"\x1f\x8b": "a compressed file",
    b"\x7fELF": "a program",
    b"SQLite format 3": "a database",
}


@dataclass(frozen=True)
class OtherKind:
    """A file that is not PML.

    Attributes:
        what: its kind, as a noun with an article.
        remedy: the suggested action.
        command: the command to run, or the text to write.
        span: its first line.
    """

    what: str
    remedy: str
    command: str
    span: Span


def other_kind(text: str, *, prompt: bool = False) -> OtherKind | None:
    """Returns the kind of a document without PML; None if it is empty or may be PML with errors.

    Plain text in place of a prompt needs no import.
    """
    begin = _START.match(text)
    start = begin.end() if begin else 0
    if start == len(text):
        return None
    markup = text[start] == "<"
    if markup and not _HTML.match(text, start) and not _XML.match(text, start):
        return None
    if _PML.search(text):
        return None
    end = _LINE_END.search(text, start)
    span = Span(start, end.start() if end else len(text))
    kind, command = _told(text, start, markup)
    if prompt and kind == _PLAIN:
        return OtherKind(kind, f"write it inside {_WRAPPED}", _WRAPPED, span)
    what = "the text files of its folder" if markup else "it"
    return OtherKind(kind, f"import {what} in the studio (File, Import) or with `{command}`", command, span)


def _told(text: str, start: int, markup: bool) -> tuple[str, str]:
    """Returns the kind of a text, and the import command."""
    if markup:
        kind = "an HTML page" if _HTML.match(text, start) else "another kind of XML"
        return kind, _FOLDER
    if _JSON.match(text, start):
        return "JSON", "pml import FILE.json -o schema.pml"
    if _PYTHON.search(text):
        return "Python", "pml import FILE.py -o schema.pml"
    if _JINJA.search(text):
        return "a template", "pml import FILE --from jinja -o schema.pml"
    if _YAML.match(text, start):
        return "YAML", "pml import FILE.yaml -o schema.pml"
    return _PLAIN, "pml import FILE --from text -o schema.pml"


def binary_kind(data: bytes) -> str | None:
    """Returns the kind of a binary file, or None for text."""
    for magic, kind in _MAGIC.items():
        if data.startswith(magic):
            return kind
    return "a binary file" if b"\0" in data[:8192] else None
