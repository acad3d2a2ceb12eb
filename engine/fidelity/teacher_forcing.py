"""How one side reads an answer that is given: its distributions, and how far two sides are apart.

Both sides read the same tokens, so that every token of a whole answer can be compared, the later ones too.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.base.events import Side, Working
from engine.base.stopwatch import Stopwatch
from engine.cache.fetched import Request
from engine.cache.segment_cache import SegmentCache, wanted
from engine.inference.distributions import divergence, log_probabilities
from engine.inference.prefill import Prefill, prefill, whole
from engine.inference.run_settings import ReuseParams
from engine.model.model import Model
from engine.prompt.tokenized import TokenizedPrompt

ROWS_AT_ONCE = 64  # that are compared: a long answer in a large vocabulary takes gigabytes


@dataclass(frozen=True)
class Reading:
    """One side's distributions over an answer.

    Attributes:
        log_probabilities: [answer tokens, vocabulary] in fp32, before each token of the answer.
    """

    log_probabilities: Tensor

    @classmethod
    def of_logits(cls, logits: Tensor) -> Reading:
        """Takes logits [answer tokens, vocabulary].

        Raises:
            ModelError: they are no numbers.
        """
        return cls(log_probabilities(logits.float()))

    def divergence(self, from_side: Reading) -> Tensor:
        """KL(`from_side` ‖ this side) before each token of the answer, [answer tokens], in nats."""
        theirs, own = from_side.log_probabilities, self.log_probabilities
        blocks = zip(torch.split(theirs, ROWS_AT_ONCE), torch.split(own, ROWS_AT_ONCE), strict=True)
        return torch.cat([divergence(q, p) for p, q in blocks])

    def agreement(self, other: Reading) -> Tensor:
        """Whether both find the same token likeliest, [answer tokens] of booleans."""
        return self.likeliest == other.likeliest

    @property
    def likeliest(self) -> Tensor:
        """The likeliest token before each token of the answer, [answer tokens]."""
        return self.log_probabilities.argmax(-1)


def read(model: Model, prefill: Prefill, answer: Sequence[int]) -> Reading:
    """Reads an answer behind a prompt, in one pass over what is computed and the answer.

    Args:
        model: the model that reads.
        prefill: the prompt, as it is computed and read.
        answer: the answer's tokens, at least one; the last one is never an input.

    Raises:
        ModelError: a result is not a number.
    """
    tokens = [*prefill.token_ids, *answer[:-1]]
    positions = [*prefill.positions, *range(prefill.end, prefill.end + len(answer) - 1)]
    kv = model.network.kv_cache(prefill.placements, len(tokens))
    return Reading.of_logits(model.network.forward(tokens, positions, kv, keep=len(answer)))


def reading(
    cache: SegmentCache, prompt: TokenizedPrompt, answer: Sequence[int], settings: ReuseParams, side: Side
) -> Generator[Working, None, Reading]:
    """Has one side read an answer that is given, so that all of it can be compared with another reading.

    Args:
        cache: the segments of the model.
        prompt: the prompt that is answered.
        answer: the answer's tokens, at least one.
        settings: scope, repair and placement.
        side: the side that reads.

    Yields:
        Working, before each segment that must be encoded.

    Raises:
        PromptError: as for `answering`.
        ModelError: what the side computes is no number.
    """
    scope = settings.scope if side == "cached" else None
    planned = prompt.planned(scope, settings.placement, turns_held=settings.turns_held)
    if side == "uncached":
        return read(cache.model, whole(planned.plan), answer)
    request = Request(prompt.schema.label, settings.scope)
    fetched = yield from cache.segments(wanted(planned.slices), request, Stopwatch())
    with fetched:
        placements = fetched.place(planned.slices)
        new = prefill(cache.model, planned.plan, planned.slices, placements, settings.repair)
        return read(cache.model, new, answer)
