"""How one side reads an answer that is given: its distributions, and how far two sides are apart.

Both sides read the same tokens, so that every token of a whole answer can be compared, the later ones too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.inference.sequence import Prefill
    from engine.model.model import Model

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
        """Takes logits [answer tokens, vocabulary]."""
        return cls(torch.log_softmax(logits.float(), -1))

    def divergence(self, from_side: Reading) -> Tensor:
        """KL(`from_side` ‖ this side) before each token of the answer, [answer tokens], in nats."""
        theirs, own = from_side.log_probabilities, self.log_probabilities
        blocks = zip(torch.split(theirs, ROWS_AT_ONCE), torch.split(own, ROWS_AT_ONCE), strict=True)
        return torch.cat([(p.exp() * (p - q)).sum(-1) for p, q in blocks]).clamp_min(0)

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
        model: that reads.
        prefill: the prompt.
        answer: its tokens, at least one; the last one is never an input.
    """
    tokens = [*prefill.token_ids, *answer[:-1]]
    positions = [*prefill.positions, *range(prefill.end, prefill.end + len(answer) - 1)]
    kv = model.key_values(prefill.placements, len(tokens))
    return Reading.of_logits(model.forward(tokens, positions, kv, keep=len(answer)))
