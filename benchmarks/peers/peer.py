"""The tasks of another program.

- `full`: from token ids to the logits of the first token; every token is computed.
- `prefix`: the same with the cached tokens in memory as a prefix.
- `state_file`: the same, after a read of the prefix from a file.
- `decode`: the median of 16 steps after it, each with the choice of its token.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from app.studio.sweeps.turns import Way
from benchmarks.base.case import Size

STEPS = 16


class Opened(Protocol):
    """A program with the model loaded."""

    def ways(self) -> list[Way]:
        """All tasks, with names such as `llama.cpp:prefix`."""


@dataclass(frozen=True)
class Peer:
    """Another program."""

    name: str
    version: str
    absent: str  # the reason for its absence, and the command that installs it; or ""
    open: Callable[[Size], AbstractContextManager[Opened]]


def longest(size: Size) -> int:
    """Most tokens of the prompt and everything after it."""
    return size.cached + size.new + STEPS + 2


class Contender:
    """A model of another program, with one prompt and its answer."""

    def __init__(self, name: str, size: Size, kinds: Sequence[str]) -> None:
        self.name, self.size, self.kinds = name, size, kinds

    def full(self) -> None:
        """Computes the whole prompt."""
        raise NotImplementedError

    def state_file(self) -> None:
        """Reads the prefix from its file, and computes the new tokens."""
        raise NotImplementedError

    def rewind(self) -> None:
        """Leaves only the prefix in memory."""

    def prefix(self) -> None:
        """Computes the new tokens after the prefix."""

    def step(self) -> None:
        """Takes the likeliest token, and computes the logits after it."""

    def logits(self) -> Any:
        """The last logits, [vocabulary]."""
        raise NotImplementedError

    def likeliest(self) -> int:
        """The token with the highest of the last logits."""
        return int(self.logits().argmax())

    def ways(self) -> list[Way]:
        """All tasks."""
        runs = {"prefix": self.prefix, "state_file": self.state_file}
        made = {kind: Way(f"{self.name}:{kind}", _timer(run), self.rewind) for kind, run in runs.items()}
        made["full"] = Way(f"{self.name}:full", _timer(self.full))
        made["decode"] = Way(f"{self.name}:decode", self._median_step, self.rewind)
        return [made[kind] for kind in self.kinds]

    def _median_step(self) -> float:
        self.prefix()
        self.step()
        return statistics.median(milliseconds_of(self.step) for _ in range(STEPS))


def _timer(run: Callable[[], object]) -> Callable[[], float]:
    return lambda: milliseconds_of(run)


def milliseconds_of(run: Callable[[], object]) -> float:
    """Runs once and returns milliseconds."""
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1000
