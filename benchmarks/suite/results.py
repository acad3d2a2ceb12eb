"""Writes the figures of the suite and of the store into `benchmarks/RESULTS.md`, with charts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from app.cli.base.output import say
from app.cli.base.param_types import UserPath
from app.studio.sweeps.turns import ratio
from benchmarks.base.case import OF_A_PEER, Report
from benchmarks.base.charts import Series, draw, scatter
from benchmarks.base.markdown import head, row, written
from benchmarks.suite.goals import Reports, rows, verdicts
from benchmarks.suite.suite import NOT_YET, PARTS, caveats, read
from engine.base.errors import PromptCacheError
from engine.base.stopwatch import milliseconds

RESULTS = Path(__file__).parents[1] / "RESULTS.md"
PICTURES = RESULTS.with_name("charts")
SUITE, STORE = "suite", "store"
OURS = {  # our side and the task, by the task of another program
    "full": ("uncached", "nothing cached"),
    "prefix": ("cached", "cached in memory"),
    "state_file": ("files_later", "cached in files"),
    "decode": ("token", "a token"),
}
ABOUT = (
    "In parentheses: their time ÷ ours; **bold**: theirs is faster in every round; ~: the rounds disagree. "
    "Rows with fewer cached tokens are shown only if one is bold."
)
CHARTS = {
    "batch": "Tokens per second by prompts at once",
    "length-fp32": "TTFT by cached tokens, 0.1B fp32",
    "length-large": "TTFT by cached tokens, 1.1B bf16",
}
_LEGENDS = {
    "uncached": "ours, nothing cached",
    "cached": "ours, cached",
    "files_later": "ours, state from a file",
    "floor": "the new tokens alone",
    "one_by_one": "one by one",
    "batch": "together",
    "batch_reordered": "together, reordered",
    "batch_plain": "together, as plain text",
    "full": "nothing cached",
    "prefix": "cached",
    "state_file": "state from a file",
}
_LEVEL = 0.03  # smaller differences count as the same time
_LENGTHS = "lengths"


@dataclass(frozen=True)
class Pair:
    """A side of another program and ours, in milliseconds."""

    part: str
    group: str
    peer: str
    what: str
    ours: float
    theirs: float
    ratio: dict[str, float]

    @property
    def slower(self) -> bool:
        """Whether theirs is faster in every round and by more than 3%."""
        return self.ratio["high"] < 1 and self.ratio["ratio"] < 1 - _LEVEL

    @property
    def cell(self) -> str:
        """Their time and the ratio: bold if theirs is faster, with ~ if the rounds disagree."""
        found = f"{milliseconds(self.theirs)} ({self.ratio['ratio']:.2f})"
        if self.slower:
            return f"**{found}**"
        return f"~{found}" if self.ratio["low"] <= 1 <= self.ratio["high"] else found


def pairs(reports: Reports) -> Iterator[Pair]:
    """Every side of another program with one of ours in its group."""
    for part, report in reports.items():
        for group in report["groups"]:
            for side in group["samples_ms"]:
                peer, _, kind = side.partition(OF_A_PEER)
                if kind not in OURS:
                    continue
                mine, what = OURS[kind]
                if mine not in group["samples_ms"] and kind == "decode":
                    mine, what = "step with guesses", "a token, ours with guesses"
                found = ratio(group["samples_ms"], side, mine)
                if found is not None:
                    medians = group["median_ms"]
                    yield Pair(part, group["name"], peer, what, medians[mine], medians[side], found)


def beside(reports: Reports) -> str:
    """The table of the pairs; of other lengths only the rows with a faster program."""
    found, missing, versions = list(pairs(reports)), dict[str, None](), dict[str, None]()
    for report in reports.values():
        for group in report["groups"]:
            for name, peer in group["peers"].items():
                if peer["absent"]:
                    missing[f"- {name} was not measured: {peer['absent']}"] = None
                else:
                    versions[f"{name} {peer['version'].partition(' (')[0]}".strip()] = None
            missing |= dict.fromkeys(f"- {group['name']}: {note}" for note in group["notes"])
    if not found:
        return "\n".join(["No other software was measured.", "", *missing]).rstrip()
    tasks: dict[tuple[str, str, str], dict[str, Pair]] = {}
    for pair in found:
        tasks.setdefault((pair.part, pair.group, pair.what), {})[pair.peer] = pair
    peers = dict.fromkeys(pair.peer for pair in found)
    lines, before = head("", "", "ours", *peers), ""
    for (part, group, what), measured in tasks.items():
        if part == _LENGTHS and not any(pair.slower for pair in measured.values()):
            continue
        ours = milliseconds(next(iter(measured.values())).ours)
        cells = (measured[peer].cell if peer in measured else "–" for peer in peers)
        lines.append(row("" if group == before else group, what, ours, *cells))
        before = group
    faster = sum(pair.slower for pair in found)
    words = f"Other software is faster in {faster} of {len(found)} comparisons. {ABOUT}"
    return "\n".join([words, "", *lines, "", f"{', '.join(versions)}.", *missing])


def gathered(folder: Path) -> dict[str, Report]:
    """The reports of a folder."""
    found = {part.name: read(folder / f"{part.name}.json") for part in PARTS}
    reports = {name: report for name, report in found.items() if report is not None}
    if not reports:
        raise PromptCacheError(f"{folder} has no report of `python -m benchmarks suite`.")
    if any(report["scale"] != "full" for report in reports.values()):
        raise PromptCacheError(f"{folder} was measured at the tiny scale, so it is not published.")
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
    """The table of goals, and the counts of met and missed ones."""
    lines, before = head("", "figure", "", "measured (range)", "goal", ""), ["", ""]
    for part, words, *rest, verdict in rows(reports):
        names = ["", ""] if [part, words] == before else ["" if part == before[0] else part, words]
        lines.append(row(*names, *rest, verdict))
        before = [part, words]
    lines += [row(name, f"needs {needs}", "", "–", "", "not yet") for name, needs in NOT_YET.items()]
    counts = [*(verdict for _, _, verdict in verdicts(reports)), *NOT_YET]
    met, missed = counts.count("met"), sum(verdict.startswith("missed") for verdict in counts)
    other = len(counts) - met - missed
    words = f"{met} of {len(counts)} figures meet their goal, {missed} miss it, {other} have no measurement."
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


def results_of(reports: Reports, shown: Sequence[str] = ()) -> str:
    """The text between the marks of RESULTS.md, with these charts."""
    pictures = [f"![{words}](charts/{name}.svg)" for name, words in CHARTS.items() if name in shown]
    blocks = [place(reports), "### Goals", goals(reports), "\n".join(readings(reports))]
    return "\n\n".join([*blocks, "### Other software", beside(reports), *pictures])


def figures(reports: Reports) -> dict[str, Any]:
    """The charts of the measured parts, by file name."""
    found = {}
    lines = _lines(
        (group, "prompts", lambda group, ms: 1000 * group["params"]["prompts"] * group["params"]["new"] / ms)
        for group in reports.get("T11", {}).get("groups", ())
        if group["name"].endswith(("at once", "1 prompt"))
    )
    if lines:
        title = "Tokens per second of prompts at once, 1.1B bf16"
        found["batch"] = scatter(title, "prompts at once", "tokens per second", lines, log="x", lines=True)
    for name, parts, label in (("length-fp32", "T2", "0.1B fp32"), ("length-large", "T1", "1.1B bf16")):
        groups = [
            group
            for part in (_LENGTHS, parts)
            for group in reports.get(part, {}).get("groups", ())
            if group["name"] == label or group["name"].startswith(f"{label}, ")
        ]
        lines = _lines((group, "cached", lambda _group, ms: ms) for group in groups)
        if lines:
            title = f"Time to first token by length of the cached text, {label}"
            found[name] = scatter(
                title, "cached tokens", "ms to the first token", lines, log="xy", lines=True
            )
    return found


def _lines(groups: Any) -> dict[str, Series]:
    """A line for each side: a parameter of its groups, and a function of the median."""
    points: dict[str, list[tuple[float, float]]] = {}
    for group, param, value in groups:
        for side, median in group["median_ms"].items():
            peer, of, kind = side.rpartition(OF_A_PEER)
            legend = f"{peer}, {_LEGENDS.get(kind, kind)}" if of else _LEGENDS.get(kind, kind)
            if kind != "private":
                points.setdefault(legend, []).append((group["params"][param], value(group, median)))
    return {name: (*zip(*sorted(found), strict=True), ()) for name, found in points.items()}  # type: ignore[misc]


def store_tables(report: Report) -> str:
    """The tables of the trials of the store."""
    found: Mapping[str, Any] = {group["name"]: group["values"] for group in report["groups"]}
    kills, damages, shared = found["kills"], found["damages"], found["processes"]
    died = ", ".join(f"{name} {count}" for name, count in kills.items() if name.startswith("killed"))
    wrong = f"{damages['wrong answers']}; {damages['detected']:,}; {damages['repaired']:,}"
    what = f"{damages['files damaged']:,} damaged files: wrong answers; detected; repaired"
    lines = [
        *head("trial", "result", "goal"),
        row(
            "kills of a writer: correct afterwards",
            f"{kills['correct afterwards']} of {kills['writers killed']}",
            "all",
        ),
        row("step of the killed writers", died, ""),
        row(what, wrong, "0; all; all"),
        row(
            f"four processes for {shared['seconds']} s: errors; index and files agree",
            f"{shared['errors']}; {shared['index and files agree']}",
            "0; yes",
        ),
        row("`verify`", f"{found['verify']['seconds per GB']:.2f} s per GB", ""),
        row(
            "bytes in files ÷ bytes of keys and values",
            f"{found['verify']['bytes ÷ keys and values']:.3f}",
            "1.01",
        ),
        row(
            "computing under policy `cost` ÷ `lru`, random trace",
            f"{found['trace']['computing, cost ÷ lru']:.2f}",
            "",
        ),
    ]
    names = {"bytes ÷ bf16": ".3f", "KL": ".2g", "worst KL": ".2g", "same token": ".2%", "same answer": ".1%"}
    names["TTFT from disk ÷ plain"] = ".2f"
    packed = head("", *names)
    for scheme in ("int8", "int4"):
        if values := found.get(f"compression {scheme}"):
            packed.append(row(f"`{scheme}`", *(f"{values[name]:{how}}" for name, how in names.items())))
    return "\n\n".join(["\n".join(lines), "\n".join(packed)])


@click.command()
@click.argument("folder", type=UserPath(path_type=Path, exists=True, file_okay=False))
@click.option("--store", type=UserPath(path_type=Path, exists=True), help="Output of `store --json`.")
@click.option("--no-charts", is_flag=True, help="Draw no charts.")
def results(folder: Path, store: Path | None, no_charts: bool) -> None:
    """Write the figures of FOLDER, from `suite`, into RESULTS.md. Charts need a Chromium."""
    reports = gathered(folder)
    shown = [] if no_charts else draw(figures(reports), PICTURES, say)
    text = written(RESULTS.read_text(encoding="utf-8"), SUITE, results_of(reports, shown))
    if store:
        text = written(text, STORE, store_tables(json.loads(store.read_text(encoding="utf-8"))))
    RESULTS.write_text(text, encoding="utf-8")
