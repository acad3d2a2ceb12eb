"""`pml bench quality`: what reuse costs in answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from app.cli.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.output import print_json, progress_bar, say, table
from app.cli.param_types import DOCUMENT, Name, Whole
from app.cli.setting_options import setting_option
from engine.inference.findings import nats


@click.command()
@click.argument("path", required=False, metavar="[PATH]", type=DOCUMENT)
@setting_option("scope", multiple=True, help="May be given again. Default: all, and the repairs on anchored.")
@setting_option("repair", multiple=True, help="May be given again; each is run with each scope.")
@click.option(
    "--metric",
    type=Name(["exact", "f1", "rouge-l", "accuracy", "numbers", "edit-similarity", "mentions"]),
    help="In place of what the file says, or its data set implies.",
)
@click.option(
    "--suite",
    type=Name(["demo"]),
    help="Drawn prompts for the bundled model: documents, trips, lessons and programs; 60 chose its weights.",
)
@click.option("--limit", type=Whole(1), help="The most prompts.")
@setting_option("placement")
@model_options
@quantize_option
@json_option
@debug_option
def quality(
    path: str | None,
    scope: tuple[str, ...],
    repair: tuple[str, ...],
    metric: str | None,
    suite: str | None,
    limit: int | None,
    placement: str,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """What reuse costs in quality: answers under every scope and repair, against the uncached ones.

    PATH is a file of questions in LongBench's format (one JSON object per line with input, context or
    documents, answers, and dataset), or a folder with NAME.pml and NAME.prompt.*.pml, which need no right
    answers to be compared. Without PATH it runs over the document questions that come with the project.
    """
    if suite and path:
        raise click.UsageError("--suite has files of its own: leave out PATH, or --suite.")
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import quality as measurement
    from benchmarks.figures import pooled
    from benchmarks.tasks import own_questions, read_tasks
    from benchmarks.tasks import suite as files_of

    files = files_of(suite) if suite else {"": Path(path) if path else own_questions()}
    tasks = {name: read_tasks(file, metric=metric or "", limit=limit) for name, file in files.items()}
    reports: dict[str, dict[str, Any]] = {}
    for name, found in tasks.items():
        with progress_bar() as progress:
            reports[name] = measurement.run(
                options.name,
                found,
                measurement.variants(scope, repair),
                device=options.device,
                dtype=options.dtype,
                weights=options.weights,
                quantize=options.quantize,
                placement=placement,
                progress=progress,
            )
    together = pooled(list(reports.values())) if suite else []
    if as_json:
        print_json({"suite": suite, "worlds": reports, "all": together} if suite else reports[""])
        return
    for name, report in reports.items():
        if name:
            say(f"{name}\n")
        say(f"{_quality_table(report['results'])}\n\n{_quality_notes(report)}")
        if suite:
            say(f"\n{_groups_table(report)}\n")
    if suite:
        say(f"all worlds, {together[0]['prompts']} prompts\n\n{_quality_table(together)}")
    say(f"\n{_READING}")


def _quality_table(results: list[dict[str, Any]]) -> str:
    """Every way to answer beside the uncached one, prompt by prompt."""
    rows = []
    for result in results:
        cells = ["-"] * 5
        if "score" in result:
            pair = result["paired"]
            cells = [
                f"{result['score']:.3f} ({result['score_low']:.3f} to {result['score_high']:.3f})",
                "{difference:+.1f} ({difference_low:+.1f} to {difference_high:+.1f})".format(**pair),
                f"{pair['wins']} / {pair['losses']} / {pair['ties']}",
                f"{pair['p']:.3g}",
                _ratio(pair),
            ]
        rows.append(
            [
                result["name"],
                *cells,
                nats(result["kl_answer"]),
                nats(result["kl_worst"]),
                f"{result['flipped']:.2f}",
                f"{result['same_answer']:.2f}",
                f"{result['computed_share']:.1%}",
            ]
        )
    head = ["", "SCORE (95%)", "POINTS (95%)", "WON/LOST/TIED", "P", "÷ UNCACHED (95%)"]
    return table([*head, "KL", "KL WORST", "FLIPS", "SAME ANSWER", "COMPUTED"], rows)


def _ratio(pair: dict[str, Any]) -> str:
    if pair["ratio"] is None:
        return "-"
    return f"{pair['ratio']:.3f} ({pair['ratio_low']:.3f} to {pair['ratio_high']:.3f})"


def _quality_notes(report: dict[str, Any]) -> str:
    """How many prompts there are, what was left out or shortened, and where it was measured."""
    lines = [f"{report['prompts']} prompts"]
    if report["shortened"]:
        lines.append(f"{len(report['shortened'])} shortened in the middle, as LongBench does, to fit")
    if report["left_out"]:
        first = report["left_out"][0]
        lines.append(f"{len(report['left_out'])} left out; {first['task']}: {first['why']}")
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    return "\n".join([*lines, machine])


_READING = """Points, wins and losses are against the uncached side on the same prompts (95% by bootstrap in
pairs, P of the exact sign test). KL is in nats per token of the whole uncached answer, which both sides
read, mean and worst; FLIPS is the share of prompts in which another token becomes the likeliest at least
once. COMPUTED has in it what a repair takes to choose its tokens."""


def _groups_table(report: dict[str, Any]) -> str:
    """Scores by how many modules there are, by where the answer stands, and by kind of question."""
    results = {result["name"]: result for result in report["results"]}
    rows = []
    titles = {
        "by_choice": "{}",
        "by_documents": "modules: {}",
        "by_position": "answer in {} third",
        "by_kind": "{}",
    }
    for group, title in titles.items():
        for key in results["uncached"][group]:
            cells = [results[name][group][key] for name in results]
            rows.append(
                [
                    title.format(key),
                    str(cells[0]["prompts"]),
                    *(f"{cell['score']:.2f}" if "score" in cell else "-" for cell in cells),
                ]
            )
    return table(["", "PROMPTS", *(name.upper() for name in results)], rows)
