"""Distributions over the vocabulary: from logits, which must be numbers, and how far two are apart."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.base.errors import ModelError

RULED_OUT = -1000.0  # nats, of a token that one side alone rules out; all its distance stays a number


def require_numbers(logits: Tensor, first: int = 0) -> None:
    """Refuses logits that give no distribution.

    Args:
        logits: [vocabulary] or [tokens, vocabulary].
        first: tokens of the answer before the first row's.

    Raises:
        ModelError: a row holds NaN or +inf, or nothing but -inf.
    """
    found = logits.amax(-1).isfinite().reshape(-1)  # NaN is the greatest of all
    if bool(found.all()):
        return
    token = first + int((~found).nonzero()[0]) + 1
    raise ModelError(
        f"What the model computed is no number at token {token} of the answer. "
        "Open it in another number format (--dtype fp32 or bf16), and verify the cache (pml cache verify)."
    )


def log_probabilities(logits: Tensor) -> Tensor:
    """Returns the logarithms of the probabilities, [tokens, vocabulary] as the logits, in nats.

    Raises:
        ModelError: as for `require_numbers`.
    """
    require_numbers(logits)
    return torch.log_softmax(logits, -1)


def divergence(of: Tensor, from_side: Tensor) -> Tensor:
    """KL(`from_side` ‖ `of`) of logarithms of probabilities [tokens, vocabulary]: [tokens], in nats."""
    weights = from_side.exp()
    other = of.masked_fill(of == -math.inf, RULED_OUT)
    terms = (weights * (from_side - other)).masked_fill(weights == 0, 0.0)
    return terms.sum(-1).clamp_min(0)
