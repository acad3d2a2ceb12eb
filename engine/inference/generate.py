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
        planned: its plan for this side; one without a scope computes every token afresh.
        settings: how to run it.
        clock: the stopwatch, which has counted reading the prompt; its parts become the first token's
            timeline.
        side: the side that it is told of; None for the one that the plan says.
        taken: the remedy that was chosen for it.
        warm: whether the prompt is computed only, and nothing is answered.
        notes: warnings for the answer.

    Yields:
        Events of the side, Finished at last.
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
        # An answer that nobody reads on may be collected while any lock is held: none is taken here.
        work.close()
    work.look_ahead()
    yield Finished(work.side, answer)
    return answer


def _told(work: Answering, sequence: Sequence) -> Generator[Event, None, Ending]:
    """Tells an answer token by token; returns why it ends."""
    step = sequence.step()
    yield work.first_token(sequence)
    while True:
        if step.text or step.token is None:
            yield Delta(work.side, step.text, sequence.clock.waited)
        if step.ending is not None:
            return step.ending
        step = sequence.step()


class Answering:
    """One side of a prompt, from its plan to its answer: what it reads is held until this is closed.

    Args:
        cache: the segments of the model.
        prompt: the prompt to answer.
        planned: its plan for this side.
        settings: how to run it.
        clock: the stopwatch of the first token's timeline.
        rows: of the passes in which what is missing is encoded, as of `Request`; no bound by default.
        side: the side that it is told of; None for "uncached" where every token is computed afresh.
        taken: the remedy that was chosen for it.

    Attributes:
        side: the side that it is told of; the cached one may compute every token afresh, as a remedy.
        marked: the position up to which what is marked will be on disk.
        reach: the position up to which what is computed will be there, and read, besides segments.
        unmarked: why no more of it will be, where more was asked for.
        times: for how many seconds what stands before a mark is kept, by the mark's position.
        read_ms: as of `Answer`.
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
        """Finds or encodes the segments that are read; what is missing is encoded.

        Yields:
            Working, before each pass.

        Returns:
            What is computed before the first token, and what is read.
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
        """Says that it is there. What waited to be written is written from now on."""
        self._write_now()
        clock, counts = self._clock, self._counts(sequence)
        return FirstToken(self.side, clock.total, dict(clock.parts), counts, self._written(sequence))

    def _write_now(self) -> None:
        if self._fetched is not None:
            self._cache.store.write_now()

    def _counts(self, sequence: Sequence) -> dict[str, int]:
        """Tokens of the prompt by what became of them."""
        counts, written = sequence.counts, sum(self._written(sequence).values())
        return {**counts, "read": counts["from_cache"] - counts["encoded"], "written": written}

    def _written(self, sequence: Sequence) -> dict[float, int]:
        """Tokens of the prompt that this run computed and that go to disk, by the seconds they are kept for.

        What stands before several marks is kept as long as the longest of them says.
        """
        found: dict[float, int] = {}
        if self._fetched is None or not self._cache.writable:
            return found

        def add(end: int, tokens: int) -> None:
            seconds = max((time for position, time in self.times.items() if position >= end), default=0.0)
            if tokens:
                found[seconds] = found.get(seconds, 0) + tokens

        computed, done = sequence.prefill.positions, 0
        for position in sorted({*self.times, self.reach}):
            behind = bisect_left(computed, min(position, self.reach))
            add(position, behind - done)
            done = behind
        for use in self._fetched.stored_of(self._planned.slices):
            add(use.start + use.hi - use.lo, use.hi - use.lo)
        return found

    def answer(self, sequence: Sequence, ending: Ending) -> Answer:
        """Returns the answer of a sequence that has ended; what it read and is not stored is stored."""
        fetched = self._fetched
        self._write_now()  # what came since the first token, or where there is none
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
            except StoreError as error:  # the answer is complete all the same
                fetched.saved(error)
        return answer

    def close(self) -> None:
        """Lets go of what was read, and has it counted; a second time does nothing. Takes no lock."""
        fetched, self._fetched = self._fetched, None
        if fetched is not None:
            fetched.release()
            self._cache.note(fetched.served)

    def look_ahead(self) -> None:
        """Writes down what was read, and has files read ahead that the next prompt may want."""
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
    told = [*notes, *(f"The answer is complete, but {what}" for what in unsaved)]
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
        tokens={**counts, "generated": len(sequence.token_ids), **sequence.guessed},
        segments=tuple(fetched.named(slices)) if fetched is not None else (),
        stopped=ending,
        warnings=tuple(told),
        passes=sequence.passes,
        waited_ms=sequence.clock.waited,
        first_logits=sequence.first_logits,
        stop=sequence.stop,
        cut_short=sequence.cut_short,
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
    book = prompt.schema.book(layout, planned.scope, plan.placement)
    cache.expect_soon([book.of_run(run) for run in layout.runs if run.path in others and run.cacheable])
