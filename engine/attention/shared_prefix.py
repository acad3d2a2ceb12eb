"""Attention of one row of each of many prompts, in parts, as functions of tensors.

Each part is one product of the rows that read the same keys. Partial results are merged by their log-sum-exp,
which equals reading all keys at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.bf16_upcast import widens
from engine.attention.fused_kernel import MOST_ROWS
from engine.attention.kernels import AttentionParams
from engine.attention.masks import Hidden
from engine.attention.scratch import Scratch

Index = slice | Tensor


@dataclass(frozen=True)
class Found:
    """The result of one part for the rows that read it.

    Attributes:
        out: [kv_heads, rows, group, head_dim], over the keys of this part only.
        log_sum: [kv_heads, rows, group] fp32, of the scores; minus infinity for a row that sees nothing.
        rows: the indices of these rows among all.
    """

    out: Tensor
    log_sum: Tensor
    rows: Index


def index_of(rows: Sequence[int], count: int, device: torch.device) -> Index:
    """Returns an index of ascending rows out of `count`: a slice if they are consecutive."""
    first, end = rows[0], rows[-1] + 1
    if end - first == len(rows):
        return slice(None) if len(rows) == count else slice(first, end)
    return torch.tensor(rows, device=device)


def picked(states: Tensor, rows: Index) -> Tensor:
    """Returns rows of [kv_heads, rows, ...]; a copy only if they are not consecutive."""
    return states[:, rows] if isinstance(rows, slice) else states.index_select(1, rows)


def read(
    query: Tensor, keys: Tensor, values: Tensor, hidden: Hidden, rules: AttentionParams, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """Attention of rows over the same keys; returns `Found.out` and `Found.log_sum`.

    Args:
        query: [kv_heads, rows, group, head_dim], scaled, and rotated to the place of these keys.
        keys: [kv_heads, tokens, head_dim].
        values: [kv_heads, tokens, head_dim].
        hidden: the keys that each row does not see.
        rules: of the layer; the queries include the scale, and `merged` adds sinks.
        scratch: buffers.
    """
    kv_heads, rows, group, size = query.shape
    packed = query.reshape(kv_heads, rows * group, size)
    bias, blind = hidden.bias(group, packed)
    out, log_sum = _product(packed[None], keys[None], values[None], bias, rules, scratch)
    if blind is not None:
        log_sum = log_sum.masked_fill(blind, -torch.inf)
    return out.view(kv_heads, rows, group, size), log_sum.view(kv_heads, rows, group)


def read_own(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, rules: AttentionParams, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """Attention of rows over separate keys, like `read`; every row sees some.

    Args:
        query: [kv_heads, rows, group, head_dim], scaled.
        keys: [rows, kv_heads, tokens, head_dim].
        values: [rows, kv_heads, tokens, head_dim].
        bias: [rows, 1, 1, tokens], to add to the scores; None for nothing.
        rules: of the layer.
        scratch: buffers.
    """
    out, log_sum = _product(query.transpose(0, 1), keys, values, bias, rules, scratch)
    return out.transpose(0, 1), log_sum.transpose(0, 1)


def merged(found: Sequence[Found], rules: AttentionParams, query: Tensor) -> Tensor:
    """Merges partial results as if each row had read all its keys at once; every row needs at least one.

    `query` has all rows, [kv_heads, rows, group, head_dim]; the result has its shape and dtype.
    """
    kv_heads, rows, group, _ = query.shape
    if rules.sinks is None and sum(part.out.shape[1] for part in found) == rows:  # each row in just one part
        whole = torch.empty_like(query)
        for part in found:
            whole[:, part.rows] = part.out.to(query.dtype)
        return whole
    parts = len(found) + (rules.sinks is not None)
    sums = torch.full((parts, kv_heads, rows, group), -torch.inf, device=query.device)
    for own, part in zip(sums, found, strict=False):
        own[:, part.rows] = part.log_sum
    if rules.sinks is not None:
        sums[-1] = rules.sinks.float().view(kv_heads, 1, group)
    shares = torch.softmax(sums, 0)[..., None]
    out = torch.zeros(query.shape, device=query.device)
    for share, part in zip(shares, found, strict=False):
        if isinstance(part.rows, slice):
            out[:, part.rows].addcmul_(part.out.float(), share[:, part.rows])
        else:
            out.index_add_(1, part.rows, part.out * share.index_select(1, part.rows))
    return out.to(query.dtype)


def _product(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, rules: AttentionParams, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of query [batch, kv_heads, rows, head_dim] over [batch, kv_heads, tokens, …]."""
    if query.device.type == "cpu" and rules.softcap is None and query.dtype in MOST_ROWS:
        if widens(query[0]):
            wide = query.float()
            keys = scratch.take("wide keys", tuple(keys.shape), wide).copy_(keys)
            values = scratch.take("wide values", tuple(values.shape), wide).copy_(values)
            return _fused(wide, keys, values, bias)
        if query.shape[2] <= MOST_ROWS[query.dtype]:
            return _fused(query, keys, values, bias)
    scores = torch.matmul(query, keys.transpose(2, 3)).float()
    if rules.softcap is not None:
        scores.div_(rules.softcap).tanh_().mul_(rules.softcap)
    if bias is not None:
        scores += bias
    log_sum = scores.logsumexp(-1, keepdim=True)
    # The clamp avoids NaN weights for a row that sees nothing.
    weights = (scores - log_sum.clamp_min(torch.finfo(torch.float32).min)).exp_()
    return torch.matmul(weights.to(values.dtype), values), log_sum[..., 0]


def _fused(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    mask = None if bias is None else bias.to(query.dtype)
    result: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, attn_mask=mask, scale=1.0
    )
    return result
