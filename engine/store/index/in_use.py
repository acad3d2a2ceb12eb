"""Which segments are being used, so that nothing in this process evicts them."""

from __future__ import annotations

from collections.abc import Iterable

from engine.base.releasable import Releasable


class Holds:
    """Keys that are held by any number of users. No lock: the collector may release one at any point."""

    def __init__(self) -> None:
        self._live: dict[Hold, frozenset[str]] = {}

    def hold(self, keys: Iterable[str]) -> Hold:
        """Holds some keys until what is returned is released."""
        made = Hold(self)
        self._live[made] = frozenset(keys)
        return made

    def keys(self) -> set[str]:
        """All that is held now."""
        return set().union(*tuple(self._live.values()))

    def _let_go(self, hold: Hold) -> None:
        self._live.pop(hold, None)


class Hold(Releasable):
    """Some keys that are held until this is released."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds

    def release(self) -> None:
        """Lets go of the keys; a second time does nothing."""
        self._holds._let_go(self)
