"""Quick fixes: what mends a fault of a document, where it is sure to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.base.document_index import Document, Library
from engine.pml import Diagnostic, Edit, Fix, Span, apply_edits, mended

MOST_TRIED: Final = 8
"""Of the fixes that a request asks for, this many are tried; each means to check the document once more."""

MOST_SECONDS: Final = 0.3
"""After this time no further fix is tried: meanwhile the server answers nothing else."""


@dataclass(frozen=True)
class QuickFix:
    """One way to mend a fault, or several faults that are mended together.

    Attributes:
        title: what it does, in a few words.
        faults: the faults.
        edits: of the document.
        sure: whether it is the only repair that is likely, and no choice.
    """

    title: str
    faults: tuple[Diagnostic, ...]
    edits: tuple[Edit, ...]
    sure: bool = True


def quick_fixes(
    library: Library, document: Document, span: Span, clock: Callable[[], float] = time.monotonic
) -> list[QuickFix]:
    """The fixes of the faults that a span touches, nearest to its start first, each once.

    Those that would bring as many faults are left out. One fix is always tried, more while few were and
    there is time; an editor asks again where the cursor goes.

    Args:
        library: what is open, and what lies beside it.
        document: the document.
        span: what is asked about: the place of the cursor, or what is selected.
        clock: tells the time in seconds.
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

    found: dict[Fix, list[Diagnostic]] = {}
    for fault, fix in _touched(checked[document.text], span):
        tried = len(checked) - 1
        known = apply_edits(document.text, fix.edits) in checked
        if not known and tried and (tried >= MOST_TRIED or clock() >= end):
            break
        if mended(document.text, fault, diagnose, fix) is not None:
            found.setdefault(fix, []).append(fault)
    return [
        QuickFix(fix.title, tuple(faults), fix.edits, any(fault.fix == fix.edits for fault in faults))
        for fix, faults in found.items()
    ]


def _touched(faults: tuple[Diagnostic, ...], span: Span) -> list[tuple[Diagnostic, Fix]]:
    """The fixes of the faults that a span touches, nearest to its start first; choices in their order."""
    touched = [one for one in faults if one.span.start <= span.end and span.start <= one.span.end]
    touched.sort(key=lambda fault: abs(fault.span.start - span.start))
    return [(fault, fix) for fault in touched for fix in fault.fixes]
