"""How good decisions are on labelled rows: accuracy, calibration, and a temperature that improves it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from engine.base.errors import PromptCacheError
from engine.decisions.readout import LEAST_TEMPERATURE, MOST_TEMPERATURE

BINS: Final = 10
LEAST_ROWS: Final = 10  # labelled rows of a fit
_COOLEST, _HOTTEST = 0.05, 20.0  # of a fit
_STEPS: Final = 60  # of the golden-section search
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_YES_NO: Final = {"true": "yes", "1": "yes", "y": "yes", "false": "no", "0": "no", "n": "no"}


class FitError(PromptCacheError):
    """A temperature cannot be fitted."""


@dataclass(frozen=True)
class Labelled:
    """An answer to a question whose right option is known.

    Attributes:
        probabilities: of each option.
        gold: the index of the right option.
        order_flips: the share of other orders of options under which another option wins.
    """

    probabilities: tuple[float, ...]
    gold: int
    order_flips: float = 0.0

    @property
    def best(self) -> int:
        """The index of the likeliest option; the first of equal ones."""
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)


@dataclass(frozen=True)
class Bin:
    """The answers with a confidence in one tenth of the range."""

    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Report:
    """Figures of one question over labelled rows.

    Attributes:
        labels: the options.
        count: the number of rows.
        accuracy: the share of rows whose likeliest option is right.
        macro_f1: the mean F1 of the options that occur, as right ones or as answers.
        ece: the expected calibration error: the mean distance of confidence and accuracy over the bins,
            weighted by their rows.
        order_flips: the mean share of orders of options that change the answer.
        confusion: rows by right option, then by answer.
        bins: the reliability plot, for the filled bins in ascending order.
    """

    labels: tuple[str, ...]
    count: int
    accuracy: float
    macro_f1: float
    ece: float
    order_flips: float
    confusion: tuple[tuple[int, ...], ...]
    bins: tuple[Bin, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the report for JSON output."""
        return asdict(self)


@dataclass(frozen=True)
class Fit:
    """A temperature fitted on the first, third, … labelled row and tried on the others.

    Attributes:
        temperature: of the readout, in its range.
        fitted_on: the number of rows that it is fitted on.
        held_out: the number of the other rows.
        ece_before: the calibration error of the other rows without it.
        ece_after: their calibration error with it.
    """

    temperature: float
    fitted_on: int
    held_out: int
    ece_before: float
    ece_after: float

    @property
    def helps(self) -> bool:
        """Whether the calibration error of the other rows falls."""
        return self.ece_after < self.ece_before

    def to_json(self) -> dict[str, Any]:
        """Returns the fit for JSON output."""
        return asdict(self)


def gold_of(gold: Mapping[str, str], title: str, questions: int) -> str:
    """Returns a row's right answer to a question, or "". A single question needs no title."""
    return next(iter(gold.values())) if questions == len(gold) == 1 else gold.get(title, "")


def gold_place(name: str, labels: Sequence[str], kind: str) -> int | None:
    """Returns the index of a right answer, in any case; a predicate also takes true and false."""
    word = name.strip()
    if word not in labels:
        word = word.casefold()
        word = _YES_NO.get(word, word) if kind == "predicate" else word
        labels = [label.casefold() for label in labels]
    return labels.index(word) if labels.count(word) == 1 else None


def report(labels: Sequence[str], rows: Sequence[Labelled]) -> Report:
    """Returns the figures of one question over at least one row."""
    confusion = [[0] * len(labels) for _ in labels]
    for row in rows:
        confusion[row.gold][row.best] += 1
    right = sum(confusion[at][at] for at in range(len(labels)))
    bins = _bins(rows)
    return Report(
        labels=tuple(labels),
        count=len(rows),
        accuracy=right / len(rows),
        macro_f1=_macro_f1(confusion),
        ece=_ece(bins, len(rows)),
        order_flips=sum(row.order_flips for row in rows) / len(rows),
        confusion=tuple(map(tuple, confusion)),
        bins=bins,
    )


def fit(rows: Sequence[Labelled], given: float = 1.0) -> Fit:
    """Returns the temperature with the least negative log-likelihood on every other row.

    Args:
        rows: at least `LEAST_ROWS` labelled rows.
        given: the temperature of their readout.

    Raises:
        FitError: there are too few rows.
    """
    if len(rows) < LEAST_ROWS:
        raise FitError(
            f"The fit needs at least {LEAST_ROWS} rows with a right answer, and there are {len(rows)}. "
            "Fill the column gold."
        )
    fitted, held_out = rows[::2], rows[1::2]
    low, high = max(_COOLEST, LEAST_TEMPERATURE / given), min(_HOTTEST, MOST_TEMPERATURE / given)
    temperature = _least(fitted, low, high)
    cooled = [Labelled(tempered(row.probabilities, temperature), row.gold) for row in held_out]
    before, after = (_ece(_bins(some), len(some)) for some in (held_out, cooled))
    return Fit(given * temperature, len(fitted), len(held_out), before, after)


def tempered(probabilities: Sequence[float], temperature: float) -> tuple[float, ...]:
    """Returns probabilities after a temperature divides their logarithms."""
    logs = _logs(probabilities, temperature)
    top = max(logs)
    weights = [math.exp(log - top) for log in logs]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def _logs(probabilities: Sequence[float], temperature: float) -> list[float]:
    return [math.log(max(one, 1e-300)) / temperature for one in probabilities]


def _least(rows: Sequence[Labelled], low: float, high: float) -> float:
    """Golden-section search over the logarithm; the likelihood has one maximum."""
    low, high = math.log(low), math.log(high)
    for _ in range(_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if _loss(rows, math.exp(left)) <= _loss(rows, math.exp(right)):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)


def _loss(rows: Sequence[Labelled], temperature: float) -> float:
    """The negative log-likelihood of the right options."""
    total = 0.0
    for row in rows:
        logs = _logs(row.probabilities, temperature)
        top = max(logs)
        total += top + math.log(sum(math.exp(log - top) for log in logs)) - logs[row.gold]
    return total


def _macro_f1(confusion: Sequence[Sequence[int]]) -> float:
    scores = []
    for at, row in enumerate(confusion):
        gold, answered = sum(row), sum(line[at] for line in confusion)
        if gold + answered:
            scores.append(2 * row[at] / (gold + answered))
    return sum(scores) / len(scores)


def _bins(rows: Sequence[Labelled]) -> tuple[Bin, ...]:
    filled: dict[int, list[Labelled]] = {}
    for row in rows:
        confidence = row.probabilities[row.best]
        filled.setdefault(min(BINS - 1, int(confidence * BINS)), []).append(row)
    return tuple(
        Bin(
            len(some),
            sum(row.probabilities[row.best] for row in some) / len(some),
            sum(row.best == row.gold for row in some) / len(some),
        )
        for _, some in sorted(filled.items())
    )


def _ece(bins: Sequence[Bin], count: int) -> float:
    return sum(one.count * abs(one.accuracy - one.confidence) for one in bins) / count
