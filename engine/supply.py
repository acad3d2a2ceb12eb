"""Recipes → segments: from memory, from the store, or encoded now. A miss is an event, never a failure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from engine.encoder import encode
from engine.errors import StoreError
from engine.events import SegmentUse, Working
from engine.model import Model
from engine.overview import Tier
from engine.residency import Residency
from engine.segment import Form, Placement, Segment
from engine.sight import Identity, Recipe, Seen
from engine.stopwatch import Stopwatch
from engine.store import Origin, Served, Store
from engine.store.codec import rounded

log = logging.getLogger(__name__)


@dataclass
class Supplied:
    """Segments of one prompt or schema.

    Attributes:
        segments: by key.
        uses: where each was found, in the order of asking.
        served: the same for the books of the store.
        encoded: those that were computed, contexts included.
        warnings: what could not be stored, in words.
        trial: nothing is kept beyond this use.
    """

    segments: dict[str, Segment] = field(default_factory=dict)
    uses: list[SegmentUse] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    encoded: list[Segment] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    trial: bool = False

    def place(self, uses: Iterable[Seen | None]) -> list[Placement]:
        """Puts the segments where a prompt wants them."""
        return [
            Placement(self.segments[use.recipe.key], use.lo, use.hi, use.start)
            for use in uses
            if use is not None
        ]


class Supply:
    """Segments of one model.

    Args:
        model: that encodes what is missing.
        store: on disk.
        residency: in memory.
    """

    def __init__(self, model: Model, store: Store, residency: Residency) -> None:
        self.model, self.store, self.residency = model, store, residency
        self.scheme = store.scheme
        dtype = model.dtype if self.scheme == "plain" else f"{model.dtype} {self.scheme}"
        self.identity = Identity(model.fingerprint, dtype, model.relocatable)
        self._form = Form(model.layers, *model.kv_shape, model.torch_dtype)

    def tiers(self, recipes: Iterable[Recipe]) -> Callable[[Recipe], Tier]:
        """Returns a function that says where the segment of each of these recipes is now."""
        on_disk = self.store.contains({recipe.key for recipe in recipes})

        def tier(recipe: Recipe) -> Tier:
            key = recipe.key
            return "memory" if key in self.residency else "disk" if key in on_disk else "none"

        return tier

    def segments(
        self, recipes: Iterable[Recipe], schema: str, scope: str, clock: Stopwatch, *, trial: bool = False
    ) -> Generator[Working, None, Supplied]:
        """Finds or encodes segments.

        Args:
            recipes: of what is wanted; one that comes twice counts once.
            schema: its name, for the list of the store.
            scope: likewise.
            clock: counts "load" and "encode".
            trial: what is encoded is for this one use, and neither stored nor held in memory.

        Yields:
            Working, before each one that must be encoded.
        """
        supplied = Supplied(trial=trial)
        missing: list[Recipe] = []
        recipes = list(recipes)
        self.expect_soon(recipes)
        for recipe in {recipe.key: recipe for recipe in recipes}.values():
            started = time.perf_counter()
            segment, tier = self._find(recipe)
            if segment is None:
                missing.append(recipe)
                continue
            supplied.segments[recipe.key] = segment
            supplied.uses.append(SegmentUse(recipe.path, recipe.tokens, tier, "hit"))
            ms = (time.perf_counter() - started) * 1000
            supplied.served.append(Served(recipe.key, tier, "hit", "", segment.nbytes, ms))
        clock.lap("load")
        with self.store.using([*supplied.segments, *(recipe.key for recipe in missing)]):
            yield from self._encode(missing, schema, scope, supplied, clock)
        return supplied

    def _encode(
        self, missing: Sequence[Recipe], schema: str, scope: str, supplied: Supplied, clock: Stopwatch
    ) -> Iterator[Working]:
        for done, recipe in enumerate(missing):
            yield Working("cached", f"encoding {recipe.path or 'anonymous text'}", done, len(missing))
            clock.restart()
            started = time.perf_counter()
            reason = self.store.reason(recipe.key, self._origin(recipe, schema, scope))
            segment = supplied.segments.get(recipe.key) or self._make(recipe, schema, scope, supplied)
            supplied.uses.append(SegmentUse(recipe.path, recipe.tokens, "none", "miss", reason))
            ms = (time.perf_counter() - started) * 1000
            supplied.served.append(Served(recipe.key, "none", "miss", reason, segment.nbytes, ms))
            log.info("encoded %s of %s in %.1f ms (%s)", recipe.path or "text", schema, ms, reason)
            clock.lap("encode")
        if missing:
            yield Working("cached", "encoded", len(missing), len(missing))

    def _find(self, recipe: Recipe) -> tuple[Segment | None, Tier]:
        held = self.residency.get(recipe.key)
        if held is not None and held.token_ids == recipe.token_ids:
            return held, "memory"
        read = self.store.load(recipe.key, recipe.token_ids, self._form) if recipe.kept else None
        return (self.residency.add(read), "disk") if read is not None else (None, "none")

    def _make(self, recipe: Recipe, schema: str, scope: str, supplied: Supplied) -> Segment:
        """Encodes a segment, after those of its context where they are missing too."""
        context = [
            Placement(self._of_context(seen.recipe, schema, scope, supplied), seen.lo, seen.hi, seen.start)
            for seen in recipe.context
        ]
        if not recipe.kept or supplied.trial:
            segment = self._encoded(recipe, context)
        else:
            with self.store.turn(recipe.key) as waited:  # no other lock is held here, so none waits for ever
                made = waited or recipe.key in self.residency  # another answer may have been at it meanwhile
                found = self._find(recipe)[0] if made else None
                segment = found if found is not None else self._kept(recipe, context, schema, scope, supplied)
        supplied.segments[recipe.key] = segment
        return segment

    def _kept(
        self, recipe: Recipe, context: Sequence[Placement], schema: str, scope: str, supplied: Supplied
    ) -> Segment:
        """Encodes a segment and stores it."""
        started = time.perf_counter()
        segment = self.residency.add(self._encoded(recipe, context))
        supplied.encoded.append(segment)
        seconds = time.perf_counter() - started
        try:
            origin = self._origin(recipe, schema, scope)
            self.store.save(segment, origin, scheme=self.scheme, seconds=seconds)
        except StoreError as error:
            if not supplied.warnings:
                supplied.warnings.append(f"The answer is complete, but {error}")
        return segment

    def _encoded(self, recipe: Recipe, context: Sequence[Placement]) -> Segment:
        """What is used at once is what would be read later: rounded as the store rounds it."""
        made = encode(self.model, recipe.key, recipe.token_ids, context, recipe.start)
        return Segment(made.key, made.token_ids, *rounded(made.keys, made.values, self.scheme))

    def _of_context(self, recipe: Recipe, schema: str, scope: str, supplied: Supplied) -> Segment:
        found = supplied.segments.get(recipe.key) or self._find(recipe)[0]
        # What stands before has what stands before it in its own context, so making in order never goes deep.
        return found if found is not None else self._make(recipe, schema, scope, supplied)

    def _origin(self, recipe: Recipe, schema: str, scope: str) -> Origin:
        return Origin(schema, recipe.path, scope, self.model.name, self.model.fingerprint)

    def expect_soon(self, recipes: Iterable[Recipe]) -> None:
        """Has the files of these read ahead, where they are stored and not in memory."""
        self.store.expect_soon(r.key for r in recipes if r.key not in self.residency)


def wanted(uses: Sequence[Seen | None]) -> list[Recipe]:
    """The recipes that a prompt reads, in its order."""
    return [use.recipe for use in uses if use is not None]
