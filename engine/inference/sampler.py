"""Which token comes next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
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
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int] = ()) -> None:
        self._draws = params.temperature >= COLDEST
        self._generator = torch.Generator().manual_seed(params.seed)
        self._ids = list(prompt)
        self._processors = LogitsProcessorList()
        if params.repetition_penalty != 1.0:
            self._processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
        if self._draws:
            self._processors.append(TemperatureLogitsWarper(params.temperature))
            if params.top_k:
                self._processors.append(TopKLogitsWarper(params.top_k))
            if params.top_p < 1:
                self._processors.append(TopPLogitsWarper(params.top_p))

    def choose(self, logits: Tensor) -> int:
        """Returns a token for logits [vocabulary], and remembers it."""
        if self._processors:
            ids: Any = torch.tensor([self._ids])
            scores: Any = logits.float().cpu()[None]
            logits = self._processors(ids, scores)[0]
        if self._draws:
            weights = torch.softmax(logits, -1)
            token = int(torch.multinomial(weights, 1, generator=self._generator))
        else:
            token = int(logits.argmax())
        self._ids.append(token)
        return token
