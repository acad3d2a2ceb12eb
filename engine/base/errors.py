"""Errors that the user can fix. Each message names the problem, its place and the fix."""

from __future__ import annotations


class PromptCacheError(Exception):
    """Base of every error with a text for the user."""


class ModelError(PromptCacheError):
    """A model cannot be found, loaded, or used."""


class StoreError(PromptCacheError):
    """The segment store cannot be opened or written."""


class MapsError(PromptCacheError):
    """A folder of attention maps cannot be used or written."""


class ClosedError(PromptCacheError):
    """The engine is closed."""


class CancelledError(PromptCacheError):
    """A prompt was cancelled before its answer was complete."""


class DeadlockError(PromptCacheError):
    """A thread waits for its own work."""


class SettingsError(PromptCacheError):
    """A setting of a run is out of range or does not fit the model."""


class PathError(PromptCacheError):
    """A path is missing, has the wrong type, or is not accessible."""


class CharacterError(PromptCacheError):
    """A text has half of a surrogate pair."""

    def __init__(self, text: str) -> None:
        at = next(place for place, character in enumerate(text) if 0xD800 <= ord(character) <= 0xDFFF)
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        super().__init__(
            f"the text has half of a surrogate pair (U+{ord(text[at]):04X}) in line {line}, column "
            f"{column}. Remove it, or write the whole character."
        )


def require_characters(text: str) -> None:
    """Raises CharacterError for a text with half of a surrogate pair, which cannot be encoded."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise CharacterError(text) from None
