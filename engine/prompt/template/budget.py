"""Limits for one rendering of a chat template: time, steps and characters. Independent of syntax."""

from __future__ import annotations

import time
from typing import Any

from jinja2.utils import Namespace

from engine.base.errors import PromptCacheError

MAX_VALUE = 2_000_000  # characters of one text, or of all texts in one list, in addition to the messages
MAX_WORK = 20_000_000  # characters and steps of one rendering, in addition to the messages' share
MAX_SECONDS = 5.0  # processor time for one rendering, and for all renderings that cut one conversation
MAX_BITS = 20_000  # size of an integer
MAX_DEPTH = 50  # nesting of lists


class TemplateError(PromptCacheError):
    """A chat template is invalid, refuses its messages, or exceeds a limit."""


class TemplateLimitError(TemplateError):
    """A chat template exceeds a limit of time or size."""


class TemplateTimeError(TemplateLimitError):
    """Several renderings exceed their shared time, though none does alone."""


class SharedTime:
    """The time limit that several renderings of one thread share."""

    def __init__(self) -> None:
        self.deadline = time.thread_time() + MAX_SECONDS
        self.renderings = 0

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.thread_time() > self.deadline

    def error(self) -> TemplateLimitError:
        """Returns the error for that case."""
        if self.renderings < 2:
            return TemplateLimitError(f"it takes longer than {MAX_SECONDS:g} seconds")
        return TemplateTimeError(
            f"finding the turns of this conversation takes longer than {MAX_SECONDS:g} seconds"
        )


class Budget:
    """The remaining budget of one rendering."""

    def __init__(self, size: int, shared: SharedTime | None = None) -> None:
        self._shared = shared
        self.largest = MAX_VALUE + 8 * size
        self._left = MAX_WORK + 100 * size
        self._deadline = shared.deadline if shared else time.thread_time() + MAX_SECONDS
        self.looks = 0

    def spend(self, cost: int) -> None:
        """Counts steps or characters, and sometimes checks the clock."""
        self._left -= cost + 1
        if self._left < 0:
            raise TemplateLimitError(f"it takes more than {MAX_WORK:,} steps and characters for its messages")
        self.looks += 1
        if self.looks % 32 == 0 and time.thread_time() > self._deadline:
            raise (self._shared or SharedTime()).error()

    def fits(self, size: int) -> None:
        """Checks the size of a text or list before it is created."""
        if size > self.largest:
            raise TemplateLimitError(f"it makes a value of {size:,} characters; {self.largest:,} are allowed")

    def text(self, text: str) -> str:
        """Counts a new text."""
        self.fits(len(text))
        self.spend(len(text))
        return text

    def weigh(self, value: Any) -> Any:
        """Counts a new value; lists count with all their elements, including repeated ones."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise TemplateLimitError("it makes a number of thousands of digits")
        if isinstance(value, (list, tuple, dict, set, frozenset)):
            self.spend(len(value))
            self.weight(value)
        return value

    def weight(self, value: Any) -> int:
        """Returns the number of characters and elements of a value, including nested ones."""
        total, pending = 0, [(value, 0)]
        while pending:
            item, depth = pending.pop()
            total += len(item) if isinstance(item, str) else 1
            if depth > MAX_DEPTH:
                raise TemplateLimitError(f"it nests lists more than {MAX_DEPTH} deep")
            if isinstance(item, Namespace) and depth:
                raise TemplateLimitError("it puts a namespace into a list")
            if isinstance(item, dict):
                pending.extend((part, depth + 1) for pair in item.items() for part in pair)
            elif isinstance(item, (list, tuple, set, frozenset)):
                pending.extend((part, depth + 1) for part in item)
            self.fits(total + len(pending))
        return total
