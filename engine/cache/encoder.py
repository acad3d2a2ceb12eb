"""Tokens in the sight of others → segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.model.model import Model
from engine.model.packed_kv_cache import PackedText, empty_segment
from engine.prompt.recipe import Recipe
from engine.segment import Placement, Segment


def encode(model: Model, recipes: Sequence[Recipe], segments: Mapping[str, Segment]) -> list[Segment]:
    """Computes the keys and values of recipes in one pass (paper, section 3.3, where they see nothing else).

    What a recipe sees stands before its `start`, for most models at negative positions, and its tokens at
    `start` and after, so the keys come out at local positions.

    Args:
        model: the model that reads the tokens.
        recipes: the recipes; at least one, and several only of a model that packs.
        segments: the segments that they see, by key, but for those of this pass.

    Returns:
        Their segments, in order; keys and values [layers, kv_heads, tokens, head_dim].
    """
    device = model.network.device
    made = {one.key: empty_segment(model.form, one.key, one.token_ids, device) for one in recipes}

    def placed(recipe: Recipe) -> tuple[Placement, ...]:
        return tuple(
            Placement(made.get(seen.recipe.key) or segments[seen.recipe.key], seen.lo, seen.hi, seen.start)
            for seen in recipe.context
        )

    model.network.encode([PackedText(made[one.key], one.start, placed(one)) for one in recipes])
    return [made[one.key] for one in recipes]
