"""Files that are no PML at all, told by how they begin, and the command that makes a schema of each."""

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
    """A file that is no PML.

    Attributes:
        what: it is, as a noun with its article.
        remedy: what to do.
        command: the command that does it.
        span: its first line.
    """

    what: str
    remedy: str
    command: str
    span: Span


def other_kind(text: str) -> OtherKind | None:
    """What a document is that holds nothing of PML; None where it is empty, or may be PML with mistakes."""
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
    what, command, gives = _told(text, start, markup)
    return OtherKind(what, f"`{command}` makes a schema {gives}", command, span)


def _told(text: str, start: int, markup: bool) -> tuple[str, str, str]:
    """What a text is, the command for it, and what that makes a schema of."""
    if markup:
        what = "an HTML page" if _HTML.match(text, start) else "another kind of XML"
        return what, _FOLDER, "of the text files in the folder that it lies in"
    if _JSON.match(text, start):
        return "JSON", "pml import FILE.json -o schema.pml", "of a conversation in it"
    if _PYTHON.search(text):
        return "Python", "pml import FILE.py -o schema.pml", "of a program in it"
    if _JINJA.search(text):
        return "a template", "pml import FILE --from jinja -o schema.pml", "of it"
    if _YAML.match(text, start):
        return "YAML", "pml import FILE.yaml -o schema.pml", "of a conversation or prompt in it"
    return "plain text (or Markdown)", "pml import FILE --from text -o schema.pml", "of its sections"


def binary_kind(data: bytes) -> str | None:
    """What a file that is not UTF-8 is, if it is no text at all."""
    for magic, what in _MAGIC.items():
        if data.startswith(magic):
            return what
    return "a binary file" if b"\0" in data[:8192] else None
