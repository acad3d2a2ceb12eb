"""`pml bench`: times that can be repeated, on the bundled model or on random weights of a known shape."""

from __future__ import annotations

import sys
from typing import Any

import click

from app.cli.options import ModelOptions, debug_option, json_option, model_options
from app.cli.output import milliseconds, print_json, table


@click.group()
def bench() -> None:
    """Measure speed on this machine."""


@bench.command()
@click.option(
    "--cached", type=click.IntRange(1), default=1024, show_default=True, help="Tokens in stored modules."
)
@click.option(
    "--modules", type=click.IntRange(1), default=8, show_default=True, help="Modules they are split over."
)
@click.option("--new", type=click.IntRange(1), default=32, show_default=True, help="New tokens after them.")
@click.option(
    "--repeats", type=click.IntRange(1), default=5, show_default=True, help="Measured runs of each kind."
)
@model_options
@json_option
@debug_option
def ttft(cached: int, modules: int, new: int, repeats: int, as_json: bool, **model_choice: Any) -> None:
    """Time to first token: uncached, from segments in memory and on disk, and the floor.

    The kinds take turns after a warm-up, and the uncached side has the best attention there is. `floor` is
    the forward pass of the new tokens with nothing before them; `copy` and `concat` bring the modules into
    one buffer first, a kept one or a fresh one. With --model random:tinyllama-1.1b a model of that shape is
    timed without a download.
    """
    if cached < modules:
        raise click.UsageError(
            f"--cached {cached} cannot be split over --modules {modules}: a module needs a token."
        )
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import ttft as measurement

    report = measurement.run(
        options.name,
        device=options.device,
        dtype=options.dtype,
        cached=cached,
        modules=modules,
        new=new,
        repeats=repeats,
        progress=_narrate if sys.stderr.isatty() else None,
    )
    if as_json:
        print_json(report)
    else:
        click.echo(_as_table(report))


def _narrate(what: str) -> None:
    click.echo(what, err=True)


def _as_table(report: dict[str, Any]) -> str:
    results = report["results"]
    medians = {result["name"]: result["median_ms"] for result in results}
    slowest = medians.get("uncached")
    rows = [
        [
            result["name"],
            milliseconds(result["median_ms"]),
            f"{milliseconds(min(result['samples_ms']))} to {milliseconds(max(result['samples_ms']))}",
            f"{slowest / result['median_ms']:.1f}" if slowest else "-",
        ]
        for result in results
    ]
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    return f"{table(['', 'MEDIAN', 'RANGE', 'UNCACHED ÷'], rows)}\n\n{machine}"
