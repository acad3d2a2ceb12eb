"""`pml bench regress`: two commits of a checkout against each other."""

from __future__ import annotations

import sys
from typing import Any

import click

from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, say, table
from app.cli.base.param_types import Number, Whole
from engine.base.stopwatch import milliseconds

NAMES = ("ttft_cached", "ttft_uncached", "first_run", "time_per_token", "pml_check", "pml_run")


@click.command()
@click.argument("old")
@click.argument("new")
@click.option("--cached", type=Whole(1), default=512, show_default=True, help="Tokens in stored modules.")
@click.option("--modules", type=Whole(1), default=8, show_default=True, help="Modules they are split over.")
@click.option("--new-tokens", type=Whole(1), default=32, show_default=True, help="New tokens after them.")
@click.option(
    "--rounds", type=Whole(1), default=6, show_default=True, help="How often each side has its turn."
)
@click.option("--repeats", type=Whole(1), default=3, show_default=True, help="Samples of a side in a round.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of texts, tokens and orders.")
@click.option(
    "--only",
    multiple=True,
    metavar="FIGURE",
    help=f"Only this figure; may be given again: {', '.join(NAMES)}.",
)
@click.option(
    "--bound",
    type=Number(0, min_open=True),
    help="Exit with status 1 where NEW takes more than this times as long as OLD, for instance 1.10, or a "
    "figure is lost. Without it nothing is judged.",
)
@model_options
@quantize_option
@json_option
@debug_option
@click.pass_context
def regress(
    context: click.Context,
    /,
    old: str,
    new: str,
    cached: int,
    modules: int,
    new_tokens: int,
    rounds: int,
    repeats: int,
    seed: int,
    only: tuple[str, ...],
    bound: float | None,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """Compare the commits OLD and NEW on this machine: is NEW slower?

    Works in a checkout: both are laid out by git in a folder that goes away. Each is asked by its own command
    line, in processes of its own, and the two take turns: time to first token cached and uncached, of a first
    run, per token, `pml check`, and `pml run` from the shell. A figure that a commit cannot give is named.
    Unless --model names one, a random one of a tenth of a billion weights is timed, random:llama-100m, and
    not the bundled model, whose passes cost less than what surrounds them.
    """
    if cached < modules:
        raise click.UsageError(
            f"--cached {cached} cannot be split over --modules {modules}: a module needs a token."
        )
    from benchmarks import regress as measurement

    if unknown := set(only) - set(measurement.NAMES):
        raise click.UsageError(
            f"--only {sorted(unknown)[0]!r} is no figure; use one of {', '.join(measurement.NAMES)}."
        )
    options = ModelOptions(cache_dir=None, **model_choice)
    chosen = {"--device": options.device, "--dtype": options.dtype, "--weights": options.weights}
    if options.quantize != "none":
        chosen["--quantize"] = options.quantize
    work = measurement.Work(
        options.model or measurement.Work.model,
        tuple(word for name, value in chosen.items() if value != "auto" for word in (name, str(value))),
        cached,
        modules,
        new_tokens,
        repeats,
        seed,
    )
    report = measurement.run(
        old, new, work, rounds=rounds, only=only, progress=_narrate if sys.stderr.isatty() else None
    )
    beyond = measurement.beyond(report, bound) if bound is not None else []
    if as_json:
        print_json({**report, "bound": bound, "beyond": beyond})
    else:
        say(_words(report, beyond, bound))
    if beyond:
        context.exit(1)


def _narrate(what: str) -> None:
    say(what, err=True)


def _words(report: dict[str, Any], beyond: list[str], bound: float | None) -> str:
    """The table, what is lacking, and where it was measured."""
    medians = {(one["name"], one["side"]): one["median_ms"] for one in report["results"]}
    rows = []
    for name in dict.fromkeys(one["name"] for one in report["results"]):
        sides = [medians.get((name, side)) for side in ("old", "new")]
        ratio = report["ratios"].get(name)
        rows.append(
            [
                name,
                *("-" if one is None else milliseconds(one) for one in sides),
                *([f"{ratio[key]:.2f}" for key in ("ratio", "low", "high")] if ratio else ["-"] * 3),
                "rounds disagree" if ratio and ratio["low"] < 1 < ratio["high"] else "",
            ]
        )
    lines = [table(["", "OLD", "NEW", "NEW ÷ OLD", "LEAST", "MOST", ""], rows), ""]
    lines += [f"{side}: {report[side]['name']} ({report[side]['commit'][:12]})" for side in ("old", "new")]
    lines += [f"{one['side']} has no {one['name']}: {one['why']}" for one in report["lacking"]]
    if bound is not None:
        lines.append(f"beyond {bound:g}: {', '.join(beyond) or 'nothing'}")
    return "\n".join([*lines, ", ".join(f"{name} {value}" for name, value in report["machine"].items())])
