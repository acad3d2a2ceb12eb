"""What a user holds: a schema and its prompts, prepared once, and answered as often as wanted."""

from __future__ import annotations

import contextlib
import reprlib
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from engine.batch.submission import Submission, while_wanted
from engine.cache.fetched import Request
from engine.cache.prompt_encoding import PromptEncoding, encode_prompt
from engine.cache.schema_encoding import EncodeReport, encode_schema
from engine.cache.segment_cache import SegmentCache, wanted
from engine.choices import PlacementPolicy, Scope
from engine.errors import CancelledError, PathError, SettingsError
from engine.events import SIDES, Answer, Compared, Event, Listener, Side, Working
from engine.inference.comparison import compare
from engine.inference.computing import Computing, Progress, returned
from engine.inference.fidelity import FidelityMeter
from engine.inference.findings import Fidelity
from engine.inference.params import RunSettings
from engine.inference.reading import Reading, reading
from engine.pml import Diagnostic, Prompt, PromptError, parse_prompt
from engine.pml.text_files import read_text_file
from engine.prompt.passages import Passage, Reader
from engine.prompt.summary import LayoutSummary, PlanSummary, summarize_layout, summarize_plan
from engine.prompt.tokenized import Planned, TokenizedPrompt, TokenizedSchema
from engine.prompt.tools import NO_TOOLS, Tools
from engine.stopwatch import Stopwatch
from engine.tiers import Tier

Mode = Literal["cached", "uncached", "both"]


@dataclass(frozen=True)
class Workshop:
    """What computing an answer takes.

    Attributes:
        cache: segments of one model, and the model.
        computing: decides whose step is computed.
    """

    cache: SegmentCache
    computing: Computing


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
        return returned(self._steps(self._submission(given, mode)))

    def stream(
        self,
        settings: RunSettings | None = None,
        *,
        mode: Mode = "cached",
        order: Sequence[Side] = SIDES,
        listener: Listener | None = None,
        **changes: Any,
    ) -> Generator[Event, None, None]:
        """Answers, as events. Closing the generator stops it.

        Args:
            settings: the settings of the run.
            mode: one side, or "both" one after the other.
            order: the order of the sides in mode "both".
            listener: told of what happens in the middle of a step.
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
        return self._stream([self._submission(given, side) for side in sides], listener)

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
        return tuple(self._submission(given, side) for side in (SIDES if mode == "both" else (mode,)))

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
        """Measures what reuse does to the answer, module by module, and what would mend it.

        Args:
            settings: scope, repair and placement to measure; `max_new_tokens` bounds the answer that is read,
                as it bounds a run's.
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
        planned = self._planned(given, "cached")
        cache = self._workshop.cache
        measuring = FidelityMeter(cache, planned, given).measure()
        return self._workshop.computing.steps(measuring, "cached")

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

    def _planned(self, settings: RunSettings, side: Side) -> Planned:
        scope = settings.scope if side == "cached" else None
        return self.tokenized.planned(scope, settings.placement, turns_held=settings.turns_held)

    def _tiers(self, planned: Planned) -> list[Tier]:
        """Where each piece of a plan is."""
        tier = self._workshop.cache.tiers(wanted(planned.slices))
        return [tier(one.recipe) if one is not None else Tier.NONE for one in planned.slices]

    def _submission(self, settings: RunSettings, side: Side) -> Submission:
        return Submission(self.tokenized, self._planned(settings, side), settings, side, self.parse_ms)

    def _stream(
        self, submissions: Sequence[Submission], listener: Listener | None
    ) -> Generator[Event, None, None]:
        answers: dict[Side, Answer] = {}
        for one in submissions:
            try:
                answers[one.side] = yield from self._steps(one, listener)
            except CancelledError:
                return
        if len(answers) == len(SIDES):
            yield Compared(compare(answers["cached"], answers["uncached"]))

    def _steps(
        self, submission: Submission, listener: Listener | None = None
    ) -> Generator[Event, None, Answer]:
        return submission.steps(self._workshop.cache, self._workshop.computing, listener)


WithSettings = PreparedPrompt | tuple[PreparedPrompt, RunSettings]
"""A prompt, with settings of its own where it has any."""


def document_text(source: object, kind: str) -> str:
    """Returns the text of a document.

    Args:
        source: PML text, or a file with it.
        kind: what the document is, in a word.

    Raises:
        PathError: the text is no document but the name of one.
        TextFileError: the file cannot be read as text.
        TypeError: the source is neither.
    """
    if isinstance(source, Path):
        return read_text_file(source)
    if not isinstance(source, str):
        words = (
            f"a {kind} is PML text, a Path of a file with it, or its tree, and not {type(source).__name__}"
        )
        raise TypeError(words)
    if source.endswith(".pml") and "<" not in source and "\n" not in source:
        raise PathError(
            f"{source!r} is the name of a file, and is taken for the text of a {kind}. Give Path({source!r})."
        )
    return source


def require_mode(mode: str, modes: Sequence[str]) -> None:
    """Refuses a mode that is none of these.

    Raises:
        SettingsError: it is none.
    """
    if mode not in modes:
        raise SettingsError(f"mode is {mode!r}; it must be one of {', '.join(modes)}.")


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


def prompt_series(given: Any) -> Iterator[WithSettings | Exception]:
    """Returns prompts as they come one by one.

    Raises:
        SettingsError: they are one prompt, a text, or nothing that has several.
    """
    if not isinstance(given, str | bytes):
        with contextlib.suppress(TypeError):
            prompts: Iterator[WithSettings | Exception] = iter(given)
            return prompts
    raise SettingsError(
        f"prompts is {reprlib.repr(given)}; it must be a series of prepared ones, such as "
        "[schema.prompt('<prompt>…</prompt>')]."
    )


def settings_with(given: RunSettings | None, changes: dict[str, Any]) -> RunSettings:
    """Returns settings with single ones changed.

    Raises:
        SettingsError: a setting is out of its range, or there is none of that name.
    """
    if not isinstance(given, RunSettings | None):
        raise SettingsError(
            f"settings are {given!r}; they must be RunSettings, or single ones by name: max_new_tokens=20."
        )
    known = RunSettings.__dataclass_fields__
    if unknown := [name for name in changes if name not in known]:
        raise SettingsError(f"There is no setting {unknown[0]!r}; there are {', '.join(known)}.")
    return replace(given or RunSettings(), **changes)
