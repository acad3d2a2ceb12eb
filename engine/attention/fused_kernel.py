"""Attention over keys in several places by torch's fused kernel, whose parts are merged by their log-sum-exp.

The kernel reads keys and values wherever they lie, with any distance between heads: it copies nothing, and
holds no scores but those of a few rows and keys. What it cannot do (soft caps, telling its weights) is left
to `engine.attention.kernels`, and so are shapes for which it is the slower one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.attention.bf16_upcast import widens
from engine.attention.kernels import AttentionParams, Part
from engine.attention.masks import Hidden
from engine.attention.scratch import Scratch

# Rows of a key head, packed; above, the kernel lays out the same keys anew for every few of them.
MOST_ROWS = {torch.float32: 1 << 30, torch.bfloat16: 128}
# Below, both ways take as long, and the probe tells a rule from the rounding of products, which is coarser.
FEWEST_KEYS = {torch.float32: 0, torch.bfloat16: 128}


def fuses(rules: AttentionParams, query: Tensor, keys: int) -> bool:
    """Whether the fused kernel does this attention, and is the faster way.

    Args:
        rules: of the layer.
        query: packed, [kv_heads, rows * group, head_dim].
        keys: of all parts together.
    """
    if query.device.type != "cpu" or rules.softcap is not None or query.dtype not in MOST_ROWS:
        return False
    few = query.shape[1] <= MOST_ROWS[query.dtype] or widens(query)
    return few and keys >= FEWEST_KEYS[query.dtype]


def attend_fused(parts: Sequence[Part], rules: AttentionParams, rows: int, scratch: Scratch) -> Tensor:
    """Attention of a block of rows over several parts, as `attention.attend` computes it.

    Args:
        parts: what the rows read; of the last one each row sees a key.
        rules: of the layer, without a soft cap; the scale is in the queries already.
        rows: of the block.
        scratch: buffers.

    Returns:
        Packed, [kv_heads, rows * group, head_dim].
    """
    like = parts[-1].query
    kv_heads, count, _ = like.shape
    group = count // rows
    wide = widens(like)
    found = [
        one
        for part in parts
        for piece in _pieces(part, group)
        if (one := _over(_widened(piece, scratch) if wide else piece, group)) is not None
    ]
    if len(found) == 1 and rules.sinks is None:
        return found[0][0].to(like.dtype)
    sums = torch.full((len(found) + (rules.sinks is not None), kv_heads, count), -torch.inf)
    for own, (_, log_sum, before) in zip(sums, found, strict=False):
        own[:, before:] = log_sum
    if rules.sinks is not None:
        sinks = rules.sinks.float().view(kv_heads, 1, group)
        sums[-1] = sinks.expand(-1, rows, -1).reshape(kv_heads, count)
    shares = torch.softmax(sums, 0)[..., None]
    out, _, _ = found[-1]
    merged = out * shares[len(found) - 1]
    for share, (out, _, before) in zip(shares, found[:-1], strict=False):
        merged[:, before:] += out * share[:, before:]
    return merged.to(like.dtype)


def _pieces(part: Part, group: int) -> Iterator[Part]:
    """The keys of a part that all rows see, and those for which there is a mask, so that it is no wider.

    Nothing where no row sees any.
    """
    hidden, keys = part.hidden, part.keys.shape[1] - part.hidden.beyond
    if hidden.before * group >= part.query.shape[1]:
        return
    border = keys if hidden.mask is None else keys - hidden.mask.shape[1]
    for start, end, own in ((hidden.gone, border, Hidden(hidden.before)), (border, keys, hidden)):
        if start < end:
            yield Part(part.query, part.keys[:, start:end], part.values[:, start:end], own)


def _widened(part: Part, scratch: Scratch) -> Part:
    """A part in fp32: its keys and values in buffers that the next part is written to."""
    query = part.query.float()
    keys = scratch.take("wide keys", tuple(part.keys.shape), query).copy_(part.keys)
    values = scratch.take("wide values", tuple(part.values.shape), query).copy_(part.values)
    return Part(query, keys, values, part.hidden)


def _over(part: Part, group: int) -> tuple[Tensor, Tensor, int] | None:
    """Output and log-sum-exp of packed rows behind the first that see none of a piece; how many those are.

    None where no row sees any of it.
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
