"""`pml bench reorder`: what is read of blocks that have moved, with marks and with names."""

from __future__ import annotations

import sys
from typing import Any

import click

from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, say, table
from app.cli.base.param_types import Whole
from engine.base.stopwatch import milliseconds


@click.command()
@click.option("--blocks", type=Whole(2), default=3, show_default=True, help="Texts of a request.")
@click.option("--tokens", type=Whole(1), default=1300, show_default=True, help="Of each of them.")
@click.option("--repeats", type=Whole(1), default=7, show_default=True, help="Rounds, each with new texts.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of texts and orders.")
@model_options
@quantize_option
@json_option
@debug_option
def reorder(blocks: int, tokens: int, repeats: int, seed: int, as_json: bool, **model_choice: Any) -> None:
    """Times to the first text of blocks as A B C, and then as C A B.

    Asked of the HTTP server in both dialects: the last block marked, as vendors know it, and every block with
    a name. In each round the texts are new, and the first order computes them all.
    """
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import reorder as measurement

    report = measurement.run(
        options.name,
        **options.loading,
        blocks=blocks,
        tokens=tokens,
        repeats=repeats,
        seed=seed,
        progress=(lambda what: say(what, err=True)) if sys.stderr.isatty() else None,
    )
    if as_json:
        print_json(report)
        return
    rows = [
        [
            one["name"],
            milliseconds(one["first"]["median_ms"]),
            milliseconds(one["moved"]["median_ms"]),
            f"{one['moved']['read']:,} of {one['prompt']:,}",
        ]
        for one in report["results"]
    ]
    place = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    say(f"{table(['', 'FIRST', 'MOVED', 'TOKENS READ WHEN MOVED'], rows)}\n\n{place}")
