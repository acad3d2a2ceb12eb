"""The main path: a prompt comes in, segments are found or encoded, and an answer streams out.

`Engine.answer` shows it; everything else of the package hangs off its steps.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from engine.cache.memory import MemoryTier
from engine.cache.segment_cache import Fetched, SegmentCache, wanted
from engine.cache.store import Store, Verify
from engine.choices import PlacementPolicy, Scope
from engine.errors import PromptError, SettingsError
from engine.events import SIDES, Answer, Compared, Event, Side, Working
from engine.inference.computing import WAITING, Computing
from engine.inference.fidelity import FidelityMeter
from engine.inference.params import Repair, RunSettings
from engine.inference.reading import Reading, read
from engine.inference.repair import choosing, chosen, rows, with_hidden
from engine.inference.sequence import Prefill, compare, respond
from engine.inference.verdict import Fidelity
from engine.model.fingerprint import Progress
from engine.model.loading import load
from engine.model.model import Model
from engine.pml import Diagnostic, Parsed, Prompt, Schema, bind, make, parse_prompt, parse_schema
from engine.prompt import advice
from engine.prompt.chat_template import ChatError
from engine.prompt.layout import SchemaLayout, lay_out
from engine.prompt.plan import PromptPlan, make_plan
from engine.prompt.recipe import RecipeBook, RecipeSlice
from engine.prompt.summary import LayoutSummary, PlanSummary, summarize_layout, summarize_plan
from engine.prompt.window import Window
from engine.segment import Placement
from engine.stopwatch import Stopwatch
from engine.tiers import Outcome, Reason, Tier

log = logging.getLogger(__name__)

MEMORY_BUDGET, _LAYOUTS_HELD = 4 << 30, 16  # bytes of segments held in memory; layouts
T = TypeVar("T")


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
        tokens: that were computed.
        seconds: of computing and writing.
        bytes: of keys and values that were computed.
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


class Engine:
    """One model with one store.

    Args:
        model: that answers.
        store: where segments are kept.
        memory: the most bytes of segments held in memory, or on the GPU where the model runs there.
    """

    def __init__(self, model: Model, store: Store, memory: int = MEMORY_BUDGET) -> None:
        self.model, self.store = model, store
        self.memory_tier = MemoryTier(memory, model.network.device)
        self.segment_cache = SegmentCache(model, store, self.memory_tier)
        self._layouts: OrderedDict[int, SchemaLayout] = OrderedDict()
        self._layouts_lock = threading.Lock()
        self._computing = Computing()  # one step at a time: two would spoil each other's clock

    @classmethod
    def open(
        cls,
        model: str = "demo",
        *,
        device: str = "auto",
        dtype: str = "auto",
        cache_dir: Path | None = None,
        verify: Verify = "first",
        memory: int = MEMORY_BUDGET,
        date: datetime.date | None = None,
        progress: Progress | None = None,
    ) -> Engine:
        """Opens the store and loads a model.

        Args:
            model: "demo", "random:SHAPE", a local folder, or a Hugging Face id.
            device: "auto", "cpu" or "cuda".
            dtype: "auto", "fp32", "bf16" or "fp16".
            cache_dir: folder of the store; None for the user's cache folder.
            verify: when a stored file's digest is checked: "always", "first" (in this process) or "never".
            memory: the most bytes of segments held in memory, or on the GPU.
            date: that a chat template may write; None for the day of each prompt.
            progress: called with (bytes done, bytes in all, what) while the files of a model that was not
                seen before are digested.

        Raises:
            ModelError: the model cannot be used.
            StoreError: the folder cannot be used.
        """
        store = Store.open(cache_dir, verify=verify)
        try:
            loaded = load(model, device=device, dtype=dtype, progress=progress)
            loaded.chat.date = date
            return cls(loaded, store, memory)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Closes the store and forgets what is in memory."""
        self.memory_tier.clear()
        self.store.close()

    def answer(
        self,
        schema_source: str,
        prompt_source: str,
        settings: RunSettings | None = None,
        side: Side = "cached",
    ) -> Iterator[Event]:
        """Answers a prompt from its text. The events end with Finished; closing the generator stops it.

        Args:
            schema_source: PML text of the schema.
            prompt_source: PML text of the prompt.
            settings: how to run it.
            side: "cached", or "uncached" to compute every token afresh.

        Raises:
            PromptError: a document has errors, or the prompt does not fit the schema or the context window.
        """
        clock = Stopwatch()
        schema, prompt = _tree(parse_schema(schema_source)), _tree(parse_prompt(prompt_source))
        clock.lap("parse")
        answer = self._answer(schema, prompt, settings or RunSettings(), side, clock)
        yield from self._computing.steps(answer, side, clock)

    def _answer(
        self, schema: Schema, prompt: Prompt, settings: RunSettings, side: Side, clock: Stopwatch
    ) -> Generator[Event, None, Answer]:
        """The main path: plan, segments, repair, prefill, first token, decode."""
        clock.restart()
        layout, plan = self._plan(schema, prompt, settings.placement, settings.turns_held)
        uses = self._uses(layout, prompt, plan, settings.scope) if side == "cached" else ()
        clock.lap("plan")
        if side == "uncached":
            whole = Prefill((), plan.token_ids, plan.positions, plan.token_ids, plan.end)
            return (yield from respond(self.model, whole, settings, side, clock))
        fetched = yield from self.segment_cache.segments(
            wanted(uses), schema.name, settings.scope, clock, store_turns=settings.store_conversation
        )
        try:
            with self.store.using(fetched.segments):
                new = self._repaired(plan, uses, fetched.place(uses), settings, clock)
                new = replace(new, encoded=fetched.encoded_of(new.placements))
                return (
                    yield from respond(
                        *(self.model, new, settings, side, clock, fetched.uses),
                        [f"The answer is complete, but {warning}" for warning in fetched.warnings],
                    )
                )
        finally:
            self.store.record(fetched.served)
            self._look_ahead(layout, plan, settings)

    def _look_ahead(self, layout: SchemaLayout, plan: PromptPlan, settings: RunSettings) -> None:
        """Has the files of what the next prompt may pick instead read ahead: other members of the unions."""
        if settings.scope == "scaffold":
            return
        book = self._recipe_book(layout, settings.scope, plan.placement)
        others = {
            member.path
            for path in plan.imports
            if (union := layout.schema.union_of(path)) is not None
            for member in union.members
        } - plan.imports
        runs = [run for run in layout.runs if run.path in others and run.cacheable]
        self.segment_cache.expect_soon([book.of_run(run) for run in runs])

    def _repaired(
        self,
        plan: PromptPlan,
        uses: Sequence[RecipeSlice | None],
        placements: list[Placement],
        settings: RunSettings,
        clock: Stopwatch,
    ) -> Prefill:
        """What is computed and what is read, with the cached tokens that are repaired among the computed."""
        repair = Repair.parse(settings.repair)
        if repair.kind == "none":
            return Prefill(placements, plan.new_tokens, plan.new_positions, plan.token_ids, plan.end)
        clock.restart()
        again = chosen(repair, self.model, plan, uses, placements)
        cost = choosing(repair, self.model, plan, uses)
        placed = with_hidden(placements, again)
        prefill = Prefill(placed, *rows(plan, again), plan.token_ids, plan.end, cost)
        clock.lap("repair")
        return prefill

    def _recipe_book(self, layout: SchemaLayout, scope: Scope, placement: PlacementPolicy) -> RecipeBook:
        return RecipeBook(layout, self.segment_cache.identity, scope, spread=placement == "schema")

    def placement(self, wanted_placement: PlacementPolicy = "compact") -> PlacementPolicy:
        """Returns how prompts are laid out: as wanted, but by the schema where a model cannot relocate."""
        return wanted_placement if self.model.relocatable else "schema"

    def run(
        self,
        schema: Schema,
        prompt: Prompt,
        settings: RunSettings,
        mode: Literal["cached", "uncached", "both"] = "both",
        *,
        parse_ms: float = 0.0,
        order: tuple[Side, ...] | None = None,
    ) -> Iterator[Event]:
        """Answers a parsed prompt on one side, or on both one after the other, and compares them.

        Args:
            schema: a tree without errors.
            prompt: likewise.
            settings: how to run it.
            mode: the side, or "both".
            parse_ms: what parsing took, in milliseconds; counted in both times to first token.
            order: of the sides in mode "both".

        Yields:
            Events of each side, and Compared at the end of mode "both". Closing the generator stops it.

        Raises:
            PromptError: the prompt does not fit the schema, its parameters, or the context window.
        """
        sides = (order or SIDES) if mode == "both" else (mode,)
        answers: dict[Side, Answer] = {}
        # Lays out, in neither side's time.
        layout, plan = self._plan(schema, prompt, settings.placement, settings.turns_held)
        if "cached" in sides:
            self._uses(layout, prompt, plan, settings.scope)
        for side in sides:
            clock = Stopwatch()
            clock.parts["parse"] = parse_ms
            steps = self._answer(schema, prompt, settings, side, clock)
            answers[side] = yield from self._computing.steps(steps, side, clock)
        if mode == "both":
            yield Compared(compare(answers["cached"], answers["uncached"]))

    def encode(
        self,
        schema: Schema,
        *,
        scope: Scope = "anchored",
        progress: Callable[[int, int, str], None] | None = None,
    ) -> EncodeReport:
        """Computes and stores every segment of a schema that is not there yet.

        Args:
            schema: a tree without errors.
            scope: what modules see while they are encoded.
            progress: called with (done, total, what) before each segment and at the end.

        Raises:
            PromptError: a module does not fit the context window, or the chat template refuses the roles.
            SettingsError: under the scope `scaffold` nothing can be encoded without a prompt.
        """
        if scope == "scaffold":
            raise SettingsError(
                "scope 'scaffold' encodes modules in sight of a whole prompt, so there is nothing to encode "
                "before there is one. Encode with the scope anchored or isolated; scaffolds that the schema "
                "declares are included."
            )
        faults = [d for d in self.check(schema, scope=scope) if d.severity == "error"]
        if faults:
            raise PromptError(tuple(faults))
        started, clock = time.perf_counter(), Stopwatch()
        layout = self._lay_out(schema)
        recipes = self._recipe_book(layout, scope, self.placement()).of_schema(self.model.context_length)
        encoding = self.segment_cache.segments(recipes, schema.name, scope, Stopwatch(), hold=False)
        steps = self._computing.steps(encoding, "cached", clock)
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                fetched: Fetched = end.value
                break
            if progress is not None:
                progress(step.done, step.total, step.what)
            elif step.what == WAITING:
                log.warning("encoding %r: %s", schema.name, WAITING)
        seconds = time.perf_counter() - started - clock.waited / 1000
        self.store.label(fetched.served)
        made = list(fetched.encoded.values())
        return EncodeReport(
            encoded=len(made),
            reused=sum(use.outcome == Outcome.HIT for use in fetched.uses),
            elsewhere=sum(use.reason == Reason.ELSEWHERE for use in fetched.uses),
            kept=len(self.store.contains(recipe.key for recipe in recipes)),
            total=len(recipes),
            budget=self.segment_cache.budget_for(recipes),
            tokens=sum(one.tokens for one in made),
            seconds=seconds,
            bytes=sum(one.nbytes for one in made),
            warnings=tuple(fetched.warnings),
        )

    def fidelity(
        self, schema: Schema, prompt: Prompt, settings: RunSettings | None = None
    ) -> Generator[Working, None, Fidelity]:
        """Measures what reuse does to the answer of a prompt, module by module, and what would mend it.

        Args:
            schema: a tree without errors.
            prompt: likewise.
            settings: scope, repair and placement to measure; `max_new_tokens` bounds the answer
                that is read, as it bounds a run's.

        Yields:
            Working, before each step. Closing the generator stops it.

        Returns:
            The result.

        Raises:
            PromptError: the prompt does not fit the schema, its parameters, or the context window.
        """
        given = settings or RunSettings()
        layout, plan = self._plan(schema, prompt, given.placement, given.turns_held)
        self._uses(layout, prompt, plan, given.scope)
        measuring = FidelityMeter(self.model, self.segment_cache, layout, plan, given).measure()
        return (yield from self._computing.steps(measuring, "cached"))

    def reading(
        self, schema: Schema, prompt: Prompt, answer: Sequence[int], settings: RunSettings, side: Side
    ) -> Reading:
        """Has one side read an answer that is given, so that all of it can be compared with another reading.

        Args:
            schema: a tree without errors.
            prompt: likewise.
            answer: its tokens, at least one.
            settings: scope, repair and placement.
            side: that reads.

        Raises:
            PromptError: the prompt does not fit the schema, its parameters, or the context window.
        """
        return self._computing.finish(self._reading(schema, prompt, answer, settings, side), side)

    def _reading(
        self, schema: Schema, prompt: Prompt, answer: Sequence[int], settings: RunSettings, side: Side
    ) -> Generator[Working, None, Reading]:
        layout, plan = self._plan(schema, prompt, settings.placement, settings.turns_held)
        if side == "uncached":
            whole = Prefill((), plan.token_ids, plan.positions, plan.token_ids, plan.end)
            return read(self.model, whole, answer)
        uses, clock = self._uses(layout, prompt, plan, settings.scope), Stopwatch()
        fetched = yield from self.segment_cache.segments(wanted(uses), schema.name, settings.scope, clock)
        with self.store.using(fetched.segments):
            return read(self.model, self._repaired(plan, uses, fetched.place(uses), settings, clock), answer)

    def check(
        self,
        schema: Schema,
        prompt: Prompt | None = None,
        *,
        placement: PlacementPolicy = "compact",
        scope: Scope = "anchored",
    ) -> tuple[Diagnostic, ...]:
        """Returns the faults of a document that only a tokenizer can see.

        Args:
            schema: a tree without errors.
            prompt: None to check the schema; else the prompt is checked, binding included.
            placement: of the prompt.
            scope: that segments are encoded under.
        """
        if prompt is None:
            try:
                layout = self._lay_out(schema)
                book = self._recipe_book(layout, scope, self.placement())
                return (*self._window.of_schema(layout, book), *advice.of_schema(self.model, layout))
            except ChatError as error:
                return (make("E505", str(error), schema.span, schema.lines),)
        bound = bind(schema, prompt)
        if not bound.ok:
            return bound.diagnostics
        try:
            layout, plan = self._plan(schema, prompt, placement)
            self._uses(layout, prompt, plan, scope)
        except PromptError as error:
            return bound.diagnostics + error.diagnostics
        return (*bound.diagnostics, *advice.of_prompt(self.model, layout, plan, bound, prompt))

    def layout(self, schema: Schema, *, scope: Scope = "anchored") -> LayoutSummary:
        """Returns modules with positions, sizes, and where their segments are.

        Raises:
            ChatError: the model's chat template refuses the schema's roles.
        """
        layout = self._lay_out(schema)
        book = self._recipe_book(layout, scope, self.placement())
        recipes = {run.index: book.of_run(run) for run in layout.runs if run.cacheable}
        tier = self.segment_cache.tiers(recipes.values())
        tiers = {index: tier(recipe) for index, recipe in recipes.items()}
        return summarize_layout(
            layout, lambda run: tiers.get(run.index, Tier.NONE), self.model.bytes_per_token
        )

    def plan(self, schema: Schema, prompt: Prompt, settings: RunSettings | None = None) -> PlanSummary:
        """Returns what a run of this prompt would read and compute, without computing anything.

        Raises:
            PromptError: the prompt does not fit the schema, its parameters, or the context window.
        """
        given = settings or RunSettings()
        layout, plan = self._plan(schema, prompt, given.placement, given.turns_held)
        uses = self._uses(layout, prompt, plan, given.scope)
        tier = self.segment_cache.tiers(wanted(uses))
        tiers = [tier(use.recipe) if use is not None else Tier.NONE for use in uses]
        return summarize_plan(plan, tiers, self.model.bytes_per_token)

    def count_tokens(self, text: str) -> int:
        """Returns how many tokens a text has by itself."""
        return len(self.model.tokenize(text))

    def _lay_out(self, schema: Schema) -> SchemaLayout:
        with self._layouts_lock:
            held = self._layouts.get(id(schema))
            if held is None or held.day != self.model.chat.today():
                model = self.model
                held = self._layouts[id(schema)] = lay_out(schema, model.chat, model.stand_in)
                while len(self._layouts) > _LAYOUTS_HELD:
                    self._layouts.popitem(last=False)
            return held

    def _plan(
        self, schema: Schema, prompt: Prompt, placement: PlacementPolicy = "compact", turns_held: bool = True
    ) -> tuple[SchemaLayout, PromptPlan]:
        bound = bind(schema, prompt)
        if not bound.ok:
            raise PromptError(bound.diagnostics)
        try:
            layout = self._lay_out(schema)
            where = self.placement(placement)
            plan = make_plan(layout, bound, self.model.chat, prompt, where, turns_held=turns_held)
        except ChatError as error:
            raise PromptError((make("E505", str(error), prompt.span, prompt.lines),)) from error
        self._require_room(prompt, plan, ())
        return layout, plan

    def _uses(
        self, layout: SchemaLayout, prompt: Prompt, plan: PromptPlan, scope: Scope
    ) -> tuple[RecipeSlice | None, ...]:
        """What each piece of a prompt reads, all of which can be encoded."""
        uses = self._recipe_book(layout, scope, plan.placement).of_plan(plan)
        self._require_room(prompt, plan, uses)
        return uses

    def _require_room(self, prompt: Prompt, plan: PromptPlan, uses: Sequence[RecipeSlice | None]) -> None:
        faults = tuple(self._window.of_prompt(prompt, plan, uses))
        if faults:
            raise PromptError(faults)

    @property
    def _window(self) -> Window:
        return Window(self.model.name, self.model.context_length)


def _tree(parsed: Parsed[T]) -> T:
    if parsed.tree is None or not parsed.ok:
        raise PromptError(parsed.diagnostics)
    return parsed.tree
