"""Who is admitted next, and how many rows each has in a pass: policy, and nothing that computes.

First come, first served, but for one exception: a prompt whose segments are in memory already may pass a few
others, and nobody is passed more than a few times. The memory of a whole answer is set aside when it is
admitted, so that none that has begun is ever set back for want of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

MOST = 32  # prompts that are under way at once
ROWS = {"cpu": 256}  # of a pass, where a long prompt is read in chunks beside answers; 2,048 on other devices
_OTHER_ROWS = 2048
LOOKED_AT = 8  # waiting prompts that may pass others
PASSED = 8  # times that one may be passed


class Waiting(Protocol):
    """A prompt that is yet to be admitted.

    Attributes:
        passed: how often others that came later were admitted before it.
    """

    passed: int

    @property
    def need(self) -> Need:
        """The memory that it takes."""


@dataclass(frozen=True)
class Need:
    """The memory that an answer takes.

    Attributes:
        segments: bytes of each segment that it reads, by key; what others read as well is there once.
        own: bytes of the keys and values that are its own, at the end of its answer.
    """

    segments: Mapping[str, int] = field(default_factory=dict)
    own: int = 0


def room(budget: int, under_way: Sequence[Need], more: Need) -> bool:
    """Whether one more fits beside those under way. A prompt by itself always does.

    Args:
        budget: the most bytes of all that answers under way read and compute.
        under_way: what those take.
        more: what the other one takes.
    """
    if not under_way:
        return True
    everyone = (*under_way, more)
    segments = {key: size for one in everyone for key, size in one.segments.items()}
    return sum(segments.values()) + sum(one.own for one in everyone) <= budget


def choose(waiting: Sequence[Waiting], resident: Callable[[Need], bool]) -> int:
    """Returns which of the waiting is admitted next; the caller counts those that are passed.

    Args:
        waiting: by arrival, at least one.
        resident: whether all segments that one reads are in memory.
    """
    for place, one in enumerate(waiting[:LOOKED_AT]):
        if resident(one.need):
            return place
        if one.passed >= PASSED:
            break
    return 0


def rows_of(device: str) -> int:
    """How many rows a pass has at most, on a kind of device."""
    return ROWS.get(device, _OTHER_ROWS)


def shares(budget: int, decoding: int, prefills: Sequence[int]) -> list[int]:
    """Returns how many rows of each prefill go through in this pass, the first in full before the next.

    Args:
        budget: rows of the pass.
        decoding: how many rows the answers under way have in it.
        prefills: how many rows each has left, by arrival.
    """
    left = max(budget - decoding, 1 if prefills else 0)
    found = []
    for wanted in prefills:
        found.append(min(wanted, left))
        left -= found[-1]
    return found
