"""The main path: from a planned prompt to the events of its answer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

from engine.cache.fetched import Fetched, Request
from engine.cache.segment_cache import SegmentCache, wanted
from engine.events import Answer, Delta, Ending, Event, Finished, FirstToken, Side
from engine.inference.params import RunSettings
from engine.inference.prefill import prefill, whole
from engine.inference.sequence import Sequence
from engine.prompt.tokenized import Planned, TokenizedPrompt
from engine.stopwatch import Stopwatch


def answering(
    cache: SegmentCache, prompt: TokenizedPrompt, planned: Planned, settings: RunSettings, clock: Stopwatch
) -> Generator[Event, None, Answer]:
    """Answers a prompt on one side: segments, repair, prefill, first token, decoding.

    Args:
        cache: the segments of the model.
        prompt: the prompt to answer.
        planned: its plan for this side; one without a scope computes every token afresh.
        settings: how to run it.
        clock: the stopwatch, which has counted reading the prompt; its parts become the first token's
            timeline.

    Yields:
        Events of the side, Finished at last.
    """
    clock.parts["plan"] = planned.plan_ms + planned.recipes_ms
    clock.restart()
    if planned.scope is None:
        sequence = Sequence(cache.model, whole(planned.plan), settings, clock)
        answer = yield from _respond(sequence, "uncached")
        yield Finished("uncached", answer)
        return answer
    return (yield from _from_segments(cache, prompt, planned, settings, clock))


def _from_segments(
    cache: SegmentCache, prompt: TokenizedPrompt, planned: Planned, settings: RunSettings, clock: Stopwatch
) -> Generator[Event, None, Answer]:
    """The cached side: what is missing is encoded, what is read is held to the end of the answer."""
    slices, turns = planned.slices, settings.store_conversation
    request = Request(prompt.schema.tree.name, settings.scope, store_turns=turns, sync=settings.sync)
    fetched = yield from cache.segments(wanted(slices), request, clock)
    try:
        with fetched:
            placements = fetched.place(slices)
            new = prefill(cache.model, planned.plan, slices, placements, settings.repair)
            clock.lap("load" if settings.repair == "none" else "repair")
            new = replace(new, encoded=fetched.encoded_of(new.placements))
            sequence = Sequence(cache.model, new, settings, clock)
            answer = yield from _respond(sequence, "cached", fetched, cache.store.write_now)
            cache.store_held(wanted(slices), fetched)
    finally:
        # An answer that nobody reads on may be collected while any lock is held: none is taken here.
        cache.note(fetched.served)
    cache.count_answers()
    _look_ahead(cache, prompt, planned)
    yield Finished("cached", answer)
    return answer


def _respond(
    sequence: Sequence,
    side: Side,
    fetched: Fetched | None = None,
    begun: Callable[[], None] | None = None,
) -> Generator[Event, None, Answer]:
    """Steps a sequence to its end, as events but the last. Closing the generator stops it.

    Args:
        sequence: the answer.
        side: the side that it is of.
        fetched: the segments that it reads.
        begun: called when its first token is known.
    """
    clock = sequence.clock
    step = sequence.step()
    if begun is not None:
        begun()
    yield FirstToken(side, clock.total, dict(clock.parts), sequence.counts)
    while True:
        if step.text or step.token is None:
            yield Delta(side, step.text)
        if step.ending is not None:
            return _answer(sequence, step.ending, fetched)
        step = sequence.step()


def _answer(sequence: Sequence, ending: Ending, fetched: Fetched | None) -> Answer:
    unsaved = fetched.warnings() if fetched is not None else ()
    told = [f"The answer is complete, but {what}" for what in unsaved]
    if sequence.cut_short:
        told.append(
            f"The context window has room for {sequence.room} of the {sequence.params.max_new_tokens} tokens "
            "of the answer."
        )
    times = sequence.step_ms
    return Answer(
        text=sequence.text,
        token_ids=tuple(sequence.token_ids),
        ttft_ms=sequence.clock.total,
        tpot_ms=sum(times) / len(times) if times else 0.0,
        timeline_ms=dict(sequence.clock.parts),
        tokens={**sequence.counts, "generated": len(sequence.token_ids), **sequence.guessed},
        segments=tuple(fetched.uses) if fetched is not None else (),
        stopped=ending,
        warnings=tuple(told),
        passes=sequence.passes,
        waited_ms=sequence.clock.waited,
        first_logits=sequence.first_logits,
    )


def _look_ahead(cache: SegmentCache, prompt: TokenizedPrompt, planned: Planned) -> None:
    """Has the files of what the next prompt may pick instead read ahead: other members of the unions."""
    if planned.scope is None or planned.scope == "scaffold":
        return
    layout, plan = planned.layout, planned.plan
    others = {
        member.path
        for path in plan.imports
        if (union := layout.schema.union_of(path)) is not None
        for member in union.members
    } - plan.imports
    book = prompt.schema.recipes(planned.scope, plan.placement)
    cache.expect_soon([book.of_run(run) for run in layout.runs if run.path in others and run.cacheable])
