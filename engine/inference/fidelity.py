"""What reuse did to an answer: how far it is from the uncached one, through which module, and what mends it.

Everything is measured on the prompt at hand. The uncached side answers greedily, as far as a run would; both
sides then read that same answer, and their distributions are compared token by token, so one flipped token is
found wherever it is. A module's part in the difference is what vanishes when its keys and values alone are
those of a full pass. Remedies are tried, not guessed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.cache.segment_cache import Fetched, wanted
from engine.errors import SettingsError
from engine.events import Working
from engine.inference.params import RunSettings
from engine.inference.prefill import Prefill, prefill
from engine.inference.reading import Reading, read
from engine.inference.repair import inexact
from engine.inference.verdict import Fidelity, Flip, ModuleFidelity, Remedy, advice
from engine.model.rope import move_keys
from engine.pml import Scaffold
from engine.pml.diagnostics import NOWHERE
from engine.prompt.recipe import RecipeBook, RecipeSlice
from engine.segment import Placement, Segment
from engine.stopwatch import Stopwatch

if TYPE_CHECKING:
    from engine.cache.segment_cache import SegmentCache
    from engine.model.model import Model
    from engine.prompt.layout import SchemaLayout
    from engine.prompt.plan import PromptPlan

MOST_PARTNERS = 4  # modules that a scaffold with the worst one is tried with
REPAIRS = ("link:2", "link:8", "blend:0.15", "query:0.15")
_BEFORE = 60  # characters that are shown before a flipped token


@dataclass(frozen=True)
class _Baseline:
    """What everything is compared with.

    Attributes:
        answer: tokens of the uncached greedy answer.
        full: the uncached side's reading of it.
        states: keys and values of the prompt in a full pass, as a segment.
        uses: what each piece of the prompt reads.
        placements: the segments in their places.
    """

    answer: Sequence[int]
    full: Reading
    states: Segment
    uses: Sequence[RecipeSlice | None]
    placements: list[Placement]

    def flips(self, reading: Reading) -> list[int]:
        """Where in the answer a reading finds another token likeliest."""
        agreement = reading.agreement(self.full).tolist()
        return [place for place, agrees in enumerate(agreement) if not agrees]


@dataclass
class FidelityMeter:
    """Measures one prompt.

    Args:
        model: that answers.
        segment_cache: of its segments.
        layout: of the schema.
        plan: of the prompt.
        settings: scope, repair and placement that are measured; max_new_tokens bounds the answer.
    """

    model: Model
    segment_cache: SegmentCache
    layout: SchemaLayout
    plan: PromptPlan
    settings: RunSettings

    def measure(self) -> Generator[Working, None, Fidelity]:
        """Measures the sides, then every module, then what would mend the difference."""
        uses = self._recipe_book(self.layout).of_plan(self.plan)
        with (yield from self._supplied(uses)) as fetched:
            return (yield from self._measured(uses, fetched.place(uses)))

    def _measured(
        self, uses: Sequence[RecipeSlice | None], placements: list[Placement]
    ) -> Generator[Working, None, Fidelity]:
        names = self._names(uses)
        steps = 3 + 2 * len(names)
        done = 0

        def step(what: str) -> Working:
            nonlocal done
            done += 1
            return Working("cached", what, done - 1, steps)

        yield step("the uncached answer")
        answer, full, states = self._uncached()
        base = _Baseline(answer, full, states, uses, placements)
        yield step("the cached answer")
        cached = self._read(self._prefill(uses, placements), answer)
        apart = cached.divergence(full)
        flips = base.flips(cached)
        found = Fidelity(
            kl_first_token=float(apart[0]),
            first_token_agrees=0 not in flips,
            answer_agreement=1 - len(flips) / len(answer),
            kl_mean=float(apart.mean()),
            kl_worst=float(apart.max()),
            worst_position=int(apart.argmax()),
            tokens_read=len(answer),
            read_to_end=answer[-1] in self.model.end_tokens,
            flips=tuple(self._flip(answer, cached, place, float(apart[place])) for place in flips),
            modules=(),
        )
        plain = cached  # without the repair that is measured
        if self.settings.repair != "none":
            plain = self._read(self._prefill(uses, placements, "none"), answer)
        modules = []
        for path in names:
            yield step(f"{path or 'anonymous text'}: what the answer owes to it")
            modules.append(self._module(path, base, cached, plain))
            done += 1
        found = replace(found, modules=tuple(modules))
        if not found.faithful:
            yield step("what would mend it")
            found = replace(found, remedies=tuple((yield from self._remedies(base, modules))))
        return replace(found, advice=advice(found, scope=self.settings.scope))

    def _flip(self, answer: Sequence[int], cached: Reading, place: int, kl: float) -> Flip:
        before = str(self.model.tokenizer.decode(answer[:place]))

        def spelled(token: int) -> str:
            text = str(self.model.tokenizer.decode([*answer[:place], token]))
            alone = str(self.model.tokenizer.decode([token]))
            return text[len(before) :] if text.startswith(before) and len(text) > len(before) else alone

        other = int(cached.likeliest[place])
        return Flip(place, spelled(answer[place]), spelled(other), before[-_BEFORE:], kl)

    def _recipe_book(self, layout: SchemaLayout) -> RecipeBook:
        spread = self.plan.placement == "schema"
        return RecipeBook(layout, self.segment_cache.identity, self.settings.scope, spread=spread)

    def _supplied(
        self, uses: Sequence[RecipeSlice | None], *, trial: bool = False
    ) -> Generator[Working, None, Fetched]:
        name, scope = self.layout.schema.name, self.settings.scope
        return (yield from self.segment_cache.segments(wanted(uses), name, scope, Stopwatch(), trial=trial))

    def _names(self, uses: Sequence[RecipeSlice | None]) -> list[str]:
        pairs = zip(self.plan.pieces, uses, strict=True)
        return list(dict.fromkeys(piece.path for piece, use in pairs if use is not None and not piece.turn))

    def _prefill(
        self, uses: Sequence[RecipeSlice | None], placements: list[Placement], repair: str | None = None
    ) -> Prefill:
        chosen = self.settings.repair if repair is None else repair
        return prefill(self.model, self.plan, uses, placements, chosen)

    def _read(self, prefill: Prefill, answer: Sequence[int]) -> Reading:
        return read(self.model, prefill, answer)

    def _uncached(self) -> tuple[list[int], Reading, Segment]:
        """The greedy answer of a full pass, its reading, and the prompt's keys and values."""
        plan, model = self.plan, self.model
        limit = max(1, min(self.settings.max_new_tokens, model.context_length - plan.end))
        kv = model.network.kv_cache((), plan.total_tokens + limit)
        logits = [model.network.forward(plan.token_ids, plan.positions, kv)[-1]]
        keys, values = (states.clone() for states in kv.tail)
        segment = Segment("full", tuple(plan.token_ids), keys, values)
        answer = [int(logits[0].argmax())]
        while answer[-1] not in model.end_tokens and len(answer) < limit:
            logits.append(model.network.forward(answer[-1:], [plan.end + len(answer) - 1], kv)[-1])
            answer.append(int(logits[-1].argmax()))
        return answer, Reading.of_logits(torch.stack(logits)), segment

    def _module(self, path: str, base: _Baseline, cached: Reading, plain: Reading) -> ModuleFidelity:
        own = {
            use.start
            for piece, use in zip(self.plan.pieces, base.uses, strict=True)
            if use is not None and piece.path == path and not piece.turn
        }
        hidden = [p for p in base.placements if p.start not in own]
        mended = [self._as_in_full_pass(p, base.states) if p.start in own else p for p in base.placements]
        mine = [p for p in base.placements if p.start in own]
        away = self._read(self._prefill(base.uses, hidden, "none"), base.answer)
        exact = self._read(self._prefill(base.uses, mended, "none"), base.answer)
        keys, values = self._deviations(mine, base.states)
        return ModuleFidelity(
            path,
            sum(p.tokens for p in mine),
            float(away.divergence(cached).mean()),
            keys,
            values,
            float(plain.divergence(base.full).mean() - exact.divergence(base.full).mean()),
            len(base.flips(plain)) - len(base.flips(exact)),
        )

    def _as_in_full_pass(self, placement: Placement, states: Segment) -> Placement:
        """The same place with the keys and values of the full pass."""
        keys, values = self._slice(placement, states)
        local = Segment("full", states.token_ids[: placement.tokens], keys, values)
        return Placement(local, 0, placement.tokens, placement.start)

    def _slice(self, placement: Placement, states: Segment) -> tuple[Tensor, Tensor]:
        """The full pass's keys, at local positions 0..n-1, and values of what a placement covers."""
        at = self.plan.positions.index(placement.start)
        cut = slice(at, at + placement.tokens)
        keys = move_keys(states.keys[:, :, cut], self.model.rotaries, -placement.start)
        return keys, states.values[:, :, cut]

    def _deviations(self, placements: Sequence[Placement], states: Segment) -> tuple[float, float]:
        """Distance of stored keys, and of values, from the full pass's, by their length; mean over layers."""
        pairs = []
        for placement in placements:
            cut = slice(placement.lo, placement.hi)
            stored = placement.segment
            keys = move_keys(stored.keys[:, :, cut], self.model.rotaries, -placement.lo)
            pairs.append(((keys, stored.values[:, :, cut]), self._slice(placement, states)))
        found = []
        for which in (0, 1):
            apart = sum((one[which] - other[which]).float().pow(2).sum((1, 2, 3)) for one, other in pairs)
            length = sum(other[which].float().pow(2).sum((1, 2, 3)) for _, other in pairs)
            assert isinstance(apart, Tensor)
            assert isinstance(length, Tensor)
            found.append(float((apart / length).sqrt().mean()))
        return found[0], found[1]

    def _remedies(
        self, base: _Baseline, modules: Sequence[ModuleFidelity]
    ) -> Generator[Working, None, list[Remedy]]:
        uses, placements = base.uses, base.placements
        plain = self._prefill(uses, placements).work
        found = []

        def tried(what: str, prefill: Prefill, repair: str = "", scaffold: tuple[str, ...] = ()) -> Remedy:
            reading = self._read(prefill, base.answer)
            left, flips = reading.divergence(base.full), len(base.flips(reading))
            agreement = 1 - flips / len(base.answer)
            more = prefill.work - plain
            worst, mean = float(left.max()), float(left.mean())
            return Remedy(what, repair, scaffold, flips, worst, mean, agreement, more)

        for repair in REPAIRS:
            try:
                prefill = self._prefill(uses, placements, repair)
            except SettingsError:
                continue
            if repair != self.settings.repair:
                found.append(tried(f"repair {repair}", prefill, repair=repair))
        for scaffold in self._partners(uses, modules):
            schema = self.layout.schema
            declared = replace(schema, scaffolds=(Scaffold(scaffold, NOWHERE),))
            together = self._recipe_book(replace(self.layout, schema=declared)).of_plan(self.plan)
            if any(use.recipe.reach >= self.model.context_length for use in together if use is not None):
                continue
            with (yield from self._supplied(together, trial=True)) as fetched:
                prefill = self._prefill(together, fetched.place(together))
                found.append(tried(f"scaffold {' '.join(scaffold)}", prefill, scaffold=scaffold))
        return sorted(found, key=lambda remedy: (remedy.flips, remedy.kl_worst))

    def _partners(
        self, uses: Sequence[RecipeSlice | None], modules: Sequence[ModuleFidelity]
    ) -> list[tuple[str, ...]]:
        """Sets of modules to try as scaffolds: the worst one with each earlier one, and all of them."""
        if self.settings.scope == "scaffold":
            return []
        order = [module.path for module in modules if module.path]
        open_to = {use.recipe.path for use in inexact(self.plan, uses) if use is not None}
        suffering = [m for m in modules if m.path in open_to and m.path]
        if len(order) < 2 or not suffering:
            return []
        worst = max(suffering, key=lambda module: (module.mends, module.harm)).path
        before = order[: order.index(worst)]
        by_need = {module.path: module.dependence for module in modules}
        near = sorted(before, key=lambda path: -by_need[path])[:MOST_PARTNERS]
        sets = [tuple(path for path in order if path in (worst, other)) for other in near]
        return list(dict.fromkeys([*sets, tuple(order)]))
