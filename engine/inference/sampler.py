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

from engine.inference.params import RunSettings


class Sampler:
    """Chooses the next token: the likeliest at temperature 0, else a draw from a seeded generator.

    Args:
        settings: temperature, top-p, top-k, repetition penalty, seed.
        prompt: the prompt's tokens, which the repetition penalty counts as well.
    """

    def __init__(self, settings: RunSettings, prompt: Sequence[int] = ()) -> None:
        self._draws = settings.temperature > 0
        self._generator = torch.Generator().manual_seed(settings.seed)
        self._ids = list(prompt)
        self._processors = LogitsProcessorList()
        if settings.repetition_penalty != 1.0:
            self._processors.append(RepetitionPenaltyLogitsProcessor(settings.repetition_penalty))
        if self._draws:
            self._processors.append(TemperatureLogitsWarper(settings.temperature))
            if settings.top_k:
                self._processors.append(TopKLogitsWarper(settings.top_k))
            if settings.top_p < 1:
                self._processors.append(TopPLogitsWarper(settings.top_p))

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
