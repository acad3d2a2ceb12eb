"""Attention of one row of each of many prompts, in parts: tensors only.

Each part is one product of the rows that read the same keys. What parts give is merged by their log-sum-exp,
so that it is as if each row had read all its keys at once.
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
    """What one part gives to the rows that read it.

    Attributes:
        out: [kv_heads, rows, group, head_dim], as if they had read nothing else.
        log_sum: [kv_heads, rows, group] fp32, of the scores; minus infinity where a row sees nothing.
        rows: which of all rows these are.
    """

    out: Tensor
    log_sum: Tensor
    rows: Index


def index_of(rows: Sequence[int], count: int, device: torch.device) -> Index:
    """Returns rows as what picks them: a slice where they stand side by side.

    Args:
        rows: ascending.
        count: how many there are in all.
        device: of the index.
    """
    first, end = rows[0], rows[-1] + 1
    if end - first == len(rows):
        return slice(None) if len(rows) == count else slice(first, end)
    return torch.tensor(rows, device=device)


def picked(states: Tensor, rows: Index) -> Tensor:
    """Returns rows of [kv_heads, rows, ...]; they are copied only where they do not stand side by side."""
    return states[:, rows] if isinstance(rows, slice) else states.index_select(1, rows)


def read(
    query: Tensor, keys: Tensor, values: Tensor, hidden: Hidden, rules: AttentionParams, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """Attention of rows over the same keys.

    Args:
        query: [kv_heads, rows, group, head_dim], scaled, and rotated to where these keys stand.
        keys: [kv_heads, tokens, head_dim].
        values: [kv_heads, tokens, head_dim].
        hidden: what each row does not see of these.
        rules: of the layer; the scale is in the queries already, and sinks are left to `merged`.
        scratch: buffers.

    Returns:
        `Found.out` and `Found.log_sum`.
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
    """Attention of rows over keys of their own each; every row sees some.

    Args:
        query: [kv_heads, rows, group, head_dim], scaled.
        keys: [rows, kv_heads, tokens, head_dim].
        values: [rows, kv_heads, tokens, head_dim].
        bias: [rows, 1, 1, tokens], to add to the scores; None for nothing.
        rules: of the layer, as for `read`.
        scratch: buffers.

    Returns:
        `Found.out` and `Found.log_sum`.
    """
    out, log_sum = _product(query.transpose(0, 1), keys, values, bias, rules, scratch)
    return out.transpose(0, 1), log_sum.transpose(0, 1)


def merged(found: Sequence[Found], rules: AttentionParams, query: Tensor) -> Tensor:
    """Returns what rows that read several parts would have got of all at once.

    Args:
        found: every row in one of them at least.
        rules: of the layer.
        query: [kv_heads, rows, group, head_dim], of all rows.

    Returns:
        The same shape and number format.
    """
    kv_heads, rows, group, _ = query.shape
    if rules.sinks is None and sum(one.out.shape[1] for one in found) == rows:  # each row in just one
        whole = torch.empty_like(query)
        for one in found:
            whole[:, one.rows] = one.out.to(query.dtype)
        return whole
    parts = len(found) + (rules.sinks is not None)
    sums = torch.full((parts, kv_heads, rows, group), -torch.inf, device=query.device)
    for own, one in zip(sums, found, strict=False):
        own[:, one.rows] = one.log_sum
    if rules.sinks is not None:
        sums[-1] = rules.sinks.float().view(kv_heads, 1, group)
    shares = torch.softmax(sums, 0)[..., None]
    out = torch.zeros(query.shape, device=query.device)
    for share, one in zip(shares, found, strict=False):
        if isinstance(one.rows, slice):
            out[:, one.rows].addcmul_(one.out.float(), share[:, one.rows])
        else:
            out.index_add_(1, one.rows, one.out * share.index_select(1, one.rows))
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
    # A row that sees nothing has no weights, and not none of a number.
    weights = (scores - log_sum.clamp_min(torch.finfo(torch.float32).min)).exp_()
    return torch.matmul(weights.to(values.dtype), values), log_sum[..., 0]


def _fused(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    mask = None if bias is None else bias.to(query.dtype)
    found: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, attn_mask=mask, scale=1.0
    )
    return found
