"""Chooses the next token."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from engine.base.token_bias import biases_of
from engine.checkpoint.generation_config import processors, stretch
from engine.grammars.matcher import Matcher
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

    def choose(self, logits: Tensor, matcher: Matcher | None = None) -> int:
        """Returns a token for logits [vocabulary] that a matcher permits, and remembers it."""
        if self.draws:
            weights = torch.softmax(self._scores(logits, matcher), -1)
            token = int(torch.multinomial(weights, 1, generator=self._generator))
        elif self._processors:
            token = _likeliest(self._scores(logits, matcher))
        else:
            token = _likeliest(logits)
            if matcher is not None and not matcher.permits(token):
                token = _likeliest(self._scores(logits, matcher))
        self.note(token)
        return token

    def note(self, token: int) -> None:
        """Remembers a token that was not chosen here."""
        self._ids.append(token)

    def sure(self, logits: Tensor, rounding: float, matcher: Matcher | None = None) -> bool:
        """Whether the likeliest token of logits [vocabulary] stays if each changes by up to `rounding`."""
        least = 2 * rounding * self._stretch
        if matcher is not None and not self._processors:
            token, lead = _lead(logits)
            if lead > least and matcher.permits(token):
                return True  # tokens that are not permitted only raise the second score
        return _lead(self._scores(logits, matcher))[1] > least

    def _scores(self, logits: Tensor, matcher: Matcher | None) -> Tensor:
        if matcher is not None:
            logits = logits + matcher.bias().to(logits.device)
        if not self._processors:
            return logits
        ids: Any = torch.tensor([self._ids])
        scores: Any = logits.float().cpu()[None]
        chosen = self._processors(ids, scores)[0]
        if matcher is not None and not chosen.isfinite().any():
            return logits  # a rule of the model forbids all that the grammar permits
        return chosen


def _likeliest(scores: Tensor) -> int:
    """The first token of the highest score; numpy is ten times faster than torch on a CPU."""
    return int(scores.numpy().argmax()) if scores.device.type == "cpu" else int(scores.argmax())


def _lead(scores: Tensor) -> tuple[int, float]:
    """The likeliest token, and its lead over the next one."""
    if scores.device.type != "cpu":
        (first, second), (token, _) = (found.tolist() for found in scores.topk(2))
        return token, first - second
    values = scores.numpy()
    token = int(values.argmax())
    others = values[:token], values[token + 1 :]
    return token, float(values[token] - max(side.max(initial=-np.inf) for side in others))
