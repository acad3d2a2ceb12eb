"""Faults of PML as its sender is told them, to whom advice about files is of no use."""

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
        r"src \g<name> is a file, and a server reads none; write its text into the PML itself",
        NO_FILES,
    ),
    (
        re.compile(rf"the text of this module comes from {_QUOTED};.*", re.DOTALL),
        r"the text of this module would be that of the file \g<name>, and a server reads none; remove src",
        None,
    ),
    (
        re.compile(r"the attribute src of <include> is (?:missing|empty);.*", re.DOTALL),
        "<include> takes a file, and a server reads none; write its modules into the PML itself",
        NO_FILES,
    ),
    (
        re.compile(r"(?P<what>this is .*, not PML);.*", re.DOTALL),
        r'\g<what>; send PML: <schema name="…">, or <prompt schema="…"> where something is imported',
        "",
    ),
    (
        re.compile(r"(?P<what>'<' before .*), or put code into CDATA or a file with src", re.DOTALL),
        r"\g<what>, or put code into CDATA",
        None,
    ),
)
"""What the language says, what is said instead, and the hint; None where it stays."""


def over_http(error: PromptError) -> PromptError:
    """Returns the same faults, each with what a client can do about it."""
    return PromptError(tuple(map(_told, error.diagnostics)))


def _told(fault: Diagnostic) -> Diagnostic:
    for said, instead, hint in _REWORDED:
        if found := said.fullmatch(fault.message):
            return replace(
                fault,
                message=found.expand(instead),
                hint=fault.hint if hint is None else hint,
                fix=(),
                choices=(),
            )
    return fault
