"""Tokens under a scope → segment."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model import Model
from engine.segment import Placement, Segment


def encode(model: Model, key: str, token_ids: Sequence[int], context: Sequence[Segment]) -> Segment:
    """Computes the keys and values of a run directly after its context.

    The context stands at negative positions and the run at 0..n-1, so the keys come out at local positions
    (paper, section 3.3, for an empty context).

    Args:
        model: that reads the tokens.
        key: name of the segment.
        token_ids: of the run; at least one.
        context: segments of what stands before it, in order.

    Returns:
        The segment; keys and values [layers, kv_heads, tokens, head_dim].
    """
    position = -sum(segment.tokens for segment in context)
    placements = []
    for segment in context:
        placements.append(Placement(segment, 0, segment.tokens, position))
        position += segment.tokens
    kv = model.key_values(placements, len(token_ids))
    model.forward(token_ids, range(len(token_ids)), kv)
    keys, values = kv.tail
    return Segment(key, tuple(token_ids), keys, values)
