"""Tokens that a tokenizer produces but its model cannot read: their ids exceed the embedding.

Such a model is still usable: prompts without these tokens work normally.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.pml import Diagnostic, Prompt, make
from engine.prompt.layout import SchemaLayout
from engine.prompt.pieces import PromptPlan
from engine.prompt.recipe import Recipe, RecipeSlice

_SHOWN = 3
_HINT = "remove these spellings, or use the model's own tokenizer"


@dataclass(frozen=True)
class UnknownTokens:
    """The tokens that a model does not know: ids from `known` on, with their spellings."""

    model: str
    known: int
    spellings: Mapping[int, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: str, tokenizer: Any, known: int) -> UnknownTokens:
        """Compares a transformers tokenizer with the rows of an embedding."""
        beyond = ((index, text) for text, index in tokenizer.get_vocab().items() if index >= known)
        return cls(model, known, dict(sorted(beyond)))

    @property
    def note(self) -> str:
        """A note on them; empty if there are none."""
        if not self.spellings:
            return ""
        return (
            f"the tokenizer of model {self.model!r} has tokens without a row in its embedding, which has "
            f"{self.known} rows: {self._listed(self.spellings)}. A prompt with such a token is refused; use "
            "the model's own tokenizer"
        )

    def of_prompt(
        self, prompt: Prompt, plan: PromptPlan, uses: Sequence[RecipeSlice | None]
    ) -> Iterator[Diagnostic]:
        """Reports unknown tokens of a prompt or of its segments' input; `uses` is empty without segments."""
        if self.spellings:
            read = _read(use.recipe for use in uses if use is not None)
            unknown = self.spellings.keys() & {*plan.token_ids, *read}
            if unknown:
                yield make("E509", f"the prompt has {self._words(unknown)}", prompt.span, prompt.lines, _HINT)

    def of_schema(self, layout: SchemaLayout) -> Iterator[Diagnostic]:
        """Reports unknown tokens of a schema's modules."""
        schema, by_path = layout.schema, dict[str, set[int]]()
        for run in layout.runs if self.spellings else ():
            by_path.setdefault(run.path, set()).update(self.spellings.keys() & set(run.token_ids))
        for path, ids in by_path.items():
            module = schema.module(path) if path else None
            if ids:
                name = f"module {path!r}" if path else "the fixed text"
                span = module.span if module else schema.span
                yield make("E509", f"{name} has {self._words(ids)}", span, schema.lines, _HINT)

    def _words(self, found: Iterable[int]) -> str:
        return (
            f"tokens that the model {self.model!r} does not know (it knows {self.known:,}): "
            f"{self._listed(sorted(found))}"
        )

    def _listed(self, ids: Iterable[int]) -> str:
        named = [f"{self.spellings[token]!r} ({token})" for token in ids]
        more = len(named) - _SHOWN
        return ", ".join(named[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _read(recipes: Iterable[Recipe]) -> Iterator[int]:
    """The tokens of recipes and of their contexts."""
    waiting, seen = list(recipes), set[str]()
    while waiting:
        recipe = waiting.pop()
        if recipe.key not in seen:
            seen.add(recipe.key)
            yield from recipe.token_ids
            waiting.extend(item.recipe for item in recipe.context)
