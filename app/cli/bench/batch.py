"""`pml bench batch`: many prompts at once against one after the other."""

from __future__ import annotations

import sys
from typing import Any

import click

from app.base.sizes import size
from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, say, table
from app.cli.base.param_types import Whole
from engine.base.errors import PromptCacheError
from engine.base.stopwatch import milliseconds


@click.command()
@click.option(
    "--prompts",
    type=Whole(1),
    multiple=True,
    default=(8,),
    show_default=True,
    help="Answered at once; may be given again.",
)
@click.option("--shared", type=Whole(1), default=2048, show_default=True, help="Tokens that all read.")
@click.option("--modules", type=Whole(1), default=8, show_default=True, help="Modules they are split over.")
@click.option("--own", type=Whole(1), default=64, show_default=True, help="Tokens of each prompt's own text.")
@click.option("--new", type=Whole(2), default=64, show_default=True, help="Tokens of each answer.")
@click.option("--repeats", type=Whole(1), default=5, show_default=True, help="Measured runs of each kind.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of texts, orders and arrivals.")
@click.option("--private", is_flag=True, help="Also prompts that share nothing: modules of their own.")
@click.option("--arrivals", is_flag=True, help="Also times by how many prompts arrive a second.")
@click.option("--beside", is_flag=True, help="Also llama.cpp, where it is installed; takes long.")
@click.option("--growing", is_flag=True, help="Also steps by how much each prompt has of its own.")
@model_options
@quantize_option
@json_option
@debug_option
def batch(
    prompts: tuple[int, ...],
    shared: int,
    modules: int,
    own: int,
    new: int,
    repeats: int,
    seed: int,
    private: bool,
    arrivals: bool,
    growing: bool,
    beside: bool,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """Tokens per second of many prompts at once, and how long a newcomer waits for its first token.

    All prompts read the same stored modules and end with a text of their own. `one_by_one` answers them one
    after the other, `batch` together, `batch_reordered` together with the modules in another order in every
    prompt, and `batch_plain` with the same text as plain text, which is found to be the same at run time.
    Beside each stands the most memory that keys and values of answers under way have taken. The kinds take
    turns in orders that favour none, each after a run of its own to warm up.
    """
    from benchmarks.batch import run
    from benchmarks.crowd import Size

    try:
        asked = Size(shared, modules, own, new)
    except PromptCacheError as error:
        raise click.UsageError(str(error)) from error
    options = ModelOptions(cache_dir=None, **model_choice)
    report = run(
        options.name,
        asked,
        prompts=prompts,
        device=options.device,
        dtype=options.dtype,
        weights=options.weights,
        quantize=options.quantize,
        repeats=repeats,
        seed=seed,
        private=private,
        arrivals=arrivals,
        growing=growing,
        beside=beside,
        progress=_narrate if sys.stderr.isatty() else None,
    )
    if as_json:
        print_json(report)
        return
    parts = (_answers, _newcomer, _arrivals, _growing, _beside, _place)
    say("\n\n".join(words for part in parts if (words := part(report))))


def _narrate(what: str) -> None:
    say(what, err=True)


def _answers(report: dict[str, Any]) -> str:
    rows = []
    for one in report["results"]:
        if "tokens_per_s" not in one:
            continue
        count = one["params"]["prompts"]
        ratio = report["ratios"].get(f"one_by_one/{one['name']} {count}")
        rows.append(
            [
                one["name"],
                str(count),
                milliseconds(one["median_ms"]),
                f"{one['tokens_per_s']:.1f}",
                f"{ratio['ratio']:.2f}" if ratio else "-",
                *(
                    [f"{ratio[key]:.2f}" for key in ("low", "high")]
                    if ratio and _varies(ratio)
                    else ["-"] * 2
                ),
                size(one["peak_bytes"]) if one["peak_bytes"] else "-",
            ]
        )
    head = ["", "PROMPTS", "MEDIAN", "TOKENS/S", "× ONE BY ONE", "LEAST ×", "MOST ×", "KEYS AND VALUES"]
    return table(head, rows)


def _varies(ratio: dict[str, float]) -> bool:
    """Whether it was measured more than once."""
    return ratio["low"] < ratio["high"]


def _ratio(ratio: dict[str, float]) -> str:
    """A ratio, and between which it lay."""
    span = f" ({ratio['low']:.2f} to {ratio['high']:.2f})" if _varies(ratio) else ""
    return f"{ratio['ratio']:.2f}{span}"


def _newcomer(report: dict[str, Any]) -> str:
    if report["decoders"] is None:
        return ""
    came, waits = report["ratios"]["newcomer/alone"], report["decoders"]
    return (
        f"A newcomer's first token takes {_ratio(came)} times as long "
        f"among {report['among']} answers as alone. Between two tokens of these there are "
        f"{milliseconds(waits['step'])}, and at most {milliseconds(waits['gap'])} while it is read."
    )


def _arrivals(report: dict[str, Any]) -> str:
    found = report["arrivals"]
    if found is None:
        return ""
    rows = [
        [
            kind,
            *("-" if ms is None else milliseconds(ms) for ms in times),
            f"{found['keeps_up'][kind]:.2f}" if found["keeps_up"][kind] else "-",
        ]
        for kind, times in found["ms_per_token"].items()
    ]
    head = ["PROMPTS A SECOND", *(f"{rate:.2f}" for rate in found["per_second"]), "KEEPS UP WITH"]
    return (
        f"{table(head, rows)}\nA token by prompts that arrive a second, waiting included; alone one takes "
        f"{milliseconds(found['alone_ms'])}. Who keeps up takes at most twice as long."
    )


def _growing(report: dict[str, Any]) -> str:
    found = report["growing"]
    if found is None:
        return ""
    rows = [[kind, *(f"{rate:.1f}" for rate in rates)] for kind, rates in found["tokens_per_s"].items()]
    return (
        f"{table(['OWN TOKENS', *map(str, found['tails'])], rows)}\nTokens a second of "
        f"{found['prompts']} prompts by how many tokens each has of its own."
    )


def _beside(report: dict[str, Any]) -> str:
    told = report["beside"]
    if told is None:
        return ""
    if told["absent"]:
        return f"llama.cpp was not measured: {told['absent']}"
    lines = []
    for kind, ratio in told["ratios"].items():
        theirs = f"llama.cpp:{kind}"
        first, rates = told["first_ms"], told["tokens_per_s"]
        lines.append(
            f"{told['version']}, beside {kind}, {told['prompts']} prompts: takes {_ratio(ratio)} "
            f"times as long as ours, {told['settings'][theirs]}: "
            f"{rates[theirs]:.1f} tokens a second against {rates[kind]:.1f}. In the mean a prompt has its "
            f"first token after {milliseconds(first[theirs])}, and after {milliseconds(first[kind])} of ours."
        )
    return "\n".join(lines)


def _place(report: dict[str, Any]) -> str:
    """Where it was measured, and why nothing went together where that is so."""
    lines = [", ".join(f"{name} {value}" for name, value in report["machine"].items())]
    if report["alone"]:
        lines.insert(0, f"This model answers prompts one by one: {report['alone']}.")
    return "\n".join(lines)
