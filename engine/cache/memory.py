"""Which segments sit in memory, where attention reads them directly. The least recently used goes first.

Who reads a segment holds a handle of it until it is read no more. What is held is never evicted, and stays to
be found by others, however little the budget is; what is not held goes where the budget has no room for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from engine.cache.releasable import Releasable
from engine.segment import Segment


@dataclass(eq=False)
class _Held:
    """A segment with handles.

    Attributes:
        count: how many handles were not released yet.
        listed: whether it is found under its key; else it was dropped or replaced, and goes with its last
            handle.
    """

    segment: Segment
    count: int = 0
    listed: bool = True


class Handle(Releasable):
    """A segment that stays in memory until this is released.

    Attributes:
        segment: the segment held.
    """

    def __init__(self, segment: Segment, tier: MemoryTier | None = None, held: _Held | None = None) -> None:
        self.segment = segment
        self._tier, self._held = tier, held

    def release(self) -> None:
        """Lets go of the segment; a second time does nothing."""
        held, self._held = self._held, None
        if held is not None and self._tier is not None:
            self._tier._take_back(held)


class MemoryTier:
    """Segments in memory: within a budget, and beyond it only what is held. For any number of threads.

    Args:
        budget: the most bytes, beside those that are held.
        device: the device on which attention runs.
    """

    def __init__(self, budget: int, device: torch.device) -> None:
        self.budget, self.device = budget, device
        self._idle: OrderedDict[str, Segment] = OrderedDict()
        self._held: dict[str, _Held] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self._returned: deque[_Held] = deque()  # the collector may release a handle while the lock is held

    def __contains__(self, key: str) -> bool:
        """Whether a segment is found under this key now."""
        return key in self._held or key in self._idle

    @property
    def bytes(self) -> int:
        """Bytes that are taken now."""
        return self._bytes

    def keys(self) -> set[str]:
        """The names of what is found now."""
        with self._locked():
            return {*self._held, *self._idle}

    def acquire(self, key: str) -> Handle | None:
        """Holds a segment that is in memory; None where it is not."""
        with self._locked():
            held = self._held.get(key)
            if held is None:
                segment = self._idle.pop(key, None)
                if segment is None:
                    return None
                held = self._held[key] = _Held(segment)
            return self._handle(held)

    def add(self, segment: Segment) -> Handle:
        """Brings a segment to the device and holds it, in place of what had its key."""
        if segment.keys.device != self.device:
            keys, values = segment.keys.to(self.device), segment.values.to(self.device)
            segment = Segment(segment.key, segment.token_ids, keys, values)
        with self._locked():
            self._forget(segment.key)
            held = self._held[segment.key] = _Held(segment)
            self._bytes += segment.nbytes
            return self._handle(held)

    def drop(self, keys: Iterable[str]) -> None:
        """Forgets these segments; who holds one keeps it, and nobody else finds it."""
        with self._locked():
            for key in keys:
                self._forget(key)

    def clear(self) -> None:
        """Forgets all segments; those on disk stay there."""
        self.drop(self.keys())

    def _handle(self, held: _Held) -> Handle:
        held.count += 1
        return Handle(held.segment, self, held)

    def _forget(self, key: str) -> None:
        idle = self._idle.pop(key, None)
        if idle is not None:
            self._bytes -= idle.nbytes
        held = self._held.pop(key, None)
        if held is not None:
            held.listed = False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
                self._settle()
        finally:
            self._settle_returned()

    def _take_back(self, held: _Held) -> None:
        self._returned.append(held)
        self._settle_returned()

    def _settle_returned(self) -> None:
        """Whoever has the lock looks again after it, so nothing that is returned meanwhile is left."""
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Takes back what was released, and evicts what the budget has no room for."""
        while self._returned:
            held = self._returned.popleft()
            held.count -= 1
            if held.count:
                continue
            if held.listed:
                self._idle[held.segment.key] = self._held.pop(held.segment.key).segment
            else:
                self._bytes -= held.segment.nbytes
        while self._bytes > self.budget and self._idle:
            _, evicted = self._idle.popitem(last=False)
            self._bytes -= evicted.nbytes
