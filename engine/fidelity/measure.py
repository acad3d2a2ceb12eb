"""What reuse did to an answer: how far it is from the uncached one, through which module, and what mends it.

Everything is measured on the prompt at hand. The uncached side answers greedily, as far as a run would; both
sides then read that same answer, and their distributions are compared token by token, so one flipped token is
found wherever it is. A module's part in the difference is what vanishes when its keys and values alone are
those of a full pass. Remedies are tried, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from engine.base.events import Working
from engine.base.segment import Placement
from engine.base.stopwatch import Stopwatch
from engine.cache.fetched import Request
from engine.cache.segment_cache import SegmentCache, wanted
from engine.fidelity.findings import Fidelity, Flip, ModuleFidelity
from engine.fidelity.fixes import Remedies
from engine.fidelity.sides import CachedSide, UncachedSide, cached_pieces
from engine.fidelity.teacher_forcing import Reading
from engine.fidelity.verdict import advice
from engine.inference.run_settings import RunSettings
from engine.prompt.tokenized import Planned

_BEFORE = 60  # characters that are shown before a flipped token
_MODULE_STEPS = 2  # what measuring a module takes, beside answering once


@dataclass(frozen=True)
class FidelityMeter:
    """Measures one prompt.

    Args:
        cache: the segments of the model.
        planned: the prompt, with what it reads.
        settings: scope, repair and placement that are measured; max_new_tokens bounds the answer.
    """

    cache: SegmentCache
    planned: Planned
    settings: RunSettings

    def measure(self) -> Generator[Working, None, Fidelity]:
        """Measures the sides, then every module, then what would mend the difference.

        Yields:
            Working, before each step.
        """
        slices = self.planned.slices
        request = Request(self.planned.layout.schema.name, self.settings.scope)
        fetching = self.cache.segments(wanted(slices), request, Stopwatch())
        with (yield from fetching) as fetched:
            return (yield from self._measured(fetched.place(slices)))

    def _measured(self, placements: list[Placement]) -> Generator[Working, None, Fidelity]:
        plan, slices = self.planned.plan, self.planned.slices
        paths = list(dict.fromkeys(path for path, _ in cached_pieces(plan, slices)))
        step = _counting(3 + _MODULE_STEPS * len(paths))
        yield step("the uncached answer", 1)
        uncached = UncachedSide.of(self.cache.model, plan, self.settings.max_new_tokens)
        side = CachedSide(uncached, slices, placements, self.settings.repair)
        yield step("the cached answer", 1)
        cached = side.read()
        plain = cached if side.repair == "none" else side.repaired("none").read()
        modules = []
        for path in paths:
            yield step(f"{path or 'fixed text'}: what the answer owes to it", _MODULE_STEPS)
            modules.append(_module(path, side, cached, plain))
        found = _compared(uncached, cached, tuple(modules))
        if not found.faithful:
            yield step("how to fix it", 1)
            remedies = Remedies(side, self.cache, self.planned.layout, self.settings.scope)
            found = replace(found, remedies=tuple((yield from remedies.tried(modules))))
        return replace(found, advice=advice(found, scope=self.settings.scope))


def _counting(total: int) -> Callable[[str, int], Working]:
    """Says each step with how much was done before it."""
    done = 0

    def step(what: str, weight: int) -> Working:
        nonlocal done
        done += weight
        return Working("cached", what, done - weight, total)

    return step


def _compared(uncached: UncachedSide, cached: Reading, modules: tuple[ModuleFidelity, ...]) -> Fidelity:
    """How far the cached side is from the uncached one, token by token."""
    apart, flips = cached.divergence(uncached.reading), uncached.flips(cached)
    return Fidelity(
        kl_first_token=float(apart[0]),
        first_token_agrees=0 not in flips,
        answer_agreement=1 - len(flips) / len(uncached.answer),
        kl_mean=float(apart.mean()),
        kl_worst=float(apart.max()),
        worst_position=int(apart.argmax()),
        tokens_read=len(uncached.answer),
        read_to_end=uncached.ended,
        flips=tuple(_flip(uncached, cached, place, float(apart[place])) for place in flips),
        modules=modules,
    )


def _flip(uncached: UncachedSide, cached: Reading, place: int, kl: float) -> Flip:
    tokenizer, answer = uncached.model.tokenizer, uncached.answer
    before = str(tokenizer.decode(answer[:place]))

    def spelled(token: int) -> str:
        text = str(tokenizer.decode([*answer[:place], token]))
        alone = str(tokenizer.decode([token]))
        return text[len(before) :] if text.startswith(before) and len(text) > len(before) else alone

    other = int(cached.likeliest[place])
    return Flip(place, spelled(answer[place]), spelled(other), before[-_BEFORE:], kl)


def _module(path: str, side: CachedSide, cached: Reading, plain: Reading) -> ModuleFidelity:
    """One module's part in the difference.

    Args:
        path: path of the module.
        side: the side that is measured.
        cached: the side's reading.
        plain: the side's reading without its repair.
    """
    uncached, own = side.uncached, side.of_module(path)
    away, exact = side.without(own).read(), side.mended(own).read()
    keys, values = side.deviations(own)
    full = uncached.reading
    return ModuleFidelity(
        path,
        tokens=sum(placement.tokens for placement in own),
        dependence=float(away.divergence(cached).mean()),
        key_deviation=keys,
        value_deviation=values,
        harm=float(plain.divergence(full).mean() - exact.divergence(full).mean()),
        mends=len(uncached.flips(plain)) - len(uncached.flips(exact)),
    )
