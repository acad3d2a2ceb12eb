"""Policy: which prompt is admitted next, and how many rows each has in a pass.

Prompts are admitted in order of arrival. A prompt whose segments are in memory may overtake a few others, and
each prompt can be overtaken a few times only. Memory is reserved for a prompt and the next tokens of its
answer. If memory runs out, the newest answer is set back: it drops its computed tokens but not its segments,
and goes on when there is room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

MOST = 32  # prompts in progress at once
ROWS = {"cpu": 256}  # of a pass that reads chunks of a long prompt alongside answers
_OTHER_ROWS = 2048
LOOKED_AT = 8  # waiting prompts that may overtake others
PASSED = 8  # times that a prompt may be overtaken
AHEAD = 256  # tokens of an answer that memory is reserved for at once


class Waiting(Protocol):
    """A prompt that waits for admission; later prompts have `passed` it so often."""

    passed: int

    @property
    def need(self) -> Need:
        """The memory that it needs."""


@dataclass(frozen=True)
class Need:
    """The memory that an answer needs.

    Attributes:
        segments: bytes of each of its segments, by key; shared segments count once.
        own: bytes of its own keys and values, as far as memory is reserved.
        slot: bytes of those in the shared buffer of tails; there all take as much as the longest.
    """

    segments: Mapping[str, int] = field(default_factory=dict)
    own: int = 0
    slot: int = 0


def room(budget: int, under_way: Sequence[Need], more: Need) -> bool:
    """Whether memory has room for one more answer; a prompt alone always fits.

    Segments of a single reader count twice, since they are copied into one run.
    """
    if not under_way:
        return True
    everyone = (*under_way, more)
    readers = Counter(key for need in everyone for key in need.segments)
    segments = {key: size for need in everyone for key, size in need.segments.items()}
    read = sum(size if readers[key] > 1 else 2 * size for key, size in segments.items())
    longest = max(need.slot for need in everyone)
    return read + sum(need.own + longest - need.slot for need in everyone) <= budget


def choose(waiting: Sequence[Waiting], resident: Callable[[Need], bool]) -> int:
    """Returns the index of the next of at least one prompt; the caller counts those that it overtakes."""
    for place, prompt in enumerate(waiting[:LOOKED_AT]):
        if resident(prompt.need):
            return place
        if prompt.passed >= PASSED:
            break
    return 0


def rows_of(device: str) -> int:
    """Returns the maximum number of rows of a pass, by the kind of device."""
    return ROWS.get(device, _OTHER_ROWS)


def shares(budget: int, decoding: int, prefills: Sequence[int]) -> list[int]:
    """Returns how many rows of each prefill, by arrival, go through in a pass of `budget` rows.

    The first gets half of the rows and all that the others leave; the others are served by length, shortest
    first. So no prompt waits for the whole of a long one.
    """
    if not prefills:
        return []
    left = max(budget - decoding, 1)
    rows = [0] * len(prefills)
    rows[0] = min(prefills[0], -(-left // 2))
    left -= rows[0]
    for place in sorted(range(1, len(prefills)), key=lambda place: prefills[place]):
        rows[place] = min(prefills[place], left)
        left -= rows[place]
    rows[0] += min(prefills[0] - rows[0], left)
    return rows


def filling(rows: int, unread: Sequence[int]) -> int:
    """Returns how many rows prompts with these numbers of unread tokens take, each at most half of a pass."""
    return sum(min(tokens, rows // 2) for tokens in unread)
