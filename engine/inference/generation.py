"""The state of one answer, which advances one token per step. Scheduling is elsewhere.

A pass computes the latest token, and behind it guesses of the next ones. What the model chooses after each is
compared with the next guess: as far as they agree, one pass gives several tokens, the very ones that as many
passes would give. Where rounding may decide between two tokens, those passes are made: of every token since
the last that is certain to the bit, each once in an answer at most. That may be thousands, and to keep them
few by making some ahead of a doubt would cost what the guesses spare. So a step makes one pass and no more:
between two of them an answer can be stopped, and others have their turns.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from torch import Tensor

from engine.base.events import Ending
from engine.base.stopwatch import Stopwatch
from engine.inference.distributions import require_numbers
from engine.inference.prefill import Prefill
from engine.inference.run_settings import SamplingParams
from engine.inference.sampler import Sampler
from engine.inference.speculation import Speculation
from engine.inference.text_stream import TextStream
from engine.kv_cache.protocol import KVCache, Rows, Rowwise
from engine.model.model import Model


@dataclass(frozen=True)
class Step:
    """What one step brought.

    Attributes:
        token: the token that was chosen; None while tokens are computed again, for the next one.
        text: the text that it completes; at the end also what was held back.
        ending: why there is no further step, None where there is one.
    """

    token: int | None
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
        step_ms: time of the steps to each token after the first, from the one before to its text, in ms.
        room: how many tokens of the answer the context window has room for.
        kv: keys and values of the prompt and the answer; None before the first step.
        passes: through the network after the first token's.
        repeated: those of them that computed a token again, by itself.
        accepted: tokens of the answer that were guessed right.
        speculation: guesses of the answer; None where it does without.
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
        self.passes = self.repeated = self.accepted = 0
        self._limit = min(params.max_new_tokens, self.room)
        self._sampler = Sampler(params, prefill.prompt, model.generation.rules, model.end_tokens)
        stops = dict.fromkeys((*params.stop, *model.generation.stop))
        self._stream = TextStream(model.tokenizer, [*stops], continues=prefill.continued)
        guesses = params.speculate == "on" or (params.speculate == "auto" and not self._sampler.draws)
        self.speculation = Speculation(prefill.prompt) if guesses else None
        self._chosen: list[int] = []  # tokens of the answer, those as well that are yet to be given out
        # The latter, with what they were chosen from, and whether they were guessed.
        self._ahead: deque[tuple[int, Tensor, bool]] = deque()
        self._spent_ms = 0.0  # since the latest token
        self._draft: list[int] = []  # what is guessed in the pass that is under way
        self._start = 0  # tokens of the tail before the answer's
        self._plain = 0  # tokens of the answer that were computed by themselves, all before them as well
        self._repeats = False  # tokens by themselves, until the next choice
        self._again: int | None = None  # tokens of the answer that are computed once more, with the prompt

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return self._stream.text

    @property
    def stop(self) -> str | None:
        """The stop text that ended the answer; None where none did."""
        return self._stream.stop

    @property
    def answered(self) -> int:
        """Tokens of the answer, from its first on, whose keys and values are in `kv`."""
        if self.kv is None or not self._start:
            return 0
        return min(self.kv.length - self._start, len(self.token_ids))

    @property
    def taken(self) -> int:
        """Tokens of the answer that take memory, or will in the next pass."""
        return len(self._chosen) + len(self._draft)

    @property
    def unread(self) -> int:
        """Tokens that are computed before the next one of the answer is: of its prompt, or once more."""
        if self._chosen and self._again is None:
            return 0
        return len(self.prefill.token_ids) + (self._again or 0)

    def computed(self) -> tuple[list[int], Tensor, Tensor]:
        """What it has computed of its prompt and, up to `answered`, of its answer.

        Returns:
            Positions, ascending, and keys and values there, each [layers, kv_heads, tokens, head_dim].
        """
        assert self.kv is not None, "nothing was computed"
        end = self.prefill.end
        positions = [*self.prefill.positions, *range(end, end + self.answered)]
        keys, values = (states[:, :, : len(positions)] for states in self.kv.tail)
        return positions, keys, values

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

    @property
    def guessed(self) -> dict[str, int]:
        """Tokens of the answer that were guessed, by what became of them, as in `Answer.tokens`."""
        drafted = 0 if self.speculation is None else self.speculation.drafted
        return {"drafted": drafted, "accepted": self.accepted, "repeated": self.repeated}

    def step(self) -> Step:
        """Makes one pass at most, and gives the next token where it is known then; the first one by prefill.

        Raises:
            ModelError: what the model computes is no number.
        """
        assert self.ending is None, "an answer that has ended is not stepped"
        started = time.perf_counter()
        if not self.ahead:
            self.read()
        return self.given(started)

    def read(self) -> None:
        """Makes the next pass, and gives nothing yet: the first one computes the prompt.

        Raises:
            ModelError: what the model computes is no number.
        """
        rows = self.wanted()
        assert self.kv is not None
        forward = self.model.network.forward
        self.take(forward(rows.token_ids, rows.positions, self.kv, rows.keep, rowwise=rows.rowwise))

    @property
    def ahead(self) -> bool:
        """Whether the next token is known without a pass."""
        return bool(self._ahead)

    def given(self, since: float) -> Step:
        """Gives the next token, where it is known after the pass that was taken.

        Args:
            since: when this step began, by `time.perf_counter`.
        """
        step, first = Step(None, "", None), not self.token_ids
        if self._ahead:
            token, self.logits, guessed = self._ahead.popleft()
            self.accepted += guessed
            if first:
                self.clock.lap("sample")
                self.first_logits = self.logits.clone()  # an answer that is kept keeps no others' logits
            step = self._give(token)
        if not first:
            self._spent_ms += (time.perf_counter() - since) * 1000
        if not first and step.token is not None:
            self.step_ms.append(self._spent_ms)
            self._spent_ms = 0.0
        return step

    def wanted(self, *, fold: bool = True, guess: bool = True) -> Rows:
        """Says what the next pass over `kv` is to compute; `take` takes its logits.

        Args:
            fold: whether to make one run of the segments before the second token, which others then read by
                themselves.
            guess: whether rows of guesses cost little: not where the pass has rows of others.
        """
        prefill = self.prefill
        if self.kv is None:
            self.kv = self.model.network.kv_cache(prefill.placements, len(prefill.token_ids) + self._limit)
        if not self._chosen or self._again is not None:
            again = self._chosen[: self._again or 0]
            positions = [*prefill.positions, *range(prefill.end, prefill.end + len(again))]
            return Rows([*prefill.token_ids, *again], positions)
        if not self.passes:
            if fold:
                self.kv.fold()
            self._start = self.kv.length
        computed = self.kv.length - self._start
        self._draft = self._guesses() if guess and not self._repeats else []
        latest = self._chosen[computed]
        idle = 0 if self._draft else self.model.rows.idle
        rows = [latest, *self._draft, *[latest] * idle]
        at = prefill.end + computed
        return Rows(rows, list(range(at, at + len(rows))), len(rows), Rowwise(idle))

    def set_back(self) -> None:
        """Lets go of all that it has computed, to compute it again when it goes on; what it reads is kept."""
        if self._chosen and self._again is None:
            assert self.kv is not None
            self._again = self.kv.length - self._start if self.passes else 0
        self.kv = None

    def _guesses(self) -> list[int]:
        """Guesses what follows, where the text stays and is hardly ever computed again for it."""
        if self.speculation is None:
            return []
        guesses = self.speculation.draft(self._chosen, self._limit - len(self._chosen) - 1)
        if guesses and self.params.speculate == "auto" and not self.model.rows.small:
            self.speculation = None
            return []
        return guesses

    def take(self, logits: Tensor) -> None:
        """Chooses tokens by the logits [keep, vocabulary] of the pass that was wanted.

        Raises:
            ModelError: they are no numbers.
        """
        if not self._chosen:
            self.clock.lap("prefill")
            self._choose(logits[-1].float())
            return
        if self._again is not None:
            self._again = None
            return
        assert self.kv is not None
        self.passes += 1
        self.repeated += self._repeats
        rows = len(self._draft) + 1
        self.kv.truncate(self.kv.length - len(logits) + rows)
        computed = self.kv.length - self._start
        if not self._draft and computed == self._plain + 1:
            self._plain = computed
        if computed < len(self._chosen):
            return
        certain = self._sampler.draws or self._plain == computed or not self.model.rows.bound
        accepted, sure = self._accepted(logits[:rows], certain=certain)
        answered = len(self._chosen)
        if self.speculation is not None and self._draft:
            self.speculation.judge(len(self._draft), accepted, answered)
        if self.speculation is not None and not sure:
            self.speculation.repeat(answered - self._plain, answered)
        self._repeats = not sure
        self.kv.truncate(self._start + (answered - 1 if sure else self._plain))

    def _accepted(self, logits: Tensor, *, certain: bool) -> tuple[int, bool]:
        """Chooses after each row, as long as that is the next guess.

        Args:
            logits: [rows, vocabulary].
            certain: rounding need not be looked at.

        Returns:
            How many guesses were chosen, and whether that is so whatever is rounded.
        """
        for place, row in enumerate(logits):
            scores = row.float()
            if not certain and not self._sampler.sure(scores, self.model.rows.of(scores)):
                return place, False
            guess = self._draft[place] if place < len(self._draft) else None
            token = self._choose(scores, guess)
            if token != guess:
                return place, True
            if token in self.model.end_tokens:
                return place + 1, True
        raise AssertionError("a row follows every guess")

    def _choose(self, scores: Tensor, guess: int | None = None) -> int:
        require_numbers(scores, len(self._chosen))
        token = self._sampler.choose(scores)
        self._chosen.append(token)
        self._ahead.append((token, scores, token == guess))
        return token

    def _give(self, token: int) -> Step:
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
