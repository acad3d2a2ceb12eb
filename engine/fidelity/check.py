"""The check behind an answer: how far it is from the uncached one, and so what the next one may take."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final

from engine.base.events import ReuseTaken, Working
from engine.base.stopwatch import Stopwatch
from engine.cache.fetched import Request
from engine.cache.segment_cache import wanted
from engine.fidelity.findings import nats
from engine.fidelity.reuse_levels import COMPUTED, ENCODED_BEHIND, PREFIXED, STORED, Ladder, scope_of
from engine.fidelity.teacher_forcing import Reading, read
from engine.inference.prefill import prefill, whole

FIRST: Final = 3  # runs of a combination that are all checked; then the 8th, the 16th, the 32nd, …
MOST_READ: Final = 256  # tokens of an answer


def is_due(run: int) -> bool:
    """Whether this run of a combination is checked, by its number from 1."""
    return run <= FIRST or (run >= 8 and run.bit_count() == 1)


def checking(
    ladder: Ladder, taken: ReuseTaken, answer: Sequence[int], *, every: bool = False
) -> Generator[Working, None, ReuseTaken]:
    """Counts an answer, and measures its level and the uncached side if a check is due.

    All sides read the same answer: the uncached side needs a pass over the whole prompt, each level
    a short one. The level of the next run is encoded and measured here, too.

    Args:
        ladder: the reuse levels of the prompt.
        taken: the level of the answer.
        answer: its tokens, or those of the uncached answer if there is one.
        every: check it even if no check is due, unless it read a prefix, which is exact.

    Yields:
        Working, before each pass.

    Returns:
        The level with the result of the check.

    Raises:
        ModelError: a result is not a number.
    """
    if not taken.combination or not answer:
        return taken
    cache, store = ladder.cache, ladder.cache.store.measured
    run = store.count(taken.combination, ladder.prompt.schema.label)
    measured = {COMPUTED, *store.of(taken.combination).kl}
    every = every and taken.rung != PREFIXED
    if not (every or is_due(run)) and taken.rung in measured and ladder.choose().wants is None:
        return taken
    rungs = [STORED, *({taken.rung} - {STORED, COMPUTED})]
    if taken.rung != COMPUTED:
        rungs = [rung for rung in rungs if ladder.is_encoded(ladder.planned(rung))]
        if taken.rung not in rungs:
            return taken  # somebody deleted what the answer read: it is not encoded again for a check
    answer = answer[:MOST_READ]
    yield Working("cached", "checking the answer: reading it without the cache", 0, 1 + len(rungs))
    full = read(cache.model, whole(ladder.planned(COMPUTED).plan), answer)
    found: dict[int, float] = {}
    while rungs:
        for rung in rungs:
            done, what = 1 + len(found), "checking the answer: reading it from the cache"
            yield Working("cached", what, done, done + len(rungs))
            reading = yield from _read(ladder, rung, answer)
            found[rung] = max(0.0, float(reading.divergence(full).mean()))
        store.note(taken.combination, {rung: found[rung] for rung in rungs})
        wants = ladder.choose().wants
        rungs = [wants] if wants is not None and wants not in found else []
    kl = 0.0 if taken.rung == COMPUTED else found[taken.rung]
    checked = replace(taken, kl=kl, checked=True)
    does, _, _ = taken.why.partition(":")
    if checked.broken:
        more = "; the next run uses a more exact method" if ladder.choose().taken.rung > taken.rung else ""
        short = re.sub(r" of [0-9,]+ cached", "", does)
        why = f"{short}: mean KL {nats(kl, taken.promise)} exceeds the limit of {taken.promise:g}{more}"
        return replace(checked, why=why)
    if taken.rung != COMPUTED:
        return replace(checked, why=f"{does}: mean KL {nats(kl, taken.promise)}, limit {taken.promise:g}")
    return checked


def _read(ladder: Ladder, rung: int, answer: Sequence[int]) -> Generator[Working, None, Reading]:
    """Reads the answer with the segments of a rung."""
    cache, planned = ladder.cache, ladder.planned(rung)
    request = Request(ladder.prompt.schema.label, scope_of(rung) or "anchored")
    fetched = yield from cache.segments(wanted(planned.slices), request, Stopwatch())
    with fetched:
        placements = fetched.place(planned.slices)
        new = prefill(cache.model, planned.plan, planned.slices, placements, ladder.repair(rung))
        reading = read(cache.model, new, answer)
        if rung in ENCODED_BEHIND:
            cache.store_held(wanted(planned.slices), fetched)
    return reading
