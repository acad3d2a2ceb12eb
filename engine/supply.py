"""Recipes → segments: from memory, from the store, or encoded now. A miss is an event, never a failure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field

from engine.encoder import encode
from engine.errors import StoreError
from engine.events import SegmentUse, Working
from engine.model import Model
from engine.overview import Tier
from engine.residency import Residency
from engine.segment import Placement, Segment
from engine.sight import Identity, Recipe, Seen
from engine.stopwatch import Stopwatch
from engine.store import Origin, Store


@dataclass
class Supplied:
    """Segments of one prompt or schema.

    Attributes:
        segments: by key.
        uses: where each was found, in the order of asking.
        keys: of the segments, in the same order.
        encoded: those that were computed, contexts included.
        warnings: what could not be stored, in words.
        trial: nothing is kept beyond this use.
    """

    segments: dict[str, Segment] = field(default_factory=dict)
    uses: list[SegmentUse] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    encoded: list[Segment] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    trial: bool = False

    @property
    def hits(self) -> list[str]:
        """Keys that were found."""
        return [key for key, use in zip(self.keys, self.uses, strict=True) if use.outcome == "hit"]

    @property
    def misses(self) -> list[str]:
        """Keys that had to be computed."""
        return [key for key, use in zip(self.keys, self.uses, strict=True) if use.outcome == "miss"]

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
        self.identity = Identity(model.fingerprint, model.dtype, model.relocatable)

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
        missing = []
        for recipe in {recipe.key: recipe for recipe in recipes}.values():
            segment, tier = self._find(recipe)
            supplied.keys.append(recipe.key)
            supplied.uses.append(
                SegmentUse(recipe.path, recipe.tokens, tier, "miss" if segment is None else "hit")
            )
            if segment is None:
                missing.append(recipe)
            else:
                supplied.segments[recipe.key] = segment
        clock.lap("load")
        for done, recipe in enumerate(missing):
            yield Working("cached", f"encoding {recipe.path or 'anonymous text'}", done, len(missing))
            clock.restart()
            if recipe.key not in supplied.segments:
                self._make(recipe, schema, scope, supplied)
            clock.lap("encode")
        if missing:
            yield Working("cached", "encoded", len(missing), len(missing))
        return supplied

    def _find(self, recipe: Recipe) -> tuple[Segment | None, Tier]:
        held = self.residency.get(recipe.key)
        if held is not None and held.token_ids == recipe.token_ids:
            return held, "memory"
        read = self.store.load(recipe.key, recipe.token_ids) if recipe.kept else None
        return (self.residency.add(read), "disk") if read is not None else (None, "none")

    def _make(self, recipe: Recipe, schema: str, scope: str, supplied: Supplied) -> Segment:
        """Encodes a segment, after those of its context where they are missing too."""
        context = [
            Placement(self._of_context(seen.recipe, schema, scope, supplied), seen.lo, seen.hi, seen.start)
            for seen in recipe.context
        ]
        segment = encode(self.model, recipe.key, recipe.token_ids, context, recipe.start)
        if recipe.kept and not supplied.trial:
            segment = self.residency.add(segment)
            supplied.encoded.append(segment)
            self._save(segment, Origin(schema, recipe.path, scope, *self._model_names), supplied)
        supplied.segments[recipe.key] = segment
        return segment

    def _of_context(self, recipe: Recipe, schema: str, scope: str, supplied: Supplied) -> Segment:
        found = supplied.segments.get(recipe.key) or self._find(recipe)[0]
        # What stands before has what stands before it in its own context, so making in order never goes deep.
        return found if found is not None else self._make(recipe, schema, scope, supplied)

    @property
    def _model_names(self) -> tuple[str, str]:
        return self.model.name, self.model.fingerprint

    def _save(self, segment: Segment, origin: Origin, supplied: Supplied) -> None:
        try:
            self.store.save(segment, origin)
        except StoreError as error:
            if not supplied.warnings:
                supplied.warnings.append(f"The answer is complete, but {error}")


def wanted(uses: Sequence[Seen | None]) -> list[Recipe]:
    """The recipes that a prompt reads, in its order."""
    return [use.recipe for use in uses if use is not None]
