"""Errors that are the user's to mend. Each message says what is wrong, where, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.pml import Diagnostic


class PromptCacheError(Exception):
    """Base of every error whose text is shown to the user as it is."""


class ModelError(PromptCacheError):
    """A model cannot be found, loaded, or used."""


class StoreError(PromptCacheError):
    """The segment store cannot be opened or written."""


class SettingsError(PromptCacheError):
    """A setting of a run is out of its range, or does not fit the model."""


class PromptError(PromptCacheError):
    """A document has errors, so nothing can be computed from it.

    Attributes:
        diagnostics: every fault that was found, errors first.
    """

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = tuple(sorted(diagnostics, key=lambda d: d.severity != "error"))
        first = self.diagnostics[0]
        where = f"line {first.line}, column {first.column}"
        super().__init__(f"{first.code} at {where}: {first.message}")
