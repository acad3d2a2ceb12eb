"""A schema and a prompt for one model: tokenized and laid out once, planned once, and held.

Integers only. What can be wrong with a document is found here, before anything is computed.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from engine.base.choices import PlacementPolicy, Scope
from engine.pml import Diagnostic, Prompt, PromptError, Role, RoleOpen, Schema, bind, make
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

_MOST_VARIANTS: Final = 32
"""The most layouts of one schema that are kept at a time."""
_MOST_ORDERS: Final = 1024
"""The most choices of turns of which the marks are kept at a time."""


class TokenizedSchema:
    """A schema's tokens, positions and recipes.

    Args:
        tree: without errors.
        spec: what of the model decides the tokens.
        apart: whether a module has the same tokens wherever it stands, as of `lay_out`.

    Raises:
        PromptError: the model's chat template refuses the schema's roles.
    """

    def __init__(self, tree: Schema, spec: ModelSpec, *, apart: bool = False) -> None:
        self.tree, self.spec, self._apart = tree, spec, apart
        self._lock = threading.RLock()
        self._day = spec.chat.today()
        self._encoded: Encoded = {}
        self._variants: OrderedDict[TurnMarks, _Variant] = OrderedDict()
        self._marks: OrderedDict[tuple[tuple[int, ...], Tools], TurnMarks] = OrderedDict()
        self._layout = self._laid_out()

    @property
    def label(self) -> str:
        """The name under which the store lists its segments: those of a salt have one of their own."""
        digest = self.spec.identity.salt_digest
        return f"{self.tree.name} #{digest[:12]}" if digest else self.tree.name

    @property
    def layout(self) -> SchemaLayout:
        """The tokens and positions of a prompt that imports no turns; of this day, if the date is written."""
        with self._lock:
            self._follow_the_day()
            return self._layout

    def layout_of(self, turns: Sequence[Role], tools: Tools = NO_TOOLS) -> SchemaLayout:
        """The tokens and positions of a prompt that has some of the schema's turns.

        Args:
            turns: these turns, in the order in which they are read.
            tools: what the assistant may call.

        Raises:
            ChatError: the model's chat template refuses them.
            ToolsError: it has no place for tools.
        """
        with self._lock:
            self._follow_the_day()
            order = (tuple(map(id, turns)), tools)
            if order not in self._marks:
                self._marks[order] = turn_marks(self.tree, self.spec.chat, self._day, turns, tools)
            if len(self._marks) > _MOST_ORDERS:
                self._marks.popitem(last=False)
            return self._variant(self._marks[order], self._day).layout

    def layout_as_written(
        self, layout: SchemaLayout, turns: Sequence[Role | None], rendering: Rendering
    ) -> SchemaLayout:
        """The tokens and positions of a prompt for which the chat template writes other marks, if it does.

        Args:
            layout: of the prompt's turns, as the template mostly writes them.
            turns: the turns of the prompt in order, None for those that it adds itself.
            rendering: what the template writes for the prompt.
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
        self._variants.move_to_end(marks)
        if len(self._variants) > _MOST_VARIANTS:
            self._variants.popitem(last=False)
        return self._variants[marks]

    def recipes(self, scope: Scope = "anchored", placement: PlacementPolicy = "compact") -> RecipeBook:
        """The recipes of its segments under a scope, for prompts that are placed like this."""
        return self.book(self.layout, scope, self.spec.placement(placement))

    def check(self, scope: Scope = "anchored") -> tuple[Diagnostic, ...]:
        """Returns the faults that only a tokenizer can see, as segments are encoded under a scope."""
        book = self.recipes(scope)
        fits = self.spec.window.of_schema(book.layout, book)
        unknown = self.spec.unknown.of_schema(book.layout) if self.spec.unknown else ()
        return (*self._defaults(), *fits, *unknown, *advice.of_schema(self.spec, book.layout))

    def _defaults(self) -> Iterator[Diagnostic]:
        """Yields which defaults have more tokens than their parameters leave room for."""
        for param in (param for module in self.tree.modules() for param in module.params()):
            tokens = len(self.spec.chat.tokens.plain(param.default or ""))
            if tokens > param.length:
                message = (
                    f"the default of {param.name!r} is {tokens} tokens long, and its len is {param.length}; "
                    f'shorten it, or write len="{tokens}"'
                )
                place = param.length_span
                own = place and param.span.start <= place.start and place.end <= param.span.end
                fix = swap(place, str(tokens)) if place and own else ()
                yield make("E501", message, param.span, self.tree.lines, f'len="{tokens}"', fix=fix)

    def _laid_out(self) -> SchemaLayout:
        """The layout without the turns of any module, or else with all, where the template wants some."""
        first: ChatError | None = None
        for turns in dict.fromkeys((fixed_turns(self.tree), most_turns(self.tree))):
            try:
                return self.layout_of(turns)
            except ChatError as error:
                first = first or error
        raise PromptError((make("E505", str(first), self.tree.span, self.tree.lines),)) from first

    def encodings(self, scope: Scope) -> tuple[Recipe, ...]:
        """The recipes of all segments that prompts with at most one module of turns may want, for encoding.

        What stands before a segment can depend on which turns a prompt imports. A segment that only prompts
        with several such modules read is encoded with the first of them.
        """
        length = self.spec.context_length
        found = {recipe.key: recipe for recipe in self.recipes(scope).of_schema(length)}
        for path in dict.fromkeys(path for _, path in self.tree.index.turns if path):
            with contextlib.suppress(ChatError):  # prompts import another module of turns beside this one
                layout = self.layout_of(turns_with(self.tree, path))
                book = self.book(layout, scope, self.spec.placement())
                found.update((recipe.key, recipe) for recipe in book.of_schema(length, turns_of=path))
        return tuple(found.values())

    def book(self, layout: SchemaLayout, scope: Scope, placement: PlacementPolicy) -> RecipeBook:
        """The recipes of segments on a layout that is held, whatever day it is now."""
        with self._lock:
            variant = self._variants.get(layout.marks)
            books = variant.books if variant is not None and variant.layout is layout else {}
            if (scope, placement) not in books:
                spread = placement == "schema"
                books[scope, placement] = RecipeBook(layout, self.spec.identity, scope, spread=spread)
            return books[scope, placement]


