"""Attention over keys in several places by torch's fused kernel; parts are merged by their log-sum-exp.

The kernel reads keys and values in place, with any stride between heads. It copies nothing and holds few
scores. `engine.attention.kernels` handles unsupported cases (soft caps, attention weights) and shapes for
which the kernel is slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.attention.bf16_upcast import widens
from engine.attention.kernels import AttentionParams, Part
from engine.attention.masks import Hidden
from engine.attention.scratch import Scratch

# Packed rows per key head; above, the kernel repeats its layout of the keys every few rows.
MOST_ROWS = {torch.float32: 1 << 30, torch.bfloat16: 128}
# Below, both ways take as long, and the rounding of products is too coarse for the probe to identify rules.
FEWEST_KEYS = {torch.float32: 0, torch.bfloat16: 128}


def fuses(rules: AttentionParams, query: Tensor, keys: int) -> bool:
    """Whether the fused kernel is faster for packed queries [kv_heads, rows * group, head_dim]."""
    if query.device.type != "cpu" or rules.softcap is not None or query.dtype not in MOST_ROWS:
        return False
    few = query.shape[1] <= MOST_ROWS[query.dtype] or widens(query)
    return few and keys >= FEWEST_KEYS[query.dtype]


def attend_fused(parts: Sequence[Part], rules: AttentionParams, rows: int, scratch: Scratch) -> Tensor:
    """Attention of a block of rows over several parts, like `kernels.attend` but without soft caps.

    Each row must see a key of the last part. The result is packed, [kv_heads, rows * group, head_dim].
    """
    like = parts[-1].query
    kv_heads, count, _ = like.shape
    group = count // rows
    wide = widens(like)
    results = [
        result
        for part in parts
        for piece in _pieces(part, group)
        if (result := _over(_widened(piece, scratch) if wide else piece, group)) is not None
    ]
    if len(results) == 1 and rules.sinks is None:
        return results[0][0].to(like.dtype)
    sums = torch.full((len(results) + (rules.sinks is not None), kv_heads, count), -torch.inf)
    for own, (_, log_sum, before) in zip(sums, results, strict=False):
        own[:, before:] = log_sum
    if rules.sinks is not None:
        sinks = rules.sinks.float().view(kv_heads, 1, group)
        sums[-1] = sinks.expand(-1, rows, -1).reshape(kv_heads, count)
    shares = torch.softmax(sums, 0)[..., None]
    out, _, _ = results[-1]
    merged = out * shares[len(results) - 1]
    for share, (out, _, before) in zip(shares, results[:-1], strict=False):
        merged[:, before:] += out * share[:, before:]
    return merged.to(like.dtype)


def _pieces(part: Part, group: int) -> Iterator[Part]:
    """Splits a part into keys that all rows see and masked keys; yields nothing if no row sees any key."""
    hidden, keys = part.hidden, part.keys.shape[1] - part.hidden.beyond
    if hidden.before * group >= part.query.shape[1]:
        return
    boundary = keys if hidden.mask is None else keys - hidden.mask.shape[1]
    for start, end, own in ((hidden.gone, boundary, Hidden(hidden.before)), (boundary, keys, hidden)):
        if start < end:
            yield Part(part.query, part.keys[:, start:end], part.values[:, start:end], own)


def _widened(part: Part, scratch: Scratch) -> Part:
    """A part in fp32, in buffers that the next part overwrites."""
    query = part.query.float()
    keys = scratch.take("wide keys", tuple(part.keys.shape), query).copy_(part.keys)
    values = scratch.take("wide values", tuple(part.values.shape), query).copy_(part.values)
    return Part(query, keys, values, part.hidden)


def _over(part: Part, group: int) -> tuple[Tensor, Tensor, int] | None:
    """Output and log-sum-exp of the packed rows that see a piece, and the number of skipped first rows.

    None if no row sees any key.
    """
    before = part.hidden.before * group
    bias, blind = part.hidden.bias(group, part.query)
    if blind is not None and bool(blind.all()):
        return None
    out, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        part.query[None, :, before:], part.keys[None], part.values[None], attn_mask=bias, scale=1.0
    )
    if blind is not None:
        log_sum = log_sum.masked_fill(blind, -torch.inf)
    return out[0], log_sum[0], before
