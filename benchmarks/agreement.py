"""Whether many prompts at once have the answers that each has alone: if not, their times are worth nothing.

With drawn weights in bf16 two tokens are often as good as equally likely, so that one in four of the answers
may differ early; the first logits of none may.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from benchmarks.crowd import Crowd
from benchmarks.goals import SAME_TEXT
from engine.base.errors import PromptCacheError
from engine.base.events import Answer

APART = "distance ÷ spread, of the worst"  # from numbers that are wanted; the spread is of these
ALIKE = "answers that begin alike"
AGREE = 0.75  # so many of the answers have to
BOUNDS = {"fp32": 1e-3}  # of the distance, by the number format
# Of the others. Right logits were 0.01 to 0.04 off, those that missed one of eight modules 0.11 to 0.33.
ROUGH = 0.1
ASKED = 8  # prompts whose answers are compared
_TOGETHER = 8  # tokens of each of many at once, so that all meet in one pass
_BEGINNING = {"fp32": _TOGETHER}  # tokens of each that are compared, by the number format
_ROUGH_BEGINNING = 2  # of the others: the prompt's last row gives one, a step the other

Values = dict[str, float | int | str]


def distance(found: Tensor, wanted: Tensor) -> float:
    """The greatest distance from what is wanted by its standard deviation; infinite for what is no number."""
    theirs = wanted.detach().float().cpu()
    apart = float((found.detach().float().cpu() - theirs).abs().max() / theirs.std())
    return math.inf if math.isnan(apart) else apart


def mean_distance(found: Tensor, wanted: Tensor) -> float:
    """The root of the mean square of distances by the standard deviation of what is wanted.

    For logits: in bf16 the greatest distance of thousands is far off by rounding alone, to 0.11 and as far as
    where a module is read one token off.
    """
    theirs = wanted.detach().float().cpu()
    apart = float((found.detach().float().cpu() - theirs).square().mean().sqrt() / theirs.std())
    return math.inf if math.isnan(apart) else apart


def judged(apart: float, dtype: str, alike: float = 1.0) -> Values:
    """What a group of the suite is told: `SAME_TEXT`, without which no goal is met, and why.

    Args:
        apart: the greatest `distance` or, of logits, `mean_distance`.
        dtype: the number format.
        alike: the share of answers that begin alike.
    """
    same = apart <= BOUNDS.get(dtype, ROUGH) and alike >= AGREE
    return {SAME_TEXT: "yes" if same else "no", APART: apart}


def answered(crowd: Crowd, kinds: Sequence[str], count: int) -> Values:
    """Answers the same prompts on both engines: so many at once, and up to `ASKED` of them one by one.

    Args:
        crowd: the engines and their prompts.
        kinds: of prompts whose modules both engines have.
        count: how many are answered at once.

    Returns:
        As of `judged`, and `ALIKE`; of the kind that is worst.

    Raises:
        PromptCacheError: a prompt has no answer.
    """
    worst, least, tokens = 0.0, 1.0, _BEGINNING.get(crowd.model.dtype, _ROUGH_BEGINNING)
    for kind in kinds:
        twins = crowd.twins(kind, count)
        ours = [one for one, _ in twins]
        found = dict(crowd.batch.answer_all(ours, max_new_tokens=_TOGETHER, speculate="off"))
        alike = 0
        for number, (_, twin) in enumerate(twins[:ASKED]):
            alone, together = crowd.submit("one_by_one", twin, tokens).result(), found[number]
            if not isinstance(together, Answer):
                raise PromptCacheError(f"{kind}: a prompt has no answer: {together}")
            assert alone.first_logits is not None
            assert together.first_logits is not None
            worst = max(worst, mean_distance(together.first_logits, alone.first_logits))
            alike += together.token_ids[:tokens] == alone.token_ids
        least = min(least, alike / min(ASKED, count))
    return {**judged(worst, crowd.model.dtype, least), ALIKE: f"{least:.0%}"}
