"""The states of one submitted prompt: it waits, is prepared, prefilled in chunks, decodes, and ends."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Items
from functools import cached_property

import torch
from torch import Tensor

from engine.base.errors import PromptCacheError, StoreError
from engine.base.events import Barred, Finished, Working
from engine.base.segment import Placement
from engine.batch.scheduler import AHEAD, Need
from engine.batch.ticket import Outcome, Reply
from engine.cache.memory import Reserved
from engine.cache.segment_cache import SegmentCache, wanted
from engine.inference.generate import Answering
from engine.inference.generation import Sequence, Step
from engine.inference.prefill import Prefill
from engine.inference.step_lock import PATIENCE_SECONDS
from engine.inference.submission import Mark, Submission
from engine.kv_cache.batched_kv_cache import Member
from engine.kv_cache.protocol import Rows
from engine.kv_cache.tail_pool import COLUMNS
from engine.prefix_tree.lease import Lease
from engine.prefix_tree.moved_text import CHECKED, Moved, MovedTexts
from engine.prefix_tree.tree import Computed, PrefixTree
from engine.prompt.template.tokenizer import Fragment
from engine.prompt.trail import Chunk, Trail
from engine.store.disk_space import Claim

log = logging.getLogger(__name__)

UNMARKED = (
    "No marked prefix was written. Marks need the cached side of a non-deterministic engine, without repair "
    "and without text that is read at another place."
)
NO_ROOM = "The marked prefix is not fully stored"
FAILED = "The marked prefix could not be fully stored; the log has the error."


class Run:
    """A submission and its progress.

    Attributes:
        passed: how often later prompts were admitted before it.
        sequence: its answer; None until all its segments are ready.
    """

    def __init__(
        self,
        submission: Submission,
        reply: Reply,
        cache: SegmentCache,
        tree: PrefixTree | None,
        rows: Callable[[], int | None],
    ) -> None:
        self.submission, self.reply = submission, reply
        self.passed = 0
        self.sequence: Sequence | None = None
        self._cache = cache
        # Only tokens that see unchanged segments can be in the tree.
        unchanged = submission.planned.scope is not None and submission.settings.repair == "none"
        self._tree = tree if unchanged else None
        self._arrived = time.perf_counter()
        self._work = Answering(cache, submission, rows)
        self._clock = self._work.clock
        self._starts: dict[str, int] = {}  # start of each chunk to write for the marks, by name
        self._unwritten: set[str] = set()  # names of the chunks that could not be written
        self._claim: Claim | None = None  # the disk space for marked prefixes
        self._preparing = self._work.prepare()
        self._lease: Lease | None = None
        self._granted = min(AHEAD, self._longest)  # tokens of its answer that have reserved memory
        self._reserved: Reserved | None = None
        self._rows: Rows | None = None  # wanted next, and not yet computed
        self._taken: float | None = None  # when it received its latest token; None before the first
        self._silent_until = 0.0  # while another process encodes its segments
        self._moved = Moved()  # texts that it reads at other places
        self._checked: list[Tensor] = []  # the scores before its first tokens, to check what that changed
        self._told_tree = False  # whether the tree has its prompt

    @property
    def need(self) -> Need:
        """The memory that it needs: its segments, and its own tokens as far as they are reserved."""
        return self._needed(self._granted)

    @property
    def more(self) -> Need | None:
        """The memory that it needs for more of its answer; None while its reservation is enough."""
        if self.sequence is None or self._granted >= self._longest:
            return None
        if self.sequence.taken < self._granted:
            return None
        return self._needed(min(self._longest, self._granted + AHEAD))

    def _needed(self, answer: int) -> Need:
        size = self._cache.model.bytes_per_token
        own = (self._new + answer) * size
        return Need(self._read, own, min(own, COLUMNS * size))

    @cached_property
    def _read(self) -> dict[str, int]:
        """Bytes of its segments, by key."""
        size = self._cache.model.bytes_per_token
        return {recipe.key: recipe.tokens * size for recipe in wanted(self.submission.planned.slices)}

    @cached_property
    def _new(self) -> int:
        """Tokens of its prompt outside of segments."""
        planned = self.submission.planned
        read = sum(used.hi - used.lo for used in planned.slices if used is not None)
        return len(planned.plan.token_ids) - read

    @cached_property
    def _longest(self) -> int:
        if self.submission.warm:
            return 1
        room = max(1, self._cache.model.context_length - self.submission.planned.plan.end)
        return min(self.submission.settings.max_new_tokens, room)

    def reserve(self) -> None:
        """Reserves memory for its next tokens: on admission, or when the reservation is used up."""
        if self.more is not None:
            self._granted = min(self._longest, self._granted + AHEAD)
        self._give_back()
        self._reserved = self._cache.memory_tier.reserve(self.need.own)

    def set_back(self) -> None:
        """Drops its computed keys and values but not its segments, as if it had just been prepared."""
        assert self.sequence is not None
        self.sequence.set_back()
        self._rows = None
        self._give_back()

    def _give_back(self) -> None:
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            reserved.release()

    @property
    def unread(self) -> int:
        """Tokens of a prepared prompt that are yet to be computed."""
        if self.sequence is None:
            return 0
        if self._rows is not None:
            return 0 if self.decodes else len(self._rows.token_ids)
        return self.sequence.unread

    @property
    def placements(self) -> Items[Placement]:
        """The segments that it reads; empty before it is prepared."""
        return () if self.sequence is None else self.sequence.prefill.placements

    def prepare(self) -> Working | None:
        """Does the next piece of preparation; None when it is complete."""
        try:
            event = next(self._preparing)
        except StopIteration as end:
            self._begin(end.value)
            return None
        assert isinstance(event, Working)
        if isinstance(event, Barred):  # checked often, reported rarely
            if time.monotonic() < self._silent_until:
                return event
            self._silent_until = time.monotonic() + PATIENCE_SECONDS
        self.reply.say(event)
        return event

    def _begin(self, prefill: Prefill) -> None:
        if self._tree is not None:
            self._lease = self._tree.acquire(self._trail(()))
            prefill = self._lease.without(prefill)
            self._clock.lap("load")
            took = self._lease.seconds()
            self._work.read_ms = None if took is None else took * 1000
            if self._movable is not None:
                self._moved = self._movable.find(prefill, self._salt, self._lease.end)
                prefill, self._work.moved = self._moved.without(prefill), self._moved.tokens
        self._mark()
        self.sequence = self._work.sequence(prefill, self._clock)
        self._clock.lap("prefill")

    def _mark(self) -> None:
        """Decides how far the marked prefix is written, by the free space, and reserves that space."""
        if not self.submission.marked:
            return
        work, why = self._work, self._unmarked()
        work.times = _times(self.submission.marks)
        if not why:
            assert self._tree is not None
            assert self._lease is not None
            known, trail = self._lease.chunks(), self._trail(())
            segments = [x for x in self.submission.planned.slices if x is not None and x.recipe.kept]
            lost = self._cache.store.lacks(x.recipe.key for x in segments)
            limit = min((x.start for x in segments if x.recipe.key in lost), default=trail.end)
            stored = {x.recipe.key for x in segments} - lost
            for position in sorted({mark.position for mark in self.submission.marks}, reverse=True):
                if position > limit:  # it would be incomplete
                    why = why or f"{NO_ROOM}: a segment before it is not on disk."
                    continue
                reach = _reach(trail, position)
                chunks = [x for x in trail.up_to(reach).edges if isinstance(x, Chunk)]
                ends = {name: end for name, end in known.items() if end <= reach}
                try:
                    self._claim = self._tree.disk.claim(chunks, ends, stored)
                except StoreError as error:
                    why = why or f"{NO_ROOM}: {error}."
                    continue
                work.marked, work.reach = position, reach
                break
        work.unmarked = why
        if why:
            work.notes.append(why)

    def _trail(self, answer: Items[int], *, closed: bool = False) -> Trail:
        planned = self.submission.planned
        return Trail.of_plan(planned.plan, planned.slices, answer, closed=closed, salt=self._salt)

    @property
    def _salt(self) -> str:
        return self.submission.prompt.schema.spec.identity.salt_digest

    @property
    def _movable(self) -> MovedTexts | None:
        """Texts of earlier prompts that it may read at another place; None with modules."""
        texts: MovedTexts | None = self.submission.moved
        return None if any(self.submission.planned.slices) else texts

    def begin_pass(self, *, alone: bool) -> None:
        """Chooses the rows for the next pass. In a pass `alone`, rows of guesses cost almost nothing."""
        assert self.sequence is not None
        self._clock.restart()
        if self._taken is not None:
            self._clock.waited += (time.perf_counter() - self._taken) * 1000
        if self._rows is None:
            self._rows = self.sequence.wanted(guess=alone)

    def wants(self) -> Rows:
        """All rows that it wants in the next pass."""
        assert self._rows is not None
        return self._rows

    def member(self, rows: Rows) -> Member:
        """Itself with some of those rows."""
        assert self.sequence is not None
        assert self.sequence.kv is not None
        return Member(self.sequence.kv, rows)

    @property
    def decodes(self) -> bool:
        """Whether those rows compute the next token of the answer, not a part of the prompt."""
        return self.wants().rowwise is not None

    def take(self, count: int, logits: Tensor, started: float) -> bool:
        """Takes the results of a pass; returns whether the answer has ended.

        Args:
            count: how many of the wanted rows the pass had.
            logits: [keep, vocabulary] of those.
            started: when the pass began, by `time.perf_counter`.

        Raises:
            ModelError: the logits are not numbers.
        """
        assert self.sequence is not None
        assert self._rows is not None
        rows, sequence = self._rows, self.sequence
        if rows.rowwise is None and not sequence.token_ids:
            self._clock.lap("prefill")
        if count < len(rows.token_ids):
            self._rows = rows.cut(count)[1]
            return False
        self._rows = None
        sequence.take(logits)
        if self.submission.warm:
            self._share()
            self._finish()
            return True
        while True:
            step = sequence.given(started)
            started = time.perf_counter()
            self._tell(step)
            self._share()
            if step.ending is not None:
                self._finish()
                return True
            if not sequence.ahead:
                self._taken = time.perf_counter()
                return False

    def _tell(self, step: Step) -> None:
        assert self.sequence is not None
        if len(self.sequence.token_ids) == 1 and step.token is not None:
            parts = self._clock.parts
            took = self._clock.total - parts["parse"] - parts["plan"]  # those preceded the submission
            since = (time.perf_counter() - self._arrived) * 1000
            self._clock.waited += max(0.0, since - took)
        if self._moved.tokens and step.token is not None and len(self._checked) < CHECKED:
            assert self.sequence.logits is not None
            self._checked.append(self.sequence.logits.clone())
        for event in self._work.events(self.sequence, step):
            self.reply.say(event)

    def _finish(self) -> None:
        sequence = self.sequence
        assert sequence is not None
        if failed := [self._starts[name] for name in [*self._unwritten] if name in self._starts]:
            work = self._work
            work.marked, work.reach = min(work.marked, *failed), min(work.reach, *failed)
            work.unmarked = work.unmarked or FAILED
        answer = self._work.answer(sequence)
        with self._all_the_same():
            if self._tree is not None:
                self._remember(sequence, self._tree)
        self.close()
        self._work.look_ahead()
        self.submission.ended(answer)
        self.reply.say(Finished(self.submission.side, answer))
        self.reply.end(answer)

    @contextlib.contextmanager
    def _all_the_same(self) -> Iterator[None]:
        """An error while storing does not fail the answer."""
        try:
            yield
        except Exception:
            log.exception("the computed tokens of an answer were not stored")

    def _share(self) -> None:
        """Puts the computed prompt into the tree, so that later prompts need not wait for the answer."""
        tree = self._tree
        if self._told_tree or tree is None or self._moved.tokens:  # the tree is exact
            return
        self._told_tree = True
        assert self.sequence is not None
        work, trail = self._work, self._trail(())
        marked, reach, work.marked, work.reach = work.marked, work.reach, 0, 0
        with self._all_the_same():
            lease, _ = tree.take_in(trail, self._computed(self.sequence))
            with lease:
                written = self._keep(tree, lease, marked, reach)
            ends = {end: name for name, end in written.items()}
            edges = [edge for edge in trail.up_to(reach).edges if edge.tokens]
            self._starts = {ends[edge.end]: edge.start for edge in edges if edge.end in ends}
            lacking = [edge.start for edge in edges if edge.end not in ends]
            work.marked, work.reach = min([marked, *lacking]), min([reach, *lacking])

    def _unmarked(self) -> str:
        """Why no marked prefix is written, in a sentence; "" if it is."""
        if self._tree is None or self._moved.tokens:
            return UNMARKED
        if self._cache.writable:
            return ""
        why = "is read-only" if self._cache.store.read_only else "has a budget of 0"
        return f"No marked prefix was written: the store {why}."

    def _keep(self, tree: PrefixTree, lease: Lease, marked: int, reach: int) -> dict[str, int]:
        """Writes the marked prefix and sets its retention; renews the retention of cached segments.

        Segments are retained up to `marked`, and chunks are written up to `reach`.

        Returns:
            The end positions of segments and chunks that are or will be on disk, by name.
        """
        submission, store = self.submission, self._cache.store
        ends = {
            used.recipe.key: used.start + used.hi - used.lo
            for used in submission.planned.slices
            if used is not None and used.recipe.kept
        }
        chunks = lease.chunks()
        store.renew([*ends, *chunks])
        if not marked or not self._cache.writable:
            return {}
        ends = {name: end for name, end in ends.items() if end <= marked}
        ends.update({name: end for name, end in chunks.items() if end <= reach})
        for seconds, names in _by_time(submission.marks, ends).items():
            store.keep(names, seconds)  # before they are written, so that writing one does not evict another
        schema, scope = submission.prompt.schema.label, submission.settings.scope
        hold = store.using(ends)  # nothing evicts them meanwhile
        tree.write_held(lease, reach, schema, scope, self._unwritten.add)
        store.afterwards(hold.release)
        if self._claim is not None:
            store.afterwards(self._claim.release)
            self._claim = None
        return ends

    def _remember(self, sequence: Sequence, tree: PrefixTree) -> None:
        """Puts its computed tokens into the tree, in its reserved memory."""
        self._give_back()
        self._keep_movable(sequence)
        if self._moved.tokens:
            return
        trail = self._whole_trail(sequence)
        tree.insert(trail, self._computed(sequence))
        settings = self.submission.settings
        if settings.store_conversation:  # else new text is never written, nor that of others
            tree.write(self.submission.prompt.schema.label, settings.scope, along=trail)

    def _keep_movable(self, sequence: Sequence) -> None:
        """Has later prompts read its computed text at other places, and its answer checked."""
        if (texts := self._movable) is None:
            return
        ids = [*sequence.prefill.token_ids, *sequence.token_ids[: sequence.answered]]
        texts.keep(self._salt, ids, *sequence.computed())
        if self._moved.tokens:
            answer = sequence.token_ids[: len(self._checked)]
            texts.judge(self._salt, self.submission.planned.plan, answer, self._checked, self._moved.keys)

    def _computed(self, sequence: Sequence) -> Computed:
        """Its computed keys and values, and the seconds per prompt token; an answer's tokens take as long."""
        took, tokens = self._clock.parts.get("prefill", 0.0) / 1000, len(sequence.prefill.token_ids)
        positions, keys, values = sequence.computed()
        read = self._lease.borrowed(self._cache.model.rotaries) if self._lease is not None else None
        if read is not None:  # the trail's own chunks begin with tokens that it has read of others
            positions = [*read[0], *positions]
            keys, values = torch.cat([read[1], keys], 2), torch.cat([read[2], values], 2)
        return Computed(positions, keys, values, seconds=took / max(1, tokens))

    def _whole_trail(self, sequence: Sequence) -> Trail:
        """The trail of prompt and answer. In a conversation, text that encodes to them ends a chunk."""
        plan, prompt = self.submission.planned.plan, self.submission.prompt
        answer = sequence.token_ids[: sequence.answered]
        if not plan.borders or not sequence.text:
            return self._trail(answer)
        spoken = [Fragment(sequence.text)]
        (ids,) = prompt.schema.spec.chat.tokens.encode(spoken, behind=sequence.prefill.prompt[-1])
        if answer[: len(ids)] == ids:
            return self._trail(ids, closed=True)
        return self._trail(answer)

    def end(self, outcome: Outcome) -> None:
        """Ends it early."""
        if isinstance(outcome, Exception):
            if not isinstance(outcome, PromptCacheError):
                log.info("an answer failed", exc_info=outcome)
            outcome.with_traceback(None)  # its frames refer to keys and values of all prompts in the pass
        try:
            self.close()
        finally:
            self.reply.end(outcome)

    def close(self) -> None:
        """Releases everything; a second call does nothing."""
        try:
            self._preparing.close()
        finally:
            self._work.close()
            self._give_back()
            if self._claim is not None:
                self._claim.release()
            self._moved.release()
            if self._lease is not None:
                self._lease.release()


def _reach(trail: Trail, position: int) -> int:
    """Up to where chunks of a marked prefix are useful: without a turn's opening before a named block."""
    edges = trail.up_to(position).edges
    return trail.legible(edges[-1].end) if edges else 0


def _times(marks: Items[Mark]) -> dict[int, float]:
    """The retention in seconds by the mark's position; 0 if the mark has none."""
    seconds: dict[int, float] = {}
    for mark in marks:
        seconds[mark.position] = max(seconds.get(mark.position, 0.0), mark.seconds or 0.0)
    return seconds


def _by_time(marks: Items[Mark], ends: Mapping[str, int]) -> dict[float, list[str]]:
    """Groups `ends` of segments and chunks by retention: the longest of the marks at or after their end."""
    names: dict[float, list[str]] = {}
    for name, end in ends.items():
        durations = [mark.seconds for mark in marks if mark.seconds is not None and mark.position >= end]
        if durations:
            names.setdefault(max(durations), []).append(name)
    return names
