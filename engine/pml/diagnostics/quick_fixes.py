"""Applies the edits of a diagnostic and verifies the result by parsing again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.pml.diagnostics.diagnostic import Diagnostic, Edit, Fix

Diagnose = Callable[[str], Sequence[Diagnostic]]  # returns all diagnostics of a text


def apply_edits(source: str, edits: Sequence[Edit]) -> str:
    """Returns the source after applying edits that do not overlap."""
    for edit in sorted(edits, key=lambda edit: (edit.span.start, edit.span.end), reverse=True):
        source = source[: edit.span.start] + edit.text + source[edit.span.end :]
    return source


def mended(source: str, fault: Diagnostic, diagnose: Diagnose, fix: Fix | None = None) -> str | None:
    """Returns the source after a fix of the diagnostic `fault`, by default its likely fix.

    None if the fix fails: the diagnostic must go, or fewer of its kind remain, and errors must not increase.
    """
    edits = fix.edits if fix else fault.fix
    if not edits or (fix and fix.of_schema):
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
    earlier = sum(
        (diagnostic.code, diagnostic.span.start) == (fault.code, fault.span.start) for diagnostic in before
    )
    still = sum((diagnostic.code, diagnostic.span.start) == (fault.code, place) for diagnostic in after)
    fewer = still < earlier or _of_kind(after, fault.code) < _of_kind(before, fault.code)
    return fewer and _errors(after) <= _errors(before)


def _of_kind(found: Sequence[Diagnostic], code: str) -> int:
    return sum(diagnostic.code == code for diagnostic in found)


def _errors(found: Sequence[Diagnostic]) -> int:
    return sum(diagnostic.severity == "error" for diagnostic in found)
