"""The segments of a request, locked in memory and on disk until they are released."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from engine.base.errors import StoreError
from engine.base.events import SegmentUse
from engine.base.releasable import Releasable
from engine.base.segment import Placement
from engine.cache.memory import Handle
from engine.prompt.recipe import RecipeSlice
from engine.store import Lookup
from engine.store.index.in_use import Hold

log = logging.getLogger(__name__)


def _unbounded() -> None:
    """No limit."""


@dataclass(frozen=True)
class Request:
    """The purpose of a request for segments.

    Attributes:
        schema: the schema's name, for the store's listing.
        scope: the scope of the encoding, for the store's listing.
        trial: use the new segments once, and put them neither into memory nor on disk.
        store_turns: store earlier turns of the conversation too; else they stay in memory only.
        hold: lock every segment until the end; else each only until those that see it are made.
        sync: write new segments before returning; else after the answer.
        rows: returns the most tokens of missing segments per pass, at least one; None for no limit.
    """

    schema: str
    scope: str
    trial: bool = False
    store_turns: bool = False
    hold: bool = True
    sync: bool = False
    rows: Callable[[], int | None] = _unbounded


class Unsaved:
    """Storage errors that occur after the end of their answer; the next answer reports them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count, self._first = 0, ""
        self._left: deque[str] = deque()

    def add(self, error: StoreError) -> None:
        """Counts a segment that could not be stored."""
        with self._lock:
            self._first = self._first or str(error)
            self._count += 1
            level = logging.WARNING if self._count == 1 else logging.INFO
        log.log(level, "a segment of an answer could not be stored: %s", error)

    def leave(self, failed: Iterable[str]) -> None:
        """Counts errors that an answer did not report; takes no lock, as garbage collection may call it."""
        self._left.extend(failed)

    def take(self, whose: str = "an earlier answer") -> str | None:
        """Returns a sentence about the errors so far, once; `whose` names the possible answers."""
        with self._lock:
            while self._left:
                self._first, self._count = self._first or self._left[0], self._count + 1
                self._left.popleft()
            count, first, self._count, self._first = self._count, self._first, 0, ""
        segments = "1 segment" if count == 1 else f"{count} segments"
        return f"{segments} of {whose} could not be stored: {first}" if count else None


@dataclass(frozen=True)
class Made:
    """The tokens and bytes of a computed segment."""

    tokens: int
    nbytes: int


@dataclass
class Fetched(Releasable):
    """Segments of one prompt or schema, which stay in memory and on disk until they are released.

    Attributes:
        request: the request.
        keys: the names of the requested segments.
        hold: locks those on disk.
        unsaved: receives storage errors after this has ended.
        cleared: `Settings.cleared` of the store before the work; None if unknown.
        handles: lock the segments in memory, by key.
        uses: the tier of each segment, in order.
        served: the same lookups for the store's statistics.
        encoded: sizes of the computed segments, contexts included, by key.
    """

    request: Request
    keys: tuple[str, ...]
    hold: Hold
    unsaved: Unsaved
    cleared: str | None = None
    handles: dict[str, Handle] = field(default_factory=dict)
    uses: list[SegmentUse] = field(default_factory=list)
    served: list[Lookup] = field(default_factory=list)
    encoded: dict[str, Made] = field(default_factory=dict)
    _failed: list[str] = field(default_factory=list)
    _unstored: set[str] = field(default_factory=set)  # keys
    _telling: threading.RLock = field(default_factory=threading.RLock)
    _ended: bool = False

    def release(self) -> None:
        """Releases all segments, so that they can be evicted; readers keep theirs alive."""
        with self._telling:
            self._ended = True
            untold, self._failed = self._failed, []
        self.unsaved.leave(untold)
        self.hold.release()
        self.drop(list(self.handles))

    def drop(self, keys: Iterable[str]) -> None:
        """Releases some segments."""
        for key in keys:
            self.handles.pop(key).release()

    def encoded_of(self, placements: Iterable[Placement]) -> int:
        """Returns how many of the tokens to read were computed for this request."""
        return sum(p.tokens - len(p.hidden) for p in placements if p.segment.key in self.encoded)

    def named(self, uses: Iterable[RecipeSlice | None]) -> list[SegmentUse]:
        """Returns the use of each segment, once for each module path with its text."""
        uses_by_key, named = (
            {item.key: item for item in self.uses},
            {(item.key, item.path) for item in self.uses},
        )
        others = dict.fromkeys(
            (use.recipe.key, use.recipe.path)
            for use in uses
            if use is not None
            and use.recipe.key in uses_by_key
            and (use.recipe.key, use.recipe.path) not in named
        )
        return [*self.uses, *(replace(uses_by_key[key], path=path) for key, path in others)]

    def stored_of(self, uses: Iterable[RecipeSlice | None]) -> list[RecipeSlice]:
        """Returns the slices whose segments were computed for this request and will be stored.

        Segments that failed to be stored are excluded.
        """
        return [
            use
            for use in uses
            if use is not None
            and use.recipe.key in self.encoded
            and use.recipe.key not in self._unstored
            and use.recipe.kept
            and (self.request.store_turns or not use.recipe.turn)
        ]

    def saved(self, error: StoreError | None, key: str = "") -> None:
        """Records an error of storing a segment, "" for several; from any thread."""
        if error is None:
            return
        self._unstored.add(key)
        message = str(error)
        with self._telling:
            ended = self._ended
            if not ended:
                self._failed.append(message)
        if ended:
            self.unsaved.add(error)

    def warnings(self) -> tuple[str, ...]:
        """Returns the storage errors so far as sentences; the next answer reports later ones."""
        with self._telling:
            self._ended = True
            failed, self._failed = self._failed, []
        return tuple(filter(None, [*failed[:1], self.unsaved.take()]))

    def place(self, uses: Iterable[RecipeSlice | None]) -> list[Placement]:
        """Returns the segments at their places in the prompt."""
        return [
            Placement(self.handles[use.recipe.key].segment, use.lo, use.hi, use.start)
            for use in uses
            if use is not None
        ]
