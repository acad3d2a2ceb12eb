"""What a segment could see while it was encoded: its recipe, whose digest is the segment's name.

A recipe is the tokens of a segment and the segments that stood before it, each with a recipe of its own. So
two segments have one name exactly when they were computed from the same tokens in the same sight, in whatever
schema or prompt. The scopes decide which recipes a prompt uses:

- `isolated`: earlier text of the same module (paper, section 3.3).
- `anchored`: also what stands before it in every prompt that imports it: the anonymous text, and the text of
  the modules it is nested in.
- `preceding`: also the modules right before it in this prompt, as many as have `PRECEDING_TOKENS` tokens
  together, at least one and at most `MOST_PRECEDING` runs. They see each other, and nothing before them but
  the anonymous text. Prompts in which these modules stand before it share the segment.
- `scaffold`: everything that stands before it in this prompt, arguments and new text included.

Under the first three, a scaffold of the schema whose modules are all imported is used instead of its members'
own segments (paper, later version): its modules, the modules round them, and the anonymous text see
everything of this set that stands before them in the prompt. Of several such scaffolds the one with the most
tokens is used (at a tie the earlier one in the schema), then the next that shares no module with those; the
anonymous text goes with the first.

Pure integers and digests: no tensors, no files.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.choices import Scope
from engine.prompt.layout import SchemaLayout, TextRun, ancestors
from engine.prompt.pieces import Piece, PromptPlan

KEY_VERSION = 2  # of what the names of segments are digests of
TURN = "earlier turn"  # in place of a module's path, of a segment of a conversation; no module is called so

PRECEDING_TOKENS = 256  # of the modules that one sees under `preceding`
MOST_PRECEDING = 8  # runs of text of these; more take long to plan

FixedScope = Literal["isolated", "anchored"]


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a segment is computed from.

    Attributes:
        key: the segment's name.
        token_ids: its tokens.
        path: the path of the module, "" for anonymous text or an argument, `TURN` for an earlier turn.
        context: what stands before it while it is encoded.
        start: position of its first token then; 0 unless the model cannot relocate.
        kept: False for what is needed in passing only: arguments, new text, uncached modules.
        turn: an earlier turn of the conversation.
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
        """How many tokens it has."""
        return len(self.token_ids)

    @property
    def reach(self) -> int:
        """How many positions a model reads while it is encoded: its tokens, and all from what it sees on."""
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
    """What of a model goes into the names of its segments.

    Attributes:
        fingerprint: digest of weights, configuration and tokenizer.
        dtype: the number format of keys and values.
        relocatable: False where a segment is bound to its place.
        salt: what keeps its segments apart from those of any other salt; "" for none.
    """

    fingerprint: str
    dtype: str
    relocatable: bool
    salt: str = ""

    @property
    def model(self) -> str:
        """The model as names of segments have it: with a salt no other's are found."""
        return f"{self.fingerprint}+{self.salt_digest}" if self.salt else self.fingerprint

    @property
    def salt_digest(self) -> str:
        """Stands for the salt in names; "" without one."""
        return hashlib.sha256(self.salt.encode("utf-8", "surrogatepass")).hexdigest() if self.salt else ""


_Chains = dict[tuple[int, int, int], tuple[int, Recipe]]


