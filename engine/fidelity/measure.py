"""What reuse did to an answer: how far it is from the uncached one, through which module, and what mends it.

Everything is measured on the prompt at hand. The uncached side answers greedily, as far as a run would; both
sides then read that same answer, and their distributions are compared token by token, so one flipped token is
found wherever it is. A module's part in the difference is what vanishes when its keys and values alone are
those of a full pass. Remedies are tried, not guessed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from engine.base.events import Working
from engine.base.segment import Placement
from engine.base.stopwatch import Stopwatch
from engine.cache.fetched import Request
from engine.cache.segment_cache import SegmentCache, wanted
from engine.fidelity.findings import Fidelity, Flip, ModuleFidelity, Remedy
from engine.fidelity.fixes import Remedies, most_fixes
from engine.fidelity.sides import CachedSide, UncachedSide, cached_pieces
from engine.fidelity.teacher_forcing import Reading
from engine.fidelity.verdict import advice
from engine.inference.run_settings import RunSettings
from engine.prompt.tokenized import Planned

_BEFORE = 60  # characters that are shown before a flipped token


R = TypeVar("R")


@dataclass(frozen=True)
class FidelityMeter:
    """Measures one prompt.

    Args:
        cache: the segments of the model.
        planned: the prompt, with what it reads.
        settings: scope, repair and placement that are measured; max_new_tokens bounds the answer.
        enough: asked before each module and each fix; true ends the measurement with what it has.
    """

    cache: SegmentCache
    planned: Planned
    settings: RunSettings
    enough: Callable[[], bool] = lambda: False

    def measure(self) -> Generator[Working, None, Fidelity]:
        """Measures the sides, then every module, then what would mend the difference.

        Yields:
            Working, before each step.
        """
        slices = self.planned.slices
        request = Request(self.planned.layout.schema.name, self.settings.scope)
        fetching = self.cache.segments(wanted(slices), request, Stopwatch())
        paths = list(dict.fromkeys(path for path, _ in cached_pieces(self.planned.plan, slices)))
        total = 2 + len(paths) + most_fixes(paths, self.settings)
        with (yield from _at(fetching, 0, total)) as fetched:
            return (yield from self._measured(fetched.place(slices), paths, total))

    def _measured(
        self, placements: list[Placement], paths: Sequence[str], total: int
    ) -> Generator[Working, None, Fidelity]:
        plan, slices = self.planned.plan, self.planned.slices
        yield Working("cached", "the uncached answer", 0, total)
        uncached = UncachedSide.of(self.cache.model, plan, self.settings.max_new_tokens)
        side = CachedSide(uncached, slices, placements, self.settings.repair)
        yield Working("cached", "the cached answer", 1, total)
        cached = side.read()
        plain = cached if side.repair == "none" else side.repaired("none").read()
        modules: list[ModuleFidelity] = []
        for path in paths:
            yield Working("cached", path or "fixed text", 2 + len(modules), total)
            if self.enough():
                break
            modules.append(_module(path, side, cached, plain))
        found = _compared(uncached, cached, tuple(modules))
        used = self.settings
        found = replace(found, complete=len(modules) == len(paths), scope=used.scope, repair=used.repair)
        if not found.faithful and found.complete:
            remedies = Remedies(side, self.cache, self.planned.layout, self.settings.scope)
            tried: list[Remedy] = []
            for done, (what, trial) in enumerate(remedies.trials(modules)):
                yield Working("cached", what, 2 + len(modules) + done, total)
                if self.enough():
                    found = replace(found, complete=False)
                    break
                tried += yield from _at(trial, 2 + len(modules) + done, total)
            found = replace(found, remedies=tuple(sorted(tried, key=lambda fix: (fix.flips, fix.kl_worst))))
        return replace(found, advice=advice(found, scope=self.settings.scope))


def _at(steps: Generator[Working, None, R], done: int, total: int) -> Generator[Working, None, R]:
    """Counts the steps of a part as one step of the measurement."""
    with contextlib.closing(steps):
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return cast(R, end.value)
            yield replace(step, done=done, total=total)


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
