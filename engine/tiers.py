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
    """Why a segment is not there. docs/store.md says each in a sentence."""

    NEW = "new"
    TEXT = "text changed"
    SIGHT = "sight changed"
    SCOPE = "other scope"
    SCHEME = "other compression"
    DTYPE = "other number format"
    MODEL = "other model"
    BUDGET = "evicted: budget"
    AGE = "evicted: age"
    REFUSED = "not stored: budget"
    DELETED = "deleted"
    CLEARED = "cleared"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    ELSEWHERE = "computed elsewhere meanwhile"
    NOT_KEPT = "conversation is not stored"