class RecipeBook:
    """The recipes of one schema.

    Args:
        layout: the layout of the schema.
        identity: the identity of the model.
        scope: the scope of the segments.
        spread: contexts stand at the schema's own distances (schema placement) and not one right behind the
            other (compact).
    """

    def __init__(self, layout: SchemaLayout, identity: Identity, scope: Scope, *, spread: bool) -> None:
        self.layout, self.identity, self.scope, self.spread = layout, identity, scope, spread
        self._by_run: dict[int, Recipe] = {}  # what does not depend on a prompt, as far as it was asked for

    def of_schema(self, window: int, turns_of: str | None = None) -> tuple[Recipe, ...]:
        """The recipes of every segment that prompts over this schema may want.

        Scaffolds are included, but for those that do not fit a window of so many tokens, which no prompt can
        use. Under the scope `scaffold` recipes depend on the whole prompt, so there are none.

        Args:
            window: how many tokens a prompt and its answer may have together.
            turns_of: the path of a module of turns; only prompts that import no other such module count. None
                for all prompts that have the turns of this layout.
        """
        if self.scope == "scaffold":
            return ()
        others = {path for _, path in self.layout.schema.index.turns if turns_of and path != turns_of} - {""}
        runs = [run for run in self.layout.runs if run.cacheable and run.path.partition("/")[0] not in others]
        found = [self.of_run(run) for run in runs]
        if self.scope == "preceding":
            found.extend(one for one in self._after_neighbours(runs) if one.reach < window)
        for scaffold in self.layout.schema.scaffolds:
            found.extend(self.of_scaffold(scaffold.modules, window) or ())
        return tuple({recipe.key: recipe for recipe in found}.values())

    def of_scaffold(self, modules: Iterable[str], window: int) -> tuple[Recipe, ...] | None:
        """The recipes of modules that are encoded together, or None where they do not fit the window."""
        runs = [run for run in self.layout.runs if run.cacheable]
        found = tuple(self._of_group(_closure(modules), runs).values())
        return found if all(recipe.reach < window for recipe in found) else None

    def of_run(self, run: TextRun) -> Recipe:
        """The recipe of a run that no prompt changes: `isolated`, and `anchored` for all other scopes."""
        scope: FixedScope = "isolated" if self.scope == "isolated" else "anchored"
        if run.index not in self._by_run:
            context = self.layout.context(run, scope)
            seen = [self.layout.seen_of(one, run) for one in context]
            self._by_run[run.index] = self._of_runs(run, context, [self.of_run(one) for one in context], seen)
        return self._by_run[run.index]

    def of_plan(self, plan: PromptPlan) -> tuple[RecipeSlice | None, ...]:
        """For each piece of a prompt what it reads and where, or None where it is computed."""
        scaffolded = {} if self.scope == "scaffold" else self._scaffolded(plan)
        in_prompt = self.scope == "scaffold" or any(piece.turn for piece in plan.pieces)
        preceding = self._preceding(plan) if self.scope == "preceding" else {}
        whole: list[RecipeSlice] = []  # every piece so far, computed ones included
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
        """The scaffolds of the schema that a prompt uses, each as the paths of its modules."""
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
        """How many tokens a scaffold of these modules has, with the modules round them and anonymous text."""
        group = _closure(modules)
        return sum(run.tokens for run in self.layout.runs if run.path in group or not run.path)

    def _preceding(self, plan: PromptPlan) -> dict[int, Recipe]:
        """Recipes of the runs that see the modules before them, by index of the run."""
        pieces = [piece for piece in plan.pieces if piece.run is not None and piece.cached]
        ends = {piece.run.index: piece.lo + piece.tokens for piece in pieces if piece.run is not None}
        runs = list({piece.run.index: piece.run for piece in pieces if piece.run is not None}.values())
        made: _Chains = {}
        return {run.index: self._after(run, runs[:place], ends, made) for place, run in enumerate(runs)}

    def _after_neighbours(self, runs: Sequence[TextRun]) -> Iterator[Recipe]:
        """Yields the recipes for a prompt with every module, and of other unions the first member."""
        made: _Chains = {}
        for place, run in enumerate(runs):
            before = [one for one in runs[:place] if self._together(one, run)]
            yield self._after(run, before, {one.index: self.layout.seen_of(one, run) for one in before}, made)

    def _together(self, one: TextRun, run: TextRun) -> bool:
        """Whether a run stands before another in that prompt."""
        own, union_of = ancestors(run.path), self.layout.schema.union_of
        unions = {id(union_of(path)) for path in own}
        for path in ancestors(one.path) - own:
            union = union_of(path)
            if union is not None and (id(union) in unions or union.members[0].path != path):
                return False
        return True

    def _after(
        self, run: TextRun, before: Sequence[TextRun], ends: Mapping[int, int], made: _Chains
    ) -> Recipe:
        """The recipe of a run that also sees the nearest modules before it.

        Args:
            run: the run.
            before: what stands before it, in that order.
            ends: how many tokens of each are read.
            made: recipes by the number of what they see, their run, and how much of it is read; takes new
                ones. Texts begin with the same ones, which are then made once.
        """
        known = {one.index for one in before if one.path in ancestors(run.path) | {""}}
        nearest: list[TextRun] = []
        for one in reversed(before):
            if one.index in known:
                continue
            if len(nearest) == MOST_PRECEDING:
                break
            if sum(near.tokens for near in nearest) >= PRECEDING_TOKENS and one.path != nearest[-1].path:
                break
            nearest.append(one)
        shown = known.union(one.index for one in nearest)
        context = [one for one in before if one.index in shown]
        recipes: list[Recipe] = []
        lengths: list[int] = []
        number = 0
        for place, one in enumerate(context):
            read = one.tokens - (one.seam if ends[one.index] <= one.tokens - one.seam else 0)
            step = (number, one.index, read)
            if step not in made:
                recipe = self._of_runs(one, context[:place], recipes, lengths, kept=False)
                made[step] = (len(made) + 1, recipe)
            number, recipe = made[step]
            recipes.append(recipe)
            lengths.append(read)
        return self._of_runs(run, context, recipes, lengths)

    def _scaffolded(self, plan: PromptPlan) -> dict[int, Recipe]:
        """Recipes of the runs that belong to a used scaffold, by index of the run."""
        found: dict[int, Recipe] = {}
        for modules in self.scaffolds(plan):
            group = _closure(modules)
            runs = {p.run.index: p.run for p in plan.pieces if p.run is not None and p.cached}
            ends = {p.run.index: p.lo + p.tokens for p in plan.pieces if p.run is not None and p.cached}
            for index, recipe in self._of_group(group, runs.values(), ends).items():
                found.setdefault(index, recipe)
        return found

    def _of_group(
        self, group: frozenset[str], runs: Iterable[TextRun], ends: Mapping[int, int] | None = None
    ) -> dict[int, Recipe]:
        """Recipes of a scaffold's runs and of the anonymous ones.

        Args:
            group: the modules of the scaffold and those round them.
            runs: in the order in which they stand.
            ends: where the prompt stops to read a run; without, seams are read but at the end of a turn.
        """
        order = [run for run in runs if run.path in group or not run.path]
        found: dict[int, Recipe] = {}
        seen: list[int] = []
        for place, run in enumerate(order):
            before = order[:place]
            recipes = [found[earlier.index] for earlier in before]
            found[run.index] = self._of_runs(run, before, recipes, seen)
            behind = order[place + 1] if place + 1 < len(order) else run
            read = run.turn == behind.turn if ends is None else ends[run.index] > run.tokens - run.seam
            seen.append(run.tokens - (0 if read else run.seam))
        return found

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
        """The recipe of a piece in sight of everything before it."""
        start = 0 if self.identity.relocatable else piece.start
        away = start - piece.start
        context = tuple(RecipeSlice(one.recipe, one.lo, one.hi, one.start + away) for one in before)
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
        seen = [(one.recipe.key, one.lo, one.hi, one.start) for one in context]
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
        context: what was visible before it while it was encoded: keys of segments, which of their tokens, and
            where the first of those stood.
        start: where its own first token stood; 0 unless the model cannot relocate.
    """
    header = f"{KEY_VERSION}|{fingerprint}|{dtype}|{start}|{len(context)}|"
    digest = hashlib.sha256(header.encode())
    for key, lo, hi, at in context:
        digest.update(f"{key}|{lo}|{hi}|{at}|".encode())
    digest.update(array("q", token_ids).tobytes())
    return digest.hexdigest()[:40]


def _closure(paths: Iterable[str]) -> frozenset[str]:
    """The paths with those of the modules round them."""
    return frozenset(path for inner in paths for path in ancestors(inner))
