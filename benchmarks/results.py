"""Writes what the suite measured into `benchmarks/RESULTS.md`, with charts.

    pml bench suite --out bench
    python -m benchmarks.results bench
    python -m benchmarks.results bench --store store.json

The text between the marks `suite` is replaced; `store` only if its report is given, as `pml bench
store --json` prints it. Charts take a Chromium; without one the document shows none.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import store_results
from benchmarks.beside import beside
from benchmarks.caveats import caveats, tiny
from benchmarks.charts import CHARTS, figures
from benchmarks.drawing import draw
from benchmarks.goals import Reports, amount, rows, verdicts
from benchmarks.markdown import head, row, written
from benchmarks.suite.parts import NOT_YET, PARTS, Part
from benchmarks.suite.running import read
from benchmarks.suite.sampling import known
from engine.stopwatch import milliseconds

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PICTURES = ROOT / "benchmarks" / "charts"
SUITE, STORE = "suite", "store"
PART_OF_TIME = "part "  # before the name of a part of the time to first token, among a group's values


def gathered(folder: Path) -> dict[str, dict[str, Any]]:
    """The reports of a folder by part, in the order of the parts.

    Raises:
        ValueError: there is none.
    """
    found = {part.name: read(folder / f"{part.name}.json") for part in PARTS}
    reports = {name: report for name, report in found.items() if report is not None}
    if not reports:
        raise ValueError(f"{folder} holds no report of `pml bench suite`")
    return reports


def place(reports: Reports) -> str:
    """Where and when it was measured, and a warning where the machine had other work."""
    machines = {
        "{processor}, cores: {cores}, threads: {threads}, torch {torch}, Python {python}".format(**found)
        for report in reports.values()
        if (found := report["machine"])
    }
    days = sorted({report["began"][:10] for report in reports.values() if "began" in report})
    when = " " + " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    minutes = sum(report.get("seconds", 0) for report in reports.values()) / 60
    lines = [f"Measured{when} on {'; '.join(sorted(machines))}, in {minutes:.0f} min."]
    return " ".join([*lines, *(f"**{sentence}**" for sentence in caveats(reports))])


def goals(reports: Reports) -> str:
    """The table of goals, what is missed, and what is not measured yet."""
    lines = head("", "figure", "of", "measured (least to greatest of a round)", "goal", "", "command")
    lines += [row(*found, f"`pml bench suite --only {found[0]}`") for found in rows(reports)]
    lines += [row(name, f"needs {needs}", "", "–", "", "not yet", "") for name, needs in NOT_YET.items()]
    counts = [*(verdict for _, _, verdict in verdicts(reports)), *NOT_YET]
    met, missed = counts.count("met"), sum(verdict.startswith("missed") for verdict in counts)
    words = f"Of {len(counts)} figures {met} meet their goal, {missed} miss it"
    rest = len(counts) - met - missed
    words += f", {rest} {'has' if rest == 1 else 'have'} no measurement." if rest else "."
    return "\n".join([words, "", *lines])


def section(part: Part, report: dict[str, Any], shown: Sequence[str]) -> str:
    """One part: how to read it, its samples, and its charts."""
    blocks = [_heading(part), part.reading]
    if "error" in report:
        return "\n\n".join([*blocks, f"**Failed**: {report['error']}"])
    lines = head("of", "way", "least", "median", "most", "samples")
    values = head("of", "figure", "value")
    for group in report["groups"]:
        for way, samples in group["samples_ms"].items():
            taken = known(samples)
            lines.append(
                row(
                    group["name"],
                    f"`{way}`",
                    *(milliseconds(ms) for ms in (min(taken), group["median_ms"][way], max(taken))),
                    len(taken),
                )
            )
        for name, value in group["values"].items():
            if not name.startswith(PART_OF_TIME):
                values.append(row(group["name"], name, value if isinstance(value, str) else amount(value)))
    if len(lines) > 2:
        blocks.append("\n".join(lines))
    if len(values) > 2:
        blocks.append("\n".join(values))
    blocks += [
        f"![{chart.words}](charts/{chart.name}.svg)"
        for chart in CHARTS
        if chart.part == part.name and chart.name in shown
    ]
    return "\n\n".join(blocks)


def _heading(part: Part) -> str:
    """T1 and the like are names of figures, `lengths` and the like words."""
    return f"## {part.name}: {part.title}" if part.name[0].isupper() else f"## {part.title}"


def results(reports: Reports, shown: Sequence[str] = ()) -> str:
    """Everything that stands between the marks of RESULTS.md.

    Args:
        reports: of the suite by part.
        shown: names of the charts that were drawn.
    """
    blocks = [place(reports), "## Goals", goals(reports), "## Beside other software", beside(reports)]
    blocks += [
        section(part, reports[part.name], shown)
        if part.name in reports
        else f"{_heading(part)}\n\nNot measured."
        for part in PARTS
    ]
    return "\n\n".join(blocks)


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the document and the charts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("folder", type=Path, help="what `pml bench suite` has written")
    parser.add_argument("--store", type=Path, help="what `pml bench store --json` has printed")
    parser.add_argument("--no-charts", action="store_true", help="draw none")
    chosen = parser.parse_args(arguments)
    reports = gathered(chosen.folder)
    if tiny(reports):
        parser.error(f"{chosen.folder} was measured at a tiny scale, which is nothing to publish")
    shown: list[str] = []
    if not chosen.no_charts:
        shown = draw(figures(reports), PICTURES)
    text = written(RESULTS.read_text(encoding="utf-8"), SUITE, results(reports, shown))
    if chosen.store:
        trials = json.loads(chosen.store.read_text(encoding="utf-8"))
        text = written(text, STORE, store_results.store(trials))
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
