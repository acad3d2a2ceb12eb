"""The state of one answer, advanced a token at a time. Who steps which sequence when is no concern of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from torch import Tensor

from engine.events import Ending
from engine.inference.params import SamplingParams
from engine.inference.prefill import Prefill
from engine.inference.sampler import Sampler
from engine.inference.text_stream import TextStream
from engine.model.kv_cache import KVCache
from engine.model.model import Model
from engine.stopwatch import Stopwatch


@dataclass(frozen=True)
class Step:
    """What one step brought.

    Attributes:
        token: the token that was chosen.
        text: the text that it completes; at the end also what was held back.
        ending: why there is no further step, None where there is one.
    """

    token: int
    text: str
    ending: Ending | None


class Sequence:
    """One answer while it is computed.

    Args:
        model: the model that answers.
        prefill: the prompt, as it is computed and read.
        params: how tokens are chosen, and where the answer ends.
        clock: the stopwatch for "prefill" and "sample" of the first step; a new one where none is given.

    Attributes:
        token_ids: the answer's tokens so far.
        logits: [vocabulary] fp32, the scores from which the latest token was chosen.
        first_logits: [vocabulary] fp32, those of the first token.
        ending: why it has ended, None while it has not.
        step_ms: time of each step after the first, from the token before to this one's text, in milliseconds.
        room: how many tokens of the answer the context window has room for.
        kv: keys and values of the prompt and the answer; None before the first step.
    """

    def __init__(
        self, model: Model, prefill: Prefill, params: SamplingParams, clock: Stopwatch | None = None
    ) -> None:
        self.model, self.prefill, self.params = model, prefill, params
        self.clock = Stopwatch() if clock is None else clock
        self.room = max(1, model.context_length - prefill.end)
        self.token_ids: list[int] = []
        self.logits: Tensor | None = None
        self.first_logits: Tensor | None = None
        self.ending: Ending | None = None
        self.step_ms: list[float] = []
        self.kv: KVCache | None = None
        self._limit = min(params.max_new_tokens, self.room)
        self._sampler = Sampler(params, prefill.prompt)
        self._stream = TextStream(model.tokenizer, params.stop)

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return self._stream.text

    @property
    def cut_short(self) -> bool:
        """Whether the context window ended it before its own limit."""
        return self.ending == "length" and self.room < self.params.max_new_tokens

    @property
    def counts(self) -> dict[str, int]:
        """Tokens by what became of them, as in `Answer.tokens`."""
        prompt, computed = len(self.prefill.prompt), len(self.prefill.token_ids)
        return {
            "prompt": prompt,
            "from_cache": prompt - computed,
            "computed": computed,
            "encoded": self.prefill.encoded,
            "choosing": self.prefill.choosing,
        }

    def step(self) -> Step:
        """Computes one token; the first one by prefill."""
        assert self.ending is None, "an answer that has ended is not stepped"
        return self._further() if self.token_ids else self._first()

    def _first(self) -> Step:
        prefill = self.prefill
        self.clock.restart()
        self.kv = self.model.network.kv_cache(prefill.placements, len(prefill.token_ids) + self._limit)
        self.logits = self.model.network.forward(prefill.token_ids, prefill.positions, self.kv)[-1].float()
        self.first_logits = self.logits
        self.clock.lap("prefill")
        token = self._sampler.choose(self.logits)
        self.clock.lap("sample")
        return self._take(token)

    def _further(self) -> Step:
        started = time.perf_counter()
        assert self.kv is not None
        if not self.step_ms:
            self.kv.fold()
        position = self.prefill.end + len(self.token_ids) - 1
        self.logits = self.model.network.forward(self.token_ids[-1:], [position], self.kv)[-1].float()
        step = self._take(self._sampler.choose(self.logits))
        self.step_ms.append((time.perf_counter() - started) * 1000)
        return step

    def _take(self, token: int) -> Step:
        """Adds a token to the answer, with its text, and sees whether it ends here."""
        self.token_ids.append(token)
        if token in self.model.end_tokens:
            text, self.ending = self._stream.rest(), "eos"
        else:
            text = self._stream.add(token)
            if len(self.token_ids) == self._limit:
                text, self.ending = text + self._stream.rest(), "length"
            if self._stream.stopped:
                self.ending = "stop"
        return Step(token, text, self.ending)
