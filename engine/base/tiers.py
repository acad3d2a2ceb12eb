"""Tiers of segments and results of lookups."""

from __future__ import annotations

from enum import StrEnum


class Tier(StrEnum):
    """The tier of a segment, slowest first.

    Attributes:
        label: a word or two, for tables and badges.
        meaning: a sentence for users.
    """

    label: str
    meaning: str

    def __new__(cls, name: str, label: str, meaning: str) -> Tier:
        """Makes a member from its fields."""
        member = str.__new__(cls, name)
        member._value_, member.label, member.meaning = name, label, meaning
        return member

    NONE = "none", "not yet", "Not computed yet; its first run computes it"
    DISK = "disk", "disk", "Computed and stored on disk"
    MEMORY = "memory", "memory", "Computed and in memory"

    def to_json(self) -> dict[str, str]:
        """Returns name, label and meaning for the page."""
        return {"name": self.value, "label": self.label, "meaning": self.meaning}


TIERS = tuple(Tier)


class Outcome(StrEnum):
    """The result of a segment lookup."""

    HIT = "hit"
    MISS = "miss"


class Reason(StrEnum):
    """The reason of a miss; docs/store.md lists them.

    Attributes:
        meaning: a sentence for users.
    """

    meaning: str

    def __new__(cls, words: str, meaning: str) -> Reason:
        """Makes a member from its fields."""
        member = str.__new__(cls, words)
        member._value_, member.meaning = words, meaning
        return member

    NEW = "new", "Never stored for this schema and module, according to the store's history"
    TEXT = "text changed", "The module's own text was edited since it was stored"
    SIGHT = (
        "sight changed",
        "The same text was stored in another context: other text before it, other scaffold or place",
    )
    SCOPE = "other scope", "The same text was stored under another scope"
    SCHEME = "other compression", "The same text was stored in another compression"
    DTYPE = "other number format", "The same text was stored in another number format"
    MODEL = "other model", "This module was stored for another model"
    BUDGET = "evicted: budget", "It was evicted because the budget was full"
    AGE = "evicted: age", "It was evicted because it was unused for longer than the age limit"
    EXPIRED = "expired", "Its time to live ended"
    REFUSED = "not stored: budget", "It was computed before, but the budget was full"
    DELETED = "deleted", "A user deleted it"
    CLEARED = "cleared", "A user cleared the store"
    DAMAGED = "damaged", "Its file was damaged and was set aside"
    UNREADABLE = "unreadable", "It exists but could not be read"
    ELSEWHERE = (
        "computed elsewhere meanwhile",
        "Another process computed it while this one waited",
    )
    NOT_KEPT = "conversation is not stored", "An earlier turn of a conversation, which stays in memory only"
