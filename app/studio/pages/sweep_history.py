"""Reports of sweeps on disk: a file each, with the JSON of `python -m benchmarks sweep --json`."""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from app.base.safe_write import write_text
from engine.base.errors import PromptCacheError

logger = logging.getLogger(__name__)

KEPT = 50
_NAME = re.compile(r"\d{8}T\d{6}-[a-z]+(-\d+)?")
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
    """The reports in one folder, created with the first report. Safe to use from several threads.

    Args:
        folder: the folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()

    def keep(self, report: Report) -> str:
        """Writes a report and deletes the oldest beyond the limit. Returns its name.

        Raises:
            PromptCacheError: the file cannot be written.
        """
        started = re.sub(r"[-:]", "", report["started"][:19])
        stem = name = f"{started}-{report['sweep']['axis']}"
        with self._lock:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                number = 1
                while (self._folder / f"{name}.json").exists():
                    number += 1
                    name = f"{stem}-{number}"
                write_text(self._folder / f"{name}.json", json.dumps(report, indent=1))
                for path in self._paths()[KEPT:]:
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise PromptCacheError(
                    f"The measurement is complete, but cannot be saved in {str(self._folder)!r}: "
                    f"{error.strerror or error}. Save it from the page."
                ) from error
        return name

    def listed(self) -> list[KeptReport]:
        """Returns all reports, latest first; other files are ignored."""
        reports = []
        for path in self._paths():
            report = self._read(path)
            if report is not None:
                reports.append(_line(path.stem, report))
        return reports

    def report(self, name: str) -> Report:
        """Returns one report.

        Raises:
            PromptCacheError: there is no such report.
        """
        path = self._folder / f"{name}.json"
        report = self._read(path) if _NAME.fullmatch(name) and path.is_file() else None
        if report is None:
            raise PromptCacheError("This measurement no longer exists. Choose another from the list.")
        return report

    def remove(self, name: str) -> None:
        """Deletes a report if it exists."""
        if _NAME.fullmatch(name):
            with self._lock:
                (self._folder / f"{name}.json").unlink(missing_ok=True)

    def pace(self, model: str, device: str = "") -> float | None:
        """Returns the units per second of a model's latest sweep; None if there is none."""
        for path in self._paths():
            report = self._read(path)
            if report is None or report["model"]["name"] != model or not report["seconds"]:
                continue
            if not device or report["model"]["device"] == device:
                return float(report["units"] / report["seconds"])
        return None

    def _paths(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        paths = (path for path in self._folder.glob("*.json") if _NAME.fullmatch(path.stem))
        return sorted(paths, key=lambda path: path.stem, reverse=True)

    def _read(self, path: Path) -> Report | None:
        try:
            report = json.loads(path.read_bytes())
            _line(path.stem, report)
            float(report["units"]), float(report["seconds"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            logger.warning("%s holds no report of a sweep: %r", path, error)
            return None
        return dict(report)


def _line(name: str, report: Report) -> KeptReport:
    return {
        "name": name,
        "started": str(report["started"]),
        "axis": str(report["sweep"]["axis"]),
        "model": str(report["model"]["name"]),
        "points": len({str(result["value"]) for result in report["results"]}),
        "ended": str(report["ended"]),
    }
