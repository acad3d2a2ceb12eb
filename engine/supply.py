"""Runs → segments: from memory, from the store, or encoded now. A miss is an event, never a failure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field

from engine.encoder import encode
from engine.errors import StoreError
from engine.generate import SegmentUse, Stopwatch, Working
from engine.layout import Run, SchemaLayout, Scope
from engine.model import Model
from engine.overview import Tier
from engine.residency import Residency
from engine.segment import Segment, segment_key
from engine.store import Origin, Store


@dataclass
class Supplied:
    """Segments of one prompt or schema.

    Attributes:
        segments: by index of the run.
        uses: where each was found, in the order of asking.
        keys: of the segments, in the same order.
        encoded: those that were computed, contexts included.
        warnings: what could not be stored, in words.
    """

    segments: dict[int, Segment] = field(default_factory=dict)
    uses: list[SegmentUse] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    encoded: list[Segment] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def hits(self) -> list[str]:
        """Keys that were found."""
        return [key for key, use in zip(self.keys, self.uses, strict=True) if use.outcome == "hit"]

    @property
    def misses(self) -> list[str]:
        """Keys that had to be computed."""
        return [key for key, use in zip(self.keys, self.uses, strict=True) if use.outcome == "miss"]


class Supply:
    """Segments of one model.

    Args:
        model: that encodes what is missing.
        store: on disk.
        residency: in memory.
    """

    def __init__(self, model: Model, store: Store, residency: Residency) -> None:
        self.model, self.store, self.residency = model, store, residency

    def key(self, layout: SchemaLayout, run: Run, scope: Scope) -> str:
        """Returns the key of a run's segment."""
        known = layout.keys.get((run.index, scope))
        if known is None:
            context = [token for earlier in layout.context(run, scope) for token in earlier.token_ids]
            known = segment_key(self.model.fingerprint, self.model.dtype, run.token_ids, context)
            layout.keys[run.index, scope] = known
        return known

    def tiers(self, layout: SchemaLayout, runs: Iterable[Run], scope: Scope) -> Callable[[Run], Tier]:
        """Returns a function that says where the segment of each of these runs is now."""
        keys = {run.index: self.key(layout, run, scope) for run in runs if run.cacheable}
        on_disk = self.store.contains(keys.values())

        def tier(run: Run) -> Tier:
            key = keys.get(run.index)
            if key is None:
                return "none"
            return "memory" if key in self.residency else "disk" if key in on_disk else "none"

        return tier

    def segments(
        self, layout: SchemaLayout, runs: Sequence[Run], scope: Scope, clock: Stopwatch
    ) -> Generator[Working, None, Supplied]:
        """Finds or encodes the segments of these runs.

        Args:
            layout: that the runs belong to.
            runs: all of them cacheable.
            scope: under which they are encoded.
            clock: counts "load" and "encode".

        Yields:
            Working, before each run that must be encoded.
        """
        supplied = Supplied()
        clock.restart()
        missing = []
        for run in runs:
            key = self.key(layout, run, scope)
            segment, tier = self._find(key, run)
            supplied.keys.append(key)
            supplied.uses.append(SegmentUse(run.path, run.tokens, tier, "hit" if segment else "miss"))
            if segment is None:
                missing.append(run)
            else:
                supplied.segments[run.index] = segment
        clock.lap("load")
        for done, run in enumerate(missing):
            yield Working("cached", f"encoding {run.path or 'anonymous text'}", done, len(missing))
            clock.restart()
            supplied.segments[run.index] = self._make(layout, run, scope, supplied)
            clock.lap("encode")
        if missing:
            yield Working("cached", "encoded", len(missing), len(missing))
        return supplied

    def _find(self, key: str, run: Run) -> tuple[Segment | None, Tier]:
        held = self.residency.get(key)
        if held is not None and held.token_ids == run.token_ids:
            return held, "memory"
        read = self.store.load(key, run.token_ids)
        return (self.residency.add(read), "disk") if read is not None else (None, "none")

    def _make(self, layout: SchemaLayout, run: Run, scope: Scope, supplied: Supplied) -> Segment:
        """Encodes a run, after the runs of its context where those are missing too."""
        context = []
        for earlier in layout.context(run, scope):
            key = self.key(layout, earlier, scope)
            found = supplied.segments.get(earlier.index) or self._find(key, earlier)[0]
            # Contexts of one run are prefixes of each other, so making them in order never goes deeper.
            context.append(found if found is not None else self._make(layout, earlier, scope, supplied))
        key = self.key(layout, run, scope)
        held = self.residency.get(key)
        if held is not None:
            return held
        segment = self.residency.add(encode(self.model, key, run.token_ids, context))
        supplied.encoded.append(segment)
        model = self.model
        origin = Origin(layout.schema.name, run.path, scope, model.name, model.fingerprint)
        try:
            self.store.save(segment, origin)
        except StoreError as error:
            if not supplied.warnings:
                supplied.warnings.append(f"The answer is complete, but {error}")
        return segment
