"""What would mend a cached answer: repairs, scaffolds, a scope; each is tried on the prompt at hand."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from engine.base.choices import Scope
from engine.base.errors import SettingsError
from engine.base.events import Working
from engine.base.stopwatch import Stopwatch
from engine.cache.fetched import Request
from engine.cache.segment_cache import SegmentCache, wanted
from engine.fidelity.findings import ModuleFidelity, Remedy, worst_of
from engine.fidelity.sides import CachedSide
from engine.inference.repair import inexact
from engine.inference.run_settings import REPAIR_EXAMPLES, RunSettings
from engine.pml import Scaffold
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prompt.layout import SchemaLayout
from engine.prompt.recipe import RecipeBook

MOST_PARTNERS = 4  # modules that a scaffold with the worst one is tried with


Trial = Generator[Working, None, list[Remedy]]
"""The steps of a trial: yields Working before each segment to encode, and returns the fix, if it applies."""


def most_fixes(paths: Sequence[str], settings: RunSettings) -> int:
    """Returns the maximum number of trials for a prompt; `paths` are its modules, "" for fixed text."""
    partners = min(sum(path != "" for path in paths) - 1, MOST_PARTNERS)
    scaffolds = partners + 1 if partners > 0 and settings.scope != "scaffold" else 0
    return len(_repairs(settings.repair)) + _preceding(paths, settings.scope) + scaffolds


def _repairs(own: str) -> list[str]:
    return [repair for repair in REPAIR_EXAMPLES if repair not in ("none", own)]


def _preceding(modules: Sequence[object], scope: Scope) -> bool:
    return len(modules) > 1 and scope in ("isolated", "anchored")


@dataclass(frozen=True)
class Remedies:
    """Tries what could mend one side.

    Args:
        side: the side that differs from the uncached one.
        cache: the segments of the model.
        layout: the layout of the schema.
        scope: what modules see while they are encoded.
    """

    side: CachedSide
    cache: SegmentCache
    layout: SchemaLayout
    scope: Scope

    def trials(self, modules: Sequence[ModuleFidelity]) -> Iterator[tuple[str, Trial]]:
        """Returns the trials: the repairs, the scope `preceding`, and scaffolds of the worst module.

        Args:
            modules: the modules, as they were measured.

        Yields:
            The name of each trial, and its steps.
        """
        for repair in _repairs(self.side.repair):
            yield f"repair {repair}", self._repaired(repair)
        if _preceding(modules, self.scope):
            yield "scope preceding", self._encoded(self.layout, scope="preceding")
        for scaffold in self._scaffolds(modules):
            declared = replace(self.layout.schema, scaffolds=(Scaffold(scaffold, NOWHERE),))
            layout = replace(self.layout, schema=declared)
            yield f"scaffold {' '.join(scaffold)}", self._encoded(layout, scaffold=scaffold)

    def _repaired(self, repair: str) -> Trial:
        yield from ()
        try:
            return [self._tried(f"repair {repair}", self.side.repaired(repair), repair=repair)]
        except SettingsError:  # the model does not show what this one needs
            return []

    def _encoded(
        self, layout: SchemaLayout, scaffold: tuple[str, ...] = (), scope: Scope | None = None
    ) -> Trial:
        """A scaffold or a scope; nothing where its segments do not fit the context window."""
        plan, model = self.side.uncached.plan, self.side.uncached.model
        used, spread = scope or self.scope, plan.placement == "schema"
        slices = RecipeBook(layout, self.cache.identity, used, spread=spread).of_plan(plan)
        if any(use.recipe.reach >= model.context_length for use in slices if use is not None):
            return []
        request = Request(self.layout.schema.name, used, trial=True)
        fetching = self.cache.segments(wanted(slices), request, Stopwatch())
        with (yield from fetching) as fetched:
            side = replace(self.side, slices=slices, placements=fetched.place(slices))
            what = f"scope {scope}" if scope else f"scaffold {' '.join(scaffold)}"
            return [self._tried(what, side, scaffold=scaffold, scope=scope or "")]

    @cached_property
    def _work(self) -> int:
        return self.side.prefill().work

    def _tried(
        self,
        what: str,
        side: CachedSide,
        repair: str = "",
        scaffold: tuple[str, ...] = (),
        scope: str = "",
    ) -> Remedy:
        uncached, prefill = side.uncached, side.prefill()
        reading = uncached.read(prefill)
        left, flips = reading.divergence(uncached.reading), len(uncached.flips(reading))
        return Remedy(
            what,
            repair,
            scaffold,
            scope,
            flips,
            kl_worst=float(left.max()),
            kl_mean=float(left.mean()),
            answer_agreement=1 - flips / len(uncached.answer),
            computed=prefill.work - self._work,
        )

    def _scaffolds(self, modules: Sequence[ModuleFidelity]) -> list[tuple[str, ...]]:
        """Sets of modules to try as scaffolds: the worst one with each earlier one, and all of them."""
        if self.scope == "scaffold":
            return []
        order = [module.path for module in modules if module.path]
        open_to = {use.recipe.path for use in inexact(self.side.uncached.plan, self.side.slices) if use}
        suffering = [m for m in modules if m.path in open_to and m.path]
        if len(order) < 2 or not suffering:
            return []
        worst = worst_of(suffering).path
        before = order[: order.index(worst)]
        by_need = {module.path: module.dependence for module in modules}
        near = sorted(before, key=lambda path: -by_need[path])[:MOST_PARTNERS]
        sets = [tuple(path for path in order if path in (worst, other)) for other in near]
        return list(dict.fromkeys([*sets, tuple(order)]))
