"""Continues a prompt of given tokens, and returns the log-probabilities of the prompt itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from collections.abc import Sequence as Items
from dataclasses import dataclass

from engine.base.errors import SettingsError
from engine.base.events import Ending, TokenLogprob, Working
from engine.inference.distributions import log_probabilities, token_logprobs
from engine.inference.generation import Sequence, Step
from engine.inference.model_settings import require_fitting
from engine.inference.prefill import Prefill
from engine.inference.run_settings import SamplingParams
from engine.model.model import Model
from engine.pml import make
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prompt.window import TooLongError

ROWS = 256  # of a pass whose logits are all computed


@dataclass(frozen=True)
class Continuation:
    """A prompt of tokens with its continuation.

    Attributes:
        prompt: the tokens of the prompt.
        scores: the log-probabilities of its tokens from the second on, if requested.
        text: the text that continues it.
        token_ids: the tokens of that text.
        logprobs: their log-probabilities, if requested.
        stopped: why it ended; "length" without new tokens.
        labels: the log-probabilities of the given tokens after the prompt, in nats.
    """

    prompt: tuple[int, ...]
    scores: tuple[TokenLogprob, ...]
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    stopped: Ending
    labels: tuple[float, ...] = ()


def continuing(
    model: Model,
    tokens: Items[int],
    params: SamplingParams,
    *,
    answer: bool,
    scored: bool,
    top: int | None,
    labels: Items[int] = (),
    said: Callable[[Continuation], None] = lambda _: None,
) -> Generator[Working, None, Continuation]:
    """Continues tokens; the arguments are those of `Engine.continue_tokens`.

    Yields:
        Working, before each pass.

    Raises:
        ModelError: the model computes logits that are not numbers.
        SettingsError: there is no token, or one is not of the vocabulary.
        TooLongError: the tokens do not fit the context window.
    """
    require_tokens(model, tokens, labels, answer=answer)
    require_fitting(model, params)
    positions = range(len(tokens))
    prefill = Prefill((), tokens, positions, tokens, len(tokens), continued=True)
    sequence = Sequence(model, prefill, params, top=top)
    sequence.wanted()
    kv, scores = sequence.kv, list[TokenLogprob]()
    assert kv is not None
    for start in range(0, len(tokens), ROWS):
        yield Working("uncached", "prompt", start, len(tokens))
        chunk = slice(start, start + ROWS)
        keep = len(tokens[chunk]) if scored else 1
        logits = model.network.forward(tokens[chunk], positions[chunk], kv, keep=keep)
        following = tokens[start + 1 : start + 1 + keep] if scored else ()
        if following:
            scores += token_logprobs(logits[: len(following)], following, top or 0)
    after = log_probabilities(logits[-1:].float())[0, [*labels]].tolist() if labels else ()
    said(Continuation(tuple(tokens), tuple(scores), "", (), (), "length"))

    def give(step: Step) -> None:
        if step.token is not None:
            new = tuple(sequence.logprobs[-1:])
            said(Continuation((), (), step.text, (step.token,), new, step.ending or "length"))

    if answer:
        sequence.take(logits[-1:])
        give(sequence.given(time.perf_counter()))
    while answer and sequence.ending is None:
        yield Working("uncached", "answer", len(sequence.token_ids), params.max_new_tokens)
        give(sequence.step())
    return Continuation(
        tuple(tokens),
        tuple(scores),
        sequence.text,
        tuple(sequence.token_ids),
        tuple(sequence.logprobs),
        sequence.ending or "length",
        tuple(after),
    )


def require_tokens(model: Model, tokens: Items[int], labels: Items[int] = (), *, answer: bool) -> None:
    """Rejects tokens that cannot be continued.

    Raises:
        SettingsError: there is no token, or one is not of the vocabulary.
        TooLongError: the tokens do not fit the context window.
    """
    if not tokens:
        raise SettingsError("The prompt has no tokens. Send at least one.")
    size = int(model.network.config.vocab_size)
    for what, given in (("prompt", tokens), ("labels", labels)):
        for place, token in enumerate(given):
            if not 0 <= token < size:
                raise SettingsError(f"Token {place} of the {what} is {token}; it must be 0 to {size - 1}.")
    most = model.context_length - answer
    if len(tokens) > most:
        words = f"the prompt has {len(tokens)} tokens; {model.name!r} reads at most {most}"
        raise TooLongError((make("E502", words, NOWHERE, "", "send fewer tokens"),), len(tokens), most)
