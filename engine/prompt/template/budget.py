"""What one rendering of a chat template may take: time, steps and characters. Knows no syntax."""

from __future__ import annotations

import time
from typing import Any

from jinja2.utils import Namespace

from engine.base.errors import PromptCacheError

MAX_VALUE = 2_000_000
"""Characters of one text, or of all texts in one list, beyond what the messages hold."""
MAX_WORK = 20_000_000
"""Characters written and steps taken in one rendering, beyond what the messages call for."""
MAX_SECONDS = 5.0
"""Time of the processor for one rendering, and for all that cut one conversation."""
MAX_BITS = 20_000
"""Size of a whole number."""
MAX_DEPTH = 50
"""How deep lists nest."""


class TemplateError(PromptCacheError):
    """A chat template cannot be read, refuses its messages, or goes beyond a bound."""


class TemplateLimitError(TemplateError):
    """A chat template goes beyond a bound of time or size."""


class TemplateTimeError(TemplateLimitError):
    """Several renderings took too long together, though none did alone."""


class SharedTime:
    """The time that several renderings of one thread have together."""

    def __init__(self) -> None:
        self.deadline = time.thread_time() + MAX_SECONDS
        self.renderings = 0

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return time.thread_time() > self.deadline

    def error(self) -> TemplateLimitError:
        """Returns what is raised then."""
        if self.renderings < 2:
            return TemplateLimitError(f"it takes longer than {MAX_SECONDS:g} seconds")
        return TemplateTimeError(
            f"to find where the turns of this conversation begin and end takes longer than {MAX_SECONDS:g} "
            "seconds"
        )


class Budget:
    """What one rendering may still take."""

    def __init__(self, size: int, shared: SharedTime | None = None) -> None:
        self._shared = shared
        self.largest = MAX_VALUE + 8 * size
        self._left = MAX_WORK + 100 * size
        self._deadline = shared.deadline if shared else time.thread_time() + MAX_SECONDS
        self.looks = 0

    def spend(self, cost: int) -> None:
        """Counts steps or characters, and looks at the clock now and then."""
        self._left -= cost + 1
        if self._left < 0:
            raise TemplateLimitError(f"it takes more than {MAX_WORK:,} steps and characters for its messages")
        self.looks += 1
        if self.looks % 32 == 0 and time.thread_time() > self._deadline:
            raise (self._shared or SharedTime()).error()

    def fits(self, size: int) -> None:
        """Checks the size of a text or list before it is made."""
        if size > self.largest:
            raise TemplateLimitError(f"it makes a value of {size:,} characters; {self.largest:,} are allowed")

    def text(self, text: str) -> str:
        """Counts a text that was made."""
        self.fits(len(text))
        self.spend(len(text))
        return text

    def weigh(self, value: Any) -> Any:
        """Counts a new value; lists count with all that they hold, however often it is the same."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise TemplateLimitError("it makes a number of thousands of digits")
        if isinstance(value, (list, tuple, dict, set, frozenset)):
            self.spend(len(value))
            self.weight(value)
        return value

    def weight(self, value: Any) -> int:
        """Characters and elements of a value, with all that it holds."""
        total, pending = 0, [(value, 0)]
        while pending:
            one, depth = pending.pop()
            total += len(one) if isinstance(one, str) else 1
            if depth > MAX_DEPTH:
                raise TemplateLimitError(f"it nests lists more than {MAX_DEPTH} deep")
            if isinstance(one, Namespace) and depth:
                raise TemplateLimitError("it puts a namespace into a list")
            if isinstance(one, dict):
                pending.extend((part, depth + 1) for pair in one.items() for part in pair)
            elif isinstance(one, (list, tuple, set, frozenset)):
                pending.extend((part, depth + 1) for part in one)
            self.fits(total + len(pending))
        return total
