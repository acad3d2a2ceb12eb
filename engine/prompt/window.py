"""What fits a model's context window: prompts, and every segment with all that it is encoded in sight of.

No tensors. What does not fit is a diagnostic before anything is computed: beyond the window a model reads
other positions than it was made for, or none at all.
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
    'isolated shows a module less, and with cache="false" it is not encoded by itself'
)


class TooLongError(PromptError):
    """A prompt does not fit the context window.

    Attributes:
        tokens: that the prompt has, or positions that it takes where these are more.
        most: that the model reads.
    """

    def __init__(self, diagnostics: tuple[Diagnostic, ...], tokens: int, most: int) -> None:
        super().__init__(diagnostics)
        self.tokens, self.most = tokens, most


@dataclass(frozen=True)
class Window:
    """The context window of a model.

    Attributes:
        model: its name.
        length: how many tokens a prompt and its answer may have together.
    """

    model: str
    length: int

    @property
    def most(self) -> int:
        """The most positions of a prompt: one is left for the answer."""
        return self.length - 1

    def of_prompt(
        self, prompt: Prompt, plan: PromptPlan, uses: Sequence[RecipeSlice | None]
    ) -> Iterator[Diagnostic]:
        """Yields why a prompt, or a segment that it reads, does not fit.

        Args:
            prompt: the prompt, where the fault is shown.
            plan: the plan of the prompt.
            uses: the slice that each of its pieces reads; () for a side that reads no segments.
        """
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
        """Yields which modules and scaffolds no prompt can use, as they are encoded under a scope."""
        schema, slots = layout.schema, _slot_tokens(layout)
        longest: dict[str, int] = {}
        for run in layout.runs:
            if run.cacheable and book.scope != "scaffold":
                positions = book.of_run(run).reach
            else:  # it is computed in a prompt, where an argument may be empty
                before = layout.context(run, "anchored")
                positions = sum(one.tokens - slots[one.index] for one in (*before, run))
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
            f"{name} takes {positions} positions with its parameters' full length and what it is encoded "
            f"after; {self.model!r} reads at most {self.most}"
        )
        return make("E502", message, span, document.lines, _SEGMENT_HINT)


def _place(prompt: Prompt, path: str) -> Span:
    """Where a prompt imports a module, where one place can be told; else the whole of it."""
    name = path.rpartition("/")[2]
    found = []
    waiting = [node for node in prompt.children if isinstance(node, Import)]
    while waiting:
        node = waiting.pop()
        waiting.extend(inner for inner in node.children if isinstance(inner, Import))
        if node.name == name:
            found.append(node.name_span)
    return found[0] if len(found) == 1 else prompt.span


def _slot_tokens(layout: SchemaLayout) -> Counter[int]:
    """How many tokens of each run, by its index, are slots of parameters."""
    slots: Counter[int] = Counter()
    for module in layout.schema.modules():
        for child in module.contents():
            if isinstance(child, Param) and (extent := layout.extent(child)) is not None:
                slots[extent.run] += extent.hi - extent.lo
    return slots
