"""Every segment of a schema, computed and stored before a prompt asks for it."""

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
    """What encoding a schema took.

    Attributes:
        encoded: segments that were computed.
        reused: segments that were there.
        elsewhere: segments that another process computed meanwhile.
        kept: of the schema's segments, how many the store holds at the end.
        total: how many segments the schema has.
        budget: bytes of a budget that has room for all of them.
        tokens: how many tokens were computed.
        seconds: time that computing and writing took.
        bytes: size of the keys and values that were computed.
        warnings: what could not be stored, in words.
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
    """Computes and stores every segment of a schema that is not there yet.

    Args:
        cache: the segments of the model.
        schema: the schema to encode.
        scope: what modules see while they are encoded.
        clock: the stopwatch that knows how long the steps waited for others.

    Yields:
        Working, before each pass over what must be computed and at the end.

    Raises:
        PromptError: a module does not fit the context window.
        SettingsError: under the scope `scaffold` nothing can be encoded without a prompt.
    """
    if scope == "scaffold":
        raise SettingsError(
            "scope 'scaffold' encodes modules in sight of a whole prompt, so there is nothing to encode "
            "before there is one. Encode with the scope anchored or isolated; scaffolds that the schema "
            "declares are included."
        )
    faults = tuple(d for d in schema.check(scope) if d.severity == "error")
    if faults:
        raise PromptError(faults)
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
        tokens=sum(one.tokens for one in made),
        seconds=seconds,
        bytes=sum(one.nbytes for one in made),
        warnings=warnings,
    )
