"""Decisions about the rows of a batch as the page shows them, compared with the column `gold`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from app.batch.decided_rows import Line, best, labelled, reports, with_gold
from app.studio.batches.batch import Batch, BatchMode
from app.studio.batches.batch_history import Shown
from app.studio.batches.result_files import lines_of
from app.studio.batches.rows import RowsWanted
from app.studio.decisions.prompt_decisions import PageQuestion, QuestionFault
from app.studio.decisions.reliability_chart import reliability_chart
from app.studio.documents.requests import Count, Words, request
from app.studio.web.chart import Figure, sent
from app.studio.web.json_answers import JobState, Json
from engine.base.errors import PromptCacheError
from engine.base.events import SIDES
from engine.decisions.questions import Question, titles
from engine.decisions.report import Report, fit, gold_of
from engine.pml.tree.tree import DecideKind
from engine.rows.rows import Row


@request
class DecideRows(RowsWanted):
    """Rows, and the questions of the form. The questions of the open prompt replace them."""

    key: Words
    mode: BatchMode = "both"
    questions: tuple[PageQuestion, ...]


@request
class OneDecidedBatch:
    """A batch of decisions; "" for the latest."""

    key: Words = ""


@request
class FitTemperature:
    """A question of a batch, by its number from 0."""

    key: Words
    question: Count


class RowChoice(TypedDict):
    """One side's answer to a question: the likeliest label, its probability, and the expected level."""

    label: str
    probability: float
    expected: float


class RowDecision(TypedDict):
    """The answers to a question about a row, and the right one or ""."""

    gold: str
    cached: NotRequired[RowChoice]
    uncached: NotRequired[RowChoice]


class DecidedRow(TypedDict):
    """A row with a decision for each question, or its error."""

    line: int
    id: str
    text: str
    fault: str
    decisions: list[RowDecision]


class SideFigures(TypedDict):
    """Figures of one side: see `engine.decisions.report.Report`."""

    accuracy: float
    macro_f1: float
    ece: float
    order_flips: float
    confusion: list[list[int]]


class QuestionFigures(TypedDict):
    """Figures of a question over the `labelled` rows; in the lines `unknown` the right answer is no option.

    `reliability` is the plot of confidence and accuracy, if there are labelled rows.
    """

    title: str
    question: str
    kind: DecideKind
    labels: list[str]
    labelled: int
    unknown: list[int]
    cached: NotRequired[SideFigures]
    uncached: NotRequired[SideFigures]
    reliability: NotRequired[Figure]


class DecidedBatch(TypedDict):
    """Decided rows of `total`, and the figures of each question. `permutations` of options were averaged.

    `state`, `fault` and `unkept` are as in `app.studio.batches.batch_history.Shown`.
    """

    key: str
    name: str
    schema: str
    model: str
    started: str
    state: Literal["working", "done", "stopped", "failed", "left", "elsewhere"]
    fault: str
    unkept: str
    total: int
    permutations: int
    rows: list[DecidedRow]
    figures: list[QuestionFigures]


class LatestDecisions(TypedDict):
    """The latest batch of decisions, or None."""

    batch: NotRequired[DecidedBatch]


class BegunRows(TypedDict):
    """The job, or the errors of the form."""

    job: JobState[Json] | None
    faults: list[QuestionFault]


class SideFit(TypedDict):
    """A fitted temperature: see `engine.decisions.report.Fit`."""

    temperature: float
    fitted_on: int
    held_out: int
    ece_before: float
    ece_after: float


class FittedTemperature(TypedDict):
    """The fitted temperature of each side."""

    cached: NotRequired[SideFit]
    uncached: NotRequired[SideFit]


def decided_batch(shown: Shown) -> DecidedBatch:
    """Returns the decided rows of a batch and their figures for the page."""
    batch, lines = shown.batch, lines_of(shown.batch)
    questions = _questions(batch)
    assert batch.plan.deciding is not None
    return {
        "key": batch.key,
        "name": batch.name,
        "schema": batch.plan.schema.name,
        "model": batch.model,
        "started": batch.started,
        "state": shown.state,
        "fault": shown.fault,
        "unkept": shown.unkept,
        "total": len(batch.plan.rows),
        "permutations": batch.plan.deciding.readout.permutations,
        "rows": [_row(questions, row, line) for row, line in lines],
        "figures": [_figures(questions, at, lines) for at in range(len(questions))],
    }


def fitted_temperature(batch: Batch, at: int) -> FittedTemperature:
    """Returns a temperature for the readout, fitted on every other labelled row.

    Args:
        batch: the batch.
        at: the index of the question.

    Raises:
        PromptCacheError: there is no such question, or it has too few labelled rows.
    """
    deciding, questions = batch.plan.deciding, _questions(batch)
    if deciding is None or at >= len(questions):
        raise PromptCacheError("The batch has no such question. Reload the page.")
    known, _ = with_gold(questions, at, lines_of(batch))
    fitted: FittedTemperature = {}
    for side in SIDES:
        if not known or side in known[0][1]:
            found = fit(labelled(known, side, at), deciding.readout.temperature)
            fitted[side] = {
                "temperature": found.temperature,
                "fitted_on": found.fitted_on,
                "held_out": found.held_out,
                "ece_before": found.ece_before,
                "ece_after": found.ece_after,
            }
    return fitted


def _questions(batch: Batch) -> Sequence[Question]:
    return batch.plan.deciding.questions if batch.plan.deciding is not None else ()


def _row(questions: Sequence[Question], row: Row, line: Line) -> DecidedRow:
    decided: DecidedRow = {
        "line": row.line,
        "id": str(row.id),
        "text": row.text or row.prompt or "",
        "fault": line["error"]["message"] if "error" in line else "",
        "decisions": [],
    }
    for at, title in enumerate(titles(questions) if "error" not in line else ()):
        decision: RowDecision = {"gold": gold_of(row.gold, title, len(questions))}
        for side in SIDES:
            if side in line:
                decision[side] = _choice(line[side]["answers"][at])
        decided["decisions"].append(decision)
    return decided


def _choice(answer: dict[str, Any]) -> RowChoice:
    label = best(answer)
    probabilities = answer["probabilities"]
    expected = answer.get("score", answer.get("probability", 0.0))
    return {"label": label, "probability": probabilities[label], "expected": expected}


def _figures(questions: Sequence[Question], at: int, lines: Sequence[tuple[Row, Line]]) -> QuestionFigures:
    known, unknown = with_gold(questions, at, lines)
    found, question = reports(questions, at, known), questions[at]
    figures: QuestionFigures = {
        "title": titles(questions)[at],
        "question": question.instructions,
        "kind": question.kind,
        "labels": list(question.labels),
        "labelled": len(known),
        "unknown": [row.line for row, _ in unknown],
    }
    for side, of_side in found.items():
        figures[side] = _side(of_side)
    if found:
        figures["reliability"] = sent(reliability_chart(found))
    return figures


def _side(found: Report) -> SideFigures:
    return {
        "accuracy": found.accuracy,
        "macro_f1": found.macro_f1,
        "ece": found.ece,
        "order_flips": found.order_flips,
        "confusion": [list(row) for row in found.confusion],
    }
