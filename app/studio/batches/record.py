"""Converts batches, rows and results to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from app.studio.batches.batch import Batch, BatchPlan, RowResult, SideResult
from app.studio.batches.deciding import Deciding
from app.studio.documents.drafts import Workspace
from app.studio.runs.settings import as_today
from engine.base.errors import SettingsError
from engine.inference.run_settings import RunSettings
from engine.pml import parse_schema
from engine.rows.expectations import Expectation, Judged
from engine.rows.rows import Row

EMPTY = '<schema name=""/>'


def about(batch: Batch) -> str:
    """Returns a batch as JSON without rows and documents."""
    plan = batch.plan
    return json.dumps(
        {
            "mode": plan.mode,
            "alone": plan.over is None,
            "settings": asdict(plan.settings),
            "expect": [[check.kind, check.value] for check in plan.expect],
            "combine": plan.combine,
            **({} if plan.deciding is None else {"deciding": plan.deciding.to_json()}),
            "texts": batch.texts,
            "schema": plan.schema.name,
            "model": batch.model,
            "origin": batch.workspace.origin,
            "form": dict(batch.workspace.settings),
        }
    )


def batch_of(
    key: str, name: str, started: str, told: str, schema: str, whole: str, prompt: str, rows: list[Row]
) -> Batch:
    """Returns a batch without results.

    Args:
        key: the key of its work.
        name: the user's name for it.
        started: the start time.
        told: the JSON from `about`.
        schema: the schema's text.
        whole: the text from `contained`.
        prompt: the prompt that the rows modify.
        rows: the rows.
    """
    stored = json.loads(told)
    tree = parse_schema(whole or schema).tree or parse_schema(EMPTY).tree
    assert tree is not None
    plan = BatchPlan(
        tuple(rows),
        tree,
        None if stored["alone"] else prompt,
        _settings(stored["settings"]),
        stored["mode"],
        tuple(Expectation(kind, value) for kind, value in stored["expect"]),
        stored["combine"],
        Deciding.read(stored["deciding"]) if "deciding" in stored else None,
    )
    workspace = Workspace("", schema, "", stored["origin"], as_today(stored["form"]))
    texts = stored["texts"][0], stored["texts"][1]
    return Batch(key, plan, texts, stored["model"], started, workspace=workspace, name=name)


def row_json(row: Row) -> str:
    """Returns a row as JSON."""
    return json.dumps({**asdict(row), "expect": [[check.kind, check.value] for check in row.expect]})


def row_of(text: str) -> Row:
    """Returns the row that `row_json` wrote."""
    stored = json.loads(text)
    expect = tuple(Expectation(kind, value) for kind, value in stored["expect"])
    return Row(**{**stored, "picks": tuple(stored["picks"]), "expect": expect})


def result_json(result: RowResult) -> str:
    """Returns a row's result as JSON."""
    return json.dumps(asdict(result))


def result_of(text: str) -> RowResult:
    """Returns the result that `result_json` wrote."""
    stored = json.loads(text)
    sides = {name: _side(side) for name, side in stored["sides"].items()}
    return RowResult(**{**stored, "sides": sides})


def _side(found: dict[str, Any]) -> SideResult:
    judged = found["judged"]
    return SideResult(
        **{
            **found,
            "warnings": tuple(found["warnings"]),
            "judged": None if judged is None else Judged(judged["passed"], tuple(judged["faults"])),
        }
    )


def _settings(found: Mapping[str, Any]) -> RunSettings:
    """Returns stored settings, or the defaults if one is out of range."""
    try:
        known = {name: value for name, value in found.items() if name in RunSettings.__dataclass_fields__}
        return RunSettings.read(known)
    except SettingsError:
        return RunSettings()
