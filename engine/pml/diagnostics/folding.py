"""Hides the errors that follow from a tag that is not closed or not finished."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from engine.pml.diagnostics.diagnostic import Diagnostic

_TEARS: Final = frozenset({"E104", "E105", "E106", "E114"})
_OF_NESTING: Final = frozenset({"E206", "E207", "E212", "E403", "E404", "E405", "E406", "E408"})
_REASON: Final = re.compile(r"\([^()]*\)(?=; write )")
_IN_TAG: Final = frozenset({"E105", "E107", "E202", "E402"})

_TAG: Final = re.compile(r"<([^\s<>/]+)")


def folded(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Returns diagnostics without those that follow from an error of a tag.

    If an import in an unclosed tag shows where that tag ends, the tag's error gets this fix.
    """
    found = tuple(dict.fromkeys(diagnostics))
    tears = [one for one in found if one.code in _TEARS]
    if not tears:
        return found
    first = min(one.span.start for one in tears)
    ends = {(one.hint, one.span.start): one for one in found if one.code == "E403" and one.fix}

    def ended(one: Diagnostic) -> Diagnostic:
        name = _TAG.match(one.message)
        hints = (f"<{name[1]}/>", f"</{name[1]}>") if name and one.code == "E105" else ()
        if one.hint not in hints:
            return one
        inner = [other for (hint, start), other in ends.items() if hint in hints and start > one.span.start]
        if not inner:
            return one
        why = f"(the import in line {inner[0].line} is not part of it)"
        message = _REASON.sub(why, one.message, 1).replace(f"write {one.hint}", f"write {inner[0].hint}")
        return replace(one, message=message, hint=inner[0].hint, fix=inner[0].fix, choices=())

    def follows(one: Diagnostic) -> bool:
        if one.code in _OF_NESTING:
            return one.span.start > first
        if one.code == "E106":
            return one.span.start > first and not one.fixes
        return one.code in _IN_TAG and any(
            tear is not one and tear.span.start <= one.span.start < tear.span.end
            for tear in tears
            if tear.code == "E104" or (tear.code == "E105" and one.code == "E202")
        )

    return tuple(ended(one) for one in found if not follows(one))
