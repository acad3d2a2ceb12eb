"""Times of the parts of a run."""

from __future__ import annotations

import time

from engine.base.choices import TimelinePart


class Stopwatch:
    """Adds up named parts of a duration, in milliseconds.

    Attributes:
        parts: milliseconds by name, in the order of first use.
        waited: milliseconds of waiting for other answers' steps and for other programs; in no part.
    """

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.waited = 0.0
        self._started = time.perf_counter()

    def restart(self) -> None:
        """Ignores the time since the last lap."""
        self._started = time.perf_counter()

    def lap(self, part: TimelinePart) -> None:
        """Adds the time since the last lap to this part."""
        now = time.perf_counter()
        self.parts[part] = self.parts.get(part, 0.0) + (now - self._started) * 1000
        self._started = now

    @property
    def total(self) -> float:
        """Milliseconds of all parts."""
        return sum(self.parts.values())


def milliseconds(value: float) -> str:
    """Returns a time with three significant digits: `0.42 ms`, `12.3 ms`, `1.25 s`."""
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"
