"""`pml bench batch`: many prompts at once against one after the other."""

from __future__ import annotations

import sys
from typing import Any

import click

from app.cli.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.output import print_json, say, table
from app.cli.param_types import Whole
from engine.errors import PromptCacheError
from engine.stopwatch import milliseconds


@click.command()
@click.option("--prompts", type=Whole(1), default=8, show_default=True, help="Answered at once.")
@click.option(
    "--shared", type=Whole(1), default=2048, show_default=True, help="Tokens that all of them read."
)
@click.option("--modules", type=Whole(1), default=8, show_default=True, help="Modules they are split over.")
@click.option("--own", type=Whole(1), default=64, show_default=True, help="Tokens of each prompt's own text.")
@click.option("--new", type=Whole(2), default=64, show_default=True, help="Tokens of each answer.")
@click.option("--repeats", type=Whole(1), default=5, show_default=True, help="Measured runs of each kind.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of texts, orders and arrivals.")
@click.option(
    "--arrivals", is_flag=True, help="Also look for the rate of arrivals that each kind keeps up with."
)
@model_options
@quantize_option
@json_option
@debug_option
def batch(
    prompts: int,
    shared: int,
    modules: int,
    own: int,
    new: int,
    repeats: int,
    seed: int,
    arrivals: bool,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """Tokens per second of many prompts at once, and how long a newcomer waits for its first token.

    All prompts read the same stored modules and end with a text of their own. `one_by_one` answers them one
    after the other, `batch` together, `batch_reordered` together with the modules in another order in every
    prompt, and `batch_plain` with the same text as plain text, which is found to be the same at run time. The
    kinds take turns in orders that favour none, each after a run of its own to warm up.
    """
    from benchmarks import batch as measurement

    try:
        size = measurement.Size(prompts, shared, modules, own, new)
    except PromptCacheError as error:
        raise click.UsageError(str(error)) from error
    options = ModelOptions(cache_dir=None, **model_choice)
    report = measurement.run(
        options.name,
        size,
        device=options.device,
        dtype=options.dtype,
        weights=options.weights,
        quantize=options.quantize,
        repeats=repeats,
        seed=seed,
        arrivals=arrivals,
        progress=_narrate if sys.stderr.isatty() else None,
    )
    if as_json:
        print_json(report)
        return
    say(_words(report))


def _narrate(what: str) -> None:
    say(what, err=True)


def _words(report: dict[str, Any]) -> str:
    """The tables, and where it was measured."""
    rows = []
    for one in report["results"]:
        ratio = report["ratios"].get(f"one_by_one/{one['name']}")
        rate = f"{one['tokens_per_s']:.1f}" if "tokens_per_s" in one else "-"
        rows.append(
            [
                one["name"],
                milliseconds(one["median_ms"]),
                rate,
                *([f"{ratio[key]:.2f}" for key in ("ratio", "low", "high")] if ratio else ["-"] * 3),
            ]
        )
    lines = [table(["", "MEDIAN", "TOKENS/S", "× ONE BY ONE", "LEAST", "MOST"], rows), ""]
    came, waits = report["ratios"]["newcomer/alone"], report["decoders"]
    lines.append(
        f"A newcomer's first token takes {came['ratio']:.2f} ({came['low']:.2f} to {came['high']:.2f}) times "
        f"as long among {report['among']} answers as alone. Between two tokens of these there are "
        f"{milliseconds(waits['step'])}, and at most {milliseconds(waits['gap'])} while it is read."
    )
    for name, one in report.get("arrivals", {}).items():
        lines.append(
            f"{name} keeps up with {one['rate']:.3g} prompts a second (a token takes up to twice as long as "
            "in a prompt by itself)."
        )
    if report["alone"]:
        lines.append(f"This model answers prompts one by one: {report['alone']}.")
    return "\n".join([*lines, ", ".join(f"{name} {value}" for name, value in report["machine"].items())])
