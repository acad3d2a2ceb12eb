"""Prompts that another program answers together, each in a slot, as servers have them.

A pass takes a row of each answer under way, and behind those as many rows of prompts that are still being
read as it has room for, first come first served. What a prompt has in common with the beginning of another
slot is not computed again. What was there before stands in a slot of its own and stays.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

HELD = 0  # the slot of what was there before
WORTH = 16  # tokens in common; for fewer nobody waits for another slot


@dataclass(frozen=True)
class Row:
    """A row of a pass.

    Attributes:
        token: what is computed.
        position: where it stands.
        slot: whose it is.
        wanted: whether the token after it is wanted.
    """

    token: int
    position: int
    slot: int
    wanted: bool


@dataclass(frozen=True)
class Begun:
    """What a prompt needs not compute.

    Attributes:
        slot: of whose beginning it is.
        tokens: how many it has in common with that.
    """

    slot: int
    tokens: int


@dataclass
class Slot:
    """A prompt on its way.

    Attributes:
        number: of the slot.
        prompt: its token ids.
        begun: what it needs not compute.
        computed: tokens that are there; None before it has taken what is in common.
        answer: the tokens that were chosen.
        first_ms: from the beginning to the first of those, in milliseconds.
    """

    number: int
    prompt: Sequence[int]
    begun: Begun
    computed: int | None = None
    answer: list[int] = field(default_factory=list)
    first_ms: float = 0.0


class Slots(abc.ABC):
    """A context of another program with slots.

    Args:
        most: rows of a pass.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: Sequence[int] = ()

    @abc.abstractmethod
    def release(self, slot: int) -> None:
        """Forgets what a slot holds."""

    @abc.abstractmethod
    def share(self, source: int, slot: int, tokens: int) -> None:
        """Makes the first tokens of a slot those of an empty one too."""

    @abc.abstractmethod
    def compute(self, rows: Sequence[Row]) -> list[int]:
        """Makes a pass; returns the likeliest token after each row of which it is wanted, in their order."""

    def hold(self, tokens: Sequence[int]) -> None:
        """Computes what is there before, once."""
        for first in range(0, len(tokens), self.most):
            part = tokens[first : first + self.most]
            self.compute([Row(token, at, HELD, False) for at, token in enumerate(part, first)])
        self._held = tokens

    def placed(self, prompts: Sequence[Sequence[int]]) -> list[Slot]:
        """Returns the prompts in slots, each with the longest beginning that it need not compute."""
        slots: list[Slot] = []
        for number, prompt in enumerate(prompts, HELD + 1):
            begun = Begun(HELD, _common(prompt, self._held))
            for other in slots:
                common = _common(prompt, other.prompt)
                if common >= begun.tokens + WORTH:
                    begun = Begun(other.number, common)
            slots.append(Slot(number, prompt, begun))
        return slots

    def answered(self, slots: Sequence[Slot], new: int) -> float:
        """Answers all prompts.

        Args:
            slots: made by `placed`, and released.
            new: tokens of each answer.

        Returns:
            Milliseconds of the whole.
        """
        started = time.perf_counter()
        while any(len(one.answer) < new for one in slots):
            rows = [
                Row(one.answer[-1], len(one.prompt) + len(one.answer) - 1, one.number, True)
                for one in slots
                if 0 < len(one.answer) < new
            ]
            reading = [one for one in slots if not one.answer and self._starts(one, slots)]
            for one in reading:
                rows += self._read(one, self.most - len(rows))
            chosen = iter(self.compute(rows))
            now = (time.perf_counter() - started) * 1000
            for row in rows:
                if row.wanted:
                    one = slots[row.slot - HELD - 1]
                    one.first_ms = one.first_ms or now
                    one.answer.append(next(chosen))
        return (time.perf_counter() - started) * 1000

    def _starts(self, one: Slot, slots: Sequence[Slot]) -> bool:
        """Whether a prompt can be read; takes what is in common when that is there."""
        if one.computed is None:
            begun = one.begun
            if begun.slot != HELD and (slots[begun.slot - HELD - 1].computed or 0) < begun.tokens:
                return False
            if begun.tokens:
                self.share(begun.slot, one.number, begun.tokens)
            one.computed = begun.tokens
        return True

    def _read(self, one: Slot, room: int) -> list[Row]:
        """The next rows of a prompt, at most so many."""
        assert one.computed is not None
        first = one.computed
        end = min(len(one.prompt), first + max(room, 0))
        last = len(one.prompt) - 1
        one.computed = end
        return [Row(one.prompt[at], at, one.number, at == last) for at in range(first, end)]


def _common(prompt: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that both begin with, but not the last of the prompt, from which its answer follows."""
    most = min(len(prompt) - 1, len(other))
    return next((at for at in range(most) if prompt[at] != other[at]), most)
