"""Segments in use, which this process must not evict."""

from __future__ import annotations

from collections.abc import Iterable

from engine.base.releasable import Releasable


class Holds:
    """Keys in use. It takes no lock, as garbage collection may release a hold at any point."""

    def __init__(self) -> None:
        self._live: dict[Hold, frozenset[str]] = {}

    def hold(self, keys: Iterable[str]) -> Hold:
        """Locks keys until the returned hold is released."""
        made = Hold(self)
        self._live[made] = frozenset(keys)
        return made

    def keys(self) -> set[str]:
        """Returns all locked keys."""
        return set().union(*tuple(self._live.values()))

    def _let_go(self, hold: Hold) -> None:
        self._live.pop(hold, None)


class Hold(Releasable):
    """Keys that are locked until this is released."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds

    def release(self) -> None:
        """Releases the keys; a second call does nothing."""
        self._holds._let_go(self)
