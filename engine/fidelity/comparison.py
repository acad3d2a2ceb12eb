"""Two answers to the same prompt, side by side."""

from __future__ import annotations

from torch import Tensor

from engine.base.events import Answer, Comparison
from engine.inference.distributions import divergence, log_probabilities


def compare(cached: Answer, uncached: Answer) -> Comparison:
    """Sets two answers to the same prompt side by side.

    Raises:
        ModelError: the logits of a first token are no numbers.
    """
    kl, agrees = float("nan"), False
    if cached.first_logits is not None and uncached.first_logits is not None:
        kl = first_token_divergence(cached.first_logits, uncached.first_logits)
        agrees = bool(cached.first_logits.argmax() == uncached.first_logits.argmax())
    speedup = uncached.ttft_ms / cached.ttft_ms if cached.ttft_ms else float("inf")
    return Comparison(speedup, agrees, kl, cached.token_ids == uncached.token_ids)


def first_token_divergence(cached: Tensor, uncached: Tensor) -> float:
    """Returns KL(uncached ‖ cached) of two logit vectors [vocabulary], in nats.

    Raises:
        ModelError: they are no numbers.
    """
    theirs, own = (log_probabilities(one.cpu().double()[None]) for one in (uncached, cached))
    return float(divergence(own, theirs))
