"""What a reader of the suite's figures must know of the conditions under which they were taken."""

from __future__ import annotations

import json

from benchmarks.goals import Reports
from benchmarks.suite.running import QUIET


def caveats(reports: Reports) -> list[str]:
    """A sentence for each condition that makes figures worth less."""
    found = []
    if len({json.dumps(report.get("under"), sort_keys=True) for report in reports.values()}) > 1:
        found.append(
            "Not of one piece: some parts were measured with other code, on another machine or beside "
            "other versions of other software."
        )
    loud = [
        f"{name} ({share:.0%})"
        for name, report in reports.items()
        if (share := max(report.get("busy") or 0, report.get("others") or 0)) > QUIET
    ]
    if loud:
        found.append(
            "The machine was not quiet: so much of its cores was in use by others before or during these "
            f"parts: {', '.join(loud)}."
        )
    if tiny(reports):
        found.append(
            "At a tiny scale, on the bundled model whatever the labels say: it shows that the suite works, "
            "and nothing else."
        )
    return found


def tiny(reports: Reports) -> bool:
    """Whether these are no figures to publish."""
    return any(report["scale"] != "full" for report in reports.values())
