"""Values that were asked for last, up to a total weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """A table that forgets what was not asked for longest. Threads may share it.

    Args:
        most: the most that all values weigh together; one that weighs more alone is not kept.
    """

    def __init__(self, most: int) -> None:
        self._most, self._weight = most, 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> V | None:
        """Returns the value of a key, if it is still kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, value: V, weight: int) -> None:
        """Keeps a value.

        Args:
            key: found by it.
            value: no None.
            weight: what it counts for, at least 1.
        """
        with self._lock:
            before = self._kept.pop(key, None)
            self._weight -= before[1] if before is not None else 0
            if weight > self._most:
                return
            self._weight += weight
            self._kept[key] = value, weight
            while self._weight > self._most:
                _, (_, gone) = self._kept.popitem(last=False)
                self._weight -= gone
