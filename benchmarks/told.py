"""A network of any size that is told what to answer: what guessing ahead spares where an answer quotes.

Drawn weights quote nothing, and the bundled model is so small that a pass costs little beside what surrounds
it. So a large network with drawn weights computes every pass, and only the choice of the token is taken from
an answer that the bundled model gave to the same prompt. Guesses come from the prompt and the answer as they
do for any model, and are kept where that answer has them: as often as there.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence as Items

from torch import Tensor

from benchmarks.drawn import spans
from engine.base.choices import Speculate
from engine.base.errors import PromptCacheError
from engine.base.segment import Placement
from engine.cache.encoder import encode
from engine.inference.generation import Sequence
from engine.inference.prefill import Prefill
from engine.inference.run_settings import SamplingParams
from engine.kv_cache.protocol import KVCache, Rowwise
from engine.model.model import Model
from engine.model.network import Network
from engine.prompt.recipe import Recipe, segment_key

MODULES = 8
ABOVE = 64.0  # of the greatest score, in their spread: no rounding decides otherwise


class _Told(Network):
    """A network whose scores have a given token on top at each position."""

    def __init__(self, network: Network, start: int, answer: Items[int]) -> None:
        super().__init__(network.module, network.setup)
        self._start, self._answer = start, answer

    def forward(
        self,
        token_ids: Items[int],
        positions: Items[int],
        kv: KVCache,
        keep: int = 1,
        *,
        rowwise: Rowwise | None = None,
    ) -> Tensor:
        logits = super().forward(token_ids, positions, kv, keep, rowwise=rowwise).clone()
        for row, place in zip(logits, list(positions)[-keep:], strict=True):
            at = place - self._start + 1
            if at < len(self._answer):  # an idle row may stand behind the last token
                row[self._answer[at]] = row.max() + ABOVE * row.float().std().to(row.dtype)
        return logits


class ToldAnswer:
    """One prompt whose answer is given.

    Args:
        model: computes the passes; its vocabulary holds all tokens.
        tokenizer: of the model that gave the answer.
        prompt: the prompt's tokens, at least MODULES + 1.
        answer: the answer's tokens, at least 2.

    Raises:
        PromptCacheError: the tokens are too few, or none of this model.

    Attributes:
        passes: of the last answer, through the network after the first token's.
    """

    def __init__(self, model: Model, tokenizer: object, prompt: Items[int], answer: Items[int]) -> None:
        if len(prompt) <= MODULES or len(answer) < 2:
            raise PromptCacheError(f"a prompt of {MODULES + 1} tokens and an answer of 2 are needed.")
        if max(*prompt, *answer) >= int(model.config.vocab_size):
            raise PromptCacheError(f"{model.name} has no token {max(*prompt, *answer)}.")
        cached = len(prompt) - 1
        placements = []
        for lo, hi in spans(cached, MODULES):
            key = segment_key(model.fingerprint, model.dtype, prompt[lo:hi], ())
            (segment,) = encode(model, [Recipe(key, tuple(prompt[lo:hi]), "")], {})
            placements.append(Placement(segment, 0, hi - lo, lo))
        self._model = copy.copy(model)
        self._model.network = _Told(model.network, len(prompt), answer)
        self._model.tokenizer = tokenizer
        self._prefill = Prefill(placements, prompt[cached:], range(cached, len(prompt)), prompt, len(prompt))
        self._answer = list(answer)
        self.passes = 0

    def time(self, speculate: Speculate) -> float:
        """Milliseconds of a token: the mean of those after the first.

        Raises:
            AssertionError: another answer came out than the given one.
        """
        longer = len(self._answer) + 32  # guesses are not cut short by a limit
        params = SamplingParams(max_new_tokens=longer, speculate=speculate)
        sequence = Sequence(self._model, self._prefill, params)
        while len(sequence.token_ids) < len(self._answer):
            sequence.ending = None  # what ends an answer of this model need not end that one
            sequence.step()
        assert sequence.token_ids == self._answer
        self.passes = sequence.passes
        return statistics.fmean(sequence.step_ms)
