"""Spans of keys in one tensor and the queries that read them, for variable-length attention calls.

Such a call takes all keys in order, and the start and end of each sequence. Keys without readers are a
sequence without queries. Long spans are cut, so that all processors of a GPU have work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

MOST_KEYS = 512  # of a sequence


@dataclass(frozen=True)
class Span:
    """Keys `first..end` that the queries with these numbers read whole."""

    queries: tuple[int, ...]
    first: int
    end: int


class Spans:
    """Spans of one tensor as sequences; each query of each sequence is a pair.

    Args:
        spans: at least one, none empty, without overlap.
        group: query heads per key head.
        device: of the tensors.

    Attributes:
        queries: the query of each pair.
        picks: the same as int64 [pairs] on the device.
        cu_queries: int32 [sequences + 1], start of each sequence's rows, `group` per pair.
        cu_keys: int32 [sequences + 1], start of each sequence's keys.
        most_queries: the most rows of a sequence.
        most_keys: the most keys of a sequence.
    """

    def __init__(self, spans: Iterable[Span], group: int, device: torch.device) -> None:
        rows, keys, self.queries = [0], [0], list[int]()
        for span in sorted(spans, key=lambda span: span.first):
            assert keys[-1] <= span.first < span.end, "spans overlap, or are empty"
            if span.first > keys[-1]:
                rows.append(rows[-1])
                keys.append(span.first)
            while keys[-1] < span.end:
                self.queries += span.queries
                rows.append(rows[-1] + group * len(span.queries))
                keys.append(min(keys[-1] + MOST_KEYS, span.end))
        self.picks = torch.tensor(self.queries, device=device)
        self.cu_queries = torch.tensor(rows, dtype=torch.int32, device=device)
        self.cu_keys = torch.tensor(keys, dtype=torch.int32, device=device)
        self.most_queries = max(end - first for first, end in pairwise(rows))
        self.most_keys = max(end - first for first, end in pairwise(keys))


def table_of(rows: Sequence[int], count: int, device: torch.device) -> Tensor:
    """Returns the pairs of each of `count` rows, int64 [count, most pairs of a row], padded with `len(rows)`.

    `rows` has the row of each pair; every row has at least one.
    """
    pairs_of: list[list[int]] = [[] for _ in range(count)]
    for pair, row in enumerate(rows):
        pairs_of[row].append(pair)
    most = max(len(pairs) for pairs in pairs_of)
    return torch.tensor([pairs + [len(rows)] * (most - len(pairs)) for pairs in pairs_of], device=device)
