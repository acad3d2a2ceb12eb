"""Distributions over the vocabulary: validation of logits, and the distance of two distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.base.errors import ModelError
from engine.base.events import TokenLogprob

RULED_OUT = -1000.0  # nats, for a token that only one side rules out, so that the distance stays finite


def require_numbers(logits: Tensor, first: int = 0) -> None:
    """Raises an error for logits that are not a distribution: [vocabulary] or [tokens, vocabulary].

    `first` is the number of tokens of the answer before the first row's.

    Raises:
        ModelError: a row has NaN or +inf, or only -inf.
    """
    finite = logits.amax(-1).isfinite().reshape(-1)  # amax returns NaN if there is one
    if bool(finite.all()):
        return
    token = first + int((~finite).nonzero()[0]) + 1
    raise ModelError(
        f"The model computed an invalid number at token {token} of the answer. Use another number format "
        "(--dtype fp32 or bf16), and verify the cache (pml cache verify)."
    )


def log_probabilities(logits: Tensor) -> Tensor:
    """Returns the logarithms of the probabilities, [tokens, vocabulary] as the logits, in nats.

    Raises:
        ModelError: as for `require_numbers`.
    """
    require_numbers(logits)
    return torch.log_softmax(logits, -1)


def token_logprobs(logits: Tensor, tokens: Sequence[int], top: int) -> list[TokenLogprob]:
    """Returns the log-probability of one token for each row, with the `top` likeliest ones.

    Args:
        logits: [tokens, vocabulary].
        tokens: the token that each row scores.
        top: the number of alternatives.

    Raises:
        ModelError: as for `require_numbers`.
    """
    table = log_probabilities(logits.float())
    of_token = table.gather(-1, torch.tensor(tokens, device=table.device)[:, None])[:, 0].tolist()
    values, ids = (part.tolist() for part in table.topk(min(top, table.shape[-1])))
    return [
        TokenLogprob(token, logprob, tuple(zip(row, best, strict=True)))
        for token, logprob, row, best in zip(tokens, of_token, ids, values, strict=True)
    ]


def divergence(of: Tensor, from_side: Tensor) -> Tensor:
    """KL(`from_side` ‖ `of`) of logarithms of probabilities [tokens, vocabulary]: [tokens], in nats."""
    weights = from_side.exp()
    other = of.masked_fill(of == -math.inf, RULED_OUT)
    terms = (weights * (from_side - other)).masked_fill(weights == 0, 0.0)
    return terms.sum(-1).clamp_min(0)
