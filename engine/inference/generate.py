"""The main path: from a planned prompt to the events of its answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator
from collections.abc import Sequence as Items
from dataclasses import replace

from engine.base.errors import StoreError
from engine.base.events import Answer, Delta, Ending, Event, Finished, FirstToken, ReuseTaken, Side
from engine.base.stopwatch import Stopwatch
from engine.cache.fetched import Fetched, Request
from engine.cache.segment_cache import SegmentCache, wanted
from engine.inference.generation import Sequence
from engine.inference.prefill import Prefill, prefill, whole
from engine.inference.run_settings import RunSettings
from engine.prompt.recipe import RecipeSlice
from engine.prompt.tokenized import Planned, TokenizedPrompt


def answering(
    cache: SegmentCache,
    prompt: TokenizedPrompt,
    planned: Planned,
    settings: RunSettings,
    clock: Stopwatch,
    *,
    side: Side | None = None,
    taken: ReuseTaken | None = None,
    warm: bool = False,
    notes: Items[str] = (),
) -> Generator[Event, None, Answer]:
    """Answers a prompt on one side: segments, repair, prefill, first token, decoding.

    Args:
        cache: the segments of the model.
        prompt: the prompt to answer.
        planned: its plan for this side; without a scope it computes every token.
        settings: the settings of the run.
        clock: the stopwatch, which has counted the parsing; its parts become the first token's timeline.
        side: the side to report; None for the plan's.
        taken: the fix that reuse "auto" chose.
        warm: compute the prompt only, without an answer.
        notes: warnings for the answer.

    Yields:
        Events of the side, Finished last.
    """
    work = Answering(cache, prompt, planned, settings, clock, side=side, taken=taken)
    work.notes.extend(notes)
    try:
        sequence = Sequence(cache.model, (yield from work.prepare()), settings, clock)
        if warm:
            sequence.read()
            ending: Ending = "length"
        else:
            ending = yield from _told(work, sequence)
        answer = work.answer(sequence, ending)
    finally:
        # Garbage collection may end an abandoned answer under any lock, so this takes none.
        work.close()
    work.look_ahead()
    yield Finished(work.side, answer)
    return answer


def _told(work: Answering, sequence: Sequence) -> Generator[Event, None, Ending]:
    """Yields an answer token by token; returns why it ends."""
    step = sequence.step()
    yield work.first_token(sequence)
    while True:
        if step.text or step.token is None:
            yield Delta(work.side, step.text, sequence.clock.waited)
        if step.ending is not None:
            return step.ending
        step = sequence.step()


class Answering:
    """One side of a prompt, from its plan to its answer. It locks its segments until `close`.

    The argument `rows` limits the passes that encode missing segments, as in `Request`.

    Attributes:
        side: the side to report; the cached one may compute every token, as a fix.
        marked: the position up to which marked prefixes will be on disk.
        reach: the position up to which computed chunks will be on disk and readable.
        unmarked: why less than the marked prefix is written; "" if all is.
        times: retention in seconds, by the position of the mark.
        read_ms: as in `Answer`.
        notes: warnings for the answer.
    """

    def __init__(
        self,
        cache: SegmentCache,
        prompt: TokenizedPrompt,
        planned: Planned,
        settings: RunSettings,
        clock: Stopwatch,
        rows: Callable[[], int | None] = lambda: None,
        *,
        side: Side | None = None,
        taken: ReuseTaken | None = None,
    ) -> None:
        self._cache, self._prompt, self._planned = cache, prompt, planned
        self._settings, self._clock, self._rows = settings, clock, rows
        self._fetched: Fetched | None = None
        self.side: Side = side or ("uncached" if planned.scope is None else "cached")
        self._taken = taken
        self.marked, self.reach, self.unmarked = 0, 0, ""
        self.times: dict[int, float] = {}
        self.read_ms: float | None = 0.0
        self.notes: list[str] = []

    def prepare(self) -> Generator[Event, None, Prefill]:
        """Finds the segments to read, and encodes missing ones.

        Yields:
            Working, before each pass.

        Returns:
            The work before the first token.
        """
        planned, clock = self._planned, self._clock
        clock.parts["plan"] = planned.plan_ms + planned.recipes_ms
        clock.restart()
        if planned.scope is None:
            return replace(whole(planned.plan), continued=self._prompt.continued)
        rewritten = sum(piece.tokens for piece in planned.plan.pieces if piece.why)
        if rewritten:
            self.notes.append(
                "The chat template rewrites text of the schema, so every run computes it anew "
                f"(tokens: {rewritten})."
            )
        slices, settings = planned.slices, self._settings
        request = Request(
            self._prompt.schema.label,
            settings.scope,
            store_turns=settings.store_conversation,
            sync=settings.sync,
            rows=self._rows,
        )
        self._fetched = fetched = yield from self._cache.segments(wanted(slices), request, clock)
        placements = fetched.place(slices)
        new = prefill(self._cache.model, planned.plan, slices, placements, settings.repair)
        clock.lap("load" if settings.repair == "none" else "repair")
        return replace(new, encoded=fetched.encoded_of(new.placements), continued=self._prompt.continued)

    def first_token(self, sequence: Sequence) -> FirstToken:
        """Returns the event of the first token, and starts delayed writes."""
        self._write_now()
        clock, counts = self._clock, self._counts(sequence)
        return FirstToken(self.side, clock.total, dict(clock.parts), counts, self._written(sequence))

    def _write_now(self) -> None:
        if self._fetched is not None:
            self._cache.store.write_now()

    def _counts(self, sequence: Sequence) -> dict[str, int]:
        """Tokens of the prompt by their source."""
        counts, written = sequence.counts, sum(self._written(sequence).values())
        return {**counts, "read": counts["from_cache"] - counts["encoded"], "written": written}

    def _written(self, sequence: Sequence) -> dict[float, int]:
        """Tokens of the prompt that this run writes to disk, by retention in seconds.

        If several marks cover a token, the longest retention counts.
        """
        tokens_by_seconds: dict[float, int] = {}
        if self._fetched is None or not self._cache.writable:
            return tokens_by_seconds

        def add(end: int, tokens: int) -> None:
            seconds = max((time for position, time in self.times.items() if position >= end), default=0.0)
            if tokens:
                tokens_by_seconds[seconds] = tokens_by_seconds.get(seconds, 0) + tokens

        computed, done = sequence.prefill.positions, 0
        for position in sorted({*self.times, self.reach}):
            behind = bisect_left(computed, min(position, self.reach))
            add(position, behind - done)
            done = behind
        for use in self._fetched.stored_of(self._planned.slices):
            add(use.start + use.hi - use.lo, use.hi - use.lo)
        return tokens_by_seconds

    def answer(self, sequence: Sequence, ending: Ending) -> Answer:
        """Returns the answer of an ended sequence, and stores segments that are only in memory."""
        fetched = self._fetched
        self._write_now()  # segments since the first token, or if there is none
        slices = self._planned.slices
        answer = _answer(sequence, ending, fetched, slices, self._counts(sequence), self.notes)
        answer = replace(
            answer,
            marked=self.marked,
            unmarked=self.unmarked,
            written_for=self._written(sequence),
            read_ms=self.read_ms,
            reuse=self._taken,
        )
        if fetched is not None:
            try:
                self._cache.store_held(wanted(self._planned.slices), fetched)
            except StoreError as error:  # the answer is complete anyway
                fetched.saved(error)
        return answer

    def close(self) -> None:
        """Releases the segments, and notes their use; a second call does nothing. Takes no lock."""
        fetched, self._fetched = self._fetched, None
        if fetched is not None:
            fetched.release()
            self._cache.note(fetched.served)

    def look_ahead(self) -> None:
        """Counts the segments that were read, and reads ahead files that the next prompt may need."""
        if self._planned.scope is not None:
            self._cache.count_answers()
            _look_ahead(self._cache, self._prompt, self._planned)


def _answer(
    sequence: Sequence,
    ending: Ending,
    fetched: Fetched | None,
    slices: Items[RecipeSlice | None],
    counts: dict[str, int],
    notes: Items[str],
) -> Answer:
    unsaved = fetched.warnings() if fetched is not None else ()
    warnings = [*notes, *(f"The answer is complete, but {what}" for what in unsaved)]
    if sequence.cut_short:
        warnings.append(
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
        tokens={**counts, "generated": len(sequence.token_ids), **sequence.guessed},
        segments=tuple(fetched.named(slices)) if fetched is not None else (),
        stopped=ending,
        warnings=tuple(warnings),
        passes=sequence.passes,
        waited_ms=sequence.clock.waited,
        first_logits=sequence.first_logits,
        stop=sequence.stop,
        cut_short=sequence.cut_short,
    )


def _look_ahead(cache: SegmentCache, prompt: TokenizedPrompt, planned: Planned) -> None:
    """Reads ahead the files of other members of the prompt's unions."""
    if planned.scope is None or planned.scope == "scaffold":
        return
    layout, plan = planned.layout, planned.plan
    others = {
        member.path
        for path in plan.imports
        if (union := layout.schema.union_of(path)) is not None
        for member in union.members
    } - plan.imports
    book = prompt.schema.book(layout, planned.scope, plan.placement)
    cache.expect_soon([book.of_run(run) for run in layout.runs if run.path in others and run.cacheable])
