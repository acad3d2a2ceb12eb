"""Encodes and stores every segment of a schema before a prompt needs it."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass

from engine.base.choices import Scope
from engine.base.errors import SettingsError
from engine.base.events import Working
from engine.base.stopwatch import Stopwatch
from engine.base.tiers import Outcome, Reason
from engine.cache.fetched import Request
from engine.cache.segment_cache import SegmentCache
from engine.pml import PromptError
from engine.prompt.tokenized import TokenizedSchema


@dataclass(frozen=True)
class EncodeReport:
    """Counts of segments of a schema: computed, existing, computed elsewhere, stored and all.

    `budget` is the bytes of a budget with room for all. `tokens`, `seconds` and `bytes` are those of computed
    segments, `warnings` sentences.
    """

    encoded: int
    reused: int
    elsewhere: int
    kept: int
    total: int
    budget: int
    tokens: int
    seconds: float
    bytes: int
    warnings: tuple[str, ...] = ()


def encode_schema(
    cache: SegmentCache, schema: TokenizedSchema, scope: Scope, clock: Stopwatch
) -> Generator[Working, None, EncodeReport]:
    """Computes and stores every missing segment of a schema.

    Yields:
        Working, before each pass and at the end.

    Raises:
        PromptError: a module does not fit the context window.
        SettingsError: the scope is `scaffold`, which needs a prompt.
    """
    if scope == "scaffold":
        raise SettingsError(
            "scope 'scaffold' encodes modules together with a prompt, so a schema alone has nothing to "
            "encode. Use the scope anchored or isolated; both include the scaffolds that the schema "
            "declares."
        )
    errors = tuple(d for d in schema.check(scope) if d.severity == "error")
    if errors:
        raise PromptError(errors)
    started = time.perf_counter()
    recipes = schema.encodings(scope)
    request = Request(schema.label, scope, hold=False)
    with (yield from cache.segments(recipes, request, Stopwatch())) as fetched:
        cache.store_held(recipes, fetched, again=True)
        cache.store.finish_writing()
        warnings = fetched.warnings()
    seconds = time.perf_counter() - started - clock.waited / 1000
    cache.store.label(fetched.served)
    made = list(fetched.encoded.values())
    return EncodeReport(
        encoded=len(made),
        reused=sum(use.outcome == Outcome.HIT for use in fetched.uses),
        elsewhere=sum(use.reason == Reason.ELSEWHERE for use in fetched.uses),
        kept=len(cache.store.contains(recipe.key for recipe in recipes)),
        total=len(recipes),
        budget=cache.budget_for(recipes),
        tokens=sum(segment.tokens for segment in made),
        seconds=seconds,
        bytes=sum(segment.nbytes for segment in made),
        warnings=warnings,
    )
