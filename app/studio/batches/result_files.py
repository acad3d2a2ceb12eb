"""Exports the results of a batch as CSV or JSON."""

from __future__ import annotations

import json
from typing import Any

from app.batch.batch_table import GUARDED, columns_of, table_text, verdicts
from app.studio.batches.batch import Batch, SideResult
from app.studio.documents.documents import Exported


def batch_csv(batch: Batch) -> Exported:
    """Returns one line per row, with whole answers."""
    rows = (columns_of(row, _told(batch, number)) for number, row in enumerate(batch.plan.rows))
    text, guarded = table_text(rows)
    return _file(text, "csv", "text/csv", [GUARDED] if guarded else [])


def batch_json(batch: Batch) -> Exported:
    """Returns the plan, the summary, and each row as `pml run --batch` writes it."""
    content = {
        "name": batch.name,
        "schema": batch.plan.schema.name,
        "model": batch.model,
        "started": batch.started,
        "mode": batch.plan.mode,
        "settings": dict(batch.workspace.settings),
        "texts": dict(zip(("schema", "prompt"), batch.texts, strict=True)),
        "checks": [{"kind": check.kind, "value": check.value} for check in batch.plan.expect],
        "combine": batch.plan.combine,
        "summary": batch.summary(),
        "rows": [_whole(batch, number) for number in range(len(batch.plan.rows))],
    }
    return _file(json.dumps(content, indent=1, ensure_ascii=False), "json", "application/json", [])


def _file(text: str, end: str, media_type: str, notes: list[str]) -> Exported:
    return {"text": text, "filename": f"batch.{end}", "media_type": media_type, "notes": notes}


def _whole(batch: Batch, number: int) -> dict[str, Any]:
    shown = batch.shown(number)
    row = {name: shown[name] for name in ("id", "line", "picks", "arguments", "settings", "text", "state")}
    return {**row, **_told(batch, number)}


def _told(batch: Batch, number: int) -> dict[str, Any]:
    """Returns a row as `pml run --batch` writes it."""
    row, result = batch.plan.rows[number], batch.results.get(number)
    if result is None:
        return {}
    if result.fault is not None:
        return {"error": result.fault}
    judged = {name: side.judged for name, side in result.sides.items()}
    sides = {name: _side(side) for name, side in result.sides.items()}
    return {**sides, **result.comparison, **verdicts(batch.expectations(row), judged)}


def _side(side: SideResult) -> dict[str, Any]:
    return {
        "text": side.text,
        "ttft_ms": side.ttft_ms,
        "tokens": side.tokens,
        "timeline_ms": side.timeline_ms,
        "stopped": side.ended,
        "warnings": list(side.warnings),
    }
