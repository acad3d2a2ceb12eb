"""The results of a batch as a file: a table for a spreadsheet, or JSON with all there is."""

from __future__ import annotations

import json
from typing import Any

from app.batch.batch_table import GUARDED, columns_of, table_text, verdicts
from app.studio.batches.batch import Batch, SideResult
from app.studio.documents.documents import Exported


def batch_csv(batch: Batch) -> Exported:
    """A row for each row, answers whole."""
    rows = (columns_of(row, _told(batch, number)) for number, row in enumerate(batch.plan.rows))
    text, guarded = table_text(rows)
    return _file(text, "csv", "text/csv", [GUARDED] if guarded else [])


def batch_json(batch: Batch) -> Exported:
    """What the batch was, its summary, and every row as `pml run --batch` tells it."""
    found = {
        "name": batch.name,
        "schema": batch.plan.schema.name,
        "model": batch.model,
        "started": batch.started,
        "mode": batch.plan.mode,
        "settings": dict(batch.workspace.settings),
        "texts": dict(zip(("schema", "prompt"), batch.texts, strict=True)),
        "checks": [{"kind": one.kind, "value": one.value} for one in batch.plan.expect],
        "combine": batch.plan.combine,
        "summary": batch.summary(),
        "rows": [_whole(batch, number) for number in range(len(batch.plan.rows))],
    }
    return _file(json.dumps(found, indent=1, ensure_ascii=False), "json", "application/json", [])


def _file(text: str, end: str, media_type: str, notes: list[str]) -> Exported:
    return {"text": text, "filename": f"batch.{end}", "media_type": media_type, "notes": notes}


def _whole(batch: Batch, number: int) -> dict[str, Any]:
    shown = batch.shown(number)
    asked = {name: shown[name] for name in ("id", "line", "picks", "arguments", "settings", "text", "state")}
    return {**asked, **_told(batch, number)}


def _told(batch: Batch, number: int) -> dict[str, Any]:
    """What the line of a row says, of `pml run --batch`."""
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
