"""What reuse did to an answer: how far it is from the uncached one, through which module, and what mends it.

Everything is measured on the prompt at hand. The uncached side answers greedily; both sides then read that
same answer, and their distributions are compared token by token. A module's part in the difference is what
vanishes when its keys and values alone are those of a full pass. Remedies are tried, not guessed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.errors import SettingsError
from engine.events import Working
from engine.generate import Prefill
from engine.pml import Scaffold
from engine.pml.diagnostics import NOWHERE
from engine.reading import Reading, read
from engine.repair import chosen, inexact, rows, with_hidden
from engine.rotary import move_keys
from engine.segment import Placement, Segment
from engine.settings import Repair, RunSettings
from engine.sight import Seen, Sights
from engine.stopwatch import Stopwatch
from engine.supply import Supplied, wanted

if TYPE_CHECKING:
    from engine.layout import SchemaLayout
    from engine.model import Model
    from engine.plan import PromptPlan
    from engine.supply import Supply

MOST_PARTNERS = 4  # modules that a scaffold with the worst one is tried with
REPAIRS = ("link:2", "link:8", "blend:0.15", "query:0.15")
FAITHFUL = 1e-3  # nats: below this there is nothing to mend


@dataclass(frozen=True)
class ModuleFidelity:
    """One module of a prompt, or its anonymous text.

    Attributes:
        path: of the module, "" for anonymous text.
        tokens: of it that are read from the cache.
        dependence: KL of the answer from the answer with the module hidden, in nats per token.
        key_deviation: distance of its keys from those of a full pass ÷ their length, mean over layers.
        value_deviation: the same of its values.
        harm: how much of the answer's KL vanishes when this module alone is as in a full pass, in nats per
            token. Negative where its deviation makes up for another's.
    """

    path: str
    tokens: int
    dependence: float
    key_deviation: float
    value_deviation: float
    harm: float


@dataclass(frozen=True)
class Remedy:
    """Something that was tried.

    Attributes:
        what: in words.
        repair: the setting, for a repair; "" for a scaffold.
        scaffold: paths of the modules, for a scaffold.
        kl_answer: what is left of the difference, in nats per token.
        answer_agreement: share of the answer's tokens that both sides find likeliest.
        computed: tokens that each run computes more than without it.
    """

    what: str
    repair: str
    scaffold: tuple[str, ...]
    kl_answer: float
    answer_agreement: float
    computed: int


@dataclass(frozen=True)
class Fidelity:
    """How faithful a cached answer is, and why.

    Attributes:
        kl_first_token: KL of the first token's distribution from the uncached one, in nats.
        first_token_agrees: both sides find the same token likeliest.
        answer_agreement: share of the tokens of the uncached greedy answer that the cached side, reading
            the same answer, finds likeliest as well.
        kl_answer: mean KL over those tokens, in nats.
        answer_tokens: how many there are.
        modules: in the order of the prompt.
        remedies: what was tried, the best first.
        advice: one sentence.
    """

    kl_first_token: float
    first_token_agrees: bool
    answer_agreement: float
    kl_answer: float
    answer_tokens: int
    modules: tuple[ModuleFidelity, ...]
    remedies: tuple[Remedy, ...] = field(default=())
    advice: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return asdict(self)


@dataclass
class FidelityMeter:
    """Measures one prompt.

    Args:
        model: that answers.
        supply: of its segments.
        layout: of the schema.
        plan: of the prompt.
        settings: scope, repair and placement that are measured; max_new_tokens bounds the answer.
    """

    model: Model
    supply: Supply
    layout: SchemaLayout
    plan: PromptPlan
    settings: RunSettings

    def measure(self) -> Generator[Working, None, Fidelity]:
        """Measures the sides, then every module, then what would mend the difference."""
        sights = self._sights(self.layout)
        uses = sights.of_plan(self.plan)
        supplied = yield from self._supplied(uses)
        placements = supplied.place(uses)
        names = self._names(uses)
        steps = 3 + 2 * len(names)
        done = 0

        def step(what: str) -> Working:
            nonlocal done
            done += 1
            return Working("cached", what, done - 1, steps)

        yield step("the uncached answer")
        answer, full, states = self._uncached()
        yield step("the cached answer")
        cached = self._read(self._prefill(uses, placements), answer)
        apart = cached.divergence(full)
        total = float(apart.mean())
        modules = []
        for path in names:
            yield step(f"{path or 'anonymous text'}: what the answer owes to it")
            modules.append(self._module(path, uses, placements, answer, full, cached, total, states))
            done += 1
        remedies: list[Remedy] = []
        if total > FAITHFUL:
            yield step("what would mend it")
            remedies = yield from self._remedies(uses, placements, modules, answer, full)
        agreement = cached.agreement(full)
        return Fidelity(
            kl_first_token=float(apart[0]),
            first_token_agrees=bool(agreement[0]),
            answer_agreement=float(agreement.float().mean()),
            kl_answer=total,
            answer_tokens=len(answer),
            modules=tuple(modules),
            remedies=tuple(remedies),
            advice=_advice(total, modules, remedies),
        )

    def _sights(self, layout: SchemaLayout) -> Sights:
        spread = self.plan.placement == "schema"
        return Sights(layout, self.supply.identity, self.settings.scope, spread=spread)

    def _supplied(
        self, uses: Sequence[Seen | None], *, trial: bool = False
    ) -> Generator[Working, None, Supplied]:
        name, scope = self.layout.schema.name, self.settings.scope
        return (yield from self.supply.segments(wanted(uses), name, scope, Stopwatch(), trial=trial))

    def _names(self, uses: Sequence[Seen | None]) -> list[str]:
        pairs = zip(self.plan.pieces, uses, strict=True)
        return list(dict.fromkeys(piece.path for piece, use in pairs if use is not None and not piece.turn))

    def _prefill(
        self, uses: Sequence[Seen | None], placements: list[Placement], repair: str | None = None
    ) -> Prefill:
        plan = self.plan
        parsed = Repair.parse(self.settings.repair if repair is None else repair)
        again = chosen(parsed, self.model, plan, uses, placements)
        return Prefill(with_hidden(placements, again), *rows(plan, again), plan.token_ids, plan.end)

    def _read(self, prefill: Prefill, answer: Sequence[int]) -> Reading:
        return read(self.model, prefill, answer)

    def _uncached(self) -> tuple[list[int], Reading, Segment]:
        """The greedy answer of a full pass, its reading, and the prompt's keys and values."""
        plan, model = self.plan, self.model
        limit = max(1, min(self.settings.max_new_tokens, model.context_length - plan.end))
        kv = model.key_values((), plan.total_tokens + limit)
        logits = [model.forward(plan.token_ids, plan.positions, kv)[-1]]
        keys, values = (states.clone() for states in kv.tail)
        segment = Segment("full", tuple(plan.token_ids), keys, values)
        answer = [int(logits[0].argmax())]
        while answer[-1] not in model.end_tokens and len(answer) < limit:
            logits.append(model.forward(answer[-1:], [plan.end + len(answer) - 1], kv)[-1])
            answer.append(int(logits[-1].argmax()))
        return answer, Reading.of_logits(torch.stack(logits)), segment

    def _module(
        self,
        path: str,
        uses: Sequence[Seen | None],
        placements: list[Placement],
        answer: Sequence[int],
        full: Reading,
        cached: Reading,
        total: float,
        states: Segment,
    ) -> ModuleFidelity:
        own = {
            use.start
            for piece, use in zip(self.plan.pieces, uses, strict=True)
            if use is not None and piece.path == path and not piece.turn
        }
        hidden = [p for p in placements if p.start not in own]
        mended = [self._as_in_full_pass(p, states) if p.start in own else p for p in placements]
        mine = [p for p in placements if p.start in own]
        away = self._read(self._prefill(uses, hidden, "none"), answer)
        exact = self._read(self._prefill(uses, mended, "none"), answer)
        keys, values = self._deviations(mine, states)
        base = total
        if self.settings.repair != "none":
            base = float(self._read(self._prefill(uses, placements, "none"), answer).divergence(full).mean())
        return ModuleFidelity(
            path,
            sum(p.tokens for p in mine),
            float(away.divergence(cached).mean()),
            keys,
            values,
            base - float(exact.divergence(full).mean()),
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
        self,
        uses: Sequence[Seen | None],
        placements: list[Placement],
        modules: Sequence[ModuleFidelity],
        answer: Sequence[int],
        full: Reading,
    ) -> Generator[Working, None, list[Remedy]]:
        plain = len(self._prefill(uses, placements).token_ids)
        found = []

        def tried(what: str, prefill: Prefill, repair: str = "", scaffold: tuple[str, ...] = ()) -> Remedy:
            reading = self._read(prefill, answer)
            left = float(reading.divergence(full).mean())
            agreement = float(reading.agreement(full).float().mean())
            more = len(prefill.token_ids) - plain
            return Remedy(what, repair, scaffold, left, agreement, more)

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
            together = self._sights(replace(self.layout, schema=declared, recipes={})).of_plan(self.plan)
            if any(use.recipe.reach >= self.model.context_length for use in together if use is not None):
                continue
            supplied = yield from self._supplied(together, trial=True)
            prefill = self._prefill(together, supplied.place(together))
            found.append(tried(f"scaffold {' '.join(scaffold)}", prefill, scaffold=scaffold))
        return sorted(found, key=lambda remedy: remedy.kl_answer)

    def _partners(
        self, uses: Sequence[Seen | None], modules: Sequence[ModuleFidelity]
    ) -> list[tuple[str, ...]]:
        """Sets of modules to try as scaffolds: the worst one with each earlier one, and all of them."""
        if self.settings.scope == "scaffold":
            return []
        order = [module.path for module in modules if module.path]
        open_to = {use.recipe.path for use in inexact(self.plan, uses) if use is not None}
        suffering = [m for m in modules if m.path in open_to and m.path]
        if len(order) < 2 or not suffering:
            return []
        worst = max(suffering, key=lambda module: module.harm).path
        before = order[: order.index(worst)]
        by_need = {module.path: module.dependence for module in modules}
        near = sorted(before, key=lambda path: -by_need[path])[:MOST_PARTNERS]
        sets = [tuple(path for path in order if path in (worst, other)) for other in near]
        return list(dict.fromkeys([*sets, tuple(order)]))


