"""What a user holds: a schema and its prompts, prepared once, and answered as often as wanted."""

from __future__ import annotations

import reprlib
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from engine.arguments import document_text, require_mode, settings_with
from engine.base.choices import PlacementPolicy, Scope
from engine.base.errors import CancelledError, SettingsError
from engine.base.events import SIDES, Answer, Compared, Event, Listener, ReuseTaken, Side, Working
from engine.base.stopwatch import Stopwatch
from engine.base.tiers import Tier
from engine.batch.submission import Submission, while_wanted
from engine.cache.fetched import Request
from engine.cache.prompt_encoding import PromptEncoding, encode_prompt
from engine.cache.schema_encoding import EncodeReport, encode_schema
from engine.cache.segment_cache import wanted
from engine.fidelity.check import checking
from engine.fidelity.comparison import compare
from engine.fidelity.findings import Fidelity
from engine.fidelity.measure import FidelityMeter
from engine.fidelity.reuse_levels import Ladder
from engine.fidelity.teacher_forcing import Reading, reading
from engine.inference.run_settings import RunSettings
from engine.inference.step_lock import Progress, returned
from engine.pml import Diagnostic, Prompt, PromptError, parse_prompt
from engine.prompt.conversation.tools import NO_TOOLS, Tools
from engine.prompt.passages import Passage, Reader
from engine.prompt.summary import LayoutSummary, PlanSummary, summarize_layout, summarize_plan
from engine.prompt.tokenized import Planned, TokenizedPrompt, TokenizedSchema
from engine.runtime import Workshop

Mode = Literal["cached", "uncached", "both"]


class PreparedSchema:
    """A schema, tokenized and laid out for one model. Made by `Engine.schema`.

    Attributes:
        tree: what it says.
        tokenized: its tokens and positions.
    """

    def __init__(self, tokenized: TokenizedSchema, workshop: Workshop) -> None:
        self.tree, self.tokenized, self._workshop = tokenized.tree, tokenized, workshop

    @property
    def name(self) -> str:
        """The name that the schema gives itself."""
        return self.tree.name

    def __repr__(self) -> str:
        return f"<PreparedSchema {self.name!r}>"

    def prompt(self, source: str | Path | Prompt, tools: Tools = NO_TOOLS) -> PreparedPrompt:
        """Reads a prompt over this schema.

        Args:
            source: PML text, a file with it, or a tree without errors.
            tools: what the assistant may call; planning refuses them where the chat template has no place.

        Raises:
            PathError: the text is no document but the name of one.
            PromptError: it has errors, or does not fit the schema.
            TextFileError: the file cannot be read as text.
            TypeError: the source is none of these.
        """
        tree, parse_ms = source, 0.0
        if not isinstance(tree, Prompt):
            text = document_text(tree, "prompt")
            started = time.perf_counter()
            parsed = parse_prompt(text)
            if parsed.tree is None or not parsed.ok:
                raise PromptError(parsed.diagnostics)
            tree, parse_ms = parsed.tree, (time.perf_counter() - started) * 1000
        return PreparedPrompt(self, TokenizedPrompt(self.tokenized, tree, tools), parse_ms, self._workshop)

    def check(self, *, scope: Scope = "anchored") -> tuple[Diagnostic, ...]:
        """Returns the faults that only a tokenizer can see, as segments are encoded under a scope.

        Raises:
            SettingsError: there is no such scope.
        """
        return self.tokenized.check(RunSettings(scope=scope).scope)

    def layout(self, *, scope: Scope = "anchored") -> LayoutSummary:
        """Returns modules with positions, sizes, and where their segments are.

        Raises:
            ClosedError: the engine was closed.
            SettingsError: there is no such scope.
        """
        self._workshop.computing.require_open()
        book, cache = self.tokenized.recipes(RunSettings(scope=scope).scope), self._workshop.cache
        recipes = {run.index: book.of_run(run) for run in book.layout.runs if run.cacheable}
        tier = cache.tiers(recipes.values())
        tiers = {index: tier(recipe) for index, recipe in recipes.items()}
        return summarize_layout(
            book.layout, lambda run: tiers.get(run.index, Tier.NONE), cache.model.bytes_per_token
        )

    def encode(
        self,
        *,
        scope: Scope = "anchored",
        progress: Progress | None = None,
        listener: Listener | None = None,
    ) -> EncodeReport:
        """Computes and stores every segment that is not there yet.

        Args:
            scope: what modules see while they are encoded.
            progress: called with (done, total, what) before each segment and at the end, and where a step
                waits for another answer's.
            listener: asked in the middle of a step whether it is still wanted.

        Raises:
            CancelledError: the listener wants no more of it.
            PromptError: a module does not fit the context window.
            SettingsError: there is no such scope, or it is `scaffold`, under which nothing can be encoded
                without a prompt.
        """
        clock, computing = Stopwatch(), self._workshop.computing
        given = RunSettings(scope=scope).scope
        encoding = encode_schema(self._workshop.cache, self.tokenized, given, clock)
        if listener is not None:
            encoding = while_wanted(encoding, self._workshop.cache.model.network, listener)
        return computing.finish(encoding, "cached", clock, progress)


