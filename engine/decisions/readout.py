"""How the probabilities of options are read, and the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.base.events import SegmentUse, Side
from engine.decisions.questions import Question
from engine.inference.setting import declared, settings_of

MOST_PERMUTATIONS = 64
LEAST_TEMPERATURE, MOST_TEMPERATURE = 0.01, 100.0


@dataclass(frozen=True)
class Readout:
    """How the probabilities of options are read.

    Attributes:
        permutations: the number of orders of options to average over.
        calibrate: subtract the scores of the same question with "N/A" for new text of the prompt, or without
            the prompt if all its text is in modules (contextual calibration; Zhao et al., 2021).
        per_token: divide a label's log-probability by its number of tokens.
        temperature: divides the logarithms of the probabilities, after the mean over orders.
        list_options: whether the model reads the options. Few-shot prompts show the labels already.

    Raises:
        SettingsError: a value is out of range.
    """

    permutations: int = field(
        default=1,
        metadata=declared(
            "Orders of options",
            "Average over this many orders of the options. The model may prefer the first ones.",
            least=1,
            most=MOST_PERMUTATIONS,
        ),
    )
    calibrate: bool = field(
        default=False,
        metadata=declared(
            "Calibrate", "Subtract the scores of the same question with N/A for new text of the prompt."
        ),
    )
    per_token: bool = field(
        default=False,
        metadata=declared(
            "Per token", "Divide the score of a label by its tokens. Long labels then have no disadvantage."
        ),
    )
    temperature: float = field(
        default=1.0,
        metadata=declared(
            "Score temperature",
            "Divides the scores. Above 1 the probabilities are less extreme.",
            least=LEAST_TEMPERATURE,
            most=MOST_TEMPERATURE,
        ),
    )
    list_options: bool = field(
        default=True,
        metadata=declared(
            "List options", "The model reads the options. Examples in a prompt may show the labels already."
        ),
    )

    def __post_init__(self) -> None:
        for name, setting in settings_of(type(self)).items():
            setting.checked(getattr(self, name))


PLAIN = Readout()


@dataclass(frozen=True)
class Decision:
    """The probabilities of one question's options.

    Attributes:
        question: the question.
        probabilities: of each option, in the question's order; they sum to 1.
        scores: what the probabilities come from, in nats, before the temperature; the mean over orders.
        order_flips: the share of the other orders of options under which another option wins.
    """

    question: Question
    probabilities: tuple[float, ...]
    scores: tuple[float, ...]
    order_flips: float = 0.0

    @property
    def best(self) -> int:
        """The index of the likeliest option; the first of equal ones."""
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)

    @property
    def label(self) -> str:
        """The label of the likeliest option."""
        return self.question.labels[self.best]

    @property
    def confidence(self) -> float:
        """The probability of the likeliest option."""
        return self.probabilities[self.best]

    @property
    def expected(self) -> float:
        """The expected level of a score, counted from 0; for a predicate the probability of yes."""
        if self.question.kind == "predicate":
            return self.probabilities[0]
        return sum(level * probability for level, probability in enumerate(self.probabilities))

    def to_json(self) -> dict[str, Any]:
        """Returns the answer for JSON output."""
        kind = self.question.kind
        answer: dict[str, Any] = {"name": self.question.name, "type": kind}
        if kind == "predicate":
            answer["probability"] = self.probabilities[0]
        else:
            answer["choice" if kind == "choice" else "level"] = self.label
            answer["confidence"] = self.confidence
        if kind == "score":
            answer["score"] = self.expected
        answer["probabilities"] = dict(zip(self.question.labels, self.probabilities, strict=True))
        answer["order_flips"] = self.order_flips
        return answer


@dataclass(frozen=True)
class Decisions:
    """The answers to questions about one prompt.

    Attributes:
        side: the side that answered.
        answers: in the order of the questions.
        ms: milliseconds from the plan to the last probability, without waiting.
        timeline_ms: the parts of that time.
        tokens: `prompt` (the prompt and all questions), `from_cache`, `encoded` (of these, in this run),
            `prompt_computed`, `question_rows` (rows of questions and labels), and `written`.
        segments: the segments that were read.
        warnings: sentences for the user.
    """

    side: Side
    answers: tuple[Decision, ...]
    ms: float
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    segments: tuple[SegmentUse, ...] = field(default=(), repr=False)
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the result for JSON output."""
        return {
            "side": self.side,
            "answers": [answer.to_json() for answer in self.answers],
            "ms": self.ms,
            "timeline_ms": self.timeline_ms,
            "tokens": self.tokens,
            "segments": [use.to_json() for use in self.segments],
            "warnings": list(self.warnings),
        }


def decision(question: Question, scores_by_order: Sequence[Sequence[float]], temperature: float) -> Decision:
    """Returns the answer from each order's scores, which are in the question's order of options."""
    tables = [_log_softmax(scores) for scores in scores_by_order]
    count = len(tables)
    mean = [_log_sum(column) / temperature for column in zip(*tables, strict=True)]
    winners = [max(range(len(table)), key=table.__getitem__) for table in tables]
    flips = sum(winner != winners[0] for winner in winners[1:]) / max(1, count - 1)
    scores = tuple(sum(column) / count for column in zip(*scores_by_order, strict=True))
    probabilities = tuple(math.exp(log) for log in _log_softmax(mean))
    return Decision(question, probabilities, scores, flips)


def _log_softmax(scores: Sequence[float]) -> list[float]:
    total = _log_sum(scores)
    return [score - total for score in scores]


def _log_sum(logs: Sequence[float]) -> float:
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs))
