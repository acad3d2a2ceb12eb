"""The engine of a studio while its model is loaded: the page is there before it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.errors import PromptCacheError

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
        self._done, self._total, self._what = 0, 0, ""
        self._there = threading.Event()
        if engine is not None:
            self._there.set()

    def progress(self, done: int, total: int, what: str) -> None:
        """Is told how much of a model's files is read."""
        self._done, self._total, self._what = done, total, what

    def finish(self, engine: Engine) -> None:
        """Is given the engine."""
        self._engine = engine
        self._there.set()

    @property
    def there(self) -> bool:
        """Whether the engine is there."""
        return self._there.is_set()

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
        self._there.wait(self._patience)
        if self._engine is None:
            raise PromptCacheError("The model is still being loaded. Try again in a moment.")
        return self._engine
