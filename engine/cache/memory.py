"""Which segments sit in memory, where attention reads them directly. The least recently used goes first.

Who reads a segment holds a handle of it until it is read no more. What is held is never evicted, and stays to
be found by others, however little the budget is; what is not held goes where the budget has no room for it.
A lodger keeps keys and values of its own within the same budget, and says itself which of them can go.
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
            tier = self._tier
            tier.later(lambda: tier._take_back(held))


class Reserved(Releasable):
    """Bytes of a tier's budget that are kept free for keys and values outside it, until this is released."""

    def __init__(self, tier: MemoryTier, size: int) -> None:
        self._tier, self._size = tier, size

    def release(self) -> None:
        """Gives them back; a second time does nothing."""
        tier, size = self._tier, self._size
        self._size = 0
        if size:
            tier.later(lambda: tier.charge(-size))


class Lodger(Protocol):
    """Keeps keys and values of its own within a tier's budget. It is called while the tier is locked."""

    def oldest(self) -> int | None:
        """When what would go first was used last, by the tier's clock; None where nothing can go."""

    def evict(self) -> None:
        """Lets go of that, and gives its bytes back, where it has any."""

    def keys(self) -> set[str]:
        """The names of what is found now."""

    def sizes(self) -> dict[str, int]:
        """The bytes of what is found now, by name."""

    def drop(self, keys: set[str]) -> None:
        """Forgets these segments, and what saw them; who reads one keeps it, and nobody else finds it."""


class MemoryTier:
    """Segments in memory: within a budget, and beyond it only what is held. For any number of threads.

    Args:
        budget: the most bytes, beside those that are held.
        device: the device on which attention runs.
    """

    def __init__(self, budget: int, device: torch.device) -> None:
        self.budget, self.device = budget, device
        self._idle: OrderedDict[str, tuple[int, Segment]] = OrderedDict()  # with the time of the last use
        self._held: dict[str, _Held] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        # The collector may release a handle while the lock is held.
        self._returned: deque[Callable[[], None]] = deque()
        self._clock = count()
        self._lodger: Lodger | None = None

    def __contains__(self, key: str) -> bool:
        """Whether a segment is found under this key now."""
        return key in self._held or key in self._idle

    @property
    def bytes(self) -> int:
        """Bytes that are taken now."""
        return self._bytes

    @property
    def held(self) -> int:
        """How many segments are read by someone and are found."""
        with self.locked():
            return len(self._held)

    def keys(self) -> set[str]:
        """The names of what is found now."""
        with self.locked():
            return {*self._held, *self._idle, *(self._lodger.keys() if self._lodger else ())}

    def sizes(self) -> dict[str, int]:
        """The bytes of what is found now, by name."""
        with self.locked():
            found = dict(self._lodger.sizes()) if self._lodger else {}
            found.update({key: held.segment.nbytes for key, held in self._held.items()})
            found.update({key: segment.nbytes for key, (_, segment) in self._idle.items()})
            return found

    def acquire(self, key: str) -> Handle | None:
        """Holds a segment that is in memory; None where it is not."""
        with self.locked():
            held = self._held.get(key)
            if held is None:
                idle = self._idle.pop(key, None)
                if idle is None:
                    return None
                held = self._held[key] = _Held(idle[1])
            return self._handle(held)

    def add(self, segment: Segment) -> Handle:
        """Brings a segment to the device and holds it, in place of what had its key."""
        if segment.keys.device != self.device:
            keys, values = segment.keys.to(self.device), segment.values.to(self.device)
            segment = Segment(segment.key, segment.token_ids, keys, values)
        with self.locked():
            self._forget(segment.key)
            held = self._held[segment.key] = _Held(segment)
            self._bytes += segment.nbytes
            return self._handle(held)

    def reserve(self, size: int) -> Reserved:
        """Keeps so many bytes free for what an answer computes; what nobody holds goes for it."""
        with self.locked():
            self.charge(size)
        return Reserved(self, size)

    def drop(self, keys: Iterable[str]) -> None:
        """Forgets these segments; who holds one keeps it, and nobody else finds it."""
        with self.locked():
            gone = set(keys)
            for key in gone:
                self._forget(key)
            if self._lodger is not None:
                self._lodger.drop(gone)

    def clear(self) -> None:
        """Forgets all segments; those on disk stay there."""
        self.drop(self.keys())

    def lodge(self, lodger: Lodger) -> None:
        """Takes in who keeps keys and values of its own; one at most."""
        assert self._lodger is None, "there is a lodger"
        self._lodger = lodger

    def charge(self, size: int) -> None:
        """Counts bytes that are taken, or given back where negative; while the tier is locked."""
        self._bytes += size

    def now(self) -> int:
        """The time of a use, later than all before; while the tier is locked."""
        return next(self._clock)

    def later(self, work: Callable[[], None]) -> None:
        """Does something short that raises nothing while the tier is locked: now, or as soon as it can."""
        self._returned.append(work)
        self._settle_returned()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps the tier, and what lodges in it, as it is but for who asked; evicts at the end."""
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
        held = self._held.pop(key, None)
        if held is not None:
            held.listed = False

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
        """Whoever has the lock looks again after it, so nothing that is returned meanwhile is left."""
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Takes back what was released, and evicts what the budget has no room for."""
        while self._returned:
            self._returned.popleft()()
        while self._bytes > self.budget and self._evict():
            pass

    def _evict(self) -> bool:
        """Lets go of what was used last the longest ago; says whether there was something."""
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
