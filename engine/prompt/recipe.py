"""Recipes of segments. A recipe lists all input of a segment; its digest is the segment's name.

A recipe consists of a segment's tokens and the segments in its context, which have recipes themselves. Two
segments share a name exactly if they have the same tokens and the same context, in any schema or prompt. The
scope decides which recipes a prompt uses:

- `isolated`: the context is earlier text of the same module (paper, section 3.3).
- `anchored`: also the text before it in every prompt that imports it: the anonymous text, and the text of its
  ancestors.
- `preceding`: also the modules right before it in this prompt. These are the nearest modules with
  `PRECEDING_TOKENS` tokens in total, at least one module and at most `MOST_PRECEDING` runs. They attend to
  each other and to the anonymous text. Prompts with the same preceding modules share the segment.
- `scaffold`: everything before it in this prompt, including arguments and new text.

Under the first three scopes, a scaffold of the schema replaces its members' own segments if a prompt imports
all of its modules (paper, later version). Its modules, their ancestors, and the anonymous text attend to
everything of this set that precedes them in the prompt. The scaffold with the most tokens is used first (the
earlier one at a tie), then the next that shares no module with those. The anonymous text belongs to the
first.

No tensors, no files.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.base.choices import Scope
from engine.prompt.layout import SchemaLayout, TextRun, ancestors
from engine.prompt.pieces import Piece, PromptPlan

KEY_VERSION = 2  # version of the digest's input
TURN = "earlier turn"  # path of a segment of a conversation; no module has this name
PRECEDING_TOKENS = 256  # size of the context under `preceding`
MOST_PRECEDING = 8  # runs in that context; more are slow to plan

FixedScope = Literal["isolated", "anchored"]


@dataclass(frozen=True, eq=False)
class Recipe:
    """The input of a segment.

    Attributes:
        key: the segment's name.
        token_ids: its tokens.
        path: the path of the module, "" for anonymous text or an argument, `TURN` for an earlier turn.
        context: the slices before it while it is encoded.
        start: position of its first token in that encoding; 0 unless the model cannot relocate.
        kept: False for intermediate segments: arguments, new text, uncached modules.
        turn: whether it is an earlier turn of the conversation.
    """

    key: str
    token_ids: tuple[int, ...]
    path: str
    context: tuple[RecipeSlice, ...] = ()
    start: int = 0
    kept: bool = True
    turn: bool = False

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return len(self.token_ids)

    @property
    def reach(self) -> int:
        """The number of positions from the start of its context to its end."""
        first = min((seen.start for seen in self.context), default=0)
        return self.start + self.tokens - min(0, first)


@dataclass(frozen=True)
class RecipeSlice:
    """Tokens `lo..hi` of a segment, from position `start` on."""

    recipe: Recipe
    lo: int
    hi: int
    start: int


@dataclass(frozen=True)
class Identity:
    """The properties of a model that determine the names of its segments.

    Attributes:
        fingerprint: digest of weights, configuration and tokenizer.
        dtype: the number format of keys and values.
        relocatable: False if a segment is bound to its position.
        salt: separates its segments from those of other salts; "" for none.
    """

    fingerprint: str
    dtype: str
    relocatable: bool
    salt: str = ""

    @property
    def model(self) -> str:
        """The model in the names of segments, including the salt."""
        return f"{self.fingerprint}+{self.salt_digest}" if self.salt else self.fingerprint

    @property
    def salt_digest(self) -> str:
        """The digest of the salt for names; "" without a salt."""
        return hashlib.sha256(self.salt.encode("utf-8", "surrogatepass")).hexdigest() if self.salt else ""


_Chains = dict[tuple[int, int, int], tuple[int, Recipe]]


class RecipeBook:
    """The recipes of one schema for a model and a scope.

    With `spread`, contexts use the schema's own distances (schema placement), otherwise no gaps (compact).
    """

    def __init__(self, layout: SchemaLayout, identity: Identity, scope: Scope, *, spread: bool) -> None:
        self.layout, self.identity, self.scope, self.spread = layout, identity, scope, spread
        self._by_run: dict[int, Recipe] = {}  # cached recipes that do not depend on a prompt

    def of_schema(self, window: int, turns_of: str | None = None) -> tuple[Recipe, ...]:
        """Returns the recipes of every segment that prompts over this schema may use.

        Scaffolds are included unless they exceed the window. The scope `scaffold` gives no recipes, because
        they depend on the whole prompt.

        Args:
            window: maximum number of tokens of a prompt with its answer.
            turns_of: the path of a module with turns; only prompts that import no other such module count.
                None for all prompts that have the turns of this layout.
        """
        if self.scope == "scaffold":
            return ()
        others = {path for _, path in self.layout.schema.index.turns if turns_of and path != turns_of} - {""}
        runs = [run for run in self.layout.runs if run.cacheable and run.path.partition("/")[0] not in others]
        recipes = [self.of_run(run) for run in runs]
        if self.scope == "preceding":
            recipes.extend(near for near in self._after_neighbours(runs) if near.reach < window)
        for scaffold in self.layout.schema.scaffolds:
            recipes.extend(self.of_scaffold(scaffold.modules, window) or ())
        return tuple({recipe.key: recipe for recipe in recipes}.values())

    def of_scaffold(self, modules: Iterable[str], window: int) -> tuple[Recipe, ...] | None:
        """Returns the recipes of modules that are encoded together, or None if they exceed the window."""
        runs = [run for run in self.layout.runs if run.cacheable]
        recipes = tuple(self._of_group(_closure(modules), runs).values())
        return recipes if all(recipe.reach < window for recipe in recipes) else None

    def of_run(self, run: TextRun) -> Recipe:
        """Returns a run's recipe independent of prompts: `isolated`, or `anchored` for all other scopes."""
        scope: FixedScope = "isolated" if self.scope == "isolated" else "anchored"
        if run.index not in self._by_run:
            context = self.layout.context(run, scope)
            seen = [self.layout.seen_of(r, run) for r in context]
            self._by_run[run.index] = self._of_runs(run, context, [self.of_run(r) for r in context], seen)
        return self._by_run[run.index]

    def of_plan(self, plan: PromptPlan) -> tuple[RecipeSlice | None, ...]:
        """Returns the slice that each piece of a prompt reads, or None if it is computed."""
        scaffolded = {} if self.scope == "scaffold" else self._scaffolded(plan)
        in_prompt = self.scope == "scaffold" or any(piece.turn for piece in plan.pieces)
        preceding = self._preceding(plan) if self.scope == "preceding" else {}
        whole: list[RecipeSlice] = []  # every earlier piece, including computed ones
        uses: list[RecipeSlice | None] = []
        for piece in plan.pieces:
            if not piece.cached and not in_prompt:
                uses.append(None)
                continue
            if piece.cached and piece.run is not None and self.scope != "scaffold":
                index = piece.run.index
                recipe = scaffolded.get(index) or preceding.get(index) or self.of_run(piece.run)
                seen = RecipeSlice(recipe, piece.lo, piece.lo + piece.tokens, piece.start)
            else:
                seen = RecipeSlice(self._in_prompt(piece, whole), 0, piece.tokens, piece.start)
            whole.append(seen)
            uses.append(seen if piece.cached else None)
        return tuple(uses)

    def scaffolds(self, plan: PromptPlan) -> tuple[tuple[str, ...], ...]:
        """Returns the scaffolds of the schema that a prompt uses, each as the paths of its modules."""
        sizes: dict[str, int] = {}
        for run in self.layout.runs:
            sizes[run.path] = sizes.get(run.path, 0) + run.tokens
        matching = [s.modules for s in self.layout.schema.scaffolds if plan.imports.issuperset(s.modules)]
        matching.sort(key=lambda modules: -sum(sizes.get(path, 0) for path in _closure(modules)))
        taken: set[str] = set()
        used = []
        for modules in matching:
            if taken.isdisjoint(modules):
                taken.update(modules)
                used.append(modules)
        return tuple(used)

    def tokens_of(self, modules: Iterable[str]) -> int:
        """Returns the number of tokens of a scaffold, including ancestors and anonymous text."""
        group = _closure(modules)
        return sum(run.tokens for run in self.layout.runs if run.path in group or not run.path)

    def _preceding(self, plan: PromptPlan) -> dict[int, Recipe]:
        """Recipes of runs that attend to the modules before them, by index of the run."""
        pieces = [piece for piece in plan.pieces if piece.run is not None and piece.cached]
        ends = {piece.run.index: piece.lo + piece.tokens for piece in pieces if piece.run is not None}
        runs = list({piece.run.index: piece.run for piece in pieces if piece.run is not None}.values())
        made: _Chains = {}
        return {run.index: self._after(run, runs[:place], ends, made) for place, run in enumerate(runs)}

    def _after_neighbours(self, runs: Sequence[TextRun]) -> Iterator[Recipe]:
        """Recipes for a prompt with every module and the first member of each union."""
        made: _Chains = {}
        for place, run in enumerate(runs):
            before = [r for r in runs[:place] if self._together(r, run)]
            yield self._after(run, before, {r.index: self.layout.seen_of(r, run) for r in before}, made)

    def _together(self, one: TextRun, run: TextRun) -> bool:
        """Whether both runs occur in that prompt."""
        own_paths, union_of = ancestors(run.path), self.layout.schema.union_of
        unions = {id(union_of(path)) for path in own_paths}
        for path in ancestors(one.path) - own_paths:
            union = union_of(path)
            if union is not None and (id(union) in unions or union.members[0].path != path):
                return False
        return True

    def _after(
        self, run: TextRun, before: Sequence[TextRun], ends: Mapping[int, int], made: _Chains
    ) -> Recipe:
        """The recipe of a run that also attends to the nearest modules before it.

        `ends` has how many tokens of each are read. `made` caches recipes by the number of their context,
        their run, and how much of it is read, because contexts with a common beginning share recipes.
        """
        known = {prior.index for prior in before if prior.path in ancestors(run.path) | {""}}
        nearest: list[TextRun] = []
        for prior in reversed(before):
            if prior.index in known:
                continue
            if len(nearest) == MOST_PRECEDING:
                break
            if sum(near.tokens for near in nearest) >= PRECEDING_TOKENS and prior.path != nearest[-1].path:
                break
            nearest.append(prior)
        shown = known.union(prior.index for prior in nearest)
        context = [prior for prior in before if prior.index in shown]
        recipes: list[Recipe] = []
        lengths: list[int] = []
        number = 0
        for place, prior in enumerate(context):
            read = prior.tokens - (prior.seam if ends[prior.index] <= prior.tokens - prior.seam else 0)
            step = (number, prior.index, read)
            if step not in made:
                recipe = self._of_runs(prior, context[:place], recipes, lengths, kept=False)
                made[step] = (len(made) + 1, recipe)
            number, recipe = made[step]
            recipes.append(recipe)
            lengths.append(read)
        return self._of_runs(run, context, recipes, lengths)

    def _scaffolded(self, plan: PromptPlan) -> dict[int, Recipe]:
        """Recipes of runs in a used scaffold, by index of the run."""
        by_run: dict[int, Recipe] = {}
        for modules in self.scaffolds(plan):
            group = _closure(modules)
            runs = {p.run.index: p.run for p in plan.pieces if p.run is not None and p.cached}
            ends = {p.run.index: p.lo + p.tokens for p in plan.pieces if p.run is not None and p.cached}
            for index, recipe in self._of_group(group, runs.values(), ends).items():
                by_run.setdefault(index, recipe)
        return by_run

    def _of_group(
        self, group: frozenset[str], runs: Iterable[TextRun], ends: Mapping[int, int] | None = None
    ) -> dict[int, Recipe]:
        """Recipes of the runs of a scaffold (modules and ancestors) and of the anonymous runs.

        `ends` has how many tokens of each run the prompt reads; without it, separators are read except at the
        end of a turn.
        """
        order = [run for run in runs if run.path in group or not run.path]
        by_run: dict[int, Recipe] = {}
        seen: list[int] = []
        for place, run in enumerate(order):
            before = order[:place]
            recipes = [by_run[earlier.index] for earlier in before]
            by_run[run.index] = self._of_runs(run, before, recipes, seen)
            behind = order[place + 1] if place + 1 < len(order) else run
            read = run.turn == behind.turn if ends is None else ends[run.index] > run.tokens - run.seam
            seen.append(run.tokens - (0 if read else run.seam))
        return by_run

    def _of_runs(
        self,
        run: TextRun,
        context: Sequence[TextRun],
        recipes: Sequence[Recipe],
        lengths: Sequence[int],
        kept: bool = True,
    ) -> Recipe:
        start = 0 if self.identity.relocatable else run.start
        position = start - sum(lengths)
        seen = []
        for earlier, recipe, length in zip(context, recipes, lengths, strict=True):
            at = earlier.start - run.start + start if self.spread else position
            seen.append(RecipeSlice(recipe, 0, length, at))
            position += length
        return self._recipe(run.token_ids, run.path, tuple(seen), start, kept)

    def _in_prompt(self, piece: Piece, before: Sequence[RecipeSlice]) -> Recipe:
        """The recipe of a piece whose context is everything before it."""
        start = 0 if self.identity.relocatable else piece.start
        away = start - piece.start
        context = tuple(RecipeSlice(s.recipe, s.lo, s.hi, s.start + away) for s in before)
        path = TURN if piece.turn else piece.path
        return self._recipe(piece.token_ids, path, context, start, kept=piece.cached)

    def _recipe(
        self,
        token_ids: tuple[int, ...],
        path: str,
        context: tuple[RecipeSlice, ...],
        start: int,
        kept: bool = True,
    ) -> Recipe:
        seen = [(item.recipe.key, item.lo, item.hi, item.start) for item in context]
        key = segment_key(self.identity.model, self.identity.dtype, token_ids, seen, start)
        return Recipe(key, token_ids, path, context, start, kept, turn=path == TURN)


def segment_key(
    fingerprint: str,
    dtype: str,
    token_ids: Sequence[int],
    context: Sequence[tuple[str, int, int, int]] = (),
    start: int = 0,
) -> str:
    """Returns the content address of a segment.

    Args:
        fingerprint: the fingerprint of the model (weights, config, rotary parameters, tokenizer).
        dtype: the number format of the stored keys and values.
        token_ids: the tokens of the segment.
        context: for each slice in its context: key, first and last token, and position of the first.
        start: position of its first token; 0 unless the model cannot relocate.
    """
    header = f"{KEY_VERSION}|{fingerprint}|{dtype}|{start}|{len(context)}|"
    digest = hashlib.sha256(header.encode())
    for key, lo, hi, at in context:
        digest.update(f"{key}|{lo}|{hi}|{at}|".encode())
    digest.update(array("q", token_ids).tobytes())
    return digest.hexdigest()[:40]


def _closure(paths: Iterable[str]) -> frozenset[str]:
    """The paths and all their ancestors."""
    return frozenset(path for inner in paths for path in ancestors(inner))
