"""Checks that prompts and segments with their contexts fit a model's context window.

No tensors. Errors are reported before any computation, because a model has no valid positions beyond its
window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.pml import Diagnostic, Import, Param, Prompt, PromptError, Schema, Span, make
from engine.prompt.layout import SchemaLayout
from engine.prompt.pieces import PromptPlan
from engine.prompt.recipe import RecipeBook, RecipeSlice

_HINT = "import fewer modules, shorten the text, or use a model with a larger context window"
_SEGMENT_HINT = (
    "split it, lower the len of its parameters, or use a model with a larger context window; the scope "
    'isolated shows a module less, and cache="false" avoids its separate encoding'
)


class TooLongError(PromptError):
    """A prompt has more tokens (or positions) than the context window allows."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...], tokens: int, most: int) -> None:
        super().__init__(diagnostics)
        self.tokens, self.most = tokens, most


@dataclass(frozen=True)
class Window:
    """The context window of a model; `length` counts the tokens of a prompt with its answer."""

    model: str
    length: int

    @property
    def most(self) -> int:
        """The maximum number of positions of a prompt; one more is reserved for the answer."""
        return self.length - 1

    def of_prompt(
        self, prompt: Prompt, plan: PromptPlan, uses: Sequence[RecipeSlice | None]
    ) -> Iterator[Diagnostic]:
        """Reports a prompt, or one of its segments, that does not fit; `uses` is empty without segments."""
        if plan.end > self.most:
            gaps = f" on {plan.end} positions of the schema" if plan.end > plan.total_tokens else ""
            message = (
                f"the prompt has {plan.total_tokens} tokens{gaps}; {self.model!r} reads at most {self.most}"
            )
            yield make("E502", message, prompt.span, prompt.lines, _HINT)
            return
        for path in dict.fromkeys(use.recipe.path for use in uses if use is not None):
            longest = max(use.recipe.reach for use in uses if use is not None and use.recipe.path == path)
            if longest > self.most:
                yield self._fault(path, longest, _place(prompt, path), prompt)

    def of_schema(self, layout: SchemaLayout, book: RecipeBook) -> Iterator[Diagnostic]:
        """Reports modules and scaffolds that no prompt can use in the scope of `book`."""
        schema, slots = layout.schema, _slot_tokens(layout)
        longest: dict[str, int] = {}
        for run in layout.runs:
            if run.cacheable and book.scope != "scaffold":
                positions = book.of_run(run).reach
            else:  # computed inside a prompt, where an argument may be empty
                before = layout.context(run, "anchored")
                positions = sum(earlier.tokens - slots[earlier.index] for earlier in (*before, run))
            longest[run.path] = max(longest.get(run.path, 0), positions)
        for path, positions in longest.items():
            module = schema.module(path) if path else None
            if positions > self.most:
                yield self._fault(path, positions, module.span if module else schema.span, schema)
        for scaffold in schema.scaffolds:
            if book.of_scaffold(scaffold.modules, self.length) is None:
                tokens = book.tokens_of(scaffold.modules)
                message = f"the scaffold has {tokens} tokens; {self.model!r} reads at most {self.most}"
                yield make("W606", message, scaffold.span, schema.lines, "name fewer modules")

    def _fault(self, path: str, positions: int, span: Span, document: Prompt | Schema) -> Diagnostic:
        name = f"module {path!r}" if path else "the fixed text"
        message = (
            f"{name} takes {positions} positions, including its parameters' full length and its "
            f"context; {self.model!r} reads at most {self.most}"
        )
        return make("E502", message, span, document.lines, _SEGMENT_HINT)


def _place(prompt: Prompt, path: str) -> Span:
    """The span of the prompt's import of a module if there is exactly one; otherwise of the whole prompt."""
    name = path.rpartition("/")[2]
    spans = []
    waiting = [node for node in prompt.children if isinstance(node, Import)]
    while waiting:
        node = waiting.pop()
        waiting.extend(inner for inner in node.children if isinstance(inner, Import))
        if node.name == name:
            spans.append(node.name_span)
    return spans[0] if len(spans) == 1 else prompt.span


def _slot_tokens(layout: SchemaLayout) -> Counter[int]:
    """The number of slot tokens of each run, by index of the run."""
    slots: Counter[int] = Counter()
    for module in layout.schema.modules():
        for child in module.contents():
            if isinstance(child, Param) and (extent := layout.extent(child)) is not None:
                slots[extent.run] += extent.hi - extent.lo
    return slots
