"""What a measurement of reuse found, as it is kept with a run, read from JSON of anybody's making."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from app.studio.runs.run_frame import KeptFidelity
from engine.fidelity.findings import Fidelity

_FOUND: Final = TypeAdapter(Fidelity)


class FidelitySummary(TypedDict):
    """A measurement in a list. KL in nats; `worst` is the module that suffers most, None without modules."""

    measured: str
    kl_mean: float
    kl_first_token: float
    first_token_agrees: bool
    flips: int
    worst: str | None
    advice: str


def read_fidelity(sent: object) -> KeptFidelity | None:
    """Returns a measurement with every field of its type; None for what is none.

    Args:
        sent: what `KeptFidelity` says, of any making.
    """
    if not isinstance(sent, dict) or not isinstance(measured := sent.get("measured"), str):
        return None
    try:
        datetime.fromisoformat(measured)
        told = _FOUND.validate_python(sent.get("found")).to_json()
        found = json.loads(json.dumps(told, allow_nan=False))  # lists, as it is read everywhere else
    except (ValidationError, ValueError):
        return None
    return {"measured": measured, "found": found}


def summary_of(kept: KeptFidelity) -> FidelitySummary:
    """Returns a measurement as a list shows it."""
    found: Mapping[str, Any] = kept["found"]
    return {
        "measured": kept["measured"],
        "kl_mean": found["kl_mean"],
        "kl_first_token": found["kl_first_token"],
        "first_token_agrees": found["first_token_agrees"],
        "flips": len(found["flips"]),
        "worst": found["worst"],
        "advice": found["advice"],
    }


def read_summary_of(sent: object) -> FidelitySummary | None:
    """Returns the measurement of a list's row; None for what is none."""
    try:
        return _SUMMARY.validate_python(sent)
    except ValidationError:
        return None


_SUMMARY: Final = TypeAdapter(FidelitySummary)
