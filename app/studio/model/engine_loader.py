"""The engine of a studio: to come while its model is loaded, there, and replaced by another model's.

Knows neither how a model is loaded nor who waits for the end of what the former one computes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.base.errors import PromptCacheError

if TYPE_CHECKING:
    from engine import Engine

PATIENCE_SECONDS = 15.0  # less than what the page waits for an answer


class Opening:
    """An engine, or one to come.

    Args:
        engine: where it is there already.
        patience: seconds that who needs it waits for it.
    """

    def __init__(self, engine: Engine | None = None, patience: float = PATIENCE_SECONDS) -> None:
        self._engine, self._patience = engine, patience
        self._number = 0 if engine is None else 1
        self._done, self._total, self._what = 0, 0, ""
        self._changed = threading.Condition()

    def progress(self, done: int, total: int, what: str) -> None:
        """Is told how much of a model's files is read."""
        self._done, self._total, self._what = done, total, what

    def finish(self, engine: Engine) -> Engine | None:
        """Is given the engine that answers from now on; returns the one that did so far."""
        with self._changed:
            former, self._engine = self._engine, engine
            self._number += 1
            self._done, self._total, self._what = 0, 0, ""
            self._changed.notify_all()
        return former

    def leave(self) -> Engine:
        """Gives the engine away, before another one is there; who asks for one waits again.

        Raises:
            PromptCacheError: none is there.
        """
        with self._changed:
            if self._engine is None:
                raise PromptCacheError("The model is still being loaded. Try again in a moment.")
            former, self._engine = self._engine, None
        return former

    @property
    def there(self) -> bool:
        """Whether an engine is there."""
        return self._engine is not None

    @property
    def number(self) -> int:
        """How many engines there have been: another number is another engine."""
        return self._number

    @property
    def words(self) -> str:
        """What is being done, in a few words; "" where the engine is there."""
        if self.there:
            return ""
        share = f", {100 * self._done // self._total} %" if self._total else ""
        return f"loading{share}"

    @property
    def engine(self) -> Engine:
        """The engine; who asks for it waits for it for some seconds.

        Raises:
            PromptCacheError: the model is still being loaded.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._engine is not None, self._patience)
            if self._engine is None:
                raise PromptCacheError("The model is still being loaded. Try again in a moment.")
            return self._engine
