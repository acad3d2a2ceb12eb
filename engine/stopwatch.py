"""Times of the parts of a run."""

from __future__ import annotations

import time

from engine.choices import TimelinePart


class Stopwatch:
    """Adds up named parts of a duration, in milliseconds.

    Attributes:
        parts: by name, in the order in which they were first counted.
        waited: for steps of others, in milliseconds; in none of the parts.
    """

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.waited = 0.0
        self._started = time.perf_counter()

    def restart(self) -> None:
        """Leaves out the time since the last lap."""
        self._started = time.perf_counter()

    def lap(self, part: TimelinePart) -> None:
        """Counts the time since the last lap for this part."""
        now = time.perf_counter()
        self.parts[part] = self.parts.get(part, 0.0) + (now - self._started) * 1000
        self._started = now

    @property
    def total(self) -> float:
        """Milliseconds of all parts."""
        return sum(self.parts.values())
