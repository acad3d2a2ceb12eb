"""Repair: cached tokens that are computed again in sight of the real prompt.

A segment saw less than what stands before it in a prompt. A few of its tokens, computed again, bring most
of the difference back. They are just more new tokens and segments with hidden places, so every query still
sees exactly the keys at its own position and before.

- `link:K`: the first K tokens of every run (EPIC, arXiv 2410.15332).
- `blend:R`: the share R of cached tokens whose keys in the second layer deviate most from those of a full
  pass (CacheBlend, arXiv 2405.16444). The pass ends at that layer.
- `query:R`: the share R to which the new tokens attend most (ProphetKV, arXiv 2602.02579), found by a prefill
  of those tokens.
- `impact:R`: the share R to which the new tokens attend most in the last third of the layers, the first
  tokens of each module preferred: attention / √(1 + place in the module). Early layers attend to what is
  near and common; the deep ones to what the answer is made of. The first tokens miss most of what they would
  have seen.

With K as long as the longest run, or R = 1, what is left is the full pass. Tokens that saw everything before
them already are never computed again.
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

CHECK_LAYER = 1  # the first one whose keys depend on what a token saw


def chosen(
    repair: Repair,
    model: Model,
    plan: PromptPlan,
    uses: Sequence[RecipeSlice | None],
    placements: Sequence[Placement],
) -> frozenset[int]:
    """Returns the positions of the cached tokens that are computed again.

    Args:
        repair: the kind and size of the repair.
        model: the model that computes what the choice needs.
        plan: the plan of the prompt.
        uses: the slice that each of its pieces reads.
        placements: the segments in their places, one for each piece that reads one.

    Raises:
        SettingsError: the model does not show what its tokens attend to.
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
    found = _SCORES[repair.kind](model, plan, placements)
    able = [use.start + local for use in open_to_repair for local in range(use.hi - use.lo)]
    able.sort(key=lambda position: (-found[position], position))
    return frozenset(able[:count])


def repaired(repair: Repair, plan: PromptPlan, uses: Sequence[RecipeSlice | None]) -> int:
    """Returns how many cached tokens a repair computes again.

    Args:
        repair: the kind and size of the repair.
        plan: the plan of the prompt.
        uses: the slice that each of its pieces reads.
    """
    able = [use for use in inexact(plan, uses) if use is not None]
    if repair.kind == "link":
        return sum(max(0, min(use.hi, repair.tokens) - use.lo) for use in able)
    share = 0.0 if repair.kind == "none" else repair.share
    return min(math.ceil(share * cached_tokens(uses)), sum(use.hi - use.lo for use in able))


def cached_tokens(uses: Sequence[RecipeSlice | None]) -> int:
    """Returns how many tokens slices have together."""
    return sum(use.hi - use.lo for use in uses if use is not None)


def choosing(repair: Repair, model: Model, plan: PromptPlan, uses: Sequence[RecipeSlice | None]) -> int:
    """Returns what choosing alone costs, in tokens that pass through the whole network, rounded up.

    Args:
        repair: the kind and size of the repair.
        model: the model that computes what the choice needs.
        plan: the plan of the prompt.
        uses: the slice that each of its pieces reads.
    """
    if repair.kind in ("none", "link") or not repair.share or not any(inexact(plan, uses)):
        return 0
    asking = len(plan.new_tokens) if repair.kind in ("query", "impact") else 0
    checked = min(CHECK_LAYER, model.layers - 1) if repair.kind == "blend" else 0
    return asking + math.ceil(plan.total_tokens * checked / model.layers)


def inexact(plan: PromptPlan, uses: Sequence[RecipeSlice | None]) -> list[RecipeSlice | None]:
    """The uses, without those whose segments saw all that stands before them just as it stands."""
    found: list[RecipeSlice | None] = []
    exact = True  # everything so far
    before: list[tuple[int, int]] = []  # position and token
    for piece, use in zip(plan.pieces, uses, strict=True):
        if use is not None:
            away = use.start - use.lo - use.recipe.start
            seen = [
                (one.start + i + away, token)
                for one in use.recipe.context
                for i, token in enumerate(one.recipe.token_ids[one.lo : one.hi])
            ]
            seen += [(use.start - use.lo + i, use.recipe.token_ids[i]) for i in range(use.lo)]
            exact = exact and seen == before
        found.append(None if exact else use)
        before += [(piece.start + i, token) for i, token in enumerate(piece.token_ids)]
    return found


def with_hidden(placements: Sequence[Placement], positions: frozenset[int]) -> list[Placement]:
    """The placements without the tokens at these positions."""
    found = []
    for placement in placements:
        away = placement.shift
        kept = [i for i in range(placement.lo, placement.hi) if i + away not in positions]
        if kept:
            lo, hi = kept[0], kept[-1] + 1
            hidden = tuple(i for i in range(lo, hi) if i + away in positions)
            found.append(Placement(placement.segment, lo, hi, lo + away, hidden))
    return found


def _deviation(model: Model, plan: PromptPlan, placements: Sequence[Placement]) -> dict[int, float]:
    """How far the keys of cached tokens lie from those of a full pass, in the layer that is checked."""
    layer = min(CHECK_LAYER, model.layers - 1)
    positions = plan.positions
    fresh, _ = model.network.first_keys(plan.token_ids, positions, layer)
    place = {position: index for index, position in enumerate(positions)}
    found: dict[int, float] = {}
    for placement in placements:
        at = place[placement.start]
        stored = model.network.placed_keys(placement, layer)
        apart = (fresh[:, at : at + placement.tokens] - stored).float().pow(2).sum((0, 2))
        found.update(
            zip(range(placement.start, placement.start + placement.tokens), apart.tolist(), strict=True)
        )
    return found


def _attention(
    model: Model, plan: PromptPlan, placements: Sequence[Placement], first_layer: int = 0
) -> dict[int, float]:
    """How much the new tokens attend to each cached one, over all heads, from a layer on."""
    if not model.network.shows_attention:
        raise SettingsError(
            f"repair query or impact needs to see what {model.name!r} attends to, which models with "
            "attention code of their own do not show. Use link:K or blend:R."
        )
    weights = model.network.attention_to_cache(plan.new_tokens, plan.new_positions, placements, first_layer)
    order = [p.start + i for p in placements for i in range(p.tokens)]
    return dict(zip(order, weights.tolist(), strict=True))


def _impact(model: Model, plan: PromptPlan, placements: Sequence[Placement]) -> dict[int, float]:
    """How much the new tokens attend to each cached one in the deep layers, the less the further in it is."""
    found = _attention(model, plan, placements, model.layers - math.ceil(model.layers / 3))
    for placement in placements:
        for local in range(placement.lo, placement.hi):
            found[local + placement.shift] /= math.sqrt(1 + local)
    return found


_SCORES = {"blend": _deviation, "query": _attention, "impact": _impact}


def rows(plan: PromptPlan, positions: frozenset[int]) -> tuple[list[int], list[int]]:
    """The tokens that are computed, new ones and repaired ones, and their positions, ascending."""
    wanted = positions.union(plan.new_positions)
    both = [
        (place, token) for place, token in zip(plan.positions, plan.token_ids, strict=True) if place in wanted
    ]
    return [token for _, token in both], [place for place, _ in both]
