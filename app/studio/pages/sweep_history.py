"""Reports of sweeps in the user's database, each the JSON of `python -m benchmarks sweep --json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from typing_extensions import TypedDict

from app.studio.database import UserDatabase, plain, put_first
from engine.base.errors import PromptCacheError

KEPT = 50
Report = dict[str, Any]


class KeptReport(TypedDict):
    """A report in a list: its name, time, subject and end."""

    name: str
    started: str
    axis: str
    model: str
    points: int
    ended: str


class Measurements:
    """The stored reports of sweeps. Safe to use from several threads and several studios.

    Args:
        database: the user's database.
    """

    def __init__(self, database: UserDatabase) -> None:
        self._database = database

    def keep(self, report: Report) -> str:
        """Stores a report and deletes the oldest beyond the limit. Returns its name.

        Raises:
            PromptCacheError: the database cannot be written.
        """
        started = re.sub(r"[-:]", "", report["started"][:19])
        stem = name = f"{started}-{report['sweep']['axis']}"
        try:
            with self._database.changing() as db:
                sweeps, number = db.table("sweeps"), 1
                while sweeps.count_where("name = ?", [name]):
                    number += 1
                    name = f"{stem}-{number}"
                put_first(sweeps, {"name": name, "report": json.dumps(report)}, KEPT)
        except PromptCacheError as error:
            raise PromptCacheError(
                f"The measurement is complete, but cannot be saved: {error} Save it from the page."
            ) from error
        return name

    def listed(self) -> list[KeptReport]:
        """Returns all reports, latest first."""
        return [_line(name, report) for name, report in self._reports()]

    def report(self, name: str) -> Report:
        """Returns one report.

        Raises:
            PromptCacheError: there is no such report.
        """
        for known, report in self._reports():
            if known == name:
                return report
        raise PromptCacheError("This measurement no longer exists. Choose another from the list.")

    def remove(self, name: str) -> None:
        """Deletes a report if it exists."""
        with self._database.changing() as db:
            db.table("sweeps").delete_where("name = ?", [plain(name)])

    def pace(self, model: str, device: str = "") -> float | None:
        """Returns the units per second of a model's latest sweep; None if there is none."""
        for _, report in self._reports():
            if report["model"]["name"] != model or not report["seconds"]:
                continue
            if not device or report["model"]["device"] == device:
                return float(report["units"] / report["seconds"])
        return None

    def _reports(self) -> Iterator[tuple[str, Report]]:
        with self._database.reading() as db:
            rows = list(db.table("sweeps").rows_where(order_by="rowid desc"))
        reports = ((row["name"], json.loads(row["report"])) for row in rows)
        return ((name, report) for name, report in reports if _is_valid(report))


def _is_valid(report: Report) -> bool:
    """Whether a report has what the page lists; one of an older version may lack it."""
    try:
        _line("", report)
        return bool(report["model"]["device"]) and report["units"] + report["seconds"] >= 0
    except (KeyError, TypeError):
        return False


def _line(name: str, report: Report) -> KeptReport:
    return {
        "name": name,
        "started": str(report["started"]),
        "axis": str(report["sweep"]["axis"]),
        "model": str(report["model"]["name"]),
        "points": len({str(result["value"]) for result in report["results"]}),
        "ended": str(report["ended"]),
    }
