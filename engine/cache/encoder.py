"""Tokens in the sight of others → segment."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.model import Model
from engine.segment import Placement, Segment


def encode(
    model: Model, key: str, token_ids: Sequence[int], context: Sequence[Placement] = (), start: int = 0
) -> Segment:
    """Computes the keys and values of a run of tokens (paper, section 3.3, for an empty context).

    The context stands before `start`, for most models at negative positions, and the run at `start` and
    after, so the keys come out at local positions.

    Args:
        model: the model that reads the tokens.
        key: name of the segment.
        token_ids: the run's tokens; at least one.
        context: the placements that stand before the run.
        start: position of the first token; 0 for models that can relocate.

    Returns:
        The segment; keys and values [layers, kv_heads, tokens, head_dim].
    """
    kv = model.network.kv_cache(context, len(token_ids))
    model.network.forward(token_ids, range(start, start + len(token_ids)), kv)
    keys, values = kv.tail
    return Segment(key, tuple(token_ids), keys, values)
