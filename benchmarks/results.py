"""Writes the figures of the suite into `README.md` and `benchmarks/RESULTS.md`, with charts.

    pml bench suite --out bench
    python -m benchmarks.results bench
    python -m benchmarks.results bench --store store.json

Replaces the text between the marks `suite` and `times`, and between the marks `store` if its report is given
(the output of `pml bench store --json`). Charts need a Chromium; without one the documents show none.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import store_results
from benchmarks.beside import absent, beside, pairs
from benchmarks.caveats import caveats, tiny
from benchmarks.charts import CHARTS, figures
from benchmarks.drawing import draw
from benchmarks.goals import SAME_TEXT, Reports, amount, rows, verdicts
from benchmarks.markdown import head, row, written
from benchmarks.suite.parts import NOT_YET, PARTS
from benchmarks.suite.running import read
from benchmarks.suite.sampling import PER_SECOND
from engine.stopwatch import milliseconds

ROOT = Path(__file__).parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "benchmarks" / "RESULTS.md"
PICTURES = ROOT / "benchmarks" / "charts"
TIMES, SUITE, STORE = "times", "suite", "store"
AT_ONCE = {
    "one_by_one": "one by one",
    "batch": "together",
    "batch_reordered": "together, modules reordered",
    "batch_plain": "together, as plain text",
    "private": "together, nothing shared",
}
COLUMNS = (("T1", "1.1B bf16"), ("T2", "0.1B fp32"), ("T2", "0.1B bf16"))


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


def readme(reports: Reports) -> str:
    """The tables of the README, and the comparisons in words."""
    groups: dict[str, dict[str, Any]] = {}
    for part, label in COLUMNS:
        for group in reports.get(part, {"groups": ()})["groups"]:
            if group["name"] == label:
                groups[label] = group
    if not groups:
        return "The time to first token was not measured."
    labels = {"cached": "ours, cached in memory", "uncached": "ours, nothing cached"}
    ways: dict[str, None] = dict.fromkeys(("uncached", "cached"))
    for group in groups.values():
        ways |= dict.fromkeys(way for way in group["samples_ms"] if way.endswith((":full", ":prefix")))
    lines = head("time to first token", *groups)
    for way in ways:
        peer, _, kind = way.partition(":")
        words = labels.get(way) or f"{peer}, {'nothing cached' if kind == 'full' else 'cached in memory'}"
        lines.append(row(words, *(_cell(group, way) for group in groups.values())))
    found = list(pairs(reports, ("T1", "T2", "arrivals", "T13")))
    sentences = [f"- {pair.sentence}" for pair in found]
    shape = next(iter(groups.values()))["params"]
    about = (
        f"{shape['cached']:,} cached tokens in {shape['modules']} modules and {shape['new']} new ones, "
        "random weights; ÷: speed-up over ours with nothing cached:"
    )
    sentences += [
        f"- {sentence}"
        for sentence in absent({part: reports[part] for part, _ in COLUMNS if part in reports})
    ]
    lines += ["", *crowds(reports["T11"].get("groups", ()))] if "T11" in reports else []
    return "\n".join([place(reports), "", about, "", *lines, *([""] if sentences else []), *sentences])


def crowds(groups: Sequence[dict[str, Any]]) -> list[str]:
    """The README's table of many prompts at once."""
    found = [one for one in groups if any(name.startswith(PER_SECOND) for name in one["values"])]
    if not found:
        return ["Many prompts at once were not measured."]
    asked = found[0]["params"]
    about = (
        f"Tokens per second of many prompts at once, 1.1B bf16: {asked['shared']:,} shared cached tokens in "
        f"{asked['modules']} modules, {asked['own']} own and {asked['new']} answer tokens per prompt; ×: "
        "speed-up over one by one:"
    )
    lines = head("prompts at once", *(str(one["params"]["prompts"]) for one in found))
    lines += [row(words, *(_rate(one["values"], kind) for one in found)) for kind, words in AT_ONCE.items()]
    return [about, "", *lines]


def _rate(values: Mapping[str, Any], kind: str) -> str:
    rate, base = (values.get(PER_SECOND + one) for one in (kind, "one_by_one"))
    if rate is None:
        return "–"
    if kind == "one_by_one":
        return amount(rate)
    other = ", another text" if values.get(SAME_TEXT) == "no" else ""
    return amount(rate) + (f" (× {amount(rate / base)}{other})" if base else "")


def _cell(group: Mapping[str, Any], way: str) -> str:
    if way not in group["median_ms"]:
        return "–"
    ms, base = group["median_ms"][way], group["median_ms"].get("uncached")
    faster = base / ms if base and way != "uncached" else 0
    return milliseconds(ms) + (f" (÷ {amount(faster)})" if faster else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes both documents and the charts."""
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
    README.write_text(written(README.read_text(encoding="utf-8"), TIMES, readme(reports)), encoding="utf-8")


if __name__ == "__main__":
    main()
