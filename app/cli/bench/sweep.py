"""`pml bench sweep`: times by one thing that changes from point to point."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import click

from app.cli.base.files import require_place, save
from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, say, table
from app.cli.base.param_types import Name, UserPath, Whole
from app.cli.command import INTERRUPTED
from engine.base.choices import RANDOM
from engine.base.errors import PromptCacheError
from engine.base.stopwatch import milliseconds

AXES = ("cached", "new", "modules", "scope", "repair", "prompts")


@click.command()
@click.argument("axis", type=Name([*AXES]), metavar="|".join(AXES))
@click.option("--at", multiple=True, metavar="VALUE", help="A point; may be given again. Default: the usual.")
@click.option("--cached", type=Whole(1), default=512, show_default=True, help="Tokens in stored modules.")
@click.option("--modules", type=Whole(1), default=8, show_default=True, help="Modules they are split over.")
@click.option("--new", type=Whole(1), default=32, show_default=True, help="New tokens after them.")
@click.option(
    "--repeats", type=Whole(1), default=3, show_default=True, help="Samples of each way, at a point."
)
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of texts, tokens and orders.")
@click.option(
    "--csv",
    "target",
    type=UserPath(path_type=Path, dir_okay=False),
    help="Also write the results into this file, a row to each way at each point.",
)
@click.option("--force", is_flag=True, help="Replace that file where it is there already.")
@model_options
@quantize_option
@json_option
@debug_option
def sweep(
    axis: Any,
    at: tuple[str, ...],
    cached: int,
    modules: int,
    new: int,
    repeats: int,
    seed: int,
    target: Path | None,
    force: bool,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """Times by cached length, new tokens, modules, scope, repair, or prompts at once.

    At each point the ways take turns, each after a run of its own to warm up: `uncached`, `cached` from
    memory, `files` at the first load of a process, and `floor`, the new tokens with nothing before them. The
    studio's Benchmark page measures the same, and keeps the same JSON. Interrupted, it tells the points that
    were measured.
    """
    from benchmarks.sweep import Sweep, as_csv, parsed_values

    try:
        asked = Sweep(axis, parsed_values(axis, at), cached, modules, new, repeats, seed)
    except PromptCacheError as error:
        raise click.UsageError(str(error)) from error
    if target is not None:
        require_place(target, force=force)
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks.sweeping import Sweeping

    if options.name.startswith(RANDOM):  # made, not read: what does not fit is found out too late
        from app.models.model_fit import require_room

        require_room(options.name, device=options.device, dtype=options.dtype, quantize=options.quantize)
    interrupted = False
    measured = Sweeping(options.load(), asked, _narrate if sys.stderr.isatty() else _nothing)
    try:
        measured.run()
    except KeyboardInterrupt:
        if not measured.report["results"]:
            raise
        interrupted = True
        say("Interrupted: these points were measured.", err=True)
    report = measured.report
    if target is not None:
        save(target, as_csv(report), force=force)
    if as_json:
        print_json(report)
    else:
        say(_as_table(report))
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _narrate(done: float, total: float, what: str) -> None:
    say(f"{done / total:4.0%} {what}", err=True)


def _nothing(done: float, total: float, what: str) -> None:
    pass


def _as_table(report: dict[str, Any]) -> str:
    slowest = {one["value"]: one["median_ms"] for one in report["results"] if one["name"] == "uncached"}
    rows = []
    for one in report["results"]:
        base, samples = slowest.get(one["value"]), one["samples_ms"]
        rows.append(
            [
                str(one["value"]),
                one["name"],
                milliseconds(one["median_ms"]),
                f"{milliseconds(min(samples))} to {milliseconds(max(samples))}",
                f"{base / one['median_ms']:.1f}" if base else "-",
                f"{one['tokens_per_s']:.1f}" if "tokens_per_s" in one else "-",
            ]
        )
    axis = cast(str, report["sweep"]["axis"])
    head = [axis.upper(), "", "MEDIAN", "RANGE", "UNCACHED ÷", "TOKENS/S"]
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    model = f"model {report['model']['name']}, {report['model']['dtype']}"
    return f"{table(head, rows, left=2)}\n\n{model}\n{machine}"
