"""Which keys of one tensor are read by which queries, as a call over sequences of different lengths takes it.

Such a call takes all keys one after the other, and of each sequence where it begins and ends. Keys that
nobody reads are a sequence without queries; long ones are cut, so that all processors of a GPU have work.
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
    """Keys `first..end` that several queries read, each all of them.

    Attributes:
        queries: which, by their number.
        first: the first key.
        end: behind the last.
    """

    queries: tuple[int, ...]
    first: int
    end: int


class Spans:
    """Spans of one tensor as sequences; each query of each sequence is a pair.

    Args:
        spans: at least one, none empty, of which no two have a key in common.
        group: query heads that share a key head.
        device: of the numbers.

    Attributes:
        queries: which query each pair is of.
        picks: the same, int64 [pairs] there.
        cu_queries: int32 [sequences + 1], where the rows of each sequence begin, `group` for each pair.
        cu_keys: int32 [sequences + 1], where its keys begin.
        most_queries: rows of a sequence.
        most_keys: keys of a sequence.
    """

    def __init__(self, spans: Iterable[Span], group: int, device: torch.device) -> None:
        rows, keys, self.queries = [0], [0], list[int]()
        for span in sorted(spans, key=lambda one: one.first):
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
    """Returns which pairs are of each row, int64 [count, most pairs of a row].

    Args:
        rows: the row of each pair; every row has one at least.
        count: how many rows there are.
        device: of the table.

    A row with fewer pairs has their number, `len(rows)`, in the places that are left.
    """
    found: list[list[int]] = [[] for _ in range(count)]
    for pair, row in enumerate(rows):
        found[row].append(pair)
    most = max(len(one) for one in found)
    return torch.tensor([one + [len(rows)] * (most - len(one)) for one in found], device=device)
