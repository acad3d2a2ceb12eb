"""Attention over spans of keys by torch's variable-length attention call, as functions of tensors.

The call exists for CUDA GPUs and replaces one product per part in `shared_prefix`. Query heads that share a
key head are rows of one sequence, so their keys are read once. `refusal` describes unsupported cases, which
`shared_prefix` handles: soft caps, fp32, other head sizes.
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
"""The result of a call for each pair: the output [kv_heads, pairs, group, head_dim] over its sequence only,
and the log-sum-exp of the scores, [kv_heads, pairs, group] in fp32."""


def refusal(like: Tensor, softcap: float | None = None) -> str:
    """Returns the reason why one call cannot read spans of keys [..., head_dim] like these; "" if it can.

    A trial on a few numbers runs once per device, dtype and head size. It detects missing and wrong kernels.
    """
    if softcap is not None:
        return "torch's variable-length attention does not support soft caps"
    return fault_of(like.device, like.dtype, like.shape[-1])


def read_spans(query: Tensor, keys: Tensor, values: Tensor, spans: Spans) -> Pairs:
    """Attention of queries over their spans, in one call.

    Args:
        query: [kv_heads, queries, group, head_dim], scaled, and rotated to the place of the keys.
        keys: [tokens, kv_heads, head_dim], with any strides of tokens and heads.
        values: like the keys.
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
    """Merges the pairs of each row as if it had read all its keys at once.

    `table` numbers the pairs call by call (`spans.table_of`). `query` has all rows, [kv_heads, rows, group,
    head_dim]; the result has its shape and dtype.
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
    """Returns the cached reason why one call cannot read keys of this form; "" if it can."""
    if device.type != DEVICE:
        return f"torch's variable-length attention needs {DEVICE}, not {device.type}"
    if dtype not in DTYPES:
        return f"torch's variable-length attention needs bf16 or fp16, not {dtype}"
    if size % 8 or size > LARGEST_HEAD:
        return (
            f"torch's variable-length attention needs head sizes in multiples of 8 up to {LARGEST_HEAD}, "
            f"not {size}"
        )
    try:
        apart = _apart(device, dtype, size)
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"torch's variable-length attention fails ({lines[0]})"
    if not apart <= TOLERANCE:
        return f"torch's variable-length attention is {apart:.2g} off"
    return ""


@torch.inference_mode()
def _apart(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """The greatest difference from the definition of attention, over two spans with gaps before them."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 3, 2, size, generator=generator) * size**-0.5
    keys, values = torch.randn(2, 40, 2, size, generator=generator)
    read = (Span((0, 2), 3, 20), Span((1,), 26, 40))
    rows, own_keys, own_values = (states.to(device, dtype) for states in (query, keys, values))
    result = read_spans(rows, own_keys, own_values, Spans(read, 2, device))
    out, log_sum = (states.float().cpu() for states in result)
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
