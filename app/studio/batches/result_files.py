"""Exports the results of a batch as CSV or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from app.batch.batch_table import GUARDED, columns_of, table_text, verdicts
from app.batch.decided_rows import reports, row_columns, with_gold
from app.studio.batches.batch import Batch, SideResult
from app.studio.documents.documents import Exported
from engine.decisions.questions import titles
from engine.rows.evaluations import Evaluated, Evaluation, Tool
from engine.rows.rows import Row


def batch_csv(batch: Batch) -> Exported:
    """Returns one line per row, with whole answers."""
    deciding = batch.plan.deciding
    rows = (
        columns_of(row, outcome_of(batch, number), batch.plan.held_by(row))
        if deciding is None
        else row_columns(deciding.questions, row, outcome_of(batch, number))
        for number, row in enumerate(batch.plan.rows)
    )
    text, guarded = table_text(rows)
    return _file(text, "csv", "text/csv", [GUARDED] if guarded else [])


def batch_json(batch: Batch) -> Exported:
    """Returns the plan, the summary, and each row as `pml run --batch` writes it."""
    plan = batch.plan
    content = {
        "name": batch.name,
        "schema": plan.schema.name,
        "model": batch.model,
        "started": batch.started,
        "mode": plan.mode,
        "prompt": plan.over,
        "settings": asdict(plan.settings),
        "texts": dict(zip(("schema", "prompt"), batch.texts, strict=True)),
        "checks": [{"kind": check.kind, "value": check.value} for check in plan.expect],
        "combine": plan.combine,
        "summary": batch.summary(),
        **({} if plan.deciding is None else {**plan.deciding.to_json(), "figures": _figures(batch)}),
        "rows": [_whole(batch, number) for number in range(len(plan.rows))],
    }
    return _file(json.dumps(content, indent=1, ensure_ascii=False), "json", "application/json", [])


def batch_for(tool: Tool, batch: Batch) -> list[Exported]:
    """Returns the files of a tool for evaluation.

    Raises:
        ExchangeError: no row has a valid prompt.
    """
    plan = batch.plan
    rows = []
    for number, row in enumerate(plan.rows):
        held, line = plan.held_by(row), outcome_of(batch, number)
        rows.append(Evaluated(row, held["prompt"], batch.expectations(row), line, held["settings"]))
    name = batch.name or f"{plan.schema.name or 'schema'} {batch.started}"
    model = batch.model.replace("\\", "/").rstrip("/").rpartition("/")[2]
    files, notes = Evaluation(name, model, batch.started, plan.schema, rows, plan.combine).files(tool)
    return [
        {"text": text, "filename": filename, "media_type": "application/json", "notes": notes}
        for filename, text in files.items()
    ]


def _file(text: str, end: str, media_type: str, notes: list[str]) -> Exported:
    return {"text": text, "filename": f"batch.{end}", "media_type": media_type, "notes": notes}


def _whole(batch: Batch, number: int) -> dict[str, Any]:
    shown = batch.shown(number)
    row = {name: shown[name] for name in ("id", "line", "picks", "arguments", "settings", "text", "state")}
    modules = batch.plan.held_by(batch.plan.rows[number])["modules"]
    return {**row, "modules": modules, **outcome_of(batch, number)}


def lines_of(batch: Batch) -> list[tuple[Row, dict[str, Any]]]:
    """Returns the rows that ended, in order, as `pml decide --batch` or `pml run --batch` writes them."""
    return [(batch.plan.rows[number], outcome_of(batch, number)) for number in sorted(batch.results.copy())]


def _figures(batch: Batch) -> dict[str, Any]:
    """The report of each question by side, for labelled rows."""
    assert batch.plan.deciding is not None
    questions, lines = batch.plan.deciding.questions, lines_of(batch)
    figures: dict[str, Any] = {}
    for at, title in enumerate(titles(questions)):
        known, _ = with_gold(questions, at, lines)
        for side, found in reports(questions, at, known).items():
            figures.setdefault(side, {})[title] = found.to_json()
    return figures


def outcome_of(batch: Batch, number: int) -> dict[str, Any]:
    """Returns a row as `pml run --batch` writes it."""
    row, result = batch.plan.rows[number], batch.results.get(number)
    if result is None:
        return {}
    if result.fault is not None:
        return {"error": result.fault}
    if batch.plan.deciding is not None:
        return batch.plan.deciding.as_row(result.decided)
    judged = {name: side.judged for name, side in result.sides.items()}
    sides = {name: _side(side) for name, side in result.sides.items()}
    line = {**sides, **result.comparison, **verdicts(batch.expectations(row), judged)}
    line |= {"reuse": result.reuse} if result.reuse else {}
    line |= {"scores": result.scores} if result.scores else {}
    return line | ({"grades": result.grades} if result.grades else {})


def _side(side: SideResult) -> dict[str, Any]:
    checked = {} if side.format_fault is None else {"valid": not side.format_fault}
    return {
        **checked,
        "text": side.text,
        "ttft_ms": side.ttft_ms,
        "tokens": side.tokens,
        "timeline_ms": side.timeline_ms,
        "stopped": side.ended,
        "warnings": list(side.warnings),
    }
