"""Warnings about the conditions under which the suite ran."""

from __future__ import annotations

import json

from benchmarks.goals import Reports
from benchmarks.suite.running import QUIET


def caveats(reports: Reports) -> list[str]:
    """A sentence for each condition that makes figures less reliable."""
    found = []
    if len({json.dumps(report.get("under"), sort_keys=True) for report in reports.values()}) > 1:
        found.append("Some parts ran with other versions of the software or on another machine.")
    loud = [
        f"{name} ({share:.0%})"
        for name, report in reports.items()
        if (share := max(report.get("busy") or 0, report.get("others") or 0)) > QUIET
    ]
    if loud:
        found.append(f"Other programs used this share of the processor: {', '.join(loud)}.")
    if tiny(reports):
        found.append(
            "The scale is tiny and every model is the bundled one, so the figures only show that the suite "
            "works."
        )
    return found


def tiny(reports: Reports) -> bool:
    """Whether a part ran at the tiny scale, whose figures must not be published."""
    return any(report["scale"] != "full" for report in reports.values())
