"""What a prompt reads and what is missing of it, computed and stored ahead of its answer."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from engine.base.errors import StoreError
from engine.base.events import Working
from engine.base.stopwatch import Stopwatch
from engine.base.tiers import Outcome, Reason
from engine.cache.fetched import Request
from engine.cache.segment_cache import SegmentCache, wanted
from engine.prompt.tokenized import Planned


@dataclass(frozen=True)
class PromptEncoding:
    """What encoding ahead of a prompt took.

    Attributes:
        modules: paths of the modules of which something was computed, in the prompt's order; "" for text of
            none.
        segments: how many segments were computed.
        tokens: how many tokens these have.
        ms: what computing them took, in milliseconds: neither finding others, nor writing, nor waiting.
        others: how many segments were there, or were computed by another program meanwhile.
        others_ms: what computing those took, as it was written down then; None where it is not known of all.
        warnings: what could not be stored, in words.
    """

    modules: tuple[str, ...]
    segments: int
    tokens: int
    ms: float
    others: int
    others_ms: float | None
    warnings: tuple[str, ...] = ()


def encode_prompt(
    cache: SegmentCache, planned: Planned, request: Request, clock: Stopwatch
) -> Generator[Working, None, PromptEncoding]:
    """Finds or computes every segment that a prompt reads, and waits until what is new is written.

    So an answer that follows finds all of them, and nothing is written while it is timed.

    Args:
        cache: the segments of the model.
        planned: the plan of the prompt's cached side.
        request: what the segments are wanted for.
        clock: the stopwatch that knows how long the steps waited for others; its "encode" is counted.

    Yields:
        Working, before each pass over what must be computed and at its end.
    """
    recipes = wanted(planned.slices)
    clock.restart()
    with (yield from cache.segments(recipes, request, clock)) as fetched:
        try:
            cache.store_held(recipes, fetched)
            cache.store.finish_writing()
        except StoreError as error:  # the answer will be complete all the same
            fetched.saved(error)
        warnings = fetched.warnings()
    misses = [one for one in fetched.served if one.outcome == Outcome.MISS]
    cache.note(misses)  # what was there is counted by the answer that reads it
    cache.count_answers()
    keys = {one.key for one in misses if one.reason != Reason.ELSEWHERE}
    made = {one.key: one for one in recipes if one.key in keys}
    others = {one.key for one in recipes} - keys
    noted = cache.store.seconds(others)
    return PromptEncoding(
        modules=tuple(dict.fromkeys(one.path for one in made.values())),
        segments=len(made),
        tokens=sum(one.tokens for one in made.values()),
        ms=clock.parts.get("encode", 0.0),
        others=len(others),
        others_ms=1000 * sum(noted.values()) if len(noted) == len(others) else None,
        warnings=warnings,
    )
