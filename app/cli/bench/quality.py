"""`pml bench quality`: what reuse costs in answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, progress_bar, say, table
from app.cli.base.param_types import DOCUMENT, Name, UserPath, Whole
from app.cli.base.setting_options import setting_option
from app.cli.command import INTERRUPTED


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=DOCUMENT)
@setting_option("scope", multiple=True, help="May be given again. Default: all, some with repairs.")
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
@click.option("--limit", type=Whole(1), help="The most prompts of each file.")
@click.option(
    "--max-tokens",
    type=Whole(1),
    help="The longest prompt: a longer context loses its middle, other longer prompts are left out.",
)
@click.option(
    "--out",
    "folder",
    type=UserPath(path_type=Path, file_okay=False),
    help="Takes quality.json, quality.md, charts, and every sample at once: the same command goes on where "
    "it was stopped.",
)
@setting_option("placement")
@model_options
@quantize_option
@json_option
@debug_option
def quality(
    paths: tuple[str, ...],
    scope: tuple[str, ...],
    repair: tuple[str, ...],
    metric: str | None,
    suite: str | None,
    limit: int | None,
    max_tokens: int | None,
    folder: Path | None,
    placement: str,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """What reuse costs in quality: answers under every scope and repair, against the uncached ones.

    PATH is a file of questions in LongBench's format (one JSON object per line with input, context or
    documents, answers, and dataset), a file of labelled texts (one JSON object per line with split, text and
    label), or a folder with NAME.pml and NAME.prompt.*.pml, which need no right answers to be compared.
    Without PATH it runs over the document questions that come with the project.
    """
    if suite and paths:
        raise click.UsageError("--suite has files of its own: leave out PATH, or --suite.")
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import quality as measurement
    from benchmarks import quality_report
    from benchmarks.tasks import own_questions, read_questions
    from benchmarks.tasks import suite as files_of

    files = [*files_of(suite).values()] if suite else [Path(path) for path in paths] or [own_questions()]
    questions = read_questions(files, metric=metric or "", limit=limit)
    try:
        with progress_bar() as progress:
            measured = measurement.run(
                options.name,
                questions,
                measurement.variants(scope, repair),
                device=options.device,
                dtype=options.dtype,
                weights=options.weights,
                quantize=options.quantize,
                placement=placement,
                most_tokens=max_tokens,
                folder=folder,
                progress=progress,
            )
    except KeyboardInterrupt:
        if folder is None:
            raise
        say(f"Interrupted. The samples are in {folder}: the same command goes on from there.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    if folder is not None:
        quality_report.write(folder, measured)
    if as_json:
        print_json(measured)
        return
    several = len(measured["files"]) > 1
    for name, report in measured["files"].items():
        if several:
            say(f"{name}\n")
        if report["results"]:
            say(f"{_quality_table(report['results'])}\n")
        say(f"{quality_report.notes(report)}\n")
        if suite:
            say(f"{_groups_table(report)}\n")
    if several:
        say(f"all files, {measured['all'][0]['prompts']} prompts\n\n{_quality_table(measured['all'])}\n")
    say(f"{quality_report.where(measured)}\n\n{quality_report.READING}")
    if folder is not None:
        say(f"\nThe tables, charts and samples are in {folder}.")


def _quality_table(results: list[dict[str, Any]]) -> str:
    from benchmarks.quality_report import HEAD, cells

    return table([*HEAD], cells(results))


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
