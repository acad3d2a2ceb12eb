"""Tables and charts of `python -m benchmarks quality`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.base.safe_write import write_text
from app.cli.base.output import table
from benchmarks.base.case import place
from engine.base.errors import PromptCacheError
from engine.fidelity.findings import nats

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEAD = (
    *("", "SCORE (95%)", "POINTS (95%)", "WON/LOST/TIED", "P", "÷ UNCACHED (95%)", "KL (95%)", "KL WORST"),
    *("FLIPS", "FIRST TOKEN SAME", "SAME ANSWER", "TTFT MS", "COMPUTED", "REPAIRED"),
)
READING = """Points, wins and losses are against the uncached side on the same prompts: 95% by bootstrap in
pairs, P of the exact sign test. KL is in nats per token of the whole uncached answer, with its interval by
bootstrap. FLIPS is the share of prompts with another likeliest token at least once. TTFT is the median, with
segments in memory. COMPUTED is the share of computed tokens of the prompt, with the choice of a repair.
REPAIRED is the share of cached tokens that are computed again. The row default is pml run without options."""
_GROUPS = {
    "by_choice": "{}",
    "by_documents": "modules: {}",
    "by_position": "answer in {} third",
    "by_kind": "{}",
}
Results = Sequence[dict[str, Any]]


def cells(results: Results) -> list[list[str]]:
    """The rows of the table: every way to answer."""
    return [[result["name"], *_scored(result), *_measured(result)] for result in results]


def _scored(result: dict[str, Any]) -> list[str]:
    if "score" not in result:
        return ["-"] * 5
    pair = result["paired"]
    ratio = "{ratio:.3f} ({ratio_low:.3f} to {ratio_high:.3f})".format(**pair) if pair["ratio"] else "-"
    return [
        f"{result['score']:.3f} ({result['score_low']:.3f} to {result['score_high']:.3f})",
        "{difference:+.1f} ({difference_low:+.1f} to {difference_high:+.1f})".format(**pair),
        f"{pair['wins']} / {pair['losses']} / {pair['ties']}",
        f"{pair['p']:.3g}",
        ratio,
    ]


def _measured(result: dict[str, Any]) -> list[str]:
    repaired = result["repaired_share"]
    return [
        f"{nats(result['kl_answer'])} ({nats(result['kl_low'])} to {nats(result['kl_high'])})",
        nats(result["kl_worst"]),
        f"{result['flipped']:.2f}",
        f"{result['first_token_agreement']:.2f}",
        f"{result['same_answer']:.2f}",
        f"{result['ttft_ms']:,.{0 if result['ttft_ms'] >= 100 else 1}f}",
        f"{result['computed_share']:.1%}",
        "-" if repaired is None else f"{repaired:.1%}",
    ]


def notes(report: dict[str, Any]) -> str:
    """The number of prompts, and those that were left out or shortened."""
    lines = [f"{report['prompts']} prompts"]
    if report["shortened"]:
        lines.append(f"{len(report['shortened'])} shortened in the middle, like LongBench does, to fit")
    if report["left_out"]:
        first = report["left_out"][0]
        lines.append(f"{len(report['left_out'])} left out; {first['task']}: {first['why']}")
    return "\n".join(lines)


def words(measured: dict[str, Any], *, by_group: bool) -> str:
    """The tables for a terminal."""
    parts, several = [], len(measured["files"]) > 1
    for name, report in measured["files"].items():
        parts += [name] if several else []
        parts += [table([*HEAD], cells(report["results"]))] if report["results"] else []
        parts.append(notes(report))
        parts += [_groups(report["results"])] if by_group and report["results"] else []
    if several:
        prompts = measured["all"][0]["prompts"]
        parts += [f"all files, {prompts} prompts", table([*HEAD], cells(measured["all"]))]
    return "\n\n".join([*parts, f"model {measured['model']}, {place(measured)}", READING])


def _groups(results: Results) -> str:
    """Scores by number of modules, by place of the answer, and by kind of question."""
    rows = []
    for group, title in _GROUPS.items():
        for key in results[0][group]:
            found = [result[group][key] for result in results]
            scores = (f"{one['score']:.2f}" if "score" in one else "-" for one in found)
            rows.append([title.format(key), str(found[0]["prompts"]), *scores])
    return table(["", "PROMPTS", *(result["name"].upper() for result in results)], rows)


def write(folder: Path, measured: dict[str, Any]) -> None:
    """Writes `quality.json`, `quality.txt`, and the charts as SVG; without a Chromium as `charts.html`."""
    from benchmarks.base.charts import draw

    figures = charts(measured)
    texts = {
        "quality.json": json.dumps(measured, indent=1) + "\n",
        "quality.txt": words(measured, by_group=False) + "\n",
    }
    with tempfile.TemporaryDirectory(prefix="pml-charts-") as drawn:
        names = draw(figures, Path(drawn), say=lambda _: None)
        texts |= {f"{name}.svg": Path(drawn, f"{name}.svg").read_text(encoding="utf-8") for name in names}
    if not names:
        pages = (
            one.to_html(full_html=False, include_plotlyjs=not at) for at, one in enumerate(figures.values())
        )
        texts["charts.html"] = "\n".join(["<!doctype html>", "<meta charset='utf-8'>", *pages, ""])
    try:
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise PromptCacheError(f"{folder} cannot be written: {error.strerror or error}.") from error


def charts(measured: dict[str, Any]) -> dict[str, go.Figure]:
    """Charts over all files: scores, KL by share of computed tokens, and time by length of the prompt."""
    from benchmarks.base.charts import scatter

    results = measured["all"]
    frontier = {  # the uncached side computes all, and is 0 from itself
        one["name"]: ([100 * one["computed_share"]], [one["kl_answer"]], [(one["kl_low"], one["kl_high"])])
        for one in results[1:]
    }
    found = {}
    if "score" in results[0]:
        scores = {
            one["name"]: ([one["name"]], [one["score"]], [(one["score_low"], one["score_high"])])
            for one in results
        }
        found["score"] = scatter("Score by variant, with its 95% interval", "", "score", scores)
    title = "KL from the uncached answer by share of computed tokens"
    found["frontier"] = scatter(
        title, "computed tokens, % of the prompt", "KL, nats per answer token", frontier
    )
    times: dict[str, Any] = {}
    for one in (one for one in results if not one["repaired_share"]):  # few enough to tell apart
        samples = [
            sample
            for report in measured["files"].values()
            for result in report["results"]
            if result["name"] == one["name"]
            for sample in result["samples"]
        ]
        lengths = [sample["prompt_tokens"] for sample in samples]
        times[one["name"]] = (lengths, [sample["ttft_ms"] for sample in samples], [])
    title = "Time to first token by length of the prompt"
    found["ttft"] = scatter(title, "tokens of the prompt", "ms to the first token", times, log="y")
    return found
