"""The main path: a prompt comes in, segments are found or encoded, and an answer streams out.

`Engine.answer` shows it; everything else of the package hangs off its steps.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from engine.chat import ChatError
from engine.errors import PromptError
from engine.generate import (
    SIDES,
    Answer,
    Compared,
    Event,
    Prefill,
    RunSettings,
    Side,
    Stopwatch,
    compare,
    respond,
)
from engine.layout import SchemaLayout, Scope, lay_out
from engine.model import Model, load
from engine.overview import Layout, Plan, layout_overview, plan_overview
from engine.plan import PromptPlan, make_plan
from engine.pml import Diagnostic, Parsed, Prompt, Schema, bind, make, parse_prompt, parse_schema
from engine.residency import Residency
from engine.segment import Placement
from engine.store import Store
from engine.supply import Supplied, Supply

MEMORY_BUDGET = 4 << 30  # bytes of segments held in memory
_LAYOUTS_HELD = 16
T = TypeVar("T")


@dataclass(frozen=True)
class EncodeReport:
    """What encoding a schema took.

    Attributes:
        encoded: segments that were computed.
        reused: segments that were there.
        tokens: that were computed.
        seconds: of computing and writing.
        bytes: of keys and values that were computed.
        warnings: what could not be stored, in words.
    """

    encoded: int
    reused: int
    tokens: int
    seconds: float
    bytes: int
    warnings: tuple[str, ...] = ()


class Engine:
    """One model with one store.

    Args:
        model: that answers.
        store: where segments are kept.
    """

    def __init__(self, model: Model, store: Store) -> None:
        self.model, self.store = model, store
        self.residency = Residency(MEMORY_BUDGET, model.network.device)
        self.supply = Supply(model, store, self.residency)
        self._layouts: OrderedDict[int, SchemaLayout] = OrderedDict()
        self._layouts_lock = threading.Lock()
        self._computing = threading.Lock()  # one run at a time: two would spoil each other's clock

    @classmethod
    def open(
        cls, model: str = "demo", *, device: str = "auto", dtype: str = "auto", cache_dir: Path | None = None
    ) -> Engine:
        """Opens the store and loads a model.

        Args:
            model: "demo", "random:SHAPE", a local folder, or a Hugging Face id.
            device: "auto", "cpu" or "cuda".
            dtype: "auto", "fp32", "bf16" or "fp16".
            cache_dir: folder of the store; None for the user's cache folder.

        Raises:
            ModelError: the model cannot be used.
            StoreError: the folder cannot be used.
        """
        store = Store.open(cache_dir)
        try:
            return cls(load(model, device=device, dtype=dtype), store)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Closes the store and forgets what is in memory."""
        self.residency.clear()
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
        with self._computing:
            clock.restart()
            yield from self._answer(schema, prompt, settings or RunSettings(), side, clock)

    def _answer(
        self, schema: Schema, prompt: Prompt, settings: RunSettings, side: Side, clock: Stopwatch
    ) -> Generator[Event, None, Answer]:
        """The main path: plan, segments, prefill, first token, decode."""
        layout, plan = self._plan(schema, prompt)
        clock.lap("plan")
        if side == "uncached":
            whole = Prefill((), plan.token_ids, range(plan.total_tokens), plan.total_tokens)
            return (yield from respond(self.model, whole, settings, side, clock))
        supplied = yield from self.supply.segments(layout, plan.runs, settings.scope, clock)
        try:
            placements = _place(plan, supplied)
            new = Prefill(placements, plan.new_tokens, plan.new_positions, plan.total_tokens)
            return (
                yield from respond(self.model, new, settings, side, clock, supplied.uses, supplied.warnings)
            )
        finally:
            self.store.record(supplied.hits, supplied.misses)

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
        with self._computing:
            self._plan(schema, prompt)  # lays the schema out, which belongs to neither side's time
            for side in sides:
                clock = Stopwatch()
                clock.parts["parse"] = parse_ms
                answers[side] = yield from self._answer(schema, prompt, settings, side, clock)
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
        """
        faults = [d for d in self.check(schema) if d.severity == "error"]
        if faults:
            raise PromptError(tuple(faults))
        with self._computing:
            started = time.perf_counter()
            layout = self._lay_out(schema)
            steps = self.supply.segments(layout, [r for r in layout.runs if r.cacheable], scope, Stopwatch())
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    supplied: Supplied = end.value
                    break
                if progress is not None:
                    progress(step.done, step.total, step.what)
            seconds = time.perf_counter() - started
        made = supplied.encoded
        return EncodeReport(
            len(made),
            len(supplied.hits),
            sum(segment.tokens for segment in made),
            seconds,
            sum(segment.nbytes for segment in made),
            tuple(supplied.warnings),
        )

    def check(self, schema: Schema, prompt: Prompt | None = None) -> tuple[Diagnostic, ...]:
        """Returns the faults of a document that only a tokenizer can see.

        Args:
            schema: a tree without errors.
            prompt: None to check the schema; else the prompt is checked, binding included.
        """
        if prompt is None:
            try:
                return (*self._oversized(self._lay_out(schema)), *self._stand_ins(schema))
            except ChatError as error:
                return (make("E505", str(error), schema.span, schema.lines),)
        bound = bind(schema, prompt)
        if not bound.ok:
            return bound.diagnostics
        try:
            self._plan(schema, prompt)
        except PromptError as error:
            return bound.diagnostics + error.diagnostics
        return bound.diagnostics

    def layout(self, schema: Schema, *, scope: Scope = "anchored") -> Layout:
        """Returns modules with positions, sizes, and where their segments are.

        Raises:
            ChatError: the model's chat template refuses the schema's roles.
        """
        layout = self._lay_out(schema)
        return layout_overview(
            layout, self.supply.tiers(layout, layout.runs, scope), self.model.bytes_per_token
        )

    def plan(self, schema: Schema, prompt: Prompt, settings: RunSettings | None = None) -> Plan:
        """Returns what a run of this prompt would read and compute, without computing anything.

        Raises:
            PromptError: the prompt does not fit the schema, its parameters, or the context window.
        """
        layout, plan = self._plan(schema, prompt)
        scope = (settings or RunSettings()).scope
        return plan_overview(plan, self.supply.tiers(layout, plan.runs, scope), self.model.bytes_per_token)

    def count_tokens(self, text: str) -> int:
        """Returns how many tokens a text has by itself."""
        return len(self.model.tokenize(text))

    def _lay_out(self, schema: Schema) -> SchemaLayout:
        with self._layouts_lock:
            held = self._layouts.get(id(schema))
            if held is None:
                model = self.model
                held = self._layouts[id(schema)] = lay_out(schema, model.tokenize, model.chat, model.stand_in)
                while len(self._layouts) > _LAYOUTS_HELD:
                    self._layouts.popitem(last=False)
            return held

    def _plan(self, schema: Schema, prompt: Prompt) -> tuple[SchemaLayout, PromptPlan]:
        bound = bind(schema, prompt)
        if not bound.ok:
            raise PromptError(bound.diagnostics)
        try:
            layout = self._lay_out(schema)
            plan = make_plan(layout, bound, self.model.tokenize, self.model.chat, prompt)
        except ChatError as error:
            raise PromptError((make("E505", str(error), prompt.span, prompt.lines),)) from error
        window = self.model.context_length
        if plan.total_tokens >= window:
            message = (
                f"the prompt has {plan.total_tokens} tokens; {self.model.name!r} reads at most {window - 1}"
            )
            hint = "import fewer modules, shorten the text, or use a model with a larger context window"
            raise PromptError((make("E502", message, prompt.span, prompt.lines, hint),))
        return layout, plan

    def _stand_ins(self, schema: Schema) -> Iterator[Diagnostic]:
        tokenizer = self.model.tokenizer
        first = next((param for module in schema.modules() for param in module.params()), None)
        if tokenizer.unk_token_id is None and first is not None and first.scaffold is None:
            token = tokenizer.convert_ids_to_tokens(self.model.stand_in)
            message = f"{self.model.name!r} has no <unk>; {token!r} stands in for parameter {first.name!r}"
            hint = 'write scaffold="…", a text of the usual kind, to choose what stands there'
            yield make("W607", message, first.span, schema.lines, hint)

    def _oversized(self, layout: SchemaLayout) -> Iterator[Diagnostic]:
        window = self.model.context_length
        for run in layout.runs:
            tokens = run.tokens + sum(earlier.tokens for earlier in layout.context(run, "anchored"))
            schema = layout.schema
            module = schema.module(run.path) if run.path else None
            if tokens >= window:
                name = f"module {run.path!r}" if run.path else "the anonymous text"
                message = (
                    f"{name} has {tokens} tokens with what stands before it; the model reads {window - 1}"
                )
                span = module.span if module is not None else schema.span
                yield make("E502", message, span, schema.lines, "split it, or use another model")


def _tree(parsed: Parsed[T]) -> T:
    if parsed.tree is None or not parsed.ok:
        raise PromptError(parsed.diagnostics)
    return parsed.tree


def _place(plan: PromptPlan, supplied: Supplied) -> list[Placement]:
    return [
        Placement(supplied.segments[piece.run.index], piece.lo, piece.lo + piece.tokens, piece.start)
        for piece in plan.pieces
        if piece.cached and piece.run is not None
    ]
