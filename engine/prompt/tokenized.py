"""Schemas and prompts for one model: tokenized, laid out and planned once, then cached.

No tensors. All errors of a document are found here, before any computation.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cachetools import LRUCache

from engine.base.choices import PlacementPolicy, Scope
from engine.pml import Diagnostic, Part, Prompt, PromptError, Role, RoleOpen, Schema, bind, make
from engine.pml.diagnostics.diagnostic import swap
from engine.prompt import advice
from engine.prompt.conversation.messages import Blocks, Spelled
from engine.prompt.conversation.tools import NO_TOOLS, Tools, ToolsError
from engine.prompt.layout import Encoded, SchemaLayout, lay_out
from engine.prompt.pieces import PromptPlan
from engine.prompt.plan import make_plan
from engine.prompt.recipe import Recipe, RecipeBook, RecipeSlice
from engine.prompt.spec import ModelSpec
from engine.prompt.template.refusals import refusal
from engine.prompt.template.rendered import Rendering
from engine.prompt.template.trimming import headers_of, turn_texts
from engine.prompt.template.turn_marks import (
    TurnMarks,
    fixed_turns,
    marks_of_prompt,
    most_turns,
    turn_marks,
    turns_with,
)
from engine.prompt.template.turns import ChatError
from engine.prompt.window import TooLongError

_MOST_VARIANTS: Final = 32  # cached layouts of one schema
_MOST_ORDERS: Final = 1024  # cached choices of turns, with their marks


class TokenizedSchema:
    """A schema's tokens, positions and recipes.

    Args:
        tree: a schema without errors.
        spec: the properties of the model.
        apart: whether a module has the same tokens at any place, as in `lay_out`.

    Raises:
        PromptError: the model's chat template refuses the schema's roles.
    """

    def __init__(self, tree: Schema, spec: ModelSpec, *, apart: bool = False) -> None:
        self.tree, self.spec, self._apart = tree, spec, apart
        self._lock = threading.RLock()
        self._day = spec.chat.today()
        self._encoded: Encoded = {}
        self._variants: LRUCache[TurnMarks, _Variant] = LRUCache(_MOST_VARIANTS)
        self._marks: LRUCache[tuple[tuple[int, ...], Tools], TurnMarks] = LRUCache(_MOST_ORDERS)
        self._layout = self._laid_out()

    @property
    def label(self) -> str:
        """The schema's name in the store; each salt has its own."""
        digest = self.spec.identity.salt_digest
        return f"{self.tree.name} #{digest[:12]}" if digest else self.tree.name

    @property
    def layout(self) -> SchemaLayout:
        """The layout of a prompt that imports no turns; depends on the date if the template writes it."""
        with self._lock:
            self._follow_the_day()
            return self._layout

    def layout_of(self, turns: Sequence[Role], tools: Tools = NO_TOOLS) -> SchemaLayout:
        """Returns the layout of a prompt with some of the schema's turns, in reading order.

        Raises:
            ChatError: the model's chat template refuses the turns.
            ToolsError: the template does not support tools.
        """
        with self._lock:
            self._follow_the_day()
            order = (tuple(map(id, turns)), tools)
            if order not in self._marks:
                self._marks[order] = turn_marks(self.tree, self.spec.chat, self._day, turns, tools)
            return self._variant(self._marks[order], self._day).layout

    def layout_as_written(
        self, layout: SchemaLayout, turns: Sequence[Role | None], rendering: Rendering
    ) -> SchemaLayout:
        """Returns the layout of a prompt for which the chat template may write other marks than in `layout`.

        `turns` has the prompt's turns in order, None for those that it adds.
        """
        number = {id(turn): place for place, (turn, _) in enumerate(self.tree.index.turns)}
        order = [-1 if turn is None else number[id(turn)] for turn in turns]
        marks = marks_of_prompt(layout.marks, order, rendering)
        with self._lock:
            return layout if marks == layout.marks else self._variant(marks, layout.day).layout

    def _follow_the_day(self) -> None:
        if self._day != self.spec.chat.today():
            self._day = self.spec.chat.today()
            self._variants.clear()
            self._marks.clear()
            self._layout = self._laid_out()

    def _variant(self, marks: TurnMarks, day: datetime.date) -> _Variant:
        if marks not in self._variants:
            made = lay_out(
                self.tree,
                self.spec.chat,
                self.spec.stand_in,
                marks,
                day=day,
                encoded=self._encoded,
                apart=self._apart,
            )
            self._variants[marks] = _Variant(made)
        return self._variants[marks]

    def recipes(self, scope: Scope = "anchored", placement: PlacementPolicy = "compact") -> RecipeBook:
        """Returns the recipes of its segments for a scope and a placement."""
        return self.book(self.layout, scope, self.spec.placement(placement))

    def check(self, scope: Scope = "anchored") -> tuple[Diagnostic, ...]:
        """Returns the errors that only a tokenizer can find, for segments of a scope."""
        book = self.recipes(scope)
        fits = self.spec.window.of_schema(book.layout, book)
        unknown = self.spec.unknown.of_schema(book.layout) if self.spec.unknown else ()
        return (*self._defaults(), *fits, *unknown, *advice.of_schema(self.spec, book.layout))

    def _defaults(self) -> Iterator[Diagnostic]:
        """Reports defaults with more tokens than their parameters allow."""
        for param in (param for module in self.tree.modules() for param in module.params()):
            tokens = len(self.spec.chat.tokens.plain(param.default or ""))
            if tokens > param.length:
                message = (
                    f"the default of {param.name!r} is {tokens} tokens long, and its len is {param.length}; "
                    f'shorten it, or write len="{tokens}"'
                )
                place = param.length_span
                inside = place and param.span.start <= place.start and place.end <= param.span.end
                fix = swap(place, str(tokens)) if place and inside else ()
                yield make("E501", message, param.span, self.tree.lines, f'len="{tokens}"', fix=fix)

    def _laid_out(self) -> SchemaLayout:
        """The layout without modules of turns, or with all of them if the template requires turns."""
        first: ChatError | None = None
        for turns in dict.fromkeys((fixed_turns(self.tree), most_turns(self.tree))):
            try:
                return self.layout_of(turns)
            except ChatError as error:
                first = first or error
        raise PromptError((make("E505", str(first), self.tree.span, self.tree.lines),)) from first

    def encodings(self, scope: Scope) -> tuple[Recipe, ...]:
        """Returns the recipes of all segments that prompts with at most one module of turns may use.

        The context of a segment can depend on the imported turns. A segment that requires several such
        modules is encoded with the first of them.
        """
        length = self.spec.context_length
        by_key = {recipe.key: recipe for recipe in self.recipes(scope).of_schema(length)}
        for path in dict.fromkeys(path for _, path in self.tree.index.turns if path):
            with contextlib.suppress(ChatError):  # prompts need another module of turns with this one
                layout = self.layout_of(turns_with(self.tree, path))
                book = self.book(layout, scope, self.spec.placement())
                by_key.update((recipe.key, recipe) for recipe in book.of_schema(length, turns_of=path))
        return tuple(by_key.values())

    def book(self, layout: SchemaLayout, scope: Scope, placement: PlacementPolicy) -> RecipeBook:
        """Returns the recipes of segments for an existing layout, regardless of the date."""
        with self._lock:
            variant = self._variants.get(layout.marks)
            books = variant.books if variant is not None and variant.layout is layout else {}
            if (scope, placement) not in books:
                spread = placement == "schema"
                books[scope, placement] = RecipeBook(layout, self.spec.identity, scope, spread=spread)
            return books[scope, placement]


