"""What is missing, encoded: in passes, each segment by one process at a time, and stored.

A pass takes many texts at once, what they see included. No lock is waited for while another one is held: what
nobody else is at is encoded first, and then the rest is waited for, one by one. So however the passes of two
processes overlap, neither waits for what the other will not let go, and each does what the other does not.
Who waits gives up its turn meanwhile, and holds no lock.
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

PASS_TOKENS = 2048  # in one pass, but for a longer text
PASS_TEXTS = 64  # each keeps a lock, and so an open file
PATIENCE_SECONDS = 60.0  # for another process that computes the same segment; at worst two do
Find = Callable[[Recipe], tuple[Handle | None, Tier]]


class Encoding:
    """Computes segments that are missing.

    Args:
        model: the model that encodes.
        store: takes what is computed.
        memory_tier: holds it.
        scheme: how the store keeps it.
        find: looks a segment up in memory and on disk.
    """

    def __init__(
        self, model: Model, store: Store, memory_tier: MemoryTier, scheme: Scheme, find: Find
    ) -> None:
        self.model, self.store, self.memory_tier = model, store, memory_tier
        self._scheme, self._find = scheme, find

    def passes(self, missing: Sequence[Recipe], fetched: Fetched) -> Iterator[list[Recipe]]:
        """Cuts what is missing into passes, with what of its sight is missing too, and comes before it.

        Args:
            missing: what is to be made, in the order of a prompt or schema.
            fetched: holds what is found of what they see, and what was made of a pass before the next.
        """
        batch: dict[str, Recipe] = {}
        for recipe in missing:
            for one in self._lacking(recipe, fetched, batch):
                if batch and not self._joins(one, batch, fetched.request.rows()):
                    yield list(batch.values())
                    batch = {}
                batch[one.key] = one
        if batch:
            yield list(batch.values())

    def make(self, recipes: Sequence[Recipe], fetched: Fetched) -> Iterator[Recipe | None]:
        """Makes the segments of one pass, or finds what another process has made of them meanwhile.

        Yields:
            What another process is at, at each look at it; meanwhile nothing is locked. None where the
            request has the pass made in several, between two of these.
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
        """Stores those that are in memory, and that no other process is at."""
        for recipe in recipes:
            handle = self.memory_tier.acquire(recipe.key)
            if handle is None:
                continue
            with ExitStack() as claim:
                claim.callback(handle.release)
                taken = claim.enter_context(self.store.try_compute_lock(recipe.key))
                if taken and handle.segment.token_ids == recipe.token_ids:
                    self._save(recipe, handle.segment, fetched, 0.0, claim)
        if recipes and not fetched.request.sync:
            self.store.afterwards(self.store.using(fetched.keys).release)

    def _lacking(self, recipe: Recipe, fetched: Fetched, batch: dict[str, Recipe]) -> list[Recipe]:
        """A recipe, after those that it sees and that are neither found nor in the batch."""
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
        """Whether a recipe may go through in the same pass."""
        if not self.model.packs or len(batch) >= PASS_TEXTS:
            return False
        if sum(one.tokens for one in batch.values()) + recipe.tokens > min(PASS_TOKENS, rows or PASS_TOKENS):
            return False
        # What is rounded for the store is seen as it is read back, and so is made before.
        return self._scheme == "plain" or not any(seen.recipe.key in batch for seen in recipe.context)

    def _make_free(self, recipes: Sequence[Recipe], fetched: Fetched, *, again: bool) -> Iterator[None]:
        """Makes those that no other process is at, and that see nothing another one is at.

        Args:
            recipes: in an order in which each comes after what it sees.
            fetched: takes them.
            again: some were waited for, so the others may be there by now.
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
                    looked = again or recipe.key in self.memory_tier  # another answer may have been at it
                    if looked and self._found(recipe, fetched):
                        claim.close()
                        continue
                    claims[recipe.key] = claim
                ready.append(recipe)
            if ready:
                yield from self._compute(ready, fetched, claims)

    def _make_barred(self, recipe: Recipe, fetched: Fetched) -> Iterator[Recipe | None]:
        """Waits for the turn to make a segment; who computes has it, and else it is given back."""
        self.store.write_now()  # who waits for each other's is done the sooner
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            with ExitStack() as claim:
                taken = claim.enter_context(self.store.try_compute_lock(recipe.key))
                # Without the turn only memory is looked at: another answer may have made it here.
                if (taken or recipe.key in self.memory_tier) and self._found(recipe, fetched):
                    return
                if taken or time.monotonic() > until:
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
        """Whether a segment is written to the disk."""
        request = fetched.request
        return recipe.kept and not request.trial and (not recipe.turn or request.store_turns)

    def _compute(
        self, recipes: Sequence[Recipe], fetched: Fetched, claims: dict[str, ExitStack]
    ) -> Iterator[None]:
        """Computes segments, and has those stored whose turn was claimed."""
        held = {key: handle.segment for key, handle in fetched.handles.items()}
        seconds, made = yield from _timed(encode_in_parts(self.model, recipes, held, fetched.request.rows))
        each = seconds / sum(recipe.tokens for recipe in recipes)
        for recipe, one in zip(recipes, made, strict=True):
            # What is used at once is what would be read later: rounded as the store rounds it.
            segment = Segment(one.key, one.token_ids, *rounded(one.keys, one.values, self._scheme))
            if not recipe.kept or fetched.request.trial:
                fetched.handles[recipe.key] = Handle(segment)
                continue
            handle = fetched.handles[recipe.key] = self.memory_tier.add(segment)
            fetched.encoded[segment.key] = Made(segment.tokens, segment.nbytes)
            if recipe.key in claims:
                self._save(recipe, handle.segment, fetched, each * recipe.tokens, claims[recipe.key])
        if not fetched.request.sync:
            # Until all are written nothing that the prompt reads goes for them, whenever it ends.
            self.store.afterwards(self.store.using(fetched.keys).release)

    def _save(
        self, recipe: Recipe, segment: Segment, fetched: Fetched, seconds: float, claim: ExitStack
    ) -> None:
        """Writes a segment, now or behind the answer; others wait for it until it is written."""
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


def _timed(work: Generator[None, None, list[Segment]]) -> Generator[None, None, tuple[float, list[Segment]]]:
    """Makes segments; returns the seconds that this took without the pauses, and the segments."""
    seconds = 0.0
    while True:
        started = time.perf_counter()
        try:
            next(work)
        except StopIteration as end:
            return seconds + time.perf_counter() - started, end.value
        seconds += time.perf_counter() - started
        yield
