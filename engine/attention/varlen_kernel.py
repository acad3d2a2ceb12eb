"""Attention over spans of keys by torch's call for sequences of different lengths: tensors only.

It is there on GPUs of CUDA, and takes one call where `shared_attention` takes a product for each part. The
query heads that share a key head are rows of one sequence, so that their keys are read once. What it cannot
do is said in words by `refusal`, and is left to `shared_attention`: soft caps, fp32, heads of other sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.attention.kernels import AttentionParams
from engine.attention.spans import Span, Spans

DEVICE = "cuda"
DTYPES = frozenset({torch.bfloat16, torch.float16})
LARGEST_HEAD = 256
TOLERANCE = 0.05  # between numbers of about 1, with products in 16 bits

Pairs = tuple[Tensor, Tensor]
"""What a call gives for each pair: the output [kv_heads, pairs, group, head_dim], as if its query had read
nothing but its sequence, and the log-sum-exp of the scores, [kv_heads, pairs, group] in fp32."""


def refusal(like: Tensor, softcap: float | None = None) -> str:
    """Why spans of such keys are not read in one call, in words; empty where they are.

    A trial on a few numbers comes first, once for each device, number format and size of heads: what torch
    lacks there, or computes wrongly, is refused as well.

    Args:
        like: queries or keys, [..., head_dim].
        softcap: of the layer.
    """
    if softcap is not None:
        return "torch's call for sequences of different lengths takes no soft cap of scores"
    return fault_of(like.device, like.dtype, like.shape[-1])


def read_spans(query: Tensor, keys: Tensor, values: Tensor, spans: Spans) -> Pairs:
    """Attention of queries over the spans that each reads, in one call.

    Args:
        query: [kv_heads, queries, group, head_dim], scaled, and rotated to where the keys stand.
        keys: [tokens, kv_heads, head_dim], with any distance between tokens and heads.
        values: the same of values.
        spans: of these keys.
    """
    from torch.nn.attention import varlen

    kv_heads, _, group, size = query.shape
    pairs = len(spans.queries)
    rows = query.index_select(1, spans.picks).permute(1, 2, 0, 3).reshape(pairs * group, kv_heads, size)
    out, log_sum = varlen.varlen_attn(
        rows,
        keys,
        values,
        spans.cu_queries,
        spans.cu_keys,
        spans.most_queries,
        spans.most_keys,
        return_aux=varlen.AuxRequest(lse=True),
        scale=1.0,
    )
    return out.view(pairs, group, kv_heads, size).permute(2, 0, 1, 3), log_sum.view(kv_heads, pairs, group)


def merged_pairs(found: Sequence[Pairs], table: Tensor, rules: AttentionParams, query: Tensor) -> Tensor:
    """Returns what rows would have got of all that their pairs read at once.

    Args:
        found: of each call.
        table: of all pairs, one call after the other (`spans.table_of`).
        rules: of the layer.
        query: [kv_heads, rows, group, head_dim], of all rows.

    Returns:
        The same shape and number format.
    """
    kv_heads, rows, group, size = query.shape
    blind = torch.full((kv_heads, 1, group), -torch.inf, device=query.device)
    sums = torch.cat([*(log_sum for _, log_sum in found), blind], 1)[:, table]
    if rules.sinks is not None:
        sinks = rules.sinks.float().view(kv_heads, 1, 1, group).expand(-1, rows, -1, -1)
        sums = torch.cat([sums, sinks], 2)
    shares = torch.softmax(sums, 2)[:, :, : table.shape[1], :, None]
    nothing = query.new_zeros((kv_heads, 1, group, size))
    out = torch.cat([*(out for out, _ in found), nothing], 1)[:, table]
    return (out * shares).sum(2).to(query.dtype)


@functools.cache
def fault_of(device: torch.device, dtype: torch.dtype, size: int) -> str:
    """Why keys of this form are not read in one call, in words; empty where they are. Remembered.

    Args:
        device: where they are.
        dtype: their number format.
        size: of a head.
    """
    if device.type != DEVICE:
        return f"torch has its call for sequences of different lengths on {DEVICE}, not on {device.type}"
    if dtype not in DTYPES:
        return f"torch's call for sequences of different lengths takes bf16 and fp16, and not {dtype}"
    if size % 8 or size > LARGEST_HEAD:
        return (
            "torch's call for sequences of different lengths takes heads of a multiple of 8, up to "
            f"{LARGEST_HEAD}, and not of {size}"
        )
    try:
        apart = _apart(device, dtype, size)
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"torch's call for sequences of different lengths fails here ({lines[0]})"
    if not apart <= TOLERANCE:
        return f"torch's call for sequences of different lengths is {apart:.2g} off here"
    return ""


@torch.inference_mode()
def _apart(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """The greatest difference to attention by the definition, over two spans with gaps before them."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 3, 2, size, generator=generator) * size**-0.5
    keys, values = torch.randn(2, 40, 2, size, generator=generator)
    read = (Span((0, 2), 3, 20), Span((1,), 26, 40))
    rows, own_keys, own_values = (states.to(device, dtype) for states in (query, keys, values))
    found = read_spans(rows, own_keys, own_values, Spans(read, 2, device))
    out, log_sum = (states.float().cpu() for states in found)
    misses, pair = [], 0
    for span in read:
        for number in span.queries:
            own = slice(span.first, span.end)
            scores = query[:, number] @ keys[own].permute(1, 2, 0)
            wanted = torch.softmax(scores, -1) @ values[own].transpose(0, 1)
            misses.append(float((out[:, pair] - wanted).abs().max()))
            misses.append(float((log_sum[:, pair] - scores.logsumexp(-1)).abs().max()))
            pair += 1
    return max(misses)