@dataclass(frozen=True)
class _Variant:
    """A layout and its cached recipes."""

    layout: SchemaLayout
    books: dict[tuple[Scope, PlacementPolicy], RecipeBook] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """A planned prompt and the slices that it reads.

    Attributes:
        layout: the layout of the schema.
        plan: pieces by position.
        slices: the slice for each piece, None if computed; empty for a side without segments.
        scope: the scope of the segments.
        plan_ms: time for binding and planning, in milliseconds.
        recipes_ms: time for naming the segments, in milliseconds.
    """

    layout: SchemaLayout
    plan: PromptPlan
    slices: tuple[RecipeSlice | None, ...] = ()
    scope: Scope | None = None
    plan_ms: float = 0.0
    recipes_ms: float = 0.0


class TokenizedPrompt:
    """A prompt over a schema, planned once for each combination of options.

    Args:
        schema: the schema that it imports from.
        tree: a prompt without errors, or a conversation bound to this schema.
        tools: the tools for the assistant.

    Raises:
        PromptError: it does not fit the schema.
    """

    def __init__(self, schema: TokenizedSchema, tree: Prompt | Spelled, tools: Tools = NO_TOOLS) -> None:
        self.schema, self.tools = schema, tools
        started = time.perf_counter()
        self._blocks: Blocks | None = None
        if isinstance(tree, Spelled):
            self.tree, self.bound, self._blocks = tree.prompt, tree.bound, tree.blocks
        else:
            self.tree, self.bound = tree, bind(schema.tree, tree)
        self.bind_ms = (time.perf_counter() - started) * 1000
        if not self.bound.ok:
            raise PromptError(self.bound.diagnostics)
        opened = [part for part in self.bound.parts if isinstance(part, RoleOpen)]
        self._turns = tuple(None if part.new else part.node for part in opened)
        self._renderings: dict[datetime.date, Rendering] = {}
        self._planned: dict[tuple[datetime.date, PlacementPolicy, bool, Scope | None], Planned] = {}

    def with_parts(self, parts: Sequence[Part]) -> TokenizedPrompt:
        """Returns a prompt over the same schema with other bound parts."""
        bound = replace(self.bound, parts=tuple(parts), diagnostics=())
        blocks = self._blocks if parts else None
        return TokenizedPrompt(self.schema, Spelled(self.tree, bound, blocks), self.tools)

    @property
    def continued(self) -> bool:
        """Whether the answer continues the prompt's text: no turns, and no template invites an answer."""
        return not self._turns and bool(self.bound.parts)

    def planned(
        self,
        scope: Scope | None = "anchored",
        placement: PlacementPolicy = "compact",
        *,
        turns_held: bool = True,
    ) -> Planned:
        """Returns the plan and the slices that it reads.

        Args:
            scope: the context of modules during encoding; None for a side that reads no segments.
            placement: the requested placement; schema placement if the model's segments cannot be relocated.
            turns_held: whether earlier turns become segments; ignored for a conversation of blocks, which is
                found by chunks.

        Raises:
            PromptError: an argument is too long, the chat template refuses the turns, or the prompt or one of
                its segments exceeds the context window.
            ToolsError: the chat template does not support tools.
        """
        where = self.schema.spec.placement(placement)
        try:
            layout = self.schema.layout_of([turn for turn in self._turns if turn is not None], self.tools)
            if self._turns:
                rendering = self._rendering(layout.day)
                layout = self.schema.layout_as_written(layout, self._turns, rendering)
        except ChatError as error:
            raise self._refused(error) from error
        return self._planned_on(layout, scope, where, turns_held and self._blocks is None)

    def _rendering(self, day: datetime.date) -> Rendering:
        """The chat template's text for the prompt's turns."""
        if day not in self._renderings:
            parts = self.bound.parts
            chat = self.schema.spec.chat
            self._renderings[day] = chat.render(headers_of(parts), turn_texts(parts), day, self.tools)
        return self._renderings[day]

    def _planned_on(
        self, layout: SchemaLayout, scope: Scope | None, placement: PlacementPolicy, turns_held: bool
    ) -> Planned:
        known = (layout.day, placement, turns_held, scope)
        if known not in self._planned:
            if scope is None:
                self._planned[known] = self._plan(layout, placement, turns_held)
            else:
                plain = self._planned_on(layout, None, placement, turns_held)
                started = time.perf_counter()
                slices = self.schema.book(layout, scope, placement).of_plan(plain.plan)
                self._require_room(plain.plan, slices)
                recipes_ms = (time.perf_counter() - started) * 1000
                self._planned[known] = replace(plain, slices=slices, scope=scope, recipes_ms=recipes_ms)
        return self._planned[known]

    def check(
        self, scope: Scope = "anchored", placement: PlacementPolicy = "compact"
    ) -> tuple[Diagnostic, ...]:
        """Returns its errors, including those of binding, and advice."""
        try:
            planned = self.planned(scope, placement)
        except PromptError as error:
            return (*self.bound.diagnostics, *error.diagnostics)
        except ToolsError as error:
            return (*self.bound.diagnostics, make("E505", str(error), self.tree.span, self.tree.lines))
        spec, layout = self.schema.spec, planned.layout
        rendering = self._rendering(layout.day) if self._turns else None
        of_model = advice.of_prompt(spec, planned.plan, self.bound, self.tree, rendering)
        return (*self.bound.diagnostics, *of_model)

    def _plan(self, layout: SchemaLayout, placement: PlacementPolicy, turns_held: bool) -> Planned:
        started = time.perf_counter()
        plan = make_plan(
            layout,
            self.bound,
            self.schema.spec.chat,
            self.tree,
            placement,
            rendering=self._rendering(layout.day) if self._turns else None,
            turns_held=turns_held,
            blocks=self._blocks,
        )
        self._require_room(plan, ())
        return Planned(layout, plan, plan_ms=self.bind_ms + (time.perf_counter() - started) * 1000)

    def _refused(self, error: ChatError) -> PromptError:
        return PromptError((refusal(error, self.schema.spec.chat, self.bound, self.tree, self.tools),))

    def _require_room(self, plan: PromptPlan, slices: tuple[RecipeSlice | None, ...]) -> None:
        window = self.schema.spec.window
        faults = tuple(window.of_prompt(self.tree, plan, slices))
        if faults and plan.end > window.most:
            raise TooLongError(faults, plan.end, window.most)
        unknown = self.schema.spec.unknown
        faults += tuple(unknown.of_prompt(self.tree, plan, slices)) if unknown else ()
        if faults:
            raise PromptError(faults)
