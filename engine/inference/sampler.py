"""Which token comes next, and the text that tokens spell."""

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


class TextStream:
    """Token ids → text, a piece at a time, without ever splitting a character or showing part of a stop text.

    Args:
        tokenizer: of transformers.
        stops: texts that end the answer.
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str] = ()) -> None:
        self._tokenizer, self._stops = tokenizer, tuple(stops)
        self._ids: list[int] = []
        self._given = ""
        self.stopped = False

    @property
    def text(self) -> str:
        """All of it, with what was held back, up to a stop text."""
        text = str(self._tokenizer.decode(self._ids, skip_special_tokens=True))
        ends = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        self.stopped = bool(ends)
        return text[: min(ends)] if ends else text

    def add(self, token: int) -> str:
        """Returns the text that this token completes."""
        self._ids.append(token)
        text = self.text
        if not self.stopped:
            if text.endswith("\ufffd"):
                return ""
            text = text[: len(text) - self._begun(text)]
        piece, self._given = text[len(self._given) :], text
        return piece

    def rest(self) -> str:
        """Returns what was held back, once no more tokens come."""
        return self.text[len(self._given) :]

    def _begun(self, text: str) -> int:
        """How many characters at the end may be the beginning of a stop text."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for count in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-count:]) for stop in self._stops):
                return count
        return 0
