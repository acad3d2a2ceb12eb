"""Chooses the cheapest level of reuse that stays within the user's limit of KL.

The choice uses measurements of the same combination of segments. A combination without a measurement starts
with a repair. A check after the answer measures it, and later answers use a cheaper or a stronger level.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.base.choices import Scope
from engine.base.events import ReuseTaken
from engine.base.tiers import Tier
from engine.cache.segment_cache import SegmentCache
from engine.fidelity.findings import nats
from engine.fidelity.sides import cached_pieces
from engine.inference.repair import cached_tokens, inexact, repaired
from engine.inference.run_settings import Repair, RunSettings
from engine.pml import PromptError, Scaffold
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prompt.recipe import RecipeBook
from engine.prompt.tokenized import Planned, TokenizedPrompt
from engine.store.index.measurements import Known

REPAIR: Final = "impact:0.15"
STORED, REPAIRED, PRECEDED, SCAFFOLDED, PREFIXED, COMPUTED = RUNGS = range(6)
ENCODED_BEHIND: Final = (PRECEDED, SCAFFOLDED, PREFIXED)  # rungs whose segments are encoded by the check
EXACT: Final = "Reused as stored: each segment already saw all text before it"
AGAIN: Final = 2  # runs, from which on a repair is worth a prefix, which needs none
START: Final = REPAIRED  # of what nobody has measured


@dataclass(frozen=True)
class Chosen:
    """The chosen reuse level of one prompt.

    Attributes:
        taken: what is told of it.
        planned: the prompt, with what it reads under it.
        settings: the run settings, with the scope and repair of the level.
        wants: the rung that the next run would take, once its segments are encoded; None for this one.
    """

    taken: ReuseTaken
    planned: Planned
    settings: RunSettings
    wants: int | None = None


@dataclass(frozen=True)
class Ladder:
    """The reuse levels of one prompt, from the cheapest to the most exact.

    Args:
        cache: the segments of the model, and what was measured over them.
        prompt: the prompt.
        settings: how to run it, with a limit of the KL.
    """

    cache: SegmentCache
    prompt: TokenizedPrompt
    settings: RunSettings

    def choose(self) -> Chosen:
        """Chooses a level by earlier measurements; computes nothing.

        Raises:
            PromptError: as for `TokenizedPrompt.planned`.
        """
        stored = self.planned(STORED)
        started = time.perf_counter()
        if not any(inexact(stored.plan, stored.slices)):
            return self._chosen(STORED, "", EXACT, None, stored)
        name, usable = _name(self.cache, stored), self._usable(stored)
        known = self.cache.store.measured.of(name)
        wants = None
        rung = chosen_rung(known.kl, self.settings.max_kl, usable, self._cost)
        while (planned := self._fitting(rung)) is None:
            usable.remove(rung)
            rung = chosen_rung(known.kl, self.settings.max_kl, usable, self._cost)
        if rung == START and not known.kl and PRECEDED in usable:
            closer = self._fitting(PRECEDED)  # at no cost where its segments are there
            if closer is not None and self.is_encoded(closer):
                rung, planned = PRECEDED, closer
        if rung == REPAIRED and known.runs >= AGAIN and PREFIXED not in known.kl:
            wants = PREFIXED if self._fitting(PREFIXED) is not None else None
        if rung in ENCODED_BEHIND and not self.is_encoded(planned):
            wants, rung, planned = rung, COMPUTED, self.planned(COMPUTED)
        why = self._why(rung, known, wants, planned)
        took = (time.perf_counter() - started) * 1000
        planned = replace(planned, recipes_ms=planned.recipes_ms + took)
        return self._chosen(rung, name, why, known.kl.get(rung), planned, wants=wants)

    def planned(self, rung: int) -> Planned:
        """The prompt as it reads its segments at a rung."""
        given = self.settings
        planned = self.prompt.planned(scope_of(rung), given.placement, turns_held=given.turns_held)
        if rung == COMPUTED:
            return replace(planned, slices=(None,) * len(planned.plan.pieces))
        if rung != SCAFFOLDED:
            return planned
        declared = replace(planned.layout.schema, scaffolds=(Scaffold(_modules(planned), NOWHERE),))
        layout, spread = replace(planned.layout, schema=declared), planned.plan.placement == "schema"
        identity = self.prompt.schema.spec.identity
        slices = RecipeBook(layout, identity, "anchored", spread=spread).of_plan(planned.plan)
        return replace(planned, slices=slices)

    def repair(self, rung: int) -> str:
        """The repair of a rung."""
        return REPAIR if rung in (REPAIRED, PRECEDED) and not self._blind else "none"

    @property
    def _blind(self) -> bool:
        """Whether the model does not show what the repair asks for."""
        return not self.cache.model.network.shows_attention

    def _chosen(
        self, rung: int, name: str, why: str, kl: float | None, planned: Planned, *, wants: int | None = None
    ) -> Chosen:
        repair, scope = self.repair(rung), scope_of(rung)
        settings = replace(self.settings, reuse="off", scope=scope or "anchored", repair=repair)
        together = _modules(planned) if rung == SCAFFOLDED else ()
        taken = ReuseTaken(
            *(rung, scope or "", repair, together, why, self.settings.max_kl, kl),
            combination=name,
        )
        return Chosen(taken, planned, settings, wants)

    def _usable(self, stored: Planned) -> list[int]:
        """The rungs that this model and this prompt can take, the lowest first."""
        left_out = {REPAIRED} if self._blind else set[int]()
        if len(_modules(stored)) < 2:
            left_out.update((PRECEDED, SCAFFOLDED))
        return [rung for rung in RUNGS if rung not in left_out]

    def _cost(self, rung: int) -> float:
        """How many cached tokens a rung computes again; infinite where its segments are not encoded."""
        planned = self._fitting(rung)
        if planned is None or (rung in ENCODED_BEHIND and not self.is_encoded(planned)):
            return math.inf
        return self._repaired(rung, planned)

    def _repaired(self, rung: int, planned: Planned) -> int:
        if rung == COMPUTED:
            return planned.plan.total_tokens
        return repaired(Repair.parse(self.repair(rung)), planned.plan, planned.slices)

    def _why(self, rung: int, known: Known, wants: int | None, planned: Planned) -> str:
        """Returns the method and why it is chosen, for people."""
        limit = f"{self.settings.max_kl:g}"
        if rung == COMPUTED and wants is not None:
            return "Computed without reuse: the modules that would stay within the limit are not encoded yet"
        if rung == COMPUTED:
            return f"Computed without reuse: every method tried had a KL above {limit}"
        again = self._repaired(rung, planned)
        behind = "Modules encoded with earlier modules"
        does = {
            STORED: "Reused as stored",
            REPAIRED: f"Recomputed {again:,} of {cached_tokens(planned.slices):,} cached tokens",
            PRECEDED: f"{behind}, {again:,} tokens recomputed" if again else behind,
            SCAFFOLDED: "Modules encoded together",
            PREFIXED: "Everything up to the last module read as one prefix",
        }[rung]
        if rung in known.kl:
            kl = nats(known.kl[rung], self.settings.max_kl)
            return f"{does}: mean KL at most {kl} when last checked, limit {limit}"
        if known.kl:
            return f"{does}: cheaper methods came too close to the limit of {limit}"
        return f"{does}: not measured yet"

    def _fitting(self, rung: int) -> Planned | None:
        """The prompt as it reads its segments at a rung; None where these do not fit the context window.

        A slot takes its full length while a segment is encoded, so a prompt that fits may have such rungs.
        """
        if rung not in ENCODED_BEHIND:
            return self.planned(rung)
        try:
            planned = self.planned(rung)
        except PromptError:
            return None
        longest = self.cache.model.context_length
        fits = all(use.recipe.reach < longest for use in planned.slices if use is not None)
        return planned if fits else None

    def is_encoded(self, planned: Planned) -> bool:
        """Whether all segments of the schema that a plan reads are there.

        New turns of a conversation never are, and cost no more to encode than to compute.
        """
        recipes = [use.recipe for _, use in cached_pieces(planned.plan, planned.slices)]
        tier = self.cache.tiers(recipes)
        return all(tier(recipe) != Tier.NONE for recipe in recipes)


def chosen_rung(
    kl: Mapping[int, float], most: float, usable: Sequence[int], cost: Callable[[int], float] = float
) -> int:
    """The cheapest rung whose measurements stay within the limit; else the next one that is not measured.

    Args:
        kl: the greatest mean KL of the last measurements, by rung.
        most: the limit; rung STORED must stay within half of it, because other answers differ from it more.
        usable: the rungs there are, ascending; the last one is always kept.
        cost: how many tokens a rung computes; the lower one is taken of two that compute as many.
    """
    kept = [rung for rung in usable if kl.get(rung, most + 1) <= (most / 2 if rung == STORED else most)]
    if kept:
        return kept[0] if kept[0] == STORED or len(kept) == 1 else min(kept, key=cost)
    above = max(kl, default=START - 1)
    return next((rung for rung in usable if rung > max(above, START - 1)), usable[-1])


def scope_of(rung: int) -> Scope | None:
    """What modules see at a rung; None where nothing is reused."""
    return {COMPUTED: None, PRECEDED: "preceding", PREFIXED: "scaffold"}.get(rung, "anchored")


def _modules(planned: Planned) -> tuple[str, ...]:
    """Paths of the modules that a prompt reads, in its order."""
    return tuple(dict.fromkeys(path for path, _ in cached_pieces(planned.plan, planned.slices) if path))


def _name(cache: SegmentCache, stored: Planned) -> str:
    """Names what a prompt reads of its schema, by which model and placement, and what would repair it."""
    keys = [use.recipe.key for _, use in cached_pieces(stored.plan, stored.slices)]
    told = "|".join((cache.model.fingerprint, stored.plan.placement, REPAIR, *keys))
    return hashlib.sha256(told.encode()).hexdigest()[:40]
