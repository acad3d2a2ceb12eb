"""Encodes missing segments in passes, each segment in one process at a time, and stores them.

A pass takes many texts, contexts included. No process waits for a lock while it has another: it first encodes
all segments that no other process encodes, then waits for the rest, one by one. So two processes with
overlapping passes cannot deadlock, and they share the work. A waiting process gives up its turn and has no
lock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack

from engine.base.errors import StoreError
from engine.base.segment import Segment
from engine.base.tiers import Tier
from engine.cache.encoder import encode_in_parts
from engine.cache.fetched import Fetched, Made
from engine.cache.memory import Handle, MemoryTier
from engine.model.model import Model
from engine.prompt.recipe import Recipe
from engine.store import Origin, Store
from engine.store.blobs.codec import Scheme, rounded
from engine.store.index.eviction import ClearedError

log = logging.getLogger(__name__)

PASS_TOKENS = 2048  # in one pass; a GPU reads a longer text whole
CPU_PASS_TOKENS = 512  # a processor gains little from more, and each pass shows progress
PASS_TEXTS = 64  # each has a lock, and so an open file
PATIENCE_SECONDS = 60.0  # of waiting for another process; after that, two compute the same segment
Find = Callable[[Recipe], tuple[Handle | None, Tier]]


class Encoding:
    """Computes missing segments; `find` looks a segment up in memory and on disk."""

    def __init__(
        self, model: Model, store: Store, memory_tier: MemoryTier, scheme: Scheme, find: Find
    ) -> None:
        self.model, self.store, self.memory_tier = model, store, memory_tier
        self._scheme, self._find = scheme, find

    def passes(self, missing: Sequence[Recipe], fetched: Fetched) -> Iterator[list[Recipe]]:
        """Cuts missing recipes into passes, each after its missing contexts; adds found ones to `fetched`."""
        batch: dict[str, Recipe] = {}
        for recipe in missing:
            for lacking_recipe in self._lacking(recipe, fetched, batch):
                if batch and not self._joins(lacking_recipe, batch, fetched.request.rows()):
                    yield list(batch.values())
                    batch = {}
                batch[lacking_recipe.key] = lacking_recipe
        if batch:
            yield list(batch.values())

    def make(self, recipes: Sequence[Recipe], fetched: Fetched) -> Iterator[Recipe | int]:
        """Makes the segments of one pass, or finds those that another process makes meanwhile.

        Yields:
            A recipe that another process encodes, at each check; meanwhile no lock is taken. Or the tokens
            computed so far, between two parts of a pass.
        """
        rest, again = list(recipes), False
        while rest:
            yield from self._make_free(rest, fetched, again=again)
            rest = [recipe for recipe in rest if recipe.key not in fetched.handles]
            if rest:
                yield from self._make_barred(rest[0], fetched)
                again = True
                rest = rest[1:]

    def store_held(self, recipes: Sequence[Recipe], fetched: Fetched) -> None:
        """Stores segments that are in memory and that no other process computes."""
        for recipe in recipes:
            handle = self.memory_tier.acquire(recipe.key)
            if handle is None:
                continue
            with ExitStack() as claim:
                claim.callback(handle.release)
                locked = claim.enter_context(self.store.try_compute_lock(recipe.key))
                if locked and handle.segment.token_ids == recipe.token_ids:
                    self._save(recipe, handle.segment, fetched, 0.0, claim)
        if recipes and not fetched.request.sync:
            self.store.afterwards(self.store.using(fetched.keys).release)

    def _lacking(self, recipe: Recipe, fetched: Fetched, batch: dict[str, Recipe]) -> list[Recipe]:
        """A recipe, after its contexts that are neither found nor in the batch."""
        lacking: dict[str, Recipe] = {}

        def held(one: Recipe) -> bool:
            return one.key in batch or one.key in fetched.handles or one.key in lacking

        def visit(one: Recipe) -> None:
            for seen in one.context:
                if not held(seen.recipe) and not self._found(seen.recipe, fetched):
                    visit(seen.recipe)
            lacking[one.key] = one

        if not held(recipe):
            visit(recipe)
        return list(lacking.values())

    def _joins(self, recipe: Recipe, batch: dict[str, Recipe], rows: int | None) -> bool:
        """Whether a recipe can join the pass."""
        if not self.model.packs or len(batch) >= PASS_TEXTS:
            return False
        most = self._cpu_rows() or PASS_TOKENS
        if sum(other.tokens for other in batch.values()) + recipe.tokens > min(most, rows or most):
            return False
        # Segments see rounded contexts, as read back from the store, so those are made in an earlier pass.
        return self._scheme == "plain" or not any(seen.recipe.key in batch for seen in recipe.context)

    def _cpu_rows(self) -> int | None:
        """Returns the most tokens of a pass on a CPU; None on a GPU."""
        return CPU_PASS_TOKENS if self.model.network.device.type == "cpu" else None

    def _make_free(self, recipes: Sequence[Recipe], fetched: Fetched, *, again: bool) -> Iterator[int]:
        """Makes the recipes that no other process encodes, if none of their contexts is barred.

        Each recipe follows its contexts. With `again`, other recipes were waited for, so these may exist by
        now.
        """
        ready: list[Recipe] = []
        barred: set[str] = set()
        with ExitStack() as all_claims:
            claims: dict[str, ExitStack] = {}
            for recipe in recipes:
                if any(seen.recipe.key in barred for seen in recipe.context):
                    barred.add(recipe.key)
                    continue
                if self.stored(recipe, fetched):
                    claim = all_claims.enter_context(ExitStack())
                    if not claim.enter_context(self.store.try_compute_lock(recipe.key)):
                        claim.close()
                        barred.add(recipe.key)
                        continue
                    looked = again or recipe.key in self.memory_tier  # another answer may have made it
                    if looked and self._found(recipe, fetched):
                        claim.close()
                        continue
                    claims[recipe.key] = claim
                ready.append(recipe)
            if ready:
                yield from self._compute(ready, fetched, claims)

    def _make_barred(self, recipe: Recipe, fetched: Fetched) -> Iterator[Recipe | int]:
        """Waits for the lock of a segment, to find or compute it; computes it anyway after the timeout."""
        self.store.write_now()  # processes that wait for each other finish sooner
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            with ExitStack() as claim:
                locked = claim.enter_context(self.store.try_compute_lock(recipe.key))
                # Without the lock, check memory only: another answer may have made it here.
                if (locked or recipe.key in self.memory_tier) and self._found(recipe, fetched):
                    return
                if locked or time.monotonic() > until:
                    yield from self._compute([recipe], fetched, {recipe.key: claim})
                    return
            yield recipe

    def _found(self, recipe: Recipe, fetched: Fetched) -> bool:
        handle, _ = self._find(recipe)
        if handle is not None:
            fetched.handles[recipe.key] = handle
        return handle is not None

    @staticmethod
    def stored(recipe: Recipe, fetched: Fetched) -> bool:
        """Whether a segment is written to disk."""
        request = fetched.request
        return recipe.kept and not request.trial and (not recipe.turn or request.store_turns)

    def _compute(
        self, recipes: Sequence[Recipe], fetched: Fetched, claims: dict[str, ExitStack]
    ) -> Iterator[int]:
        """Computes segments, and stores those with a claim."""
        segments = {key: handle.segment for key, handle in fetched.handles.items()}

        def rows() -> int | None:
            return min(filter(None, (fetched.request.rows(), self._cpu_rows())), default=None)

        seconds, made = yield from _timed(encode_in_parts(self.model, recipes, segments, rows))
        each = seconds / sum(recipe.tokens for recipe in recipes)
        for recipe, raw in zip(recipes, made, strict=True):
            # Attention reads what the store will return: values rounded by its scheme.
            segment = Segment(raw.key, raw.token_ids, *rounded(raw.keys, raw.values, self._scheme))
            if not recipe.kept or fetched.request.trial:
                fetched.handles[recipe.key] = Handle(segment)
                continue
            handle = fetched.handles[recipe.key] = self.memory_tier.add(segment)
            fetched.encoded[segment.key] = Made(segment.tokens, segment.nbytes)
            if recipe.key in claims:
                self._save(recipe, handle.segment, fetched, each * recipe.tokens, claims[recipe.key])
        if not fetched.request.sync:
            # Until all are written, nothing evicts the prompt's segments, whenever it ends.
            self.store.afterwards(self.store.using(fetched.keys).release)

    def _save(
        self, recipe: Recipe, segment: Segment, fetched: Fetched, seconds: float, claim: ExitStack
    ) -> None:
        """Writes a segment, now or after the answer; other processes wait for it until it is written."""
        request = fetched.request
        origin = Origin(request.schema, recipe.path, request.scope, self.model.name, self.model.fingerprint)
        turn = claim.pop_all()

        def ended(failed: StoreError | None) -> None:
            fetched.saved(failed, segment.key)
            turn.close()

        if not request.sync:
            self.store.save_behind(
                *(segment, origin),
                scheme=self._scheme,
                seconds=seconds,
                cleared=fetched.cleared,
                beside=fetched.keys,
                ended=ended,
            )
            return
        failed = None
        try:
            self.store.save(segment, origin, scheme=self._scheme, seconds=seconds, cleared=fetched.cleared)
        except ClearedError as error:
            log.info("%s", error)
        except StoreError as error:
            failed = error
        finally:
            ended(failed)


def _timed(work: Generator[int, None, list[Segment]]) -> Generator[int, None, tuple[float, list[Segment]]]:
    """Returns the seconds of the work without its pauses, and the segments."""
    seconds = 0.0
    while True:
        started = time.perf_counter()
        try:
            done = next(work)
        except StopIteration as end:
            return seconds + time.perf_counter() - started, end.value
        seconds += time.perf_counter() - started
        yield done
