"""Who is admitted next, and how many rows each has in a pass: policy, and nothing that computes.

First come, first served, but for one exception: a prompt whose segments are in memory already may pass a few
others, and nobody is passed more than a few times. Memory is set aside for a prompt and the next tokens of
its answer; where there is none for the tokens after them, whoever was admitted last is set back: it gives up
what it has computed, keeps what it reads, and goes on when there is room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

MOST = 32  # prompts that are under way at once
ROWS = {"cpu": 256}  # of a pass, where a long prompt is read in chunks beside answers; 2,048 on other devices
_OTHER_ROWS = 2048
LOOKED_AT = 8  # waiting prompts that may pass others
PASSED = 8  # times that one may be passed
AHEAD = 256  # tokens of an answer that memory is set aside for at once


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
        own: bytes of the keys and values that are its own, as far as memory is set aside.
        slot: bytes of those while they lie beside the tails of others; there all take as much as the longest.
    """

    segments: Mapping[str, int] = field(default_factory=dict)
    own: int = 0
    slot: int = 0


def room(budget: int, under_way: Sequence[Need], more: Need) -> bool:
    """Whether one more fits beside those under way. A prompt by itself always does.

    What only one of them reads counts twice, as it is copied to lie in one piece.

    Args:
        budget: the most bytes of all that answers under way read and compute.
        under_way: what those take.
        more: what the other one takes.
    """
    if not under_way:
        return True
    everyone = (*under_way, more)
    readers = Counter(key for one in everyone for key in one.segments)
    segments = {key: size for one in everyone for key, size in one.segments.items()}
    read = sum(size if readers[key] > 1 else 2 * size for key, size in segments.items())
    beside = max(one.slot for one in everyone)
    return read + sum(one.own + beside - one.slot for one in everyone) <= budget


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
    """Returns how many rows of each prefill go through in this pass.

    The first has half of them, and the shortest of the others theirs before it has more, so that nobody waits
    for the whole of a long prompt.

    Args:
        budget: rows of the pass.
        decoding: how many rows the answers under way have in it.
        prefills: how many rows each has left, by arrival.
    """
    if not prefills:
        return []
    left = max(budget - decoding, 1)
    found = [0] * len(prefills)
    found[0] = min(prefills[0], -(-left // 2))
    left -= found[0]
    for place in sorted(range(1, len(prefills)), key=lambda place: prefills[place]):
        found[place] = min(prefills[place], left)
        left -= found[place]
    found[0] += min(prefills[0] - found[0], left)
    return found


def filling(rows: int, unread: Sequence[int]) -> int:
    """How many rows of passes prompts that are being read take, each no more than half of a pass.

    Args:
        rows: of a pass.
        unread: tokens that each has left.
    """
    return sum(min(one, rows // 2) for one in unread)
