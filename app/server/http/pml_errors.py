"""Rewrites PML errors for API clients, who have no files."""

from __future__ import annotations

import re
from dataclasses import replace

from engine.pml import PromptError
from engine.pml.diagnostics.diagnostic import Diagnostic

NO_FILES = "send the text itself, in the PML"
_QUOTED = r"(?P<name>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_REWORDED: tuple[tuple[re.Pattern[str], str, str | None], ...] = (
    (
        re.compile(rf"src {_QUOTED} .*", re.DOTALL),
        r"src \g<name> is a file, but the server reads no files; put its text in the PML",
        NO_FILES,
    ),
    (
        re.compile(rf"the text of this module comes from {_QUOTED};.*", re.DOTALL),
        r"the text of this module would be the file \g<name>, but the server reads no files; remove src",
        None,
    ),
    (
        re.compile(r"the attribute src of <include> is (?:missing|empty);.*", re.DOTALL),
        "<include> takes a file, but the server reads no files; put its modules in the PML",
        NO_FILES,
    ),
    (
        re.compile(r"(?P<what>this is .*, not PML);.*", re.DOTALL),
        r'\g<what>; send PML: <schema name="…">, or <prompt schema="…"> if it imports modules',
        "",
    ),
    (
        re.compile(r"(?P<what>'<' before .*), or put code into CDATA or a file with src", re.DOTALL),
        r"\g<what>, or put code into CDATA",
        None,
    ),
)
"""Pattern of the original message, its replacement, and the hint; None keeps the hint."""


def over_http(error: PromptError) -> PromptError:
    """Returns the diagnostics with advice for API clients."""
    return PromptError(tuple(map(_told, error.diagnostics)))


def _told(fault: Diagnostic) -> Diagnostic:
    for pattern, instead, hint in _REWORDED:
        if match := pattern.fullmatch(fault.message):
            return replace(
                fault,
                message=match.expand(instead),
                hint=fault.hint if hint is None else hint,
                fix=(),
                choices=(),
            )
    return fault
