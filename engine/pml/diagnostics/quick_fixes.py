"""Quick fixes: the edits of a diagnostic applied to its document, and proved by reading it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.pml.diagnostics.diagnostic import Diagnostic, Edit, Fix

Diagnose = Callable[[str], Sequence[Diagnostic]]
"""From the text of a document to all its diagnostics."""


def apply_edits(source: str, edits: Sequence[Edit]) -> str:
    """The source with edits that do not overlap; everything outside them stays as it is."""
    for edit in sorted(edits, key=lambda edit: (edit.span.start, edit.span.end), reverse=True):
        source = source[: edit.span.start] + edit.text + source[edit.span.end :]
    return source


def mended(source: str, fault: Diagnostic, diagnose: Diagnose, fix: Fix | None = None) -> str | None:
    """The source after a fix of one of its diagnostics.

    Args:
        source: the document.
        fault: one of its diagnostics.
        diagnose: finds all diagnostics of a document, as those of `source` were found.
        fix: one of the diagnostic's `fixes`; without it, the one that is likely.

    Returns:
        The new source: the fault is gone from its place, or there is one less of its kind, and there are no
        more errors than before. None where there is no fix, or where it would not keep that promise.
    """
    edits = fix.edits if fix else fault.fix
    if not edits:
        return None
    result = apply_edits(source, edits)
    return result if _holds(fault, edits, diagnose(source), diagnose(result)) else None


def _holds(
    fault: Diagnostic, edits: Sequence[Edit], before: Sequence[Diagnostic], after: Sequence[Diagnostic]
) -> bool:
    place = fault.span.start
    for edit in edits:
        if edit.span.end <= fault.span.start and edit.span != fault.span:
            place += len(edit.text) - (edit.span.end - edit.span.start)
    here = sum((found.code, found.span.start) == (fault.code, fault.span.start) for found in before)
    still = sum((found.code, found.span.start) == (fault.code, place) for found in after)
    fewer = still < here or _of_kind(after, fault.code) < _of_kind(before, fault.code)
    return fewer and _errors(after) <= _errors(before)


def _of_kind(found: Sequence[Diagnostic], code: str) -> int:
    return sum(diagnostic.code == code for diagnostic in found)


def _errors(found: Sequence[Diagnostic]) -> int:
    return sum(diagnostic.severity == "error" for diagnostic in found)