@dataclass(frozen=True)
class _Variant:
    """A layout, and the recipes on it as far as they were asked for."""

    layout: SchemaLayout
    books: dict[tuple[Scope, PlacementPolicy], RecipeBook] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """A prompt along its positions, and what its cached pieces read.

    Attributes:
        layout: the layout of the schema.
        plan: pieces by position.
        slices: for each piece what it reads, or None where it is computed; empty for a side without segments.
        scope: the scope of the segments.
        plan_ms: what binding and planning took, in milliseconds.
        recipes_ms: what naming the segments took, in milliseconds.
    """

    layout: SchemaLayout
    plan: PromptPlan
    slices: tuple[RecipeSlice | None, ...] = ()
    scope: Scope | None = None
    plan_ms: float = 0.0
    recipes_ms: float = 0.0


class TokenizedPrompt:
    """A prompt over a schema, planned once for each way it is asked for.

    Args:
        schema: the schema it imports from.
        tree: without errors; or a conversation, bound to this very schema.
        tools: what the assistant may call.

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

    @property
    def continued(self) -> bool:
        """Whether an answer goes on from its text: it has no turns, and no template invites one."""
        return not self._turns and bool(self.bound.parts)

    def planned(
        self,
        scope: Scope | None = "anchored",
        placement: PlacementPolicy = "compact",
        *,
        turns_held: bool = True,
    ) -> Planned:
        """Returns the plan, and what it reads under a scope.

        Args:
            scope: what modules see while they are encoded; None for a side that reads no segments.
            placement: as wanted; by the schema where the model's segments cannot be moved.
            turns_held: earlier turns of the conversation become segments; never those of a conversation of
                blocks, which is found chunk by chunk.

        Raises:
            PromptError: an argument is too long, the chat template refuses the turns, or the prompt or a
                segment that it reads does not fit the context window.
            ToolsError: the chat template has no place for tools.
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
        """What the chat template writes for the prompt's turns."""
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
        """Returns its faults and advice on it, those of binding included."""
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
