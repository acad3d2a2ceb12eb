"""Sweeps from the command line: times by one thing that changes from point to point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from app.cli.base.files import require_place, save
from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, say, table
from app.cli.base.param_types import Name, UserPath
from app.cli.command import INTERRUPTED
from app.models.model_fit import require_room
from app.studio.sweeps.measuring import Sweeping
from app.studio.sweeps.plan import AXES, Sweep, as_csv, parsed_values
from benchmarks.base.case import Report, place
from benchmarks.base.options import narrate, numbers
from engine.base.choices import RANDOM
from engine.base.errors import PromptCacheError
from engine.base.stopwatch import milliseconds


@click.command()
@click.argument("axis", type=Name([*AXES]), metavar="|".join(AXES))
@click.option("--at", multiple=True, metavar="VALUE", help="A point; may be given again. Default: the usual.")
@numbers(cached=512, modules=8, new=32, repeats=3, seed=0)
@click.option(
    "--csv",
    "target",
    type=UserPath(path_type=Path, dir_okay=False),
    help="Also write the results to this file.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@model_options
@quantize_option
@json_option
@debug_option
def sweep(
    axis: Any, at: tuple[str, ...], target: Path | None, force: bool, as_json: bool, **given: Any
) -> None:
    """Times by cached length, new tokens, modules, scope, repair, or prompts at once.

    At each point these ways take turns: `uncached`, `cached` from memory, `files` like the first load of a
    process, and `floor`, the new tokens alone. The studio's Benchmark page measures the same.
    """
    counts = [given.pop(name) for name in ("cached", "modules", "new", "repeats", "seed")]
    try:
        asked = Sweep(axis, parsed_values(axis, at), *counts)
    except PromptCacheError as error:
        raise click.UsageError(str(error)) from error
    if target is not None:
        require_place(target, force=force)
    options = ModelOptions(cache_dir=None, **given)
    if options.name.startswith(RANDOM):
        require_room(options.name, device=options.device, dtype=options.dtype, quantize=options.quantize)
    measured = Sweeping(
        options.load(), asked, lambda done, total, what: narrate(f"{done / total:4.0%} {what}")
    )
    status = 0
    try:
        measured.run()
    except KeyboardInterrupt:
        if not measured.report["results"]:
            raise
        status = INTERRUPTED
        say("Interrupted: these points were measured.", err=True)
    if target is not None:
        save(target, as_csv(measured.report), force=force)
    if as_json:
        print_json(measured.report)
    else:
        say(_words(measured.report))
    if status:
        raise click.exceptions.Exit(status)


def _words(report: Report) -> str:
    base = {one["value"]: one["median_ms"] for one in report["results"] if one["name"] == "uncached"}
    rows = []
    for one in report["results"]:
        samples, uncached = one["samples_ms"], base.get(one["value"])
        span = f"{milliseconds(min(samples))} to {milliseconds(max(samples))}"
        by = f"{uncached / one['median_ms']:.1f}" if uncached else "-"
        rate = f"{one['tokens_per_s']:.1f}" if "tokens_per_s" in one else "-"
        rows.append([str(one["value"]), one["name"], milliseconds(one["median_ms"]), span, by, rate])
    head = [report["sweep"]["axis"].upper(), "", "MEDIAN", "RANGE", "UNCACHED ÷", "TOKENS/S"]
    model = f"model {report['model']['name']}, {report['model']['dtype']}"
    return f"{table(head, rows, left=2)}\n\n{model}\n{place(report)}"
