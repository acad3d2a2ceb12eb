"""Which segments sit in memory, where attention reads them directly. The least recently used goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

import torch

from engine.segment import Segment


class MemoryTier:
    """Segments in memory, within a budget.

    Args:
        budget: the most bytes that are held.
        device: where attention runs.
    """

    def __init__(self, budget: int, device: torch.device) -> None:
        self.budget, self.device = budget, device
        self._held: OrderedDict[str, Segment] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __contains__(self, key: str) -> bool:
        return key in self._held

    @property
    def bytes(self) -> int:
        """Bytes that are held now."""
        return self._bytes

    def keys(self) -> set[str]:
        """The names of what is held now."""
        with self._lock:
            return set(self._held)

    def get(self, key: str) -> Segment | None:
        """Returns a segment that is in memory and marks it as used."""
        with self._lock:
            segment = self._held.get(key)
            if segment is not None:
                self._held.move_to_end(key)
            return segment

    def add(self, segment: Segment) -> Segment:
        """Brings a segment to the device, holds it where the budget has room, and returns it.

        Who uses a segment keeps it alive; the budget bounds what is held for later.
        """
        if segment.keys.device != self.device:
            keys, values = segment.keys.to(self.device), segment.values.to(self.device)
            segment = Segment(segment.key, segment.token_ids, keys, values)
        with self._lock:
            old = self._held.pop(segment.key, None)
            self._bytes += segment.nbytes - (old.nbytes if old else 0)
            self._held[segment.key] = segment
            while self._bytes > self.budget:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= dropped.nbytes
        return segment

    def drop(self, keys: Iterable[str]) -> None:
        """Forgets these segments."""
        with self._lock:
            for key in keys:
                old = self._held.pop(key, None)
                self._bytes -= old.nbytes if old else 0

    def clear(self) -> None:
        """Forgets all segments; those on disk stay there."""
        with self._lock:
            self._held.clear()
            self._bytes = 0
