"""The studio's engine: loading, loaded, or replaced."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.base.errors import PromptCacheError

if TYPE_CHECKING:
    from engine import Engine

PATIENCE_SECONDS = 15.0  # less than the page's timeout
STAGES = {
    "fetching": "downloading the model",
    "reading": "reading the model's files",
    "loading": "loading the weights",
    "probing": "checking that caching works with this model",
    "measuring": "choosing the fastest form of the weights",
}
"""The stages of `Engine.open` by the first word of their labels."""


class Opening:
    """An engine, possibly still loading.

    Args:
        engine: an engine that is already loaded.
        patience: seconds to wait for the engine.
    """

    def __init__(self, engine: Engine | None = None, patience: float = PATIENCE_SECONDS) -> None:
        self._engine, self._patience = engine, patience
        self._number = 0 if engine is None else 1
        self._done, self._total, self._what = 0, 0, ""
        self._changed = threading.Condition()

    def progress(self, done: int, total: int, what: str) -> None:
        """Reports how much of the model's files is read."""
        self._done, self._total, self._what = done, total, what

    def finish(self, engine: Engine) -> Engine | None:
        """Sets the current engine; returns the previous one."""
        with self._changed:
            former, self._engine = self._engine, engine
            self._number += 1
            self._done, self._total, self._what = 0, 0, ""
            self._changed.notify_all()
        return former

    def leave(self) -> Engine:
        """Removes and returns the engine before another is loaded; callers wait again.

        Raises:
            PromptCacheError: no engine is loaded.
        """
        with self._changed:
            if self._engine is None:
                raise PromptCacheError("The model is still loading. Try again in a moment.")
            former, self._engine = self._engine, None
        return former

    @property
    def there(self) -> bool:
        """Whether an engine is loaded."""
        return self._engine is not None

    @property
    def number(self) -> int:
        """Counts engines: a new number is a new engine."""
        return self._number

    @property
    def words(self) -> str:
        """The loading progress in words; "" once the engine is loaded."""
        if self.there:
            return ""
        share = f", {100 * self._done // self._total} %" if self._total else ""
        return STAGES.get(self._what.partition(" ")[0], "loading") + share

    @property
    def engine(self) -> Engine:
        """The engine; waits some seconds for it.

        Raises:
            PromptCacheError: the model is still loading.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._engine is not None, self._patience)
            if self._engine is None:
                raise PromptCacheError("The model is still loading. Try again in a moment.")
            return self._engine
