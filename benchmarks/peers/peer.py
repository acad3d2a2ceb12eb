"""What a peer is: another program that answers the same prompt from the same weights.

Ours and theirs take turns in one run (`benchmarks.turns`), so a peer gives ways of that kind, `peer:what`:

- `full`: from token ids to the logits of the first token, every token computed.
- `prefix`: the same with the cached tokens there as a prefix, in memory: the new tokens only.
- `state_file`: the same, the state of the prefix read from a file first.
- `decode`: a step of the answer after it: the median of 16, each with the choice of its token in it.
- `answer`: the whole of an answer over the prefix, from the new tokens to the choice of its last token.
"""

from __future__ import annotations

import abc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.turns import Way
from engine.base.errors import PromptCacheError

STEPS = 16


@dataclass(frozen=True)
class Shape:
    """What is asked of every peer.

    Attributes:
        model: name of the model, for instance `random:llama-100m`.
        dtype: "auto", "fp32", "bf16" or "fp16".
        cached: tokens that are there before.
        modules: how many modules they are in, where a peer knows modules.
        new: tokens behind them.
        seed: the seed of the tokens.
        threads: threads of the processor, of the whole process where a peer runs on torch.
        answer: tokens of the longest answer.
    """

    model: str
    dtype: str
    cached: int
    modules: int
    new: int
    seed: int
    threads: int
    answer: int = 64

    def __post_init__(self) -> None:
        counts = (self.cached, self.modules, self.new, self.threads, self.answer)
        if min(counts) < 1 or self.cached < self.modules:
            raise PromptCacheError(
                "cached, modules, new, threads and answer must be at least 1, and cached at least modules."
            )

    @property
    def longest(self) -> int:
        """Tokens of the prompt and of the longest that is decoded after it."""
        return self.cached + self.new + max(self.answer, STEPS + 2)


class Opened(Protocol):
    """A peer with the model loaded."""

    def ways(self) -> list[Way]:
        """Everything it can do, named `peer:what`."""

    def answer(self, tokens: int) -> Way:
        """`peer:answer` of so many tokens, at most those of the shape.

        Raises:
            PromptCacheError: there are more.
        """

    def settings(self) -> Mapping[str, str]:
        """What was chosen for a way because it is faster, in words by the way's name, once it was run."""


@dataclass(frozen=True)
class Peer:
    """Another program.

    Attributes:
        name: in the results.
        version: what is installed; "" where nothing is.
        absent: why it cannot be used here, and the command that installs it; "" where it can be used.
        open: loads the model of a shape, for as long as the context lasts. Raises PromptCacheError where the
            shape is none that the peer can take.
    """

    name: str
    version: str
    absent: str
    open: Callable[[Shape], AbstractContextManager[Opened]]


class Contender(abc.ABC):
    """A model of a peer that computes one prompt and its answer, and how that is timed.

    Args:
        name: of the peer.
        shape: what is asked.
        kinds: which of the ways it can do.
    """

    def __init__(self, name: str, shape: Shape, kinds: Sequence[str]) -> None:
        self.name, self.shape, self.kinds = name, shape, kinds

    def full(self) -> None:
        """Computes the whole prompt."""
        raise NotImplementedError

    def state_file(self) -> None:
        """Reads the state of the prefix from its file, and computes the new tokens."""
        raise NotImplementedError

    @abc.abstractmethod
    def rewind(self) -> None:
        """Leaves the prefix alone in memory, whatever was computed before."""

    @abc.abstractmethod
    def prefix(self) -> None:
        """Computes the new tokens after the prefix. `rewind` was called before."""

    @abc.abstractmethod
    def step(self) -> None:
        """Takes the likeliest token of the last logits, and computes the logits after it."""

    @abc.abstractmethod
    def logits(self) -> Any:
        """The last logits: an array or a tensor, [vocabulary]."""

    def likeliest(self) -> int:
        """The token with the greatest of the last logits."""
        return int(self.logits().argmax())

    def ways(self) -> list[Way]:
        """Everything it can do, named `peer:what`."""
        made = {
            "full": lambda: self._way("full", self.full),
            "prefix": lambda: self._way("prefix", self.prefix, self.rewind),
            "state_file": lambda: self._way("state_file", self.state_file, self.rewind),
            "decode": lambda: Way(f"{self.name}:decode", self._median_step, self.rewind),
            "answer": lambda: self.answer(self.shape.answer),
        }
        return [made[kind]() for kind in self.kinds]

    def answer(self, tokens: int) -> Way:
        """`peer:answer` of so many tokens.

        Raises:
            PromptCacheError: there are more than the longest answer of the shape.
        """
        if not 1 <= tokens <= self.shape.answer:
            raise PromptCacheError(f"an answer has 1 to {self.shape.answer} tokens, not {tokens}.")

        def run() -> None:
            self.prefix()
            for _ in range(tokens - 1):
                self.step()
            self.likeliest()

        return self._way("answer", run, self.rewind)

    def settings(self) -> Mapping[str, str]:
        """Nothing was chosen."""
        return {}

    def _way(self, kind: str, run: Callable[[], None], prepare: Callable[[], None] | None = None) -> Way:
        return Way(f"{self.name}:{kind}", lambda: _timed(run), *([prepare] if prepare else []))

    def _median_step(self) -> float:
        self.prefix()
        self.step()
        return statistics.median(_timed(self.step) for _ in range(STEPS))


def _timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1000
