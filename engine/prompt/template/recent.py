"""A cache of recent values with a limited total weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """A least recently used cache. Thread-safe.

    Args:
        most: the limit of the total weight; a heavier value is not cached.
    """

    def __init__(self, most: int) -> None:
        self._most, self._weight = most, 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> V | None:
        """Returns the value of a key, or None if it was evicted."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is None:
                return None
            self._kept.move_to_end(key)
            return entry[0]

    def keep(self, key: Hashable, value: V, weight: int) -> None:
        """Adds a value, which must not be None, with a weight of at least 1."""
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
