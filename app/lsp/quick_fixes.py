"""Quick fixes of errors, each verified by checking the fixed document."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.base.document_index import Document, Library
from engine.pml import Diagnostic, Edit, Fix, Span, apply_edits, folded, mended

MOST_TRIED: Final = 8
"""Maximum number of fixes that a request verifies; each requires another check of the document."""

MOST_SECONDS: Final = 0.3  # no further fix is verified after this time, because it blocks the server


@dataclass(frozen=True)
class QuickFix:
    """A fix of one error or of several related errors."""

    title: str
    faults: tuple[Diagnostic, ...]
    edits: tuple[Edit, ...]
    sure: bool = True  # whether it is the only likely fix


def quick_fixes(
    library: Library, document: Document, span: Span, clock: Callable[[], float] = time.monotonic
) -> list[QuickFix]:
    """Returns the fixes for errors that touch a span, nearest to its start first, without duplicates.

    Omits fixes that do not reduce the number of errors. Verifies at least one fix, and more within
    `MOST_TRIED` and `MOST_SECONDS`. Editors ask again when the cursor moves.
    """
    with library.looking_once():
        return _proved(library, document, span, clock)


def _proved(library: Library, document: Document, span: Span, clock: Callable[[], float]) -> list[QuickFix]:
    end = clock() + MOST_SECONDS
    checked = {document.text: library.diagnostics(document)}

    def diagnose(text: str) -> tuple[Diagnostic, ...]:
        if text not in checked:
            checked[text] = library.diagnostics(library.imagined(document.path, text))
        return checked[text]

    verified: dict[Fix, list[Diagnostic]] = {}
    for fault, fix in _touched(folded(checked[document.text]), span):
        tried = len(checked) - 1
        seen = apply_edits(document.text, fix.edits) in checked
        if not seen and tried and (tried >= MOST_TRIED or clock() >= end):
            break
        if mended(document.text, fault, diagnose, fix) is not None:
            verified.setdefault(fix, []).append(fault)
    return [
        QuickFix(fix.title, tuple(faults), fix.edits, any(fault.fix == fix.edits for fault in faults))
        for fix, faults in verified.items()
    ]


def _touched(faults: tuple[Diagnostic, ...], span: Span) -> list[tuple[Diagnostic, Fix]]:
    """The fixes for errors that touch a span, nearest to its start first; alternatives in their order."""
    touched = [fault for fault in faults if fault.span.start <= span.end and span.start <= fault.span.end]
    touched.sort(key=lambda fault: abs(fault.span.start - span.start))
    return [(fault, fix) for fault in touched for fix in fault.fixes]
