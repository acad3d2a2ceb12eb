"""Writes the figures of the suite into `benchmarks/RESULTS.md`, with charts.

    pml bench suite --out bench
    python -m benchmarks.results bench
    python -m benchmarks.results bench --store store.json

Replaces the text between the marks `suite`, and between the marks `store` if its report is given (the output
of `pml bench store --json`). Charts need a Chromium; without one the document shows none.
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
from benchmarks.goals import Reports, rows, verdicts
from benchmarks.markdown import head, row, written
from benchmarks.suite.parts import NOT_YET, PARTS
from benchmarks.suite.running import read

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PICTURES = ROOT / "benchmarks" / "charts"
SUITE, STORE = "suite", "store"


def gathered(folder: Path) -> dict[str, dict[str, Any]]:
    """The reports of a folder, in the order of the parts.

    Raises:
        ValueError: it has none.
    """
    found = {part.name: read(folder / f"{part.name}.json") for part in PARTS}
    reports = {name: report for name, report in found.items() if report is not None}
    if not reports:
        raise ValueError(f"{folder} has no report of `pml bench suite`")
    return reports


def place(reports: Reports) -> str:
    """The machine and the date, with warnings about the conditions."""
    machines = {
        "{processor}, cores: {cores}, threads: {threads}, torch {torch}, Python {python}".format(**found)
        for report in reports.values()
        if (found := report["machine"])
    }
    days = sorted({report["began"][:10] for report in reports.values() if "began" in report})
    when = " " + " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    lines = [f"Measured{when} on {'; '.join(sorted(machines))}."]
    return " ".join([*lines, *(f"**{sentence}**" for sentence in caveats(reports))])


def goals(reports: Reports) -> str:
    """The table of goals, with the missed ones and those that have no figure."""
    lines, before = head("", "figure", "", "measured (range)", "goal", ""), ["", ""]
    for part, words, *rest, verdict in rows(reports):
        names = ["", ""] if [part, words] == before else ["" if part == before[0] else part, words]
        lines.append(row(*names, *rest, verdict))
        before = [part, words]
    lines += [row(name, f"needs {needs}", "", "–", "", "not yet") for name, needs in NOT_YET.items()]
    counts = [*(verdict for _, _, verdict in verdicts(reports)), *NOT_YET]
    met, missed = counts.count("met"), sum(verdict.startswith("missed") for verdict in counts)
    unknown = len(counts) - met - missed
    words = (
        f"{met} of {len(counts)} figures meet their goal, {missed} miss it, {unknown} have no measurement."
    )
    return "\n".join([words, "", *lines])


def readings(reports: Reports) -> list[str]:
    """How to read the figures, and the parts that failed or were not measured."""
    lines = []
    for part in PARTS:
        words = [part.reading] if part.reading else []
        if part.name not in reports:
            words.append("Not measured.")
        elif error := reports[part.name].get("error"):
            words.append(f"Failed: {error}")
        if words:
            lines.append(f"- {part.name}: {' '.join(words)}")
    return lines


def results(reports: Reports, shown: Sequence[str] = ()) -> str:
    """The text between the marks of RESULTS.md.

    Args:
        reports: of the suite by part.
        shown: the names of the drawn charts.
    """
    pictures = [f"![{chart.words}](charts/{chart.name}.svg)" for chart in CHARTS if chart.name in shown]
    blocks = [place(reports), "### Goals", goals(reports), "\n".join(readings(reports))]
    return "\n\n".join([*blocks, "### Other software", beside(reports), *pictures])


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the document and the charts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of `pml bench suite`")
    parser.add_argument("--store", type=Path, help="the output of `pml bench store --json`")
    parser.add_argument("--no-charts", action="store_true", help="draw no charts")
    chosen = parser.parse_args(arguments)
    reports = gathered(chosen.folder)
    if tiny(reports):
        parser.error(f"{chosen.folder} was measured at the tiny scale, so it is not published")
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
