"""Compares embeddings: cosine similarity of pairs, and rank correlation with given scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.embeddings.embedder import Vectors

Numbers = NDArray[np.float64]


def cosines(first: Vectors, second: Vectors) -> Numbers:
    """Returns the cosine similarity of each pair of rows."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    products: Numbers = (first.astype(np.float64) * second).sum(1) / np.maximum(lengths, 1e-12)
    return products


def spearman(first: Sequence[float] | Numbers, second: Sequence[float] | Numbers) -> float | None:
    """Returns Spearman's rank correlation, with mean ranks for equal values; None if a side is constant."""
    one, other = (_ranks(np.asarray(values, np.float64)) for values in (first, second))
    if any(len(ranks) < 2 or ranks.min() == ranks.max() for ranks in (one, other)):
        return None
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(values: Numbers) -> Numbers:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    ranks: Numbers = (ends - (counts - 1) / 2)[place]
    return ranks
