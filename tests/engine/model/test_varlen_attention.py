"""Spans of keys read in one call, and merged: attention over all that each row sees, or a reason why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from engine.attention import spans as spans_module
from engine.attention import varlen_kernel
from engine.attention.kernels import AttentionParams
from engine.attention.spans import Span, Spans, table_of
from engine.attention.varlen_kernel import merged_pairs, read_spans, refusal
from tests.engine.sequences import InPlainTorch, in_plain_torch
from tests.engine.tiny import tiny_model

CPU = torch.device("cpu")
HEADS, GROUP, SIZE, ROWS = 2, 3, 16, 4


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[InPlainTorch]:
    yield from in_plain_torch(monkeypatch)


def test_spans_become_sequences_with_gaps_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "MOST_KEYS", 10)
    given = Spans([Span((3,), 30, 52), Span((0, 2), 4, 9), Span((1, 2, 3), 9, 12)], 2, CPU)
    assert given.queries == given.picks.tolist() == [0, 2, 1, 2, 3, 3, 3, 3]
    assert given.cu_keys.tolist() == [0, 4, 9, 12, 30, 40, 50, 52]
    assert given.cu_queries.tolist() == [0, 0, 4, 10, 10, 12, 14, 16]
    assert (given.cu_keys.dtype, given.cu_queries.dtype) == (torch.int32, torch.int32)
    assert (given.most_queries, given.most_keys) == (6, 18)
    for wrong in ([Span((0,), 0, 5), Span((1,), 4, 6)], [Span((0,), 3, 3)]):
        with pytest.raises(AssertionError, match="overlap, or are empty"):
            Spans(wrong, 1, CPU)


def test_the_table_names_the_pairs_of_each_row() -> None:
    assert table_of([1, 0, 1, 2, 1], 3, CPU).tolist() == [[1, 5, 5], [0, 2, 4], [3, 5, 5]]


def apart(rules: AttentionParams, dtype: torch.dtype, device: torch.device) -> float:
    """The greatest difference between rows that read two tensors by calls and each by the definition."""
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(HEADS, ROWS, GROUP, SIZE, generator=generator) * SIZE**-0.5
    states = torch.randn(2, 2, 700, HEADS, SIZE, generator=generator)  # which tensor, keys or values
    read = (
        [Span((0, 1, 3), 5, 610), Span((2,), 640, 700)],
        [Span((row,), 9 * row + 1, 9 * row + 3 + row) for row in range(ROWS)],
    )
    found, rows = [], list[int]()
    given = query.to(device, dtype)
    for own, (keys, values) in zip(read, states.to(device, dtype), strict=True):
        spans = Spans(own, GROUP, device)
        found.append(read_spans(given, keys, values, spans))
        rows += spans.queries
    out = merged_pairs(found, table_of(rows, ROWS, device), rules, given)
    assert out.dtype == dtype
    wanted = [_by_definition(query[:, row], row, read, states, rules) for row in range(ROWS)]
    return float((out.float().cpu() - torch.stack(wanted, 1)).abs().max())


def _by_definition(query: Tensor, row: int, read: Any, states: Tensor, rules: AttentionParams) -> Tensor:
    pieces = [
        part[:, span.first : span.end]
        for own, part in zip(read, states, strict=True)
        for span in own
        if row in span.queries
    ]
    keys, values = torch.cat(pieces, 1).transpose(1, 2)
    scores = query @ keys.transpose(1, 2)
    if rules.sinks is not None:
        scores = torch.cat([scores, rules.sinks.cpu().view(HEADS, GROUP, 1)], -1)
    return torch.softmax(scores, -1)[..., : keys.shape[1]] @ values


@pytest.mark.parametrize("sinks", [None, torch.linspace(-1, 3, HEADS * GROUP)])
def test_calls_are_merged_to_attention_over_all(sinks: Tensor | None, stand_in: InPlainTorch) -> None:
    rules = AttentionParams(1.0, sinks=sinks)
    assert apart(rules, torch.float32, CPU) <= 1e-5
    assert apart(rules, torch.bfloat16, CPU) <= 0.06
    assert len(stand_in.calls) == 4
    assert stand_in.calls[0] == [(0, 5), (9, 512), (9, 93), (0, 30), (3, 60)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of CUDA")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sinks", [None, torch.linspace(-1, 3, HEADS * GROUP)])
def test_a_gpu_computes_what_the_processor_does(sinks: Tensor | None, dtype: torch.dtype) -> None:
    device = torch.device("cuda")
    assert refusal(torch.empty(SIZE, dtype=dtype, device=device)) == ""
    own = None if sinks is None else sinks.to(device)
    assert apart(AttentionParams(1.0, sinks=own), dtype, device) <= 0.06


def test_torch_has_the_call_and_gives_sums_by_head() -> None:
    states = torch.empty(6, 2, 16, device="meta", dtype=torch.bfloat16)
    borders = torch.tensor([0, 2, 6], dtype=torch.int32, device="meta")
    out, log_sum = varlen.varlen_attn(
        states, states, states, borders, borders, 4, 4, return_aux=varlen.AuxRequest(lse=True), scale=1.0
    )
    assert (out.shape, log_sum.shape, log_sum.dtype) == (states.shape, (2, 6), torch.float32)


def test_what_is_not_read_in_one_call_is_said_in_words(
    stand_in: InPlainTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    like = torch.empty(SIZE)
    assert refusal(like) == ""
    assert "not support soft caps" in refusal(like, 30.0)
    assert "not torch.float64" in refusal(like.double())
    assert "not 20" in refusal(torch.empty(20))
    assert "not 264" in refusal(torch.empty(264))
    for raised in (RuntimeError("only Ampere GPUs or newer\nat …"), TypeError("scale"), ImportError("none")):

        def fails(*_: Any, raised: Exception = raised, **__: Any) -> Any:
            raise raised

        monkeypatch.setattr(varlen, "varlen_attn", fails)
        varlen_kernel.fault_of.cache_clear()
        assert refusal(like).endswith(f"fails ({str(raised).splitlines()[0]})")

    def wrong(*given: Any, **named: Any) -> tuple[Tensor, Tensor]:
        out, log_sum = stand_in(*given, **named)
        return out, log_sum / 0.69

    monkeypatch.setattr(varlen, "varlen_attn", wrong)
    varlen_kernel.fault_of.cache_clear()
    assert refusal(like).endswith(" off")


def test_the_processor_reads_part_by_part_and_has_nothing_to_say() -> None:
    assert refusal(torch.empty(SIZE)).endswith("needs cuda, not cpu")
    assert tiny_model("llama").apart == ""
