"""Repair: cached tokens that are computed again in sight of the real prompt.

A segment saw less than what stands before it in a prompt. A few of its tokens, computed again, bring most
of the difference back. They are just more new tokens and segments with hidden places, so every query still
sees exactly the keys at its own position and before.

- `link:K`: the first K tokens of every run (EPIC, arXiv 2410.15332).
- `blend:R`: the share R of cached tokens whose keys in the second layer deviate most from those of a full
  pass (CacheBlend, arXiv 2405.16444). The pass ends at that layer.
- `query:R`: the share R to which the new tokens attend most (ProphetKV, arXiv 2602.02579), found by a prefill
  of those tokens.
- `impact:R`: the share R of which the product of both is greatest: how far keys and values deviate in the
  layers 2 to 4, and how much the new tokens attend to them. What nobody looks at may be wrong, and what is
  right may be looked at.

With K as long as the longest run, or R = 1, what is left is the full pass. Tokens that saw everything before
them already are never computed again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from engine.errors import SettingsError
from engine.inference.params import Repair
from engine.segment import Placement

if TYPE_CHECKING:
    from engine.model.model import Model
    from engine.prompt.pieces import PromptPlan
    from engine.prompt.recipe import RecipeSlice

CHECK_LAYER = 1  # the first one whose keys depend on what a token saw
IMPACT_LAYERS = range(1, 4)


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
    count = math.ceil(repair.share * sum(p.tokens for p in placements))
    if not count:
        return frozenset()
    found = _SCORES[repair.kind](model, plan, placements)
    able = [use.start + local for use in open_to_repair for local in range(use.hi - use.lo)]
    able.sort(key=lambda position: (-found[position], position))
    return frozenset(able[:count])


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
    checked = {"blend": CHECK_LAYER, "impact": IMPACT_LAYERS[-1]}.get(repair.kind, 0)
    return asking + math.ceil(plan.total_tokens * min(checked, model.layers - 1) / model.layers)


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


def _impact(model: Model, plan: PromptPlan, placements: Sequence[Placement]) -> dict[int, float]:
    """How far keys and values deviate in the first layers, times how much the new tokens attend to them."""
    attention = _attention(model, plan, placements)
    network, positions = model.network, plan.positions
    layers = [layer for layer in IMPACT_LAYERS if layer < model.layers] or [model.layers - 1]
    kv = network.kv_cache((), len(positions))
    network.forward_to(layers[-1], plan.token_ids, positions, kv)
    place = {position: index for index, position in enumerate(positions)}
    found = dict[int, float]()
    for placement in placements:
        at, count = place[placement.start], placement.tokens
        apart = torch.zeros(count, device=network.device)
        for layer in layers:
            keys, values = (tail[:, at : at + count] for tail in kv.layer_tail(layer))
            stored = placement.segment.values[layer, :, placement.lo : placement.hi]
            for fresh, held in ((keys, network.placed_keys(placement, layer)), (values, stored)):
                apart += (fresh - held).float().pow(2).sum((0, 2))
        found.update(zip(range(placement.start, placement.start + count), apart.tolist(), strict=True))
    return {position: score * attention[position] for position, score in found.items()}


def _attention(model: Model, plan: PromptPlan, placements: Sequence[Placement]) -> dict[int, float]:
    """How much the new tokens attend to each cached one, over all layers and heads."""
    if not model.network.shows_attention:
        raise SettingsError(
            f"repair query or impact needs to see what {model.name!r} attends to, which models with "
            "attention code of their own do not show. Use link:K or blend:R."
        )
    weights = model.network.attention_to_cache(plan.new_tokens, plan.new_positions, placements)
    order = [p.start + i for p in placements for i in range(p.tokens)]
    return dict(zip(order, weights.tolist(), strict=True))


_SCORES = {"blend": _deviation, "query": _attention, "impact": _impact}


def rows(plan: PromptPlan, positions: frozenset[int]) -> tuple[list[int], list[int]]:
    """The tokens that are computed, new ones and repaired ones, and their positions, ascending."""
    wanted = positions.union(plan.new_positions)
    both = [
        (place, token) for place, token in zip(plan.positions, plan.token_ids, strict=True) if place in wanted
    ]
    return [token for _, token in both], [place for place, _ in both]
