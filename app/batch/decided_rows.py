"""Rows that are decided: their columns in a table, and their answers and the right ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.batch.batch_table import arguments_of
from engine.base.events import SIDES, Side
from engine.decisions.questions import Question, columns_of, titles
from engine.decisions.report import Labelled, Report, gold_of, gold_place, report
from engine.rows.rows import Row

Line = Mapping[str, Any]
"""What `pml decide --batch` writes about a row: `Decisions.to_json` of each side, or an error."""


def best(answer: Mapping[str, Any]) -> str:
    """Returns the likeliest label of an answer."""
    probabilities: Mapping[str, float] = answer["probabilities"]
    return max(probabilities, key=probabilities.__getitem__)


def decision_columns(questions: Sequence[Question], by_side: Line) -> dict[str, Any]:
    """Returns the columns of one prompt: for each side and question the answer and all probabilities."""
    columns: dict[str, Any] = {}
    for side, decisions in by_side.items():
        answers = decisions["answers"]
        for question, title, answer in zip(questions, titles(questions), answers, strict=True):
            level = [answer["score"]] if "score" in answer else []
            values = [best(answer), *level, *answer["probabilities"].values()]
            names = [f"{side} {column}" for column in columns_of(question, title)]
            columns |= dict(zip(names, values, strict=True))
    return columns


def row_columns(questions: Sequence[Question], row: Row, line: Line) -> dict[str, Any]:
    """Returns the columns of a row; a row without an answer has only its own."""
    columns: dict[str, Any] = {"id": str(row.id), "line": row.line, "picks": " ".join(row.picks)}
    columns |= arguments_of(row)
    columns["text"] = row.text or row.prompt or ""
    columns |= {f"gold {name}".strip(): label for name, label in row.gold.items()}
    columns["error"] = line.get("error", {}).get("message", "")
    sides: dict[str, Any] = {side: line[side] for side in SIDES if side in line}
    return {**columns, **decision_columns(questions, sides)}


def with_gold(
    questions: Sequence[Question], at: int, rows: Iterable[tuple[Row, Line]]
) -> tuple[list[tuple[int, Line]], list[tuple[Row, str]]]:
    """Returns the rows whose right answer to a question is known.

    Args:
        questions: all questions.
        at: the index of the question.
        rows: the rows with their lines.

    Returns:
        The index of the right option with the row's line, and the rows whose right answer is no option.
    """
    question, title = questions[at], titles(questions)[at]
    labels = [label.strip() for label in question.labels]
    known: list[tuple[int, Line]] = []
    unknown: list[tuple[Row, str]] = []
    for row, line in rows:
        name = gold_of(row.gold, title, len(questions))
        if not name or not line or "error" in line:
            continue
        place = gold_place(name, labels, question.kind)
        if place is None:
            unknown.append((row, name))
        else:
            known.append((place, line))
    return known, unknown


def labelled(known: Iterable[tuple[int, Line]], side: str, at: int) -> list[Labelled]:
    """Returns one side's answers to a question, with the index of the right option."""
    answers = ((gold, line[side]["answers"][at]) for gold, line in known)
    return [Labelled(tuple(it["probabilities"].values()), gold, it["order_flips"]) for gold, it in answers]


def reports(questions: Sequence[Question], at: int, known: Sequence[tuple[int, Line]]) -> dict[Side, Report]:
    """Returns the figures of a question for each side that answered; none without labelled rows."""
    labels = [label.strip() for label in questions[at].labels]
    sides = [side for side in SIDES if known and side in known[0][1]]
    return {side: report(labels, labelled(known, side, at)) for side in sides}
