"""Which token comes next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.inference.params import SamplingParams

COLDEST = 1e-4  # below it a draw is the likeliest token, and logits by temperature leave the range of numbers


class Sampler:
    """Chooses the next token: the likeliest at temperature 0, else a draw from a seeded generator.

    Args:
        params: temperature, top-p, top-k, repetition penalty, seed.
        prompt: the prompt's tokens, which the repetition penalty counts as well.

    Attributes:
        draws: whether chance has a part in it.
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int] = ()) -> None:
        self.draws = params.temperature >= COLDEST
        self._generator = torch.Generator().manual_seed(params.seed)
        self._penalty = params.repetition_penalty
        self._ids = list(prompt)
        self._processors = LogitsProcessorList()
        if params.repetition_penalty != 1.0:
            self._processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
        if self.draws:
            self._processors.append(TemperatureLogitsWarper(params.temperature))
            if params.top_k:
                self._processors.append(TopKLogitsWarper(params.top_k))
            if params.top_p < 1:
                self._processors.append(TopPLogitsWarper(params.top_p))

    def choose(self, logits: Tensor) -> int:
        """Returns a token for logits [vocabulary], and remembers it."""
        scores = self._scores(logits)
        if self.draws:
            weights = torch.softmax(scores, -1)
            token = int(torch.multinomial(weights, 1, generator=self._generator))
        else:
            token = int(scores.argmax())
        self._ids.append(token)
        return token

    def sure(self, logits: Tensor, rounding: float) -> bool:
        """Whether the likeliest token is the same for all logits that differ from these by rounding.

        Args:
            logits: [vocabulary].
            rounding: the most that each may differ by.
        """
        first, second = self._scores(logits).topk(2).values.tolist()
        return bool(first - second > 2 * rounding * max(self._penalty, 1 / self._penalty))

    def _scores(self, logits: Tensor) -> Tensor:
        if not self._processors:
            return logits
        ids: Any = torch.tensor([self._ids])
        scores: Any = logits.float().cpu()[None]
        return self._processors(ids, scores)[0]
