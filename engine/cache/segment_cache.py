"""Recipes → segments: from memory, from the store, or encoded now. A miss is an event, never a failure."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from engine.cache.encoder import encode
from engine.cache.memory import Handle, MemoryTier
from engine.cache.releasable import Releasable
from engine.cache.store import Lookup, Origin, Sought, Store, pack_ids
from engine.cache.store.codec import packed_bytes, rounded
from engine.cache.store.holds import Hold
from engine.errors import StoreError
from engine.events import SegmentUse, Working
from engine.model.model import Model
from engine.prompt.recipe import Identity, Recipe, RecipeSlice
from engine.segment import Placement, Segment
from engine.stopwatch import Stopwatch
from engine.tiers import Outcome, Reason, Tier

log = logging.getLogger(__name__)

_HEADER = 4096  # of a file, at most
_HEADER_PER_TOKEN = 16


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
    """

    schema: str
    scope: str
    trial: bool = False
    store_turns: bool = False
    hold: bool = True


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
        hold: the hold that keeps those that were asked for on disk.
        handles: handles of the segments, by key; each keeps its own in memory.
        uses: the place where each was found, in the order of asking.
        served: the same lookups, as the store's ledger counts them.
        encoded: sizes of those that were computed, contexts included, by key.
        warnings: what could not be stored, in words.
    """

    request: Request
    hold: Hold
    handles: dict[str, Handle] = field(default_factory=dict)
    uses: list[SegmentUse] = field(default_factory=list)
    served: list[Lookup] = field(default_factory=list)
    encoded: dict[str, Made] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def release(self) -> None:
        """Lets go of all segments; who still reads one keeps it alive, and it may be evicted."""
        self.hold.release()
        self.drop(list(self.handles))

    def drop(self, keys: Iterable[str]) -> None:
        """Lets go of some segments that are read no more."""
        for key in keys:
            self.handles.pop(key).release()

    def encoded_of(self, placements: Iterable[Placement]) -> int:
        """How many of the tokens that are read were computed for it just now."""
        return sum(p.tokens - len(p.hidden) for p in placements if p.segment.key in self.encoded)

    def place(self, uses: Iterable[RecipeSlice | None]) -> list[Placement]:
        """Puts the segments where a prompt wants them."""
        return [
            Placement(self.handles[use.recipe.key].segment, use.lo, use.hi, use.start)
            for use in uses
            if use is not None
        ]


class SegmentCache:
    """Segments of one model.

    Args:
        model: the model that encodes missing segments.
        store: the segments on disk.
        memory_tier: the segments in memory.
    """

    def __init__(self, model: Model, store: Store, memory_tier: MemoryTier) -> None:
        self.model, self.store, self.memory_tier = model, store, memory_tier
        self.scheme = store.settings.scheme
        dtype = model.dtype if self.scheme == "plain" else f"{model.dtype} {self.scheme}"
        self.identity = Identity(model.fingerprint, dtype, model.relocatable)
        self._form = model.form
        self._answered: deque[Sequence[Lookup]] = deque()  # that are not counted yet

    def note(self, served: Sequence[Lookup]) -> None:
        """Keeps in mind what an answer read, taking no lock; `count_answers` writes it down."""
        self._answered.append(served)

    def count_answers(self) -> None:
        """Writes what answers have read into the store's ledger."""
        while self._answered:
            self.store.record(self._answered.popleft())

    def tiers(self, recipes: Iterable[Recipe]) -> Callable[[Recipe], Tier]:
        """Returns a function that says where the segment of each of these recipes is now."""
        on_disk = self.store.contains({recipe.key for recipe in recipes})

        def tier(recipe: Recipe) -> Tier:
            if recipe.key in self.memory_tier:
                return Tier.MEMORY
            return Tier.DISK if recipe.key in on_disk else Tier.NONE

        return tier

    def segments(
        self, recipes: Iterable[Recipe], request: Request, clock: Stopwatch
    ) -> Generator[Working, None, Fetched]:
        """Finds or encodes segments. What is returned is released by who asks.

        Args:
            recipes: the recipes of what is wanted; one that comes twice counts once.
            request: the purpose they are wanted for.
            clock: the stopwatch for "load" and "encode".

        Yields:
            Working, before each one that must be encoded.
        """
        recipes = list({recipe.key: recipe for recipe in recipes}.values())
        in_use = self.store.using([recipe.key for recipe in recipes])
        fetched = Fetched(request, in_use)
        try:
            missing = self._load(recipes, fetched)
            clock.lap("load")
            yield from self._encode(missing, fetched, clock)
        except BaseException:  # a reader who closes this before its end included
            fetched.release()
            raise
        return fetched

    def _load(self, recipes: Sequence[Recipe], fetched: Fetched) -> list[Recipe]:
        """Takes in what is in memory or on disk; returns the rest."""
        missing: list[Recipe] = []
        self.expect_soon(recipes)
        for recipe in recipes:
            started = time.perf_counter()
            handle, tier = self._find(recipe)
            if handle is None:
                missing.append(recipe)
                continue
            fetched.handles[recipe.key] = handle
            self._note(fetched, recipe, handle.segment, tier, started)
            if not fetched.request.hold:
                fetched.drop([recipe.key])
        return missing

    def _encode(self, missing: Sequence[Recipe], fetched: Fetched, clock: Stopwatch) -> Iterator[Working]:
        reasons = [self._reason(recipe, fetched.request) for recipe in missing]  # before any is stored
        seen = Counter(one.recipe.key for recipe in missing for one in recipe.context)
        for done, recipe in enumerate(missing):
            yield Working("cached", f"encoding {recipe.path or 'anonymous text'}", done, len(missing))
            clock.restart()
            started = time.perf_counter()
            handle = fetched.handles.get(recipe.key) or self._make(recipe, fetched)
            computed = recipe.key in fetched.encoded or not recipe.kept or fetched.request.trial
            reason = reasons[done] if computed else Reason.ELSEWHERE
            self._note(fetched, recipe, handle.segment, Tier.NONE, started, reason)
            log.info("encoded %s of %s (%s)", recipe.path or "text", fetched.request.schema, reason)
            clock.lap("encode")
            if not fetched.request.hold:
                seen.subtract(one.recipe.key for one in recipe.context)
                fetched.drop([key for key in fetched.handles if seen[key] <= 0])
        if missing:
            yield Working("cached", "encoded", len(missing), len(missing))

    @staticmethod
    def _note(
        fetched: Fetched, recipe: Recipe, segment: Segment, tier: Tier, started: float, reason: str = ""
    ) -> None:
        """Writes down where a segment came from."""
        outcome = Outcome.MISS if reason else Outcome.HIT
        ms = (time.perf_counter() - started) * 1000
        fetched.uses.append(SegmentUse(recipe.path, recipe.tokens, tier, outcome, reason))
        fetched.served.append(
            Lookup(
                *(recipe.key, tier, outcome, reason, segment.nbytes, ms),
                schema=fetched.request.schema,
                path=recipe.path,
            )
        )

    def _find(self, recipe: Recipe) -> tuple[Handle | None, Tier]:
        held = self.memory_tier.acquire(recipe.key)
        if held is not None:
            if held.segment.token_ids == recipe.token_ids:
                return held, Tier.MEMORY
            held.release()
        read = self.store.load(recipe.key, recipe.token_ids, self._form) if recipe.kept else None
        return (self.memory_tier.add(read), Tier.DISK) if read is not None else (None, Tier.NONE)

    def _make(self, recipe: Recipe, fetched: Fetched) -> Handle:
        """Encodes a segment, after those of its context where they are missing too."""
        context = [
            Placement(self._of_context(seen.recipe, fetched), seen.lo, seen.hi, seen.start)
            for seen in recipe.context
        ]
        request = fetched.request
        if not recipe.kept or request.trial:
            handle = Handle(self._encoded(recipe, context))
        elif recipe.turn and not request.store_turns:
            handle = self._held(recipe, context, fetched)
        else:
            with self.store.compute_lock(recipe.key) as waited:  # the only lock here, so none waits for ever
                made = waited or recipe.key in self.memory_tier  # another answer may have been at it
                found = self._find(recipe)[0] if made else None
                handle = found if found is not None else self._kept(recipe, context, fetched)
        fetched.handles[recipe.key] = handle
        return handle

    def _held(self, recipe: Recipe, context: Sequence[Placement], fetched: Fetched) -> Handle:
        """Encodes a segment into memory."""
        handle = self.memory_tier.add(self._encoded(recipe, context))
        segment = handle.segment
        fetched.encoded[segment.key] = Made(segment.tokens, segment.nbytes)
        return handle

    def _kept(self, recipe: Recipe, context: Sequence[Placement], fetched: Fetched) -> Handle:
        """Encodes a segment into memory and stores it."""
        started = time.perf_counter()
        handle = self._held(recipe, context, fetched)
        seconds = time.perf_counter() - started
        try:
            origin = self._origin(recipe, fetched.request)
            self.store.save(handle.segment, origin, scheme=self.scheme, seconds=seconds)
        except StoreError as error:
            if not fetched.warnings:
                fetched.warnings.append(str(error))
        return handle

    def _encoded(self, recipe: Recipe, context: Sequence[Placement]) -> Segment:
        """What is used at once is what would be read later: rounded as the store rounds it."""
        made = encode(self.model, recipe.key, recipe.token_ids, context, recipe.start)
        return Segment(made.key, made.token_ids, *rounded(made.keys, made.values, self.scheme))

    def _of_context(self, recipe: Recipe, fetched: Fetched) -> Segment:
        found = fetched.handles.get(recipe.key) or self._find(recipe)[0]
        # What stands before has what stands before it in its own context, so making in order never goes deep.
        handle = found if found is not None else self._make(recipe, fetched)
        fetched.handles[recipe.key] = handle
        return handle.segment

    def _origin(self, recipe: Recipe, request: Request) -> Origin:
        return Origin(request.schema, recipe.path, request.scope, self.model.name, self.model.fingerprint)

    def _reason(self, recipe: Recipe, request: Request) -> str:
        """Why the segment of a recipe is not there."""
        if recipe.turn and not request.store_turns:
            return Reason.NOT_KEPT
        dtype = str(self.model.torch_dtype).removeprefix("torch.")
        sought = Sought(
            *(recipe.key, pack_ids(recipe.token_ids), request.schema, recipe.path, request.scope),
            *(self.model.fingerprint, dtype, self.scheme),
        )
        return self.store.reason(sought)

    def budget_for(self, recipes: Iterable[Recipe]) -> int:
        """Bytes of a budget under which the store holds the segments of all these, beside what is pinned."""
        form, total = self._form, self.store.settings.pinned_bytes
        dtype = str(form.dtype).removeprefix("torch.")
        for recipe in recipes:
            shape = (form.layers, form.heads, recipe.tokens, form.size)
            total += packed_bytes(self.scheme, shape, dtype) + _HEADER + _HEADER_PER_TOKEN * recipe.tokens
        return total

    def expect_soon(self, recipes: Iterable[Recipe]) -> None:
        """Has the files of these read ahead, where they are stored and not in memory."""
        self.store.expect_soon(r.key for r in recipes if r.key not in self.memory_tier)


def wanted(uses: Sequence[RecipeSlice | None]) -> list[Recipe]:
    """The recipes that a prompt reads, in its order."""
    return [use.recipe for use in uses if use is not None]
