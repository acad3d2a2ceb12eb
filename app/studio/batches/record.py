"""A batch as JSON, and back: its plan, its rows, and what came of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from app.studio.batches.batch import Batch, BatchPlan, RowResult, SideResult
from app.studio.documents.drafts import Workspace
from app.studio.runs.settings import as_today
from engine.base.errors import SettingsError
from engine.inference.run_settings import RunSettings
from engine.pml import parse_schema
from engine.rows.expectations import Expectation, Judged
from engine.rows.rows import Row

EMPTY = '<schema name=""/>'


def about(batch: Batch) -> str:
    """What a batch is besides its rows and its documents."""
    plan = batch.plan
    return json.dumps(
        {
            "mode": plan.mode,
            "alone": plan.over is None,
            "settings": asdict(plan.settings),
            "expect": [[one.kind, one.value] for one in plan.expect],
            "combine": plan.combine,
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
    """A batch without what came of its rows.

    Args:
        key: the key of its work.
        name: the user's name for it.
        started: when it was begun.
        told: what `about` gave.
        schema: the schema's text.
        whole: what `contained` gave.
        prompt: the prompt that the rows change.
        rows: the rows.
    """
    found = json.loads(told)
    tree = parse_schema(whole or schema).tree or parse_schema(EMPTY).tree
    assert tree is not None
    plan = BatchPlan(
        tuple(rows),
        tree,
        None if found["alone"] else prompt,
        _settings(found["settings"]),
        found["mode"],
        tuple(Expectation(kind, value) for kind, value in found["expect"]),
        found["combine"],
    )
    workspace = Workspace("", schema, "", found["origin"], as_today(found["form"]))
    texts = found["texts"][0], found["texts"][1]
    return Batch(key, plan, texts, found["model"], started, workspace=workspace, name=name)


def row_json(row: Row) -> str:
    """A row as it was read."""
    return json.dumps({**asdict(row), "expect": [[one.kind, one.value] for one in row.expect]})


def row_of(text: str) -> Row:
    """The row that `row_json` wrote."""
    found = json.loads(text)
    expect = tuple(Expectation(kind, value) for kind, value in found["expect"])
    return Row(**{**found, "picks": tuple(found["picks"]), "expect": expect})


def result_json(result: RowResult) -> str:
    """What came of a row."""
    return json.dumps(asdict(result))


def result_of(text: str) -> RowResult:
    """The result that `result_json` wrote."""
    found = json.loads(text)
    sides = {name: _side(side) for name, side in found["sides"].items()}
    return RowResult(sides, found["comparison"], found["fault"])


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
    """Settings as they are declared today; where one is out of its range by now, those by default."""
    try:
        known = {name: value for name, value in found.items() if name in RunSettings.__dataclass_fields__}
        return RunSettings.read(known)
    except SettingsError:
        return RunSettings()
