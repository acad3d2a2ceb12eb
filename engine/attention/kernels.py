"""Attention over keys in several places, as functions of tensors.

All scores of a block of rows go into one reused buffer, which takes masks, soft caps and sinks. One softmax
runs over it, and the values of each part are accumulated. The result is exact, without concatenation.

Query heads that share a key head are packed into one product, `[kv_heads, rows * group, head_dim]`. Rows are
outermost, so that the rows that see a part are one slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from engine.attention.bf16_upcast import widened
from engine.attention.masks import Hidden
from engine.attention.scratch import Scratch

FEW_ROWS = 64  # packed; with more rows, contiguous values are worth a copy
SCORE_BYTES = 48 << 20  # limit of the scores in memory; more rows are processed in blocks


@dataclass(frozen=True)
class AttentionParams:
    """Score parameters of a layer.

    Attributes:
        scale: factor of the scores.
        window: a query at p sees keys at p - window + 1 and later; None for all.
        softcap: a smooth bound of scores (Gemma 2); None for no bound.
        sinks: [heads], a score per head that takes weight and adds no value (gpt-oss); None for none.
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None

    @property
    def plain(self) -> bool:
        """Whether scores have only a scale, the causal order and a window."""
        return self.softcap is None and self.sinks is None


@dataclass(frozen=True)
class Part:
    """Keys and values that a block of rows reads in place.

    Attributes:
        query: packed, [kv_heads, rows * group, head_dim], scaled, and rotated to the place of these keys.
        keys: [kv_heads, tokens, head_dim].
        values: [kv_heads, tokens, head_dim].
        hidden: the keys that the rows do not see.
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    hidden: Hidden


def rows_at_once(heads: int, keys: int, like: Tensor) -> int:
    """Returns the number of rows to process at once within the limit of scores."""
    return max(1, SCORE_BYTES // max(1, heads * keys * like.element_size()))


def pack(query: Tensor, kv_heads: int) -> Tensor:
    """Packs queries [heads, rows, head_dim] into [kv_heads, rows * group, head_dim]."""
    heads, rows, head_dim = query.shape
    grouped = query.view(kv_heads, heads // kv_heads, rows, head_dim).transpose(1, 2)
    return grouped.reshape(kv_heads, -1, head_dim)


def unpack(packed: Tensor, rows: int) -> Tensor:
    """Undoes `pack`: [heads, rows, head_dim]."""
    kv_heads, count, head_dim = packed.shape
    grouped = packed.view(kv_heads, rows, count // rows, head_dim).transpose(1, 2)
    return grouped.reshape(-1, rows, head_dim)


def attend(
    parts: Sequence[Part], rules: AttentionParams, rows: int, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """Attention of a block of rows over at least one part, with one softmax; the queries include the scale.

    Returns:
        Packed, [kv_heads, rows * group, head_dim], and the weights [kv_heads, rows * group, tokens] of all
        consecutive parts. The next call overwrites the weights.
    """
    like = parts[0].query
    kv_heads, count, _ = like.shape
    group = count // rows
    borders = [0, *accumulate(part.keys.shape[1] for part in parts)]
    scores = scratch.take("scores", (kv_heads, count, borders[-1] + (rules.sinks is not None)), like)
    columns = [scores[:, :, at:end] for at, end in pairwise(borders)]
    for part, own in zip(parts, columns, strict=True):
        before = part.hidden.before * group
        if before < count:
            _score(part.query[:, before:], part.keys, own[:, before:])
    if rules.softcap is not None:
        scores.div_(rules.softcap).tanh_().mul_(rules.softcap)
    if rules.sinks is not None:
        sinks = rules.sinks.to(scores.dtype).view(kv_heads, 1, group)
        scores[:, :, -1] = sinks.expand(-1, rows, -1).reshape(kv_heads, -1)
    for part, own in zip(parts, columns, strict=True):
        hide(own, part.hidden, rows)
    weights = scratch.take("weights", tuple(scores.shape), like)
    torch.softmax(scores, -1, out=weights)
    weights = weights[:, :, : borders[-1]]
    return _weighted(weights, [part.values for part in parts], borders, scratch), weights


def _score(query: Tensor, keys: Tensor, out: Tensor) -> None:
    """Scores [kv_heads, rows, tokens] of packed queries, without a copy of the keys."""
    if _in_one_product(keys):
        torch.bmm(query, keys.transpose(1, 2), out=out)
        return
    for own, of_head, head_scores in zip(query, keys, out, strict=True):
        torch.mm(own, of_head.t(), out=head_scores)


def _weighted(weights: Tensor, values: Sequence[Tensor], borders: Sequence[int], scratch: Scratch) -> Tensor:
    """The sum of values by weights [kv_heads, rows, tokens of all parts]."""
    kv_heads, count, tokens = weights.shape
    first = values[0]
    if len(values) > 1 and count > FEW_ROWS and not _takes_strides(first):
        whole = scratch.take("values", (kv_heads, tokens, first.shape[2]), first)
        for part_values, (at, end) in zip(values, pairwise(borders), strict=True):
            whole[:, at:end] = part_values
        return torch.bmm(weights, whole)
    out = weights.new_zeros(kv_heads, count, first.shape[2])
    pieces = list(zip(values, pairwise(borders), strict=True))
    for part_values, (at, end) in (pieces[-1], *pieces[:-1]):
        if _in_one_product(part_values):
            out.baddbmm_(weights[:, :, at:end], part_values)
            continue
        for own, of_head, head_out in zip(weights[:, :, at:end], part_values, out, strict=True):
            head_out.addmm_(own, of_head)
    return out


def _in_one_product(states: Tensor) -> bool:
    """Whether one product over all key heads can read keys or values in place."""
    return _takes_strides(states) or states.is_contiguous()


def _takes_strides(states: Tensor) -> bool:
    """Whether products accept any stride between heads; those of oneDNN copy first."""
    return states.device.type != "cpu" or states.dtype == torch.float32


def hide(scores: Tensor, hidden: Hidden, rows: int) -> None:
    """Masks hidden keys in packed scores [kv_heads, rows * group, keys]."""
    kv_heads, count, keys = scores.shape
    group = count // rows
    if hidden.before:
        scores[:, : hidden.before * group] = -torch.inf
    if hidden.gone:
        scores[:, :, : hidden.gone] = -torch.inf
    seen = keys - hidden.beyond
    scores[:, :, seen:] = -torch.inf
    if hidden.mask is not None:
        masked = hidden.mask.shape[1]
        last = scores.view(kv_heads, rows, group, keys)[..., seen - masked : seen]
        last.masked_fill_(hidden.mask[:, None], -torch.inf)


def causal_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Plain causal attention: query [heads, rows, head_dim], key and value [kv_heads, rows, head_dim]."""
    grouped, dtype = query.shape[0] != key.shape[0], query.dtype
    query, key, value = widened(query, key, value)
    out = nn.functional.scaled_dot_product_attention(
        query[None], key[None], value[None], is_causal=True, scale=scale, enable_gqa=grouped
    )
    return out[0].to(dtype)
