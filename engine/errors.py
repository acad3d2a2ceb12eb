"""Errors that are the user's to mend. Each message says what is wrong, where, and what to do."""

from __future__ import annotations


class PromptCacheError(Exception):
    """Base of every error whose text is shown to the user as it is."""


class ModelError(PromptCacheError):
    """A model cannot be found, loaded, or used."""


class StoreError(PromptCacheError):
    """The segment store cannot be opened or written."""


class ClosedError(PromptCacheError):
    """Something is asked of an engine that was closed."""


class SettingsError(PromptCacheError):
    """A setting of a run is out of its range, or does not fit the model."""


class PathError(PromptCacheError):
    """A path leads to nothing that can be used as it was named: missing, of another kind, or closed to us."""
