"""Publishes the studio's current engine to this user's commands."""

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
    """Updates the studio's presence file.

    Args:
        port: the studio's port.
        handed: answers runs from the command line.
        kept: options of `Engine.open` for every model.
    """

    def __init__(self, port: int, handed: Handed, kept: Mapping[str, Any]) -> None:
        self._port, self._handed, self._kept = port, handed, kept
        self._code = code_stamp()  # of the loaded code, not of later files
        self._told = contextlib.ExitStack()

    def expect(self, choice: ModelChoice) -> Callable[[Engine], None]:
        """Stamps a model's files before loading; returns a function to call once it is loaded."""
        terms = replace(Terms.of(choice.name, **choice.options, **self._kept), code=self._code)
        ends = endings(choice.name)

        def loaded(engine: Engine) -> None:
            identity = Held(
                *(terms, engine.model.device, engine.model.dtype, engine.model.fingerprint),
                # a downloaded model has files now
                *(ends or endings(choice.name), folder_stamp(terms.cache_dir)),
            )
            self.leave()
            presence = Presence(self._port, identity)
            self._handed.open(engine, presence)
            self._told.enter_context(presence.told())

        return loaded

    def leave(self) -> None:
        """Rejects runs until the next model."""
        self._told.close()
        self._handed.close()

    def busy(self, engine: Engine) -> int:
        """Returns the number of command-line runs of an engine."""
        return self._handed.busy(engine)

    def stop(self, engine: Engine) -> None:
        """Does nothing: these runs end when the engine is closed."""
        del engine
