"""The error raised for invalid documents."""

from __future__ import annotations

from engine.base.errors import PromptCacheError
from engine.pml.diagnostics.diagnostic import Diagnostic, quote


class PromptError(PromptCacheError):
    """A document has errors, so it cannot be used.

    Attributes:
        diagnostics: every diagnostic, errors first.
    """

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = tuple(sorted(diagnostics, key=lambda d: d.severity != "error"))
        first = self.diagnostics[0]
        file = f" of {quote(first.file)}" if first.file else ""
        where = f"line {first.line}, column {first.column}{file}"
        others = sum(d.severity == "error" for d in self.diagnostics[1:])
        more = f" ({others} more {'error' if others == 1 else 'errors'})" if others else ""
        super().__init__(f"{first.code} at {where}: {first.message}{more}")