def _advice(total: float, modules: Sequence[ModuleFidelity], remedies: Sequence[Remedy]) -> str:
    """What to do, in a sentence."""
    if total <= FAITHFUL:
        return "The cached answer is as good as the uncached one; there is nothing to mend."
    worst = max(modules, key=lambda module: module.harm)
    name = f"Module {worst.path!r}" if worst.path else "The anonymous text"
    suffers = f"{name} suffers most from reuse"
    free = [r for r in remedies if r.scaffold and r.kl_answer <= total / 2]
    cheap = [r for r in remedies if r.repair and r.kl_answer <= total / 2]
    if free:
        best = min(free, key=lambda remedy: (len(remedy.scaffold), remedy.kl_answer))
        return (
            f"{suffers}. Encoded together, {_listed(best.scaffold)} bring the answer's KL from {total:.2g} "
            f"to {best.kl_answer:.2g}, and a run computes nothing more for it."
        )
    if cheap:
        best = min(cheap, key=lambda remedy: remedy.computed)
        return (
            f"{suffers}. Repair {best.repair} brings the answer's KL from {total:.2g} to "
            f"{best.kl_answer:.2g}, for {best.computed} more computed tokens."
        )
    return f"{suffers}. Nothing that was tried halves the difference; the scope scaffold removes it."


def _listed(paths: Sequence[str]) -> str:
    names = [repr(path) for path in paths]
    return f"{', '.join(names[:-1])} and {names[-1]}"
