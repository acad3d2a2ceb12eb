"""torch's attention over sequences of different lengths, in plain torch, for tests without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from engine.attention import varlen_kernel


class InPlainTorch:
    """Computes what torch's call does; what it may not be asked for is an error.

    Attributes:
        calls: of each call, the rows and the keys of every sequence.
    """

    def __init__(self) -> None:
        self.calls: list[list[tuple[int, int]]] = []

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        return_aux: Any,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        assert query.shape[1:] == key.shape[1:] == value.shape[1:]
        assert {states.stride(-1) for states in (query, key, value)} == {1}
        assert {cu_seq_q.dtype, cu_seq_k.dtype} == {torch.int32}
        assert return_aux.lse
        rows, keys = pairwise(cu_seq_q.tolist()), pairwise(cu_seq_k.tolist())
        out = torch.full_like(query, torch.nan)
        log_sum = torch.full((query.shape[1], query.shape[0]), torch.nan)
        self.calls.append([])
        for (first, end), (lo, hi) in zip(rows, keys, strict=True):
            self.calls[-1].append((end - first, hi - lo))
            assert end - first <= max_q
            assert 0 < hi - lo <= max_k
            scores = torch.einsum("qhd,khd->hqk", query[first:end], key[lo:hi]).float() * scale
            log_sum[:, first:end] = scores.logsumexp(-1)
            weights = torch.softmax(scores, -1).to(value.dtype)
            out[first:end] = torch.einsum("hqk,khd->qhd", weights, value[lo:hi])
        assert (int(cu_seq_q[-1]), int(cu_seq_q[0]), int(cu_seq_k[0])) == (len(query), 0, 0)
        assert int(cu_seq_k[-1]) <= len(key)
        return out, log_sum


def in_plain_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[InPlainTorch]:
    """Has the processor taken for a GPU that has the call, in fp32 too; for a fixture."""
    stand_in = InPlainTorch()
    monkeypatch.setattr(varlen, "varlen_attn", stand_in)
    monkeypatch.setattr(varlen_kernel, "DEVICE", "cpu")
    monkeypatch.setattr(varlen_kernel, "DTYPES", {torch.float32, torch.bfloat16})
    varlen_kernel.fault_of.cache_clear()
    yield stand_in
    varlen_kernel.fault_of.cache_clear()
