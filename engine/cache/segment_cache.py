"""Finds the segment of a recipe in memory or on disk, or encodes it. A miss is an event, never an error."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from engine.base.errors import StoreError
from engine.base.events import Barred, SegmentUse, Working
from engine.base.segment import Segment
from engine.base.stopwatch import Stopwatch
from engine.base.tiers import Outcome, Reason, Tier
from engine.cache.encoding import Encoding
from engine.cache.fetched import Fetched, Request, Unsaved
from engine.cache.memory import Handle, MemoryTier
from engine.model.model import Model
from engine.prompt.recipe import Identity, Recipe, RecipeSlice
from engine.store import Lookup, Sought, Store, pack_ids
from engine.store.disk_space import file_bytes
from engine.store.index.database import FailedIndexError

log = logging.getLogger(__name__)

_BOUNDED = (Reason.BUDGET, Reason.REFUSED)  # eviction would follow another write


class SegmentCache:
    """Segments of one model. `untold` are storage errors for the next answer to report."""

    def __init__(self, model: Model, store: Store, memory_tier: MemoryTier) -> None:
        self.model, self.store, self.memory_tier = model, store, memory_tier
        self.scheme = store.settings.scheme
        dtype = model.dtype if self.scheme == "plain" else f"{model.dtype} {self.scheme}"
        self.identity = Identity(model.fingerprint, dtype, model.relocatable)
        self._form = model.form
        self.untold = Unsaved()
        self._cleared: str | None = None
        self._forget_cleared()
        self._answered: deque[Sequence[Lookup]] = deque()  # not yet counted

    def note(self, served: Sequence[Lookup]) -> None:
        """Notes an answer's lookups without a lock; `count_answers` writes them down."""
        self._answered.append(served)

    def count_answers(self) -> None:
        """Writes the noted lookups to the store's statistics."""
        while self._answered:
            self.store.record(self._answered.popleft())

    def unsaved(self) -> str | None:
        """Waits until all is written; returns unreported storage errors as a sentence."""
        self.store.finish_writing()
        return self.untold.take("this or an earlier answer")

    def tiers(self, recipes: Iterable[Recipe]) -> Callable[[Recipe], Tier]:
        """Returns a function that maps each of these recipes to the tier of its segment."""
        self._forget_cleared()
        in_memory = self.memory_tier.keys()
        on_disk = self.store.contains({recipe.key for recipe in recipes} - in_memory)

        def tier(recipe: Recipe) -> Tier:
            if recipe.key in in_memory:
                return Tier.MEMORY
            return Tier.DISK if recipe.key in on_disk else Tier.NONE

        return tier

    def segments(
        self, recipes: Iterable[Recipe], request: Request, clock: Stopwatch
    ) -> Generator[Working, None, Fetched]:
        """Finds or encodes segments. The caller releases them.

        Args:
            recipes: the recipes; duplicates count once.
            request: the purpose of the segments.
            clock: the stopwatch for "load" and "encode", which cover all time except pauses.

        Yields:
            Working before each pass, and Barred while another process encodes a segment.
        """
        cleared = self._forget_cleared()
        recipes = list({recipe.key: recipe for recipe in recipes}.values())
        keys = tuple(recipe.key for recipe in recipes)
        fetched = Fetched(request, keys, self.store.using(keys), self.untold, cleared)
        try:
            missing = self._load(recipes, fetched)
            clock.lap("load")
            if missing:
                yield from self._encode(missing, fetched, clock)
        except BaseException:  # also if a reader closes this early
            fetched.release()
            raise
        return fetched

    def _load(self, recipes: Sequence[Recipe], fetched: Fetched) -> list[Recipe]:
        """Loads segments from memory or disk; returns the missing recipes."""
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

    @property
    def writable(self) -> bool:
        """Whether the store accepts segments; False if its index is unreadable."""
        try:
            return bool(self.store.settings.budget) and not self.store.read_only
        except StoreError:
            return False

    def store_held(self, recipes: Iterable[Recipe], fetched: Fetched, *, again: bool = False) -> None:
        """Stores segments that are in memory but not on disk.

        With `again`, this includes segments that the budget refused or evicted.
        """
        self._forget_cleared()
        encoding = self._encoding()
        in_memory = {
            recipe.key: recipe
            for recipe in recipes
            if encoding.stored(recipe, fetched)
            and recipe.key not in fetched.encoded
            and recipe.key in self.memory_tier
        }
        missing = self.store.lacks(in_memory) if in_memory else set()
        lacking = [recipe for key, recipe in in_memory.items() if key in missing]
        if not lacking or not self.writable:
            return
        if not again:
            lacking = [recipe for recipe in lacking if self.reason(recipe, fetched.request) not in _BOUNDED]
        encoding.store_held(lacking, fetched)

    def _forget_cleared(self) -> str | None:
        """Clears memory if the store was cleared since; returns the new mark, None if unreadable."""
        try:
            now = self.store.settings.cleared
        except FailedIndexError:  # busy or broken: checked again next time
            return None
        if self._cleared not in (None, now):
            self.memory_tier.clear()
        self._cleared = now
        return now

    def _encoding(self) -> Encoding:
        return Encoding(self.model, self.store, self.memory_tier, self.scheme, self._find)

    def _encode(self, missing: Sequence[Recipe], fetched: Fetched, clock: Stopwatch) -> Iterator[Working]:
        reasons = {item.key: self.reason(item, fetched.request) for item in missing}  # before any is stored
        seen = Counter(item.recipe.key for recipe in missing for item in recipe.context)
        encoding, done, tokens = self._encoding(), 0, 0
        all_tokens = sum(recipe.tokens for recipe in missing)
        for batch in encoding.passes(missing, fetched):
            requested = [recipe for recipe in batch if recipe.key in reasons]
            clock.lap("encode")
            counted = f" ({done} of {len(missing)} segments)" if len(missing) > 1 else ""
            label = f"encoding {_words(requested or batch)}{counted}"
            yield Working("cached", label, tokens, all_tokens)
            clock.restart()
            started = time.perf_counter()
            behind = tokens + sum(recipe.tokens for recipe in requested)
            for pause in encoding.make(batch, fetched):
                clock.lap("encode")
                paused = time.perf_counter()
                if isinstance(pause, int):
                    yield Working("cached", label, min(tokens + pause, behind), all_tokens)
                else:
                    barring = f"another program encodes {_words([pause])}"
                    yield Barred("cached", barring, tokens, all_tokens)
                clock.restart()
                started += time.perf_counter() - paused
            for recipe in requested:
                computed = recipe.key in fetched.encoded or not recipe.kept or fetched.request.trial
                reason = reasons[recipe.key] if computed else Reason.ELSEWHERE
                share = recipe.tokens / sum(item.tokens for item in batch)
                segment = fetched.handles[recipe.key].segment
                self._note(fetched, recipe, segment, Tier.NONE, started, reason, share)
                log.info("encoded %s of %s (%s)", recipe.path or "text", fetched.request.schema, reason)
            done, tokens = done + len(requested), behind
            if not fetched.request.hold:
                seen.subtract(item.recipe.key for recipe in requested for item in recipe.context)
                fetched.drop([key for key in fetched.handles if seen[key] <= 0])
        clock.lap("encode")
        yield Working("cached", "encoded", tokens, all_tokens)
        clock.restart()

    @staticmethod
    def _note(
        fetched: Fetched,
        recipe: Recipe,
        segment: Segment,
        tier: Tier,
        started: float,
        reason: str = "",
        share: float = 1.0,
    ) -> None:
        """Records a segment's source, and its share of the time since the start."""
        outcome = Outcome.MISS if reason else Outcome.HIT
        ms = (time.perf_counter() - started) * 1000 * share
        fetched.uses.append(SegmentUse(recipe.path, recipe.tokens, tier, outcome, reason, recipe.key))
        fetched.served.append(
            Lookup(
                *(recipe.key, tier, outcome, reason, segment.nbytes, ms),
                schema=fetched.request.schema,
                path=recipe.path,
            )
        )

    def _find(self, recipe: Recipe) -> tuple[Handle | None, Tier]:
        handle = self.memory_tier.acquire(recipe.key)
        if handle is not None:
            if handle.segment.token_ids == recipe.token_ids:
                return handle, Tier.MEMORY
            handle.release()
        read = self.store.load(recipe.key, recipe.token_ids, self._form) if recipe.kept else None
        return (self.memory_tier.add(read), Tier.DISK) if read is not None else (None, Tier.NONE)

    def reason(self, recipe: Recipe, request: Request) -> str:
        """Why the segment of a recipe is missing."""
        if recipe.turn and not request.store_turns:
            return Reason.NOT_KEPT
        dtype = str(self.model.torch_dtype).removeprefix("torch.")
        sought = Sought(
            *(recipe.key, pack_ids(recipe.token_ids), request.schema, recipe.path, request.scope),
            *(self.model.fingerprint, dtype, self.scheme),
        )
        return self.store.reason(sought)

    def budget_for(self, recipes: Iterable[Recipe]) -> int:
        """The bytes of a budget that holds all these segments and the retained ones."""
        form, total = self._form, self.store.settings.spared_bytes
        dtype = str(form.dtype).removeprefix("torch.")
        for recipe in recipes:
            total += file_bytes(self.scheme, (form.layers, form.heads, recipe.tokens, form.size), dtype)
        return total

    def expect_soon(self, recipes: Iterable[Recipe]) -> None:
        """Reads ahead the files of these recipes that are not in memory."""
        self.store.expect_soon(r.key for r in recipes if r.key not in self.memory_tier)


def _words(recipes: Sequence[Recipe]) -> str:
    first = recipes[0].path or "fixed text"
    more = len({recipe.path for recipe in recipes} - {recipes[0].path})
    return f"{first} and {more} more" if more else first


def wanted(uses: Sequence[RecipeSlice | None]) -> list[Recipe]:
    """The recipes of a prompt's slices, in order."""
    return [use.recipe for use in uses if use is not None]
