"""Segments in memory, for attention to read in place. The least recently used is evicted first.

A reader has a handle of its segment. Segments with handles are never evicted, even beyond the budget, and
others can find them. A lodger has its own keys and values within the same budget, and decides which to evict.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import torch

from engine.base.releasable import Releasable
from engine.base.segment import Segment
from engine.cache.upload import Uploader


@dataclass(eq=False)
class _Held:
    """A segment with handles.

    Attributes:
        count: number of unreleased handles.
        listed: whether its key finds it; else it was dropped or replaced, and its last handle frees it.
    """

    segment: Segment
    count: int = 0
    listed: bool = True


class Handle(Releasable):
    """Locks a segment in memory until it is released."""

    def __init__(self, segment: Segment, tier: MemoryTier | None = None, held: _Held | None = None) -> None:
        self.segment = segment
        self._tier, self._held = tier, held

    def release(self) -> None:
        """Releases the segment; a second call does nothing."""
        entry, self._held = self._held, None
        if entry is not None and self._tier is not None:
            tier = self._tier
            tier.later(lambda: tier._take_back(entry))


class Reserved(Releasable):
    """Reserves bytes of a tier's budget for keys and values outside it, until it is released."""

    def __init__(self, tier: MemoryTier, size: int) -> None:
        self._tier, self._size = tier, size

    def release(self) -> None:
        """Returns the bytes to the budget; a second call does nothing."""
        tier, size = self._tier, self._size
        self._size = 0
        if size:
            tier.later(lambda: tier.charge(-size))


class Lodger(Protocol):
    """Has its own keys and values within a tier's budget. Its methods run while the tier is locked."""

    def oldest(self) -> int | None:
        """When its least recently used entry was used, by the tier's clock; None if it can evict nothing."""

    def evict(self) -> None:
        """Evicts that entry, and returns its bytes to the budget."""

    def keys(self) -> set[str]:
        """The names of its entries."""

    def sizes(self) -> dict[str, int]:
        """The bytes of its entries, by name."""

    def drop(self, keys: set[str]) -> None:
        """Drops these segments and those that saw them; current readers keep theirs."""


class MemoryTier:
    """Segments in memory, for any number of threads. Segments with handles may exceed the budget in bytes."""

    def __init__(self, budget: int, device: torch.device) -> None:
        self.budget, self.device = budget, device
        self._upload = Uploader(device)
        self._idle: OrderedDict[str, tuple[int, Segment]] = OrderedDict()  # with the time of the last use
        self._held: dict[str, _Held] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        # Garbage collection may release a handle while the lock is taken.
        self._returned: deque[Callable[[], None]] = deque()
        self._clock = count()
        self._lodger: Lodger | None = None

    def __contains__(self, key: str) -> bool:
        """Whether the tier has this segment."""
        return key in self._held or key in self._idle

    @property
    def bytes(self) -> int:
        """Bytes in use."""
        return self._bytes

    @property
    def held(self) -> int:
        """The number of segments with handles."""
        with self.locked():
            return len(self._held)

    def keys(self) -> set[str]:
        """The names of all segments, the lodger's included."""
        with self.locked():
            return {*self._held, *self._idle, *(self._lodger.keys() if self._lodger else ())}

    def sizes(self) -> dict[str, int]:
        """The bytes of all segments by name, the lodger's included."""
        with self.locked():
            sizes = dict(self._lodger.sizes()) if self._lodger else {}
            sizes.update({key: entry.segment.nbytes for key, entry in self._held.items()})
            sizes.update({key: segment.nbytes for key, (_, segment) in self._idle.items()})
            return sizes

    def acquire(self, key: str) -> Handle | None:
        """Locks a segment in memory; None if it is absent."""
        with self.locked():
            entry = self._held.get(key)
            if entry is None:
                idle = self._idle.pop(key, None)
                if idle is None:
                    return None
                entry = self._held[key] = _Held(idle[1])
            return self._handle(entry)

    def add(self, segment: Segment) -> Handle:
        """Moves a segment to the device and locks it; replaces one with the same key."""
        if segment.keys.device != self.device:
            keys, values = self._upload(segment.keys), self._upload(segment.values)
            segment = Segment(segment.key, segment.token_ids, keys, values)
        with self.locked():
            self._forget(segment.key)
            entry = self._held[segment.key] = _Held(segment)
            self._bytes += segment.nbytes
            return self._handle(entry)

    def reserve(self, size: int) -> Reserved:
        """Reserves bytes for an answer's tokens, and evicts segments without handles for them."""
        with self.locked():
            self.charge(size)
        return Reserved(self, size)

    def drop(self, keys: Iterable[str]) -> None:
        """Drops these segments; readers keep theirs."""
        with self.locked():
            dropped = set(keys)
            for key in dropped:
                self._forget(key)
            if self._lodger is not None:
                self._lodger.drop(dropped)

    def clear(self) -> None:
        """Drops all segments from memory."""
        self.drop(self.keys())

    def lodge(self, lodger: Lodger) -> None:
        """Adds the lodger; one at most."""
        assert self._lodger is None, "there is a lodger"
        self._lodger = lodger

    def charge(self, size: int) -> None:
        """Counts bytes that are taken, or freed if negative; for a locked tier."""
        self._bytes += size

    def now(self) -> int:
        """A time later than all before; for a locked tier."""
        return next(self._clock)

    def later(self, work: Callable[[], None]) -> None:
        """Runs short work that raises nothing under the lock: now, or as soon as the lock is free."""
        self._returned.append(work)
        self._settle_returned()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the tier and its lodger; evicts at the end."""
        try:
            with self._lock:
                yield
                self._settle()
        finally:
            self._settle_returned()

    def _handle(self, held: _Held) -> Handle:
        held.count += 1
        return Handle(held.segment, self, held)

    def _forget(self, key: str) -> None:
        idle = self._idle.pop(key, None)
        if idle is not None:
            self._bytes -= idle[1].nbytes
        entry = self._held.pop(key, None)
        if entry is not None:
            entry.listed = False

    def _take_back(self, held: _Held) -> None:
        held.count -= 1
        if held.count:
            return
        if held.listed:
            key = held.segment.key
            self._idle[key] = self.now(), self._held.pop(key).segment
        else:
            self._bytes -= held.segment.nbytes

    def _settle_returned(self) -> None:
        """Every thread with the lock looks again after releasing it, so no returned handle is missed."""
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Takes back released handles, and evicts segments beyond the budget."""
        while self._returned:
            self._returned.popleft()()
        while self._bytes > self.budget and self._evict():
            pass

    def _evict(self) -> bool:
        """Evicts the least recently used entry; returns whether there was one."""
        used, segment = next(iter(self._idle.values()), (None, None))
        oldest = self._lodger.oldest() if self._lodger is not None else None
        if self._lodger is not None and oldest is not None and (used is None or oldest < used):
            self._lodger.evict()
            return True
        if segment is None:
            return False
        self._idle.popitem(last=False)
        self._bytes -= segment.nbytes
        return True
