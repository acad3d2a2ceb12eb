"""What was wanted, and what was found or computed for it: held until it is released."""

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
    """No bound."""


@dataclass(frozen=True)
class Request:
    """What segments are wanted for.

    Attributes:
        schema: name of the schema, which the list of the store shows.
        scope: what modules saw while they were encoded, which that list shows too.
        trial: whether what is encoded is for this one use, and neither stored nor held in memory.
        store_turns: whether earlier turns of the conversation are stored too; else they are held in memory
            only.
        hold: whether every segment is wanted at the end; else each only until those that see it are made.
        sync: whether what is computed is written before it is handed over; else behind the answer.
        rows: says how many tokens of what is missing go through the network before others may go on, one at
            least; None for as many as a pass takes.
    """

    schema: str
    scope: str
    trial: bool = False
    store_turns: bool = False
    hold: bool = True
    sync: bool = False
    rows: Callable[[], int | None] = _unbounded


class Unsaved:
    """What could not be stored after its answer had ended, until another answer tells it."""

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
        log.log(level, "what an answer computed could not be stored: %s", error)

    def leave(self, failed: Iterable[str]) -> None:
        """Counts what an answer never told; takes no lock, as a collected answer may leave it anywhere."""
        self._left.extend(failed)

    def take(self, whose: str = "an earlier answer") -> str | None:
        """Says what was counted, once.

        Args:
            whose: the answers that it may be of, in words.
        """
        with self._lock:
            while self._left:
                self._first, self._count = self._first or self._left[0], self._count + 1
                self._left.popleft()
            count, first, self._count, self._first = self._count, self._first, 0, ""
        segments = "1 segment" if count == 1 else f"{count} segments"
        return f"{segments} of {whose} could not be stored: {first}" if count else None


@dataclass(frozen=True)
class Made:
    """A segment that was computed: its tokens and bytes."""

    tokens: int
    nbytes: int


@dataclass
class Fetched(Releasable):
    """Segments of one prompt or schema, which stay in memory and on disk until they are released.

    Attributes:
        request: the request that they answer.
        keys: the names of what is wanted.
        hold: the hold that keeps those that were asked for on disk.
        unsaved: the place for what could not be stored when this has ended.
        cleared: `Settings.cleared` of the store before anything was computed; None where nobody knows.
        handles: handles of the segments, by key; each keeps its own in memory.
        uses: the place where each was found, in the order of asking.
        served: the same lookups, as the store's ledger counts them.
        encoded: sizes of those that were computed, contexts included, by key.
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
        """Lets go of all segments; who still reads one keeps it alive, and it may be evicted."""
        with self._telling:
            self._ended = True
            untold, self._failed = self._failed, []
        self.unsaved.leave(untold)
        self.hold.release()
        self.drop(list(self.handles))

    def drop(self, keys: Iterable[str]) -> None:
        """Lets go of some segments that are read no more."""
        for key in keys:
            self.handles.pop(key).release()

    def encoded_of(self, placements: Iterable[Placement]) -> int:
        """How many of the tokens that are read were computed for it just now."""
        return sum(p.tokens - len(p.hidden) for p in placements if p.segment.key in self.encoded)

    def named(self, uses: Iterable[RecipeSlice | None]) -> list[SegmentUse]:
        """The place where each was found, once by the path of each module that has its text.

        Args:
            uses: what is placed in the prompt.
        """
        found, told = {one.key: one for one in self.uses}, {(one.key, one.path) for one in self.uses}
        others = dict.fromkeys(
            (use.recipe.key, use.recipe.path)
            for use in uses
            if use is not None and use.recipe.key in found and (use.recipe.key, use.recipe.path) not in told
        )
        return [*self.uses, *(replace(found[key], path=path) for key, path in others)]

    def stored_of(self, uses: Iterable[RecipeSlice | None]) -> list[RecipeSlice]:
        """Those of the placed segments that were computed for it just now, and are to be stored.

        What is known not to be stored is not among them: there was no room, or writing it has failed.
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
        """Takes what became of storing a segment; from any thread.

        Args:
            error: why it is not stored; None where it is.
            key: the segment's name; "" of several.
        """
        if error is None:
            return
        self._unstored.add(key)
        what = str(error)
        with self._telling:
            told = self._ended
            if not told:
                self._failed.append(what)
        if told:
            self.unsaved.add(error)

    def warnings(self) -> tuple[str, ...]:
        """What could not be stored so far, in words; what fails from here on another answer tells."""
        with self._telling:
            self._ended = True
            failed, self._failed = self._failed, []
        return tuple(filter(None, [*failed[:1], self.unsaved.take()]))

    def place(self, uses: Iterable[RecipeSlice | None]) -> list[Placement]:
        """Puts the segments where a prompt wants them."""
        return [
            Placement(self.handles[use.recipe.key].segment, use.lo, use.hi, use.start)
            for use in uses
            if use is not None
        ]
