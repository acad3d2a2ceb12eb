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


class CancelledError(PromptCacheError):
    """A prompt was cancelled before its answer was complete."""


class DeadlockError(PromptCacheError):
    """A thread waits for what only it can bring."""


class SettingsError(PromptCacheError):
    """A setting of a run is out of its range, or does not fit the model."""


class PathError(PromptCacheError):
    """A path leads to nothing that can be used as it was named: missing, of another kind, or closed to us."""


class CharacterError(PromptCacheError):
    """A text holds half of a surrogate pair, which is no character."""

    def __init__(self, text: str) -> None:
        at = next(place for place, one in enumerate(text) if 0xD800 <= ord(one) <= 0xDFFF)
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        super().__init__(
            f"the text holds half of a surrogate pair (U+{ord(text[at]):04X}) in line {line}, column "
            f"{column}. Remove it, or write the whole character."
        )


def require_characters(text: str) -> None:
    """Refuses a text that cannot be encoded.

    Raises:
        CharacterError: it holds half of a surrogate pair.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise CharacterError(text) from None
