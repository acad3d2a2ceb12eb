"""The state of one answer, which advances one token per step. Scheduling is elsewhere.

A pass computes the latest token and guesses of the next ones. While the model's choices equal the guesses,
one pass gives several tokens, the same that single-token passes give. If rounding may decide between two
tokens, single-token passes repeat every token since the last exact one, each at most once in an answer. That
may be thousands; repeating some in advance would cost as much as guessing saves. A step makes at most one
pass, so an answer can stop, and others can run, between two passes.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from torch import Tensor

from engine.base.events import Ending, TokenLogprob
from engine.base.stopwatch import Stopwatch
from engine.inference.distributions import require_numbers, token_logprobs
from engine.inference.prefill import Prefill
from engine.inference.run_settings import SamplingParams
from engine.inference.sampler import Sampler
from engine.inference.speculation import MANY, Speculation
from engine.inference.text_stream import TextStream
from engine.kv_cache.protocol import KVCache, Rows, Rowwise
from engine.model.model import Model


@dataclass(frozen=True)
class Step:
    """The chosen token of a step, its text, and why the answer ended.

    `token` is None while tokens are computed again. The last text has the buffered rest.
    """

    token: int | None
    text: str
    ending: Ending | None


class Sequence:
    """One answer while it is computed.

    Args:
        model: the model that answers.
        prefill: the prompt: its tokens to compute and segments to read.
        params: sampling, and where the answer ends.
        clock: the stopwatch for "prefill" and "sample" of the first step; a new one by default.
        top: the number of alternatives in `logprobs`; None for no log-probabilities.

    Attributes:
        token_ids: the answer's tokens so far.
        logits: [vocabulary] fp32, the scores of the latest choice.
        first_logits: [vocabulary] fp32, those of the first token; -inf where the grammar permits none.
        logprobs: the log-probabilities of the answer's tokens, if requested.
        ending: why it has ended; None while it has not.
        step_ms: milliseconds from each token's text to the next one's.
        room: tokens of the answer for which the context window has room.
        kv: keys and values of the prompt and the answer; None before the first step.
        passes: passes through the network after the first token's.
        repeated: those that computed a token again, by itself.
        accepted: correctly guessed tokens of the answer.
        forced: tokens of the answer that its grammar left no choice about.
        speculation: guesses of the answer; None if there are none.
    """

    def __init__(
        self,
        model: Model,
        prefill: Prefill,
        params: SamplingParams,
        clock: Stopwatch | None = None,
        top: int | None = None,
    ) -> None:
        self.model, self.prefill, self.params = model, prefill, params
        self.clock = Stopwatch() if clock is None else clock
        self.room = max(1, model.context_length - prefill.end)
        self.token_ids: list[int] = []
        self.logits: Tensor | None = None
        self.first_logits: Tensor | None = None
        self._first_bias: Tensor | float = 0.0  # of the grammar
        self.logprobs: list[TokenLogprob] = []
        self._top = top
        self.ending: Ending | None = None
        self.step_ms: list[float] = []
        self.kv: KVCache | None = None
        self.passes = self.repeated = self.accepted = self.forced = 0
        self._limit = min(params.max_new_tokens, self.room)
        self._matcher = model.matcher(params.grammar)
        self._sampler = Sampler(params, prefill.prompt, model.generation.rules, model.end_tokens)
        stops = dict.fromkeys((*params.stop, *model.generation.stop))
        self._stream = TextStream(model.tokenizer, [*stops], continues=prefill.continued)
        guesses = params.speculate == "on" or (params.speculate == "auto" and not self._sampler.draws)
        self.speculation = Speculation(prefill.prompt) if guesses else None
        self._chosen: list[int] = []  # all chosen tokens, those in `_ahead` included
        # Chosen tokens to give next, with their scores, whether they were guessed, and whether they are last.
        self._ahead: deque[tuple[int, Tensor, bool, bool]] = deque()
        self._spent_ms = 0.0  # since the latest token
        self._draft: list[int] = []  # the guesses in the current pass
        self._start = 0  # tokens of the tail before the answer's
        self._plain = 0  # tokens of the answer that were computed in single-token passes, as all before them
        self._repeats = False  # whether single-token passes repeat tokens until the next choice
        self._again: int | None = None  # tokens of the answer to compute again together with the prompt

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return self._stream.text

    @property
    def stop(self) -> str | None:
        """The stop text that ended the answer; None if none did."""
        return self._stream.stop

    @property
    def answered(self) -> int:
        """Tokens of the answer, from the first on, whose keys and values are in `kv`."""
        if self.kv is None or not self._start:
            return 0
        return min(self.kv.length - self._start, len(self.token_ids))

    @property
    def taken(self) -> int:
        """Tokens of the answer that take memory, or will in the next pass."""
        return len(self._chosen) + len(self._draft)

    @property
    def unread(self) -> int:
        """Tokens to compute before the next choice: of its prompt, or again."""
        if self._chosen and self._again is None:
            return 0
        return len(self.prefill.token_ids) + (self._again or 0)

    def computed(self) -> tuple[list[int], Tensor, Tensor]:
        """The computed tokens of its prompt and, up to `answered`, of its answer.

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
        """Tokens of the prompt by source, as in `Answer.tokens`."""
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
        """Guessed tokens of the answer by result, as in `Answer.tokens`."""
        drafted = 0 if self.speculation is None else self.speculation.drafted
        counts = {"drafted": drafted, "accepted": self.accepted, "repeated": self.repeated}
        return counts if self._matcher is None else {**counts, "forced": self.forced}

    def step(self) -> Step:
        """Makes at most one pass, and gives the next token if it is known then; the first one by prefill.

        Raises:
            ModelError: the model computes logits that are not numbers.
        """
        assert self.ending is None, "an answer that has ended is not stepped"
        started = time.perf_counter()
        if not self.ahead:
            rows = self.wanted()
            assert self.kv is not None
            self.take(forward(self.model, self.kv, rows))
        return self.given(started)

    @property
    def ahead(self) -> bool:
        """Whether the next token is known without a pass."""
        return bool(self._ahead)

    def given(self, since: float) -> Step:
        """Gives the next token if it is known. `since` is the start of the step, by `time.perf_counter`."""
        step, first = Step(None, "", None), not self.token_ids
        if self._ahead:
            token, self.logits, guessed, last = self._ahead.popleft()
            self.accepted += guessed
            if self._top is not None:
                self.logprobs += token_logprobs(self.logits[None], [token], self._top)
            if first:
                self.clock.lap("sample")
                self.first_logits = self.logits + self._first_bias  # a copy, to free others' logits
            step = self._give(token, last=last)
        if not first:
            self._spent_ms += (time.perf_counter() - since) * 1000
        if not first and step.token is not None:
            self.step_ms.append(self._spent_ms)
            self._spent_ms = 0.0
        return step

    def wanted(self, *, guess: bool = True) -> Rows:
        """Returns the rows of the next pass over `kv`; `take` receives its logits.

        `guess` is whether rows of guesses are cheap: False if the pass has rows of others.
        """
        prefill = self.prefill
        if self.kv is None:
            self.kv = self.model.network.kv_cache(prefill.placements, len(prefill.token_ids) + self._limit)
        if not self._chosen or self._again is not None:
            again = self._chosen[: self._again or 0]
            positions = [*prefill.positions, *range(prefill.end, prefill.end + len(again))]
            return Rows([*prefill.token_ids, *again], positions)
        if not self.passes:
            self._start = self.kv.length
        computed = self.kv.length - self._start
        self._draft = self._forced() or self._guesses() if guess and not self._repeats else []
        latest = self._chosen[computed]
        idle = 0 if self._draft else self.model.rows.idle
        rows = [latest, *self._draft, *[latest] * idle]
        at = prefill.end + computed
        return Rows(rows, list(range(at, at + len(rows))), len(rows), Rowwise(idle))

    def set_back(self) -> None:
        """Drops all computed keys and values, to compute them again later; segments stay."""
        if self._chosen and self._again is None:
            assert self.kv is not None
            self._again = self.kv.length - self._start if self.passes else 0
        self.kv = None

    def _forced(self) -> list[int]:
        """The next tokens if the grammar leaves no choice: guesses that are always right."""
        if self._matcher is None or not self.model.rows.small:
            return []
        return self._matcher.forced[: min(MANY, self._limit - len(self._chosen) - 1)]

    def _guesses(self) -> list[int]:
        """Guesses the next tokens, if guesses rarely cause repeated passes."""
        if self.speculation is None:
            return []
        guesses = self.speculation.draft(self._chosen, self._limit - len(self._chosen) - 1)
        if guesses and self.params.speculate == "auto" and not self.model.rows.small:
            self.speculation = None
            return []
        return guesses

    def take(self, logits: Tensor) -> None:
        """Chooses tokens by the logits [keep, vocabulary] of the wanted pass.

        Raises:
            ModelError: the logits are not numbers.
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
        guessed = bool(self._draft) and not self._is_forced
        accepted, sure = self._accepted(logits[:rows], certain=certain)
        answered = len(self._chosen)
        if self.speculation is not None and guessed:
            self.speculation.judge(len(self._draft), accepted, answered)
        if self.speculation is not None and not sure:
            self.speculation.repeat(answered - self._plain, answered)
        self._repeats = not sure
        self.kv.truncate(self._start + (answered - 1 if sure else self._plain))

    def _accepted(self, logits: Tensor, *, certain: bool) -> tuple[int, bool]:
        """Chooses after each row of logits [rows, vocabulary] while the choice equals the next guess.

        Args:
            logits: [rows, vocabulary].
            certain: rounding need not be checked.

        Returns:
            The number of accepted guesses, and whether rounding cannot change the choice.
        """
        for place, row in enumerate(logits):
            scores = row.float()
            if not (certain or self._is_forced or self._is_sure(scores)):
                return place, False
            guess = self._draft[place] if place < len(self._draft) else None
            token = self._choose(scores, guess)
            if token != guess:
                return place, True
            if token in self.model.end_tokens or self._is_complete:
                return place + 1, True
        raise AssertionError("a row follows every guess")

    def _choose(self, scores: Tensor, guess: int | None = None) -> int:
        require_numbers(scores, len(self._chosen))
        matcher, guessed = self._matcher, not self._is_forced
        if matcher is not None and not self._chosen:
            self._first_bias = matcher.bias().to(scores.device, copy=True)
        if matcher is None:
            token = self._sampler.choose(scores)
        elif guessed:
            token = self._sampler.choose(scores, matcher)
        else:
            token = matcher.forced[0]
            self._sampler.note(token)
            self.forced += 1
        if matcher is not None:
            matcher.take(token)
        self._chosen.append(token)
        self._ahead.append((token, scores, guessed and token == guess, self._is_complete))
        return token

    def _is_sure(self, scores: Tensor) -> bool:
        """Whether rounding cannot change the choice."""
        return self._sampler.sure(scores, self.model.rows.of(scores), self._matcher)

    @property
    def _is_forced(self) -> bool:
        """Whether the grammar leaves no choice about the next token."""
        return self._matcher is not None and bool(self._matcher.forced)

    @property
    def _is_complete(self) -> bool:
        """Whether nothing may follow the latest choice."""
        return self._matcher is not None and self._matcher.complete

    def _give(self, token: int, *, last: bool = False) -> Step:
        """Adds a token and its text to the answer, and checks whether it ends here."""
        self.token_ids.append(token)
        if token in self.model.end_tokens:
            text, self.ending = self._stream.rest(), "eos"
        else:
            text = self._stream.add(token)
            if last or len(self.token_ids) == self._limit:
                text, self.ending = text + self._stream.rest(), "eos" if last else "length"
        if self._stream.stopped:
            self.ending = "stop"
        return Step(token, text, self.ending)


def forward(model: Model, kv: KVCache, rows: Rows, *, fold: bool = True) -> Tensor:
    """Makes a pass of one answer, and returns its logits [keep, vocabulary].

    With `fold`, decoding first joins the segments into one run, which no other answer can share.
    """
    if fold and rows.rowwise is not None:
        kv.fold()
    return model.network.forward(rows.token_ids, rows.positions, kv, rows.keep, rowwise=rows.rowwise)
