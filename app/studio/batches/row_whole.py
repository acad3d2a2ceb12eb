"""A row of a batch with its whole answers, for the page."""

from __future__ import annotations

from typing_extensions import TypedDict

from app.studio.batches.batch import Batch, RowShown
from app.studio.batches.held import SettingHeld, settings_held
from app.studio.runs.differences import word_difference
from app.studio.runs.run_frame import Difference


class CheckVerdict(TypedDict):
    """One check of a row: why a side fails it, "" if it passes, None if it was not checked."""

    check: str
    cached: str | None
    uncached: str | None


class SideWhole(TypedDict):
    """A side of a row with its whole answer."""

    text: str
    ttft_ms: float
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    ended: str
    format_fault: str | None
    warnings: list[str]


class RowWhole(TypedDict):
    """A row with its whole results; `reuse` says what was reused, and why."""

    row: RowShown
    prompt: str
    modules: list[str]
    settings: list[SettingHeld]
    reuse: str
    cached: SideWhole | None
    uncached: SideWhole | None
    difference: Difference | None
    checks: list[CheckVerdict]


def whole_row(batch: Batch, number: int) -> RowWhole:
    """Returns a row with whole answers, their differences, and the result of each check."""
    row, result = batch.plan.rows[number], batch.results.get(number)
    sides = result.sides if result is not None else {}
    whole: dict[str, SideWhole] = {
        name: {
            "text": side.text,
            "ttft_ms": side.ttft_ms,
            "timeline_ms": side.timeline_ms,
            "tokens": side.tokens,
            "ended": side.ended,
            "format_fault": side.format_fault,
            "warnings": list(side.warnings),
        }
        for name, side in sides.items()
    }
    judged = {name: side.judged.faults for name, side in sides.items() if side.judged is not None}
    checks: list[CheckVerdict] = [
        {
            "check": str(check),
            "cached": judged["cached"][at] if "cached" in judged else None,
            "uncached": judged["uncached"][at] if "uncached" in judged else None,
        }
        for at, check in enumerate(batch.expectations(row))
    ]
    both, of_row = len(sides) > 1, batch.plan.held_by(row)
    return {
        "row": batch.shown(number),
        "prompt": of_row["prompt"],
        "modules": of_row["modules"],
        "settings": settings_held(of_row["settings"]),
        "reuse": result.reuse["why"] if result is not None and result.reuse else "",
        "cached": whole.get("cached"),
        "uncached": whole.get("uncached"),
        "difference": word_difference(sides["cached"].text, sides["uncached"].text) if both else None,
        "checks": checks,
    }
