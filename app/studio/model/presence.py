"""Tells this user's commands what the studio computes with, from one model to the next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.models.model_choice import ModelChoice
from app.remote.presence import Presence
from app.remote.terms import Held, Terms, code_stamp, endings, folder_stamp
from app.studio.model.remote_runs import Handed

if TYPE_CHECKING:
    from engine import Engine


class Announcing:
    """Keeps the presence file of a studio true.

    Args:
        port: of the studio.
        handed: answers the runs that are handed over.
        kept: options of `Engine.open` that stay whatever the model is.
    """

    def __init__(self, port: int, handed: Handed, kept: Mapping[str, Any]) -> None:
        self._port, self._handed, self._kept = port, handed, kept
        self._code = code_stamp()  # of what is loaded, whatever the files are later
        self._told = contextlib.ExitStack()

    def expect(self, choice: ModelChoice) -> Callable[[Engine], None]:
        """Looks at a model's files before they are loaded; returns what is called once it answers."""
        terms = replace(Terms.of(choice.name, **choice.options, **self._kept), code=self._code)
        ends = endings(choice.name)

        def there(engine: Engine) -> None:
            held = Held(
                *(terms, engine.model.device, engine.model.dtype, engine.model.fingerprint),
                # a model that was fetched is there now
                *(ends or endings(choice.name), folder_stamp(terms.cache_dir)),
            )
            self.leave()
            presence = Presence(self._port, held)
            self._handed.open(engine, presence)
            self._told.enter_context(presence.told())

        return there

    def leave(self) -> None:
        """Takes no more runs until there is a model again."""
        self._told.close()
        self._handed.close()

    def busy(self, engine: Engine) -> int:
        """How many runs that were handed over are still computed by an engine."""
        return self._handed.busy(engine)

    def stop(self, engine: Engine) -> None:
        """Leaves runs that were handed over alone: they hear of the end when the engine is closed."""
        del engine
