"""The table and the charts of `pml bench quality`, and the folder that takes them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.base.safe_write import write_text
from benchmarks.markdown import head, row
from engine.base.errors import PromptCacheError
from engine.fidelity.findings import nats

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEAD = (
    "",
    "SCORE (95%)",
    "POINTS (95%)",
    "WON/LOST/TIED",
    "P",
    "÷ UNCACHED (95%)",
    "KL (95%)",
    "KL WORST",
    "FLIPS",
    "FIRST TOKEN SAME",
    "SAME ANSWER",
    "TTFT MS",
    "COMPUTED",
    "REPAIRED",
)
READING = """Points, wins and losses are against the uncached side on the same prompts (95% by bootstrap in
pairs, P of the exact sign test). KL is in nats per token of the whole uncached answer, which both sides
read, mean with its interval by bootstrap over the prompts, and worst; FLIPS is the share of prompts in which
another token becomes the likeliest at least once. TTFT is the median, with segments in memory. COMPUTED is
the share of the prompt's tokens that are computed, with what a repair takes to choose its tokens; REPAIRED is
the share of cached tokens that are computed again, without it. The row default is pml run
without options, over segments that were never checked."""


def cells(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The rows of the table: every way to answer beside the uncached one, prompt by prompt."""
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
    """How many prompts of a file there are, and what was left out or shortened."""
    lines = [f"{report['prompts']} prompts"]
    if report["shortened"]:
        lines.append(f"{len(report['shortened'])} shortened in the middle, as LongBench does, to fit")
    if report["left_out"]:
        first = report["left_out"][0]
        lines.append(f"{len(report['left_out'])} left out; {first['task']}: {first['why']}")
    return "\n".join(lines)


def where(measured: dict[str, Any]) -> str:
    """The model, and the machine it was measured on."""
    facts = {"model": measured["model"], **measured["machine"]}
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def as_markdown(measured: dict[str, Any]) -> str:
    """The tables of all files, and of all together where there are several."""
    lines = ["# Quality of cached answers", ""]
    files = measured["files"]
    for name, report in files.items():
        lines += [f"## {name}", "", *_table(report["results"]), "", *notes(report).split("\n"), ""]
    if len(files) > 1:
        prompts = measured["all"][0]["prompts"]
        lines += ["## All files", "", *_table(measured["all"]), "", f"{prompts} prompts", ""]
    return "\n".join([*lines, READING.replace("\n", " "), "", where(measured), ""])


def _table(results: Sequence[dict[str, Any]]) -> list[str]:
    return [*head(*HEAD), *(row(*line) for line in cells(results))] if results else []


def write(folder: Path, measured: dict[str, Any]) -> None:
    """Writes `quality.json`, `quality.md`, and the charts: each as SVG, or all in `charts.html`.

    Raises:
        PromptCacheError: the folder cannot be written.
    """
    from benchmarks.quality_charts import charts

    figures = charts(measured)
    texts = {"quality.json": json.dumps(measured, indent=1) + "\n", "quality.md": as_markdown(measured)}
    texts |= _drawn(figures) or {"charts.html": _page(figures)}
    try:
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise PromptCacheError(f"{folder} cannot be written: {error.strerror or error}.") from error


def _drawn(figures: dict[str, go.Figure]) -> dict[str, str]:
    """The charts as SVG by the names of their files; none where nothing can draw them."""
    from benchmarks.drawing import draw

    with tempfile.TemporaryDirectory(prefix="pml-charts-") as place:
        names = draw(figures, Path(place), say=lambda _: None)
        return {f"{name}.svg": Path(place, f"{name}.svg").read_text(encoding="utf-8") for name in names}


def _page(figures: dict[str, go.Figure]) -> str:
    """The charts in one page, with the script that draws them."""
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=not at) for at, figure in enumerate(figures.values())
    ]
    return "\n".join(["<!doctype html>", "<meta charset='utf-8'>", *parts, ""])
