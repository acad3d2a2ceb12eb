"""Quick fixes: what mends a fault of a document, where it is sure to."""

from __future__ import annotations

from dataclasses import dataclass

from app.library import Document, Library
from engine.pml import Diagnostic, Edit, Span, mended


@dataclass(frozen=True)
class QuickFix:
    """One way to mend one fault.

    Attributes:
        title: what it does, in a few words.
        fault: the fault.
        edits: of the document.
    """

    title: str
    fault: Diagnostic
    edits: tuple[Edit, ...]


def quick_fixes(library: Library, document: Document, span: Span) -> list[QuickFix]:
    """The fixes of the faults that a span touches; those that would bring as many faults are left out."""

    def diagnose(text: str) -> tuple[Diagnostic, ...]:
        return library.diagnostics(library.imagined(document.path, text))

    found: list[QuickFix] = []
    for fault in library.diagnostics(document):
        touched = fault.span.start <= span.end and span.start <= fault.span.end
        if fault.fix and touched and mended(document.text, fault, diagnose) is not None:
            found.append(QuickFix(fault.remedy, fault, fault.fix))
    return found
