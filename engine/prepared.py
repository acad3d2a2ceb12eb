"""Schemas and prompts that an engine prepares once and answers any number of times."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from engine.arguments import prompt_tree, require_mode, settings_with
from engine.base.choices import PlacementPolicy, Scope
from engine.base.errors import CancelledError, SettingsError
from engine.base.events import SIDES, Answer, Compared, Event, Listener, ReuseTaken, Side, Working
from engine.base.stopwatch import Stopwatch
from engine.base.tiers import Tier
from engine.cache.fetched import Request
from engine.cache.prompt_encoding import PromptEncoding, encode_prompt
from engine.cache.schema_encoding import EncodeReport, encode_schema
from engine.cache.segment_cache import wanted
from engine.decisions.decide import deciding
from engine.decisions.questions import Question
from engine.decisions.readout import PLAIN, Decisions, Readout
from engine.fidelity.check import checking
from engine.fidelity.comparison import compare
from engine.fidelity.findings import Fidelity
from engine.fidelity.measure import FidelityMeter
from engine.fidelity.reuse_levels import Ladder
from engine.fidelity.teacher_forcing import Reading, reading
from engine.grammars.grammar import FREE
from engine.inference.generate import answering
from engine.inference.model_settings import require_fitting
from engine.inference.run_settings import RunSettings
from engine.inference.step_lock import Progress, returned
from engine.inference.submission import Submission
from engine.maps.reuse import MapReuse
from engine.pml import Diagnostic, Prompt
from engine.prompt.conversation.tools import NO_TOOLS, Tools
from engine.prompt.passages import Passage, Reader
from engine.prompt.summary import LayoutSummary, PlanSummary, summarize_layout, summarize_plan
from engine.prompt.tokenized import Planned, TokenizedPrompt, TokenizedSchema
from engine.runtime import Workshop

Mode = Literal["cached", "uncached", "both"]


class PreparedSchema:
    """A schema, tokenized and laid out for one model. Made by `Engine.schema`.

    Attributes:
        tree: the parsed schema.
        tokenized: its tokens and positions.
    """

    def __init__(self, tokenized: TokenizedSchema, workshop: Workshop, base: Path | None = None) -> None:
        self.tree, self.tokenized, self._workshop = tokenized.tree, tokenized, workshop
        self._base = base  # the folder of files in prompts

    @property
    def name(self) -> str:
        """The schema's own name."""
        return self.tree.name

    def __repr__(self) -> str:
        return f"<PreparedSchema {self.name!r}>"

    def prompt(
        self, source: str | Path | Prompt, tools: Tools = NO_TOOLS, *, base: Path | None = None
    ) -> PreparedPrompt:
        """Reads a prompt over this schema.

        Args:
            source: PML text, the path of a file with it, or a tree without errors.
            tools: the tools that the assistant may call; planning fails if the chat template does not support
                them.
            base: the folder of a relative `src`; by default the file's own folder, or the schema's.

        Raises:
            PathError: the text is a file name, not a document.
            PromptError: the prompt has errors or does not fit the schema.
            TextFileError: the file cannot be read as text.
            TypeError: the source has another type.
        """
        tree, parse_ms = prompt_tree(source, base, self._base)
        return PreparedPrompt(self, TokenizedPrompt(self.tokenized, tree, tools), parse_ms, self._workshop)

    def check(self, *, scope: Scope = "anchored") -> tuple[Diagnostic, ...]:
        """Returns the diagnostics that need a tokenizer, for segments encoded under a scope.

        Raises:
            SettingsError: the scope is unknown.
        """
        return self.tokenized.check(RunSettings(scope=scope).scope)

    def layout(self, *, scope: Scope = "anchored") -> LayoutSummary:
        """Returns the modules with their positions, sizes and the tiers of their segments.

        Raises:
            ClosedError: the engine is closed.
            SettingsError: the scope is unknown.
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
        """Computes and stores every missing segment.

        Args:
            scope: what modules see while they are encoded.
            progress: called with (done, total, label) before each segment, at the end, and while a step waits
                for another answer.
            listener: asked during a step if the work is still wanted.

        Raises:
            CancelledError: the listener cancelled the work.
            PromptError: a module does not fit the context window.
            SettingsError: the scope is unknown, or is `scaffold`, which needs a prompt.
        """
        clock, computing = Stopwatch(), self._workshop.computing
        run_scope = RunSettings(scope=scope).scope
        encoding = encode_schema(self._workshop.cache, self.tokenized, run_scope, clock)
        return computing.finish(encoding, "cached", clock, progress, listener)


class PreparedPrompt:
    """A prompt over a prepared schema, planned once. Made by `PreparedSchema.prompt`.

    The time to first token of every answer runs from the prompt's text to its first token id. It includes
    reading, binding and planning the prompt, which happen once and count for every answer of either side. It
    also includes finding or encoding segments, repair, prefill and sampling. It excludes preparing the schema
    and waiting for other answers or programs.

    Attributes:
        schema: the schema that the prompt imports from.
        tree: the parsed prompt.
        tokenized: its plans.
        parse_ms: milliseconds spent on reading the text; 0 for a tree.
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
            mode: "cached", or "uncached" to compute every token.
            changes: single settings by name, as in `answer(max_new_tokens=20)`.

        Raises:
            PromptError: the prompt or a segment of it does not fit the context window.
            SettingsError: a setting is out of range.
        """
        require_mode(mode, SIDES)
        run = settings_with(settings, changes)
        answer = returned(self._steps(self._submission(run, mode)))
        self._check_later(run, answer)
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
        """Answers as a stream of events. Closing the generator stops it.

        Args:
            settings: the settings of the run.
            mode: one side, or "both" in `order`.
            order: the order of the sides.
            listener: notified during a step.
            check: whether an answer with a KL limit is checked when the engine is idle.
            changes: single settings by name.

        Yields:
            Events of each side, which end with Finished. Mode "both" ends with Compared.

        Raises:
            PromptError: the prompt or a segment of it does not fit the context window.
            SettingsError: a setting is out of range.
        """
        require_mode(mode, (*SIDES, "both"))
        run = settings_with(settings, changes)
        if sorted(order) != sorted(SIDES):
            raise SettingsError(f"order is {tuple(order)!r}; it must name both sides: {', '.join(SIDES)}.")
        sides = tuple(order) if mode == "both" else (mode,)
        # Errors surface before either side computes. Both sides read the same prompt, even across midnight.
        submissions = [self._submission(run, side) for side in sides]
        return self._stream(submissions, listener, run if check else None)

    def decide(
        self,
        questions: Sequence[Question],
        readout: Readout = PLAIN,
        settings: RunSettings | None = None,
        *,
        mode: Side = "cached",
        maps: MapReuse | None = None,
        keep_modules: bool = True,
        progress: Progress | None = None,
        listener: Listener | None = None,
        **changes: Any,
    ) -> Decisions:
        """Answers questions with probabilities; each follows the prompt at the end of the user's last turn.

        Args:
            questions: 1 to 400 questions.
            readout: how the probabilities are read.
            settings: scope, repair and placement, or a reuse level.
            mode: "cached", or "uncached" to compute every token of the prompt.
            maps: stored attention maps for the cached side of a prompt without modules; None for none.
            keep_modules: whether the calibration keeps the modules, if the prompt has new text.
            progress: called with (done, total, label) before each pass.
            listener: asked during a step if the work is still wanted.
            changes: single settings by name.

        Raises:
            CancelledError: the listener cancelled the work.
            PromptError: the prompt with a question does not fit the context window.
            SettingsError: a setting is out of range, or the questions cannot be asked.
        """
        require_mode(mode, SIDES)
        run, clock = settings_with(settings, changes), Stopwatch()

        def submit(asked: TokenizedPrompt) -> Submission:
            return PreparedPrompt(self.schema, asked, self.parse_ms, self._workshop)._submission(run, mode)

        given = (self.tokenized, questions, readout, run, submit, clock, maps, keep_modules)
        work = deciding(self._workshop.cache, self._workshop.calibrations, *given)
        return self._workshop.computing.finish(work, mode, clock, progress, listener)

    def encode(
        self, settings: RunSettings | None = None, progress: Progress | None = None, **changes: Any
    ) -> PromptEncoding:
        """Computes and stores the missing segments of the prompt before an answer needs them.

        `progress` is called with (done, total, label) before each pass.

        Raises:
            PromptError: the prompt or a segment of it does not fit the context window.
            SettingsError: a setting is out of range.
        """
        return returned(self.encoding(settings, **changes), progress)

    def encoding(
        self, settings: RunSettings | None = None, listener: Listener | None = None, **changes: Any
    ) -> Generator[Working, None, PromptEncoding]:
        """Encodes like `encode`, step by step, and yields Working before each pass.

        Closing the generator stops it. The listener is notified during a step.

        Raises:
            CancelledError: the listener cancelled the work.
            PromptError, SettingsError: as for `encode`.
        """
        run, clock, cache = settings_with(settings, changes), Stopwatch(), self._workshop.cache
        request = Request(self.schema.tokenized.label, run.scope, store_turns=run.store_conversation)
        work = encode_prompt(cache, self._planned(run, "cached"), request, clock)
        return self._workshop.computing.steps(work, "cached", clock, listener)

    def submissions(
        self, settings: RunSettings | None = None, *, mode: Mode = "cached", **changes: Any
    ) -> tuple[Submission, ...]:
        """Returns a submission for each side, cached first, for an answerer of many prompts.

        Raises:
            PromptError: the prompt or a segment of it does not fit the context window.
            SettingsError: a setting is out of range.
        """
        require_mode(mode, (*SIDES, "both"))
        run = settings_with(settings, changes)
        sides = SIDES if mode == "both" else (mode,)

        def ended(answer: Answer) -> None:
            self._check_later(run, answer)

        return tuple(replace(self._submission(run, side), ended=ended) for side in sides)

    def is_for(self, workshop: Workshop) -> bool:
        """Returns whether the prompt was prepared for this workshop."""
        return self._workshop == workshop

    def plan(self, settings: RunSettings | None = None, **changes: Any) -> PlanSummary:
        """Returns the segments that an answer would read and compute, without computing anything.

        Raises:
            ClosedError: the engine is closed.
            PromptError: the prompt or a segment of it does not fit the context window.
        """
        self._workshop.computing.require_open()
        planned = self._planned(settings_with(settings, changes), "cached")
        return summarize_plan(planned.plan, self._tiers(planned), self._workshop.cache.model.bytes_per_token)

    def passages(
        self, settings: RunSettings | None = None, *, borders: bool = False, **changes: Any
    ) -> tuple[Passage, ...]:
        """Returns the text that an answer would read, including the chat template's, split by author.

        `borders` adds the token boundaries.

        Raises:
            ClosedError: the engine is closed.
            PromptError: the prompt or a segment of it does not fit the context window.
        """
        self._workshop.computing.require_open()
        planned = self._planned(settings_with(settings, changes), "cached")
        reader = Reader(self.schema.tokenized.spec.chat, self._workshop.cache.model.bytes_per_token)
        bound = self.tokenized.bound
        return reader.read(bound, planned.plan, planned.slices, self._tiers(planned), borders=borders)

    def check(
        self, *, scope: Scope = "anchored", placement: PlacementPolicy = "compact"
    ) -> tuple[Diagnostic, ...]:
        """Returns the diagnostics of binding, the diagnostics that need a tokenizer, and advice.

        Raises:
            SettingsError: the scope or placement is unknown.
        """
        run = RunSettings(scope=scope, placement=placement)
        return self.tokenized.check(run.scope, run.placement)

    def fidelity(
        self,
        settings: RunSettings | None = None,
        progress: Progress | None = None,
        enough: Callable[[], bool] = lambda: False,
        **changes: Any,
    ) -> Fidelity:
        """Measures how reuse changes the answer, module by module, and how to fix it.

        Args:
            settings: the scope, repair and placement to measure, or a reuse level that chooses scope and
                repair. `max_new_tokens` limits the answer as in a run.
            progress: called with (done, total, label) before each step.
            enough: asked before each module and each fix; true ends the measurement with what it has.
            changes: single settings by name.

        Raises:
            PromptError: the prompt or a segment of it does not fit the context window.
        """
        return returned(self.measuring(settings, enough, **changes), progress)

    def measuring(
        self, settings: RunSettings | None = None, enough: Callable[[], bool] = lambda: False, **changes: Any
    ) -> Generator[Working, None, Fidelity]:
        """Measures like `fidelity`, step by step, and yields Working before each step.

        Closing the generator stops it without a result.

        Raises:
            PromptError: as for `fidelity`.
        """
        run = settings_with(settings, changes)
        submission = self._submission(run, "cached")
        if not any(submission.planned.slices):  # nothing is reused now: measure the effect of reuse anyway
            submission = self._submission(replace(run, reuse="off"), "cached")
        meter = FidelityMeter(self._workshop.cache, submission.planned, submission.settings, enough)
        return self._workshop.computing.steps(meter.measure(), "cached")

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
        """Checks an answer with a KL limit if its turn has come, to choose fixes for later answers.

        Args:
            answer: the tokens of the answer, or of the uncached answer to the same prompt.
            taken: the fix that the answer used, as the answer reports it.
            settings: the settings of the run.
            progress: called with (done, total, label) before each pass.
            every: check even if its turn has not come.
            changes: single settings by name.

        Returns:
            The updated record, with the KL if the answer was checked.

        Raises:
            PromptError: the prompt or a segment of it does not fit the context window.
        """
        steps = checking(self._ladder(settings_with(settings, changes)), taken, answer, every=every)
        return self._workshop.computing.finish(steps, "cached", progress=progress)

    def reading(self, answer: Sequence[int], settings: RunSettings, side: Side) -> Reading:
        """Reads at least one given answer token on one side, for comparison with another reading.

        Raises:
            PromptError: the prompt or a segment of it does not fit the context window.
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
        """Schedules the check of an answer with a KL limit for when the engine is idle.

        The listener receives the result. `read` is an uncached answer for both sides, always checked.
        """
        taken, tokens = answer.reuse, (read or answer).token_ids
        if taken is None:
            return

        def work() -> Generator[Working, None, None]:
            ladder = self._ladder(settings)
            checked = yield from checking(ladder, taken, tokens, every=read is not None)
            if listener is not None:
                listener.checked(checked)

        self._workshop.idle.offer(work)

    def _planned(self, settings: RunSettings, side: Side) -> Planned:
        if settings.reuse == "auto" and side == "cached":
            return self._ladder(settings).choose().planned
        scope = settings.scope if side == "cached" else None
        return self.tokenized.planned(scope, settings.placement, turns_held=settings.turns_held)

    def _tiers(self, planned: Planned) -> list[Tier]:
        """Returns the tier of each piece of a plan."""
        tier = self._workshop.cache.tiers(wanted(planned.slices))
        return [tier(piece.recipe) if piece is not None else Tier.NONE for piece in planned.slices]

    def _submission(self, settings: RunSettings, side: Side) -> Submission:
        if settings.grammar == FREE and self.tree.format is not None:
            settings = replace(settings, grammar=self.tree.format.grammar)
        require_fitting(self._workshop.cache.model, settings)  # raises before anything is computed
        if settings.reuse == "auto" and side == "cached":
            fix = self._ladder(settings).choose()
            return Submission(self.tokenized, fix.planned, fix.settings, side, self.parse_ms, taken=fix.taken)
        return Submission(self.tokenized, self._planned(settings, side), settings, side, self.parse_ms)

    def _stream(
        self, submissions: Sequence[Submission], listener: Listener | None, check: RunSettings | None
    ) -> Generator[Event, None, None]:
        answers: dict[Side, Answer] = {}
        for submission in submissions:
            try:
                answers[submission.side] = yield from self._steps(submission, listener)
            except CancelledError:
                return
        if check is not None and (answer := answers.get("cached")) is not None:
            self._check_later(check, answer, listener, answers.get("uncached"))
        if len(answers) == len(SIDES):
            yield Compared(compare(answers["cached"], answers["uncached"]))

    def _steps(
        self, submission: Submission, listener: Listener | None = None
    ) -> Generator[Event, None, Answer]:
        return answering(self._workshop.cache, self._workshop.computing, submission, listener)


WithSettings = PreparedPrompt | tuple[PreparedPrompt, RunSettings]
"""A prompt, alone or with its own settings."""


def require_prompt(given: object) -> None:
    """Raises SettingsError for any value other than a prepared prompt."""
    if not isinstance(given, PreparedPrompt):
        raise SettingsError(
            f"prompt is {reprlib.repr(given)}; it must be a prepared prompt: "
            "schema.prompt('<prompt>…</prompt>')."
        )
