"""Chooses the next token."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from engine.base.token_bias import biases_of
from engine.checkpoint.generation_config import processors, stretch
from engine.inference.run_settings import SamplingParams

_SETTINGS: Final = (
    *("temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
_NO_RULES: Final[Mapping[str, Any]] = MappingProxyType({})
COLDEST = 1e-4  # below it a draw takes the likeliest token anyway, and logits divided by it overflow


class Sampler:
    """Chooses the next token: the likeliest at temperature 0, else a draw from a seeded generator.

    `prompt` counts for the repetition penalty only, and `ends` are tokens that end an answer. `draws` says
    whether the choice is random.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt: Sequence[int] = (),
        rules: Mapping[str, Any] = _NO_RULES,
        ends: Collection[int] = (),
    ) -> None:
        self.draws = params.temperature >= COLDEST
        self._generator = torch.Generator().manual_seed(params.seed)
        self._ids = list(prompt)
        values = {**rules, **{name: getattr(params, name) for name in _SETTINGS}}
        values["logit_bias"] = biases_of(params.logit_bias)
        self._processors = processors(values, prompt, ends, draws=self.draws)
        self._stretch = stretch(values)

    def choose(self, logits: Tensor, allowed: Tensor | None = None) -> int:
        """Returns a token for logits [vocabulary], and remembers it.

        `allowed`, [vocabulary] bool, has the tokens to choose from; None for all.
        """
        scores = self._scores(logits, allowed)
        if self.draws:
            weights = torch.softmax(scores, -1)
            token = int(torch.multinomial(weights, 1, generator=self._generator))
        else:
            token = int(scores.argmax())
        self.note(token)
        return token

    def note(self, token: int) -> None:
        """Remembers a token that was not chosen here."""
        self._ids.append(token)

    def sure(self, logits: Tensor, rounding: float, allowed: Tensor | None = None) -> bool:
        """Whether the likeliest token of logits [vocabulary] stays if each changes by up to `rounding`."""
        first, second = self._scores(logits, allowed).topk(2).values.tolist()
        return bool(first - second > 2 * rounding * self._stretch)

    def _scores(self, logits: Tensor, allowed: Tensor | None) -> Tensor:
        if allowed is not None:
            logits = logits.masked_fill(~allowed.to(logits.device), -math.inf)
        if not self._processors:
            return logits
        ids: Any = torch.tensor([self._ids])
        scores: Any = logits.float().cpu()[None]
        chosen = self._processors(ids, scores)[0]
        if allowed is not None and not chosen.isfinite().any():
            return logits  # a rule of the model forbids all that the grammar allows
        return chosen
