"""Encodes and stores the segments of a prompt before its answer."""

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
    """The cost of encoding a prompt's segments.

    Attributes:
        modules: paths of the modules with new segments, in order; "" for text of no module.
        segments: number of computed segments.
        tokens: their tokens.
        ms: milliseconds to compute them, without lookups, writes and waiting.
        others: number of segments that existed, or that another process computed meanwhile.
        others_ms: recorded milliseconds of computing those; None if not recorded for all.
        warnings: storage errors as sentences.
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
    """Finds or computes every segment of a prompt, and waits until new ones are written.

    So the answer that follows finds all of them, and no write disturbs its timing.

    Yields:
        Working, before each pass and at the end.
    """
    recipes = wanted(planned.slices)
    clock.restart()
    with (yield from cache.segments(recipes, request, clock)) as fetched:
        try:
            cache.store_held(recipes, fetched)
            cache.store.finish_writing()
        except StoreError as error:  # the answer will be complete anyway
            fetched.saved(error)
        warnings = fetched.warnings()
    misses = [item for item in fetched.served if item.outcome == Outcome.MISS]
    cache.note(misses)  # the answer that reads the others counts them
    cache.count_answers()
    keys = {item.key for item in misses if item.reason != Reason.ELSEWHERE}
    made = {item.key: item for item in recipes if item.key in keys}
    others = {item.key for item in recipes} - keys
    noted = cache.store.seconds(others)
    return PromptEncoding(
        modules=tuple(dict.fromkeys(item.path for item in made.values())),
        segments=len(made),
        tokens=sum(item.tokens for item in made.values()),
        ms=clock.parts.get("encode", 0.0),
        others=len(others),
        others_ms=1000 * sum(noted.values()) if len(noted) == len(others) else None,
        warnings=warnings,
    )
