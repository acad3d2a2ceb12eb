"""Repair: computes some cached tokens again, with the whole prompt before them.

A segment saw less than its prompt has before it. Computing a few of its tokens again removes most of the
difference. The repaired tokens are new tokens, and segments hide their places, so every query sees exactly
the keys up to its own position.

- `link:K`: the first K tokens of every run (EPIC, arXiv 2410.15332).
- `blend:R`: the share R of cached tokens whose keys in the second layer differ most from those of a full
  pass (CacheBlend, arXiv 2405.16444). The pass ends at that layer.
- `query:R`: the share R with the most attention from the new tokens (ProphetKV, arXiv 2602.02579), measured
  by a prefill of those tokens.
- `impact:R`: the share R with the most attention from the new tokens in the last third of the layers, divided
  by √(1 + place in the module). Early layers attend to near and common tokens, deep ones to the tokens that
  decide the answer. The first tokens of a module lack the most context.

With R = 1, or K as long as the longest run, this is a full pass. Tokens that saw the whole text before them
are never computed again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.base.errors import SettingsError
from engine.base.segment import Placement
from engine.inference.run_settings import Repair

if TYPE_CHECKING:
    from engine.model.model import Model
    from engine.prompt.pieces import PromptPlan
    from engine.prompt.recipe import RecipeSlice

CHECK_LAYER = 1  # the first layer whose keys depend on the context


def chosen(
    repair: Repair,
    model: Model,
    plan: PromptPlan,
    uses: Sequence[RecipeSlice | None],
    placements: Sequence[Placement],
) -> frozenset[int]:
    """Returns the positions of the cached tokens to compute again.

    Raises:
        SettingsError: the model does not expose its attention.
    """
    open_to_repair = [use for use in inexact(plan, uses) if use is not None]
    if repair.kind == "none" or not open_to_repair:
        return frozenset()
    if repair.kind == "link":
        return frozenset(
            use.start + local - use.lo
            for use in open_to_repair
            for local in range(use.lo, min(use.hi, repair.tokens))
        )
    count = repaired(repair, plan, uses)
    if not count:
        return frozenset()
    scores = _SCORES[repair.kind](model, plan, placements)
    able = [use.start + local for use in open_to_repair for local in range(use.hi - use.lo)]
    able.sort(key=lambda position: (-scores[position], position))
    return frozenset(able[:count])


def repaired(repair: Repair, plan: PromptPlan, uses: Sequence[RecipeSlice | None]) -> int:
    """Returns how many cached tokens a repair computes again."""
    able = [use for use in inexact(plan, uses) if use is not None]
    if repair.kind == "link":
        return sum(max(0, min(use.hi, repair.tokens) - use.lo) for use in able)
    share = 0.0 if repair.kind == "none" else repair.share
    return min(math.ceil(share * cached_tokens(uses)), sum(use.hi - use.lo for use in able))


def cached_tokens(uses: Sequence[RecipeSlice | None]) -> int:
    """Returns the number of tokens of slices."""
    return sum(use.hi - use.lo for use in uses if use is not None)


def choosing(repair: Repair, model: Model, plan: PromptPlan, uses: Sequence[RecipeSlice | None]) -> int:
    """Returns the cost of choosing alone, in tokens that pass through the whole network, rounded up."""
    if repair.kind in ("none", "link") or not repair.share or not any(inexact(plan, uses)):
        return 0
    asking = len(plan.new_tokens) if repair.kind in ("query", "impact") else 0
    checked = min(CHECK_LAYER, model.layers - 1) if repair.kind == "blend" else 0
    return asking + math.ceil(plan.total_tokens * checked / model.layers)


def inexact(plan: PromptPlan, uses: Sequence[RecipeSlice | None]) -> list[RecipeSlice | None]:
    """The uses, with None for those whose segments saw exactly the text before them."""
    inexact_uses: list[RecipeSlice | None] = []
    exact = True  # so far
    before: list[tuple[int, int]] = []  # position and token
    for piece, use in zip(plan.pieces, uses, strict=True):
        if use is not None:
            away = use.start - use.lo - use.recipe.start
            seen = [
                (context_slice.start + i + away, token)
                for context_slice in use.recipe.context
                for i, token in enumerate(context_slice.recipe.token_ids[context_slice.lo : context_slice.hi])
            ]
            seen += [(use.start - use.lo + i, use.recipe.token_ids[i]) for i in range(use.lo)]
            exact = exact and seen == before
        inexact_uses.append(None if exact else use)
        before += [(piece.start + i, token) for i, token in enumerate(piece.token_ids)]
    return inexact_uses


def with_hidden(placements: Sequence[Placement], positions: frozenset[int]) -> list[Placement]:
    """Returns the placements with the tokens at these positions hidden."""
    placed = []
    for placement in placements:
        away = placement.shift
        shown = [i for i in range(placement.lo, placement.hi) if i + away not in positions]
        if shown:
            lo, hi = shown[0], shown[-1] + 1
            hidden = tuple(i for i in range(lo, hi) if i + away in positions)
            placed.append(Placement(placement.segment, lo, hi, lo + away, hidden))
    return placed


def _deviation(model: Model, plan: PromptPlan, placements: Sequence[Placement]) -> dict[int, float]:
    """The squared distance of cached tokens' keys from those of a full pass, in the checked layer."""
    layer = min(CHECK_LAYER, model.layers - 1)
    positions = plan.positions
    fresh, _ = model.network.first_keys(plan.token_ids, positions, layer)
    place = {position: index for index, position in enumerate(positions)}
    deviations: dict[int, float] = {}
    for placement in placements:
        at = place[placement.start]
        stored = model.network.placed_keys(placement, layer)
        apart = (fresh[:, at : at + placement.tokens] - stored).float().pow(2).sum((0, 2))
        deviations.update(
            zip(range(placement.start, placement.start + placement.tokens), apart.tolist(), strict=True)
        )
    return deviations


def _attention(
    model: Model, plan: PromptPlan, placements: Sequence[Placement], first_layer: int = 0
) -> dict[int, float]:
    """The attention of the new tokens to each cached one, over all heads, from a layer on."""
    if not model.network.shows_attention:
        raise SettingsError(
            f"repair query or impact needs the attention of {model.name!r}, but a model with its own "
            "attention code does not expose it. Use link:K or blend:R."
        )
    weights = model.network.attention_to_cache(plan.new_tokens, plan.new_positions, placements, first_layer)
    order = [p.start + i for p in placements for i in range(p.tokens)]
    return dict(zip(order, weights.tolist(), strict=True))


def _impact(model: Model, plan: PromptPlan, placements: Sequence[Placement]) -> dict[int, float]:
    """The attention of the new tokens to each cached one in deep layers, less for later tokens."""
    scores = _attention(model, plan, placements, model.layers - math.ceil(model.layers / 3))
    for placement in placements:
        for local in range(placement.lo, placement.hi):
            scores[local + placement.shift] /= math.sqrt(1 + local)
    return scores


_SCORES = {"blend": _deviation, "query": _attention, "impact": _impact}


def rows(plan: PromptPlan, positions: frozenset[int]) -> tuple[list[int], list[int]]:
    """Returns the new and repaired tokens, and their positions, ascending."""
    wanted = positions.union(plan.new_positions)
    both = [
        (place, token) for place, token in zip(plan.positions, plan.token_ids, strict=True) if place in wanted
    ]
    return [token for _, token in both], [place for place, _ in both]
