"""The main path: from a submitted prompt to the events of its answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

from engine.base.errors import StoreError
from engine.base.events import Answer, Delta, Event, Finished, FirstToken, Listener, SegmentUse
from engine.base.stopwatch import Stopwatch
from engine.cache.fetched import Fetched, Request
from engine.cache.segment_cache import SegmentCache, wanted
from engine.inference.generation import Sequence, Step
from engine.inference.prefill import Prefill, prefill, whole
from engine.inference.step_lock import Computing
from engine.inference.submission import Submission
from engine.prompt.tokenized import Planned, TokenizedPrompt


def answering(
    cache: SegmentCache, computing: Computing, submission: Submission, listener: Listener | None = None
) -> Generator[Event, None, Answer]:
    """Answers a prompt by itself, in turns with the steps of other answers. Closing the generator stops it.

    Yields:
        Events of the side, Finished last.

    Raises:
        CancelledError: the listener stopped it.
        ClosedError: the engine was closed.
    """
    work = Answering(cache, submission)
    answer = yield from computing.steps(work.steps(), submission.side, work.clock, listener)
    yield Finished(submission.side, answer)
    return answer


@dataclass(frozen=True)
class Saved:
    """The segments of an answer: those that it read, the tokens that it writes, and errors as sentences."""

    segments: tuple[SegmentUse, ...] = ()
    written: int = 0
    warnings: tuple[str, ...] = ()


class Answering:
    """One side of a prompt, from its plan to its answer. It locks its segments until `close`.

    The argument `rows` limits the passes that encode missing segments, as in `Request`.

    Attributes:
        clock: its stopwatch, which has counted the parsing; its parts become the first token's timeline.
        marked: the position up to which marked prefixes will be on disk.
        reach: the position up to which computed chunks will be on disk and readable.
        unmarked: why less than the marked prefix is written; "" if all is.
        times: retention in seconds, by the position of the mark.
        read_ms: as in `Answer`.
        notes: warnings for the answer.
        moved: tokens that are read at another place than they were computed at.
    """

    def __init__(
        self, cache: SegmentCache, submission: Submission, rows: Callable[[], int | None] = lambda: None
    ) -> None:
        self._cache, self._submission, self._rows = cache, submission, rows
        self._slices = submission.planned.slices
        self._fetched: Fetched | None = None
        self.clock = Stopwatch()
        self.clock.parts["parse"] = submission.parse_ms
        self.marked, self.reach, self.unmarked = 0, 0, ""
        self.times: dict[int, float] = {}
        self.read_ms: float | None = 0.0
        self.notes: list[str] = []
        self.moved = 0

    def steps(self) -> Generator[Event, None, Answer]:
        """Answers by itself: segments, repair, prefill, first token, decoding.

        Yields:
            Working, FirstToken and Delta.
        """
        try:
            new = yield from self.prepare()
            sequence = self.sequence(new, self.clock)
            while sequence.ending is None:
                yield from self.events(sequence, sequence.step())
            answer = self.answer(sequence)
        finally:
            # Garbage collection may end an abandoned answer under any lock, so this takes none.
            self.close()
        self.look_ahead()
        return answer

    def sequence(self, prefill: Prefill, clock: Stopwatch) -> Sequence:
        """Begins the answer after a prefill."""
        submission = self._submission
        return Sequence(self._cache.model, prefill, submission.settings, clock, submission.logprobs)

    def prepare(self) -> Generator[Event, None, Prefill]:
        """Finds the segments to read, and encodes missing ones.

        Yields:
            Working, before each pass.

        Returns:
            The work before the first token.
        """
        prompt, planned = self._submission.prompt, self._submission.planned
        settings, clock = self._submission.settings, self.clock
        clock.parts["plan"] = planned.plan_ms + planned.recipes_ms
        clock.restart()
        if planned.scope is None:
            return replace(whole(planned.plan), continued=prompt.continued)
        rewritten = sum(piece.tokens for piece in planned.plan.pieces if piece.why)
        if rewritten:
            self.notes.append(
                "The chat template rewrites text of the schema, so every run computes it anew "
                f"(tokens: {rewritten})."
            )
        request = Request(
            prompt.schema.label,
            settings.scope,
            store_turns=settings.store_conversation,
            sync=settings.sync,
            rows=self._rows,
        )
        self._fetched = fetched = yield from self._cache.segments(wanted(self._slices), request, clock)
        placements = fetched.place(self._slices)
        new = prefill(self._cache.model, planned.plan, self._slices, placements, settings.repair)
        clock.lap("load" if settings.repair == "none" else "repair")
        return replace(new, encoded=fetched.encoded_of(new.placements), continued=prompt.continued)

    def events(self, sequence: Sequence, step: Step) -> Iterator[Event]:
        """Yields the events of a step; starts delayed writes at the first token."""
        side, clock = self._submission.side, self.clock
        if step.token is not None and len(sequence.token_ids) == 1:
            self._write_now()
            counts, written = self._counts(sequence), self._written(sequence)
            yield FirstToken(side, clock.total, dict(clock.parts), counts, written)
        new = () if step.token is None else tuple(sequence.logprobs[-1:])
        if step.text or step.token is None or new:
            yield Delta(side, step.text, clock.waited, new)

    def _write_now(self) -> None:
        if self._fetched is not None:
            self._cache.store.write_now()

    def _counts(self, sequence: Sequence) -> dict[str, int]:
        """Tokens of the prompt by their source."""
        counts, written = sequence.counts, sum(self._written(sequence).values())
        moved = {"approximate": self.moved} if self.moved else {}
        return {**counts, "read": counts["from_cache"] - counts["encoded"], "written": written, **moved}

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
        for use in self._fetched.stored_of(self._slices):
            add(use.start + use.hi - use.lo, use.hi - use.lo)
        return tokens_by_seconds

    def answer(self, sequence: Sequence) -> Answer:
        """Returns the answer of a sequence, and stores segments that are only in memory."""
        saved = self.save()
        return replace(
            _answer(sequence, saved, self._counts(sequence), self.notes),
            marked=self.marked,
            unmarked=self.unmarked,
            written_for=self._written(sequence),
            read_ms=self.read_ms,
            reuse=self._submission.taken,
        )

    def save(self) -> Saved:
        """Stores segments that are only in memory."""
        fetched = self._fetched
        if fetched is None:
            return Saved()
        self._write_now()  # segments since the first token, or if there is none
        written = sum(use.hi - use.lo for use in fetched.stored_of(self._slices))
        saved = Saved(tuple(fetched.named(self._slices)), written, fetched.warnings())
        try:
            self._cache.store_held(wanted(self._slices), fetched)
        except StoreError as error:  # the answer is complete anyway
            fetched.saved(error)
        return saved

    def close(self) -> None:
        """Releases the segments, and notes their use; a second call does nothing. Takes no lock."""
        fetched, self._fetched = self._fetched, None
        if fetched is not None:
            fetched.release()
            self._cache.note(fetched.served)

    def look_ahead(self) -> None:
        """Counts the segments that were read, and reads ahead files that the next prompt may need."""
        planned = self._submission.planned
        if planned.scope is not None:
            self._cache.count_answers()
            _look_ahead(self._cache, self._submission.prompt, planned)


def _answer(sequence: Sequence, saved: Saved, counts: dict[str, int], notes: Items[str]) -> Answer:
    warnings = [*notes, *(f"The answer is complete, but {what}" for what in saved.warnings)]
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
        segments=saved.segments,
        stopped=sequence.ending or "length",
        warnings=tuple(warnings),
        passes=sequence.passes,
        waited_ms=sequence.clock.waited,
        first_logits=sequence.first_logits,
        stop=sequence.stop,
        grammar=sequence.params.grammar,
        cut_short=sequence.cut_short,
        logprobs=tuple(sequence.logprobs),
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