class PreparedPrompt:
    """A prompt over a prepared schema, planned once. Made by `PreparedSchema.prompt`.

    The time to first token of every answer is what it takes from the prompt's text to its first token id:
    reading the text, binding and planning it, which is done once and counted in every answer of either side;
    then, for this answer, finding or encoding segments, repair, prefill and the choice of the token.
    Preparing the schema is in neither side's time, and what a step waits for other answers, or for what
    another program encodes, is in none.

    Attributes:
        schema: the schema it imports from.
        tree: what it says.
        tokenized: its plans.
        parse_ms: what reading its text took, in milliseconds; 0 where it was given as a tree.
    """

    def __init__(
        self, schema: PreparedSchema, tokenized: TokenizedPrompt, parse_ms: float, workshop: Workshop
    ) -> None:
        self.schema, self.tokenized, self._workshop = schema, tokenized, workshop
        self.tree, self.parse_ms = tokenized.tree, parse_ms

    def __repr__(self) -> str:
        return f"<PreparedPrompt over {self.schema.name!r}>"

    def answer(self, settings: RunSettings | None = None, *, mode: Side = "cached", **changes: Any) -> Answer:
        """Answers on one side.

        Args:
            settings: the settings of the run.
            mode: "cached", or "uncached" to compute every token afresh.
            changes: single settings by name, as in `answer(max_new_tokens=20)`.

        Raises:
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
            SettingsError: a setting is out of its range.
        """
        require_mode(mode, SIDES)
        given = settings_with(settings, changes)
        answer = returned(self._steps(self._submission(given, mode)))
        self._check_later(given, answer)
        return answer

    def stream(
        self,
        settings: RunSettings | None = None,
        *,
        mode: Mode = "cached",
        order: Sequence[Side] = SIDES,
        listener: Listener | None = None,
        check: bool = True,
        **changes: Any,
    ) -> Generator[Event, None, None]:
        """Answers, as events. Closing the generator stops it.

        Args:
            settings: the settings of the run.
            mode: one side, or "both" one after the other.
            order: the order of the sides in mode "both".
            listener: told of what happens in the middle of a step.
            check: whether an answer under a promise is checked when nothing else is computed.
            changes: single settings by name.

        Yields:
            Events of each side, which end with Finished; in mode "both" Compared at the end.

        Raises:
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
            SettingsError: a setting is out of its range.
        """
        require_mode(mode, (*SIDES, "both"))
        given = settings_with(settings, changes)
        if sorted(order) != sorted(SIDES):
            raise SettingsError(f"order is {tuple(order)!r}; it must name both sides: {', '.join(SIDES)}.")
        sides = tuple(order) if mode == "both" else (mode,)
        # A fault is told before either side computes, and both read the same prompt, also over midnight.
        submissions = [self._submission(given, side) for side in sides]
        return self._stream(submissions, listener, given if check else None)

    def encode(
        self, settings: RunSettings | None = None, progress: Progress | None = None, **changes: Any
    ) -> PromptEncoding:
        """Computes and stores what the prompt reads and is not there yet, so that an answer need not.

        Args:
            settings: the settings of the runs to come.
            progress: called with (done, total, what) before each pass.
            changes: single settings by name.

        Raises:
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
            SettingsError: a setting is out of its range.
        """
        return returned(self.encoding(settings, **changes), progress)

    def encoding(
        self, settings: RunSettings | None = None, listener: Listener | None = None, **changes: Any
    ) -> Generator[Working, None, PromptEncoding]:
        """Encodes like `encode`, step by step; closing the generator stops it.

        Args:
            settings: the settings of the runs to come.
            listener: told of what happens in the middle of a step.
            changes: single settings by name.

        Yields:
            Working, before each pass.

        Returns:
            What it took.

        Raises:
            CancelledError: the listener wants no more of it.
            PromptError: as for `encode`.
            SettingsError: a setting is out of its range.
        """
        given, clock, cache = settings_with(settings, changes), Stopwatch(), self._workshop.cache
        request = Request(self.schema.tokenized.label, given.scope, store_turns=given.store_conversation)
        work = encode_prompt(cache, self._planned(given, "cached"), request, clock)
        if listener is not None:
            work = while_wanted(work, cache.model.network, listener)
        return self._workshop.computing.steps(work, "cached", clock, listener)

    def submissions(
        self, settings: RunSettings | None = None, *, mode: Mode = "cached", **changes: Any
    ) -> tuple[Submission, ...]:
        """Returns what is handed to whoever answers many prompts: a submission of each side, cached first.

        Args:
            settings: the settings of the run.
            mode: one side, or "both".
            changes: single settings by name.

        Raises:
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
            SettingsError: a setting is out of its range.
        """
        require_mode(mode, (*SIDES, "both"))
        given = settings_with(settings, changes)
        sides = SIDES if mode == "both" else (mode,)

        def ended(answer: Answer) -> None:
            self._check_later(given, answer)

        return tuple(replace(self._submission(given, side), ended=ended) for side in sides)

    def is_for(self, workshop: Workshop) -> bool:
        """Whether it was prepared for what computes there."""
        return self._workshop == workshop

    def plan(self, settings: RunSettings | None = None, **changes: Any) -> PlanSummary:
        """Returns what an answer would read and compute, without computing anything.

        Raises:
            ClosedError: the engine was closed.
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
        """
        self._workshop.computing.require_open()
        planned = self._planned(settings_with(settings, changes), "cached")
        return summarize_plan(planned.plan, self._tiers(planned), self._workshop.cache.model.bytes_per_token)

    def passages(
        self, settings: RunSettings | None = None, *, borders: bool = False, **changes: Any
    ) -> tuple[Passage, ...]:
        """Returns the text that an answer would read, cut by who wrote it: the chat template's too.

        Args:
            settings: the settings of the run.
            borders: also where tokens begin.
            changes: single settings by name.

        Raises:
            ClosedError: the engine was closed.
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
        """
        self._workshop.computing.require_open()
        planned = self._planned(settings_with(settings, changes), "cached")
        cache = self._workshop.cache
        reader = Reader(self.schema.tokenized.spec.chat, cache.model.bytes_per_token)
        bound = self.tokenized.bound
        return reader.read(bound, planned.plan, planned.slices, self._tiers(planned), borders=borders)

    def check(
        self, *, scope: Scope = "anchored", placement: PlacementPolicy = "compact"
    ) -> tuple[Diagnostic, ...]:
        """Returns its faults, those of binding and those that only a tokenizer can see, and advice on it.

        Raises:
            SettingsError: there is no such scope or placement.
        """
        given = RunSettings(scope=scope, placement=placement)
        return self.tokenized.check(given.scope, given.placement)

    def fidelity(
        self,
        settings: RunSettings | None = None,
        progress: Progress | None = None,
        **changes: Any,
    ) -> Fidelity:
        """Measures what reuse does to the answer, module by module, and how to fix it.

        Args:
            settings: scope, repair and placement to measure, or a reuse that chooses the former two;
                `max_new_tokens` bounds the answer that is read, as it bounds a run's.
            progress: called with (done, total, what) before each step.
            changes: single settings by name.

        Raises:
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
        """
        return returned(self.measuring(settings, **changes), progress)

    def measuring(
        self, settings: RunSettings | None = None, **changes: Any
    ) -> Generator[Working, None, Fidelity]:
        """Measures like `fidelity`, step by step; closing the generator stops it.

        Args:
            settings: the settings to measure under, read as by `fidelity`.
            changes: single settings by name.

        Yields:
            Working, before each step.

        Returns:
            The result.

        Raises:
            PromptError: as for `fidelity`.
        """
        given = settings_with(settings, changes)
        asked = self._submission(given, "cached")
        if not any(asked.planned.slices):  # nothing is reused now: what reuse would do is measured
            asked = self._submission(replace(given, reuse="off"), "cached")
        measuring = FidelityMeter(self._workshop.cache, asked.planned, asked.settings).measure()
        return self._workshop.computing.steps(measuring, "cached")

    def check_answer(
        self,
        answer: Sequence[int],
        taken: ReuseTaken,
        settings: RunSettings | None = None,
        progress: Progress | None = None,
        *,
        every: bool = False,
        **changes: Any,
    ) -> ReuseTaken:
        """Checks an answer under a promise where its turn is, for the remedies of the answers to come.

        Args:
            answer: its tokens, or those of the uncached answer to the same prompt.
            taken: the remedy that it took, as the answer says.
            settings: the settings of the run.
            progress: called with (done, total, what) before each pass.
            every: check it even where its turn is not.
            changes: single settings by name.

        Returns:
            What is known of it now: with its KL where it was checked.

        Raises:
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
        """
        steps = checking(self._ladder(settings_with(settings, changes)), taken, answer, every=every)
        return self._workshop.computing.finish(steps, "cached", progress=progress)

    def reading(self, answer: Sequence[int], settings: RunSettings, side: Side) -> Reading:
        """Has one side read an answer that is given, so that all of it can be compared with another reading.

        Args:
            answer: the answer's tokens, at least one.
            settings: scope, repair and placement.
            side: the side that reads.

        Raises:
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
        """
        steps = reading(self._workshop.cache, self.tokenized, answer, settings, side)
        return self._workshop.computing.finish(steps, side)

    def _ladder(self, settings: RunSettings) -> Ladder:
        return Ladder(self._workshop.cache, self.tokenized, settings)

    def _check_later(
        self,
        settings: RunSettings,
        answer: Answer,
        listener: Listener | None = None,
        read: Answer | None = None,
    ) -> None:
        """Has an answer under a promise checked when nothing else is computed.

        Args:
            settings: the settings of the run.
            answer: the answer.
            listener: told what came of it.
            read: the uncached answer, which all sides then read; such a run is always checked.
        """
        taken, tokens = answer.reuse, (read or answer).token_ids
        if taken is None:
            return

        def work() -> Generator[Working, None, None]:
            ladder = self._ladder(settings)
            found = yield from checking(ladder, taken, tokens, every=read is not None)
            if listener is not None:
                listener.checked(found)

        self._workshop.idle.offer(work)

    def _planned(self, settings: RunSettings, side: Side) -> Planned:
        if settings.reuse == "auto" and side == "cached":
            return self._ladder(settings).choose().planned
        scope = settings.scope if side == "cached" else None
        return self.tokenized.planned(scope, settings.placement, turns_held=settings.turns_held)

    def _tiers(self, planned: Planned) -> list[Tier]:
        """Where each piece of a plan is."""
        tier = self._workshop.cache.tiers(wanted(planned.slices))
        return [tier(one.recipe) if one is not None else Tier.NONE for one in planned.slices]

    def _submission(self, settings: RunSettings, side: Side) -> Submission:
        if settings.reuse == "auto" and side == "cached":
            chosen = self._ladder(settings).choose()
            given = (chosen.planned, chosen.settings, side, self.parse_ms)
            return Submission(self.tokenized, *given, taken=chosen.taken)
        return Submission(self.tokenized, self._planned(settings, side), settings, side, self.parse_ms)

    def _stream(
        self, submissions: Sequence[Submission], listener: Listener | None, check: RunSettings | None
    ) -> Generator[Event, None, None]:
        answers: dict[Side, Answer] = {}
        for one in submissions:
            try:
                answers[one.side] = yield from self._steps(one, listener)
            except CancelledError:
                return
        if check is not None and (answer := answers.get("cached")) is not None:
            self._check_later(check, answer, listener, answers.get("uncached"))
        if len(answers) == len(SIDES):
            yield Compared(compare(answers["cached"], answers["uncached"]))

    def _steps(
        self, submission: Submission, listener: Listener | None = None
    ) -> Generator[Event, None, Answer]:
        return submission.steps(self._workshop.cache, self._workshop.computing, listener)


WithSettings = PreparedPrompt | tuple[PreparedPrompt, RunSettings]
"""A prompt, with settings of its own where it has any."""


def require_prompt(given: object) -> None:
    """Refuses what is no prepared prompt.

    Raises:
        SettingsError: it is none.
    """
    if not isinstance(given, PreparedPrompt):
        raise SettingsError(
            f"prompt is {reprlib.repr(given)}; it must be a prepared one: "
            "schema.prompt('<prompt>…</prompt>')."
        )
