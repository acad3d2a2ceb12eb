"""Reads a stored fidelity measurement from untrusted JSON."""

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
    """A measurement in a list. KL in nats; `worst` is the module with the largest effect, or None."""

    measured: str
    kl_mean: float
    kl_first_token: float
    first_token_agrees: bool
    flips: int
    worst: str | None
    advice: str


def read_fidelity(sent: object) -> KeptFidelity | None:
    """Returns a measurement with every field of its type; None if it is not valid.

    Args:
        sent: untrusted JSON in the form of `KeptFidelity`.
    """
    if not isinstance(sent, dict) or not isinstance(measured := sent.get("measured"), str):
        return None
    try:
        datetime.fromisoformat(measured)
        fidelity = _FOUND.validate_python(sent.get("found")).to_json()
        copied = json.loads(json.dumps(fidelity, allow_nan=False))  # tuples become lists
    except (ValidationError, ValueError):
        return None
    return {"measured": measured, "found": copied}


def summary_of(kept: KeptFidelity) -> FidelitySummary:
    """Returns the list form of a measurement."""
    fidelity: Mapping[str, Any] = kept["found"]
    return {
        "measured": kept["measured"],
        "kl_mean": fidelity["kl_mean"],
        "kl_first_token": fidelity["kl_first_token"],
        "first_token_agrees": fidelity["first_token_agrees"],
        "flips": len(fidelity["flips"]),
        "worst": fidelity["worst"],
        "advice": fidelity["advice"],
    }
