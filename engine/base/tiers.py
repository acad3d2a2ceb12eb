"""Where a segment can be, and what looking one up comes to. Declared here, read everywhere else."""

from __future__ import annotations

from enum import StrEnum


class Tier(StrEnum):
    """Where a segment is, the farthest first.

    Attributes:
        label: a word or two, for tables and badges.
        meaning: a sentence, for people.
    """

    label: str
    meaning: str

    def __new__(cls, name: str, label: str, meaning: str) -> Tier:
        """Makes a member that is its name."""
        member = str.__new__(cls, name)
        member._value_, member.label, member.meaning = name, label, meaning
        return member

    NONE = "none", "not yet", "Not computed yet: the first run that uses it computes it"
    DISK = "disk", "disk", "Computed, and kept on disk"
    MEMORY = "memory", "memory", "Computed, and in memory: read directly"

    def to_json(self) -> dict[str, str]:
        """Returns name, label and meaning, as a page wants them."""
        return {"name": self.value, "label": self.label, "meaning": self.meaning}


TIERS = tuple(Tier)


class Outcome(StrEnum):
    """What looking a segment up came to."""

    HIT = "hit"
    MISS = "miss"


class Reason(StrEnum):
    """Why a segment is not there; docs/store.md says each too.

    Attributes:
        meaning: a sentence, for people.
    """

    meaning: str

    def __new__(cls, words: str, meaning: str) -> Reason:
        """Makes a member that is its words."""
        member = str.__new__(cls, words)
        member._value_, member.meaning = words, meaning
        return member

    NEW = "new", "Never stored for this schema and module, as far as the store remembers"
    TEXT = "text changed", "The module's own text was edited since it was stored"
    SIGHT = (
        "sight changed",
        "The same text was stored in sight of something else: an edit before it, another scaffold or place",
    )
    SCOPE = "other scope", "The same text was stored under another scope"
    SCHEME = "other compression", "The same text was stored in another compression"
    DTYPE = "other number format", "The same text was stored in another number format"
    MODEL = "other model", "What is stored of this module is another model's"
    BUDGET = "evicted: budget", "It went because the budget had no room for all"
    AGE = "evicted: age", "It went because it was not used for longer than the age limit"
    EXPIRED = "expired", "Its time to live ended"
    REFUSED = "not stored: budget", "It was computed before, and the budget had no room for it"
    DELETED = "deleted", "Somebody deleted it"
    CLEARED = "cleared", "Somebody cleared the store"
    DAMAGED = "damaged", "Its file was not what was written, and was set aside"
    UNREADABLE = "unreadable", "It is there, and could not be read that time"
    ELSEWHERE = (
        "computed elsewhere meanwhile",
        "Another process was computing it; this one waited and read it",
    )
    NOT_KEPT = "conversation is not stored", "An earlier turn of a conversation, which is held in memory only"
