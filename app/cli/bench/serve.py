"""`pml bench serve`: what the HTTP server adds to the engine."""

from __future__ import annotations

import sys
from typing import Any

import click

from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, say, table
from app.cli.base.param_types import Whole
from engine.base.stopwatch import milliseconds


@click.command()
@click.option(
    "--cached", type=Whole(1), default=1024, show_default=True, help="Tokens before the question, in memory."
)
@click.option("--new", type=Whole(1), default=32, show_default=True, help="Tokens of the question.")
@click.option("--tokens", type=Whole(2), default=64, show_default=True, help="Of each answer.")
@click.option("--repeats", type=Whole(1), default=15, show_default=True, help="Measured runs of each kind.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of texts and orders.")
@model_options
@quantize_option
@json_option
@debug_option
def serve(
    cached: int, new: int, tokens: int, repeats: int, seed: int, as_json: bool, **model_choice: Any
) -> None:
    """Milliseconds that the server adds to an answer's first text, and to each further one.

    The same prompt goes straight to the engine and, streamed, to each endpoint of a server of that engine, in
    turns, each after a run of its own to warm up. The server has a socket, and who reads from it is another
    process, which only takes bytes and notes when: no client's work is in any time.
    """
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import serve as measurement

    report = measurement.run(
        options.name,
        **options.loading,
        cached=cached,
        new=new,
        tokens=tokens,
        repeats=repeats,
        seed=seed,
        progress=_narrate if sys.stderr.isatty() else None,
    )
    if as_json:
        print_json(report)
    else:
        say("\n\n".join((_times(report), _goals(report), _place(report))))


def _narrate(what: str) -> None:
    say(what, err=True)


def _times(report: dict[str, Any]) -> str:
    beyond = {one["name"]: one for one in report["beyond"]}
    rows = []
    for result in report["results"]:
        added = beyond.get(result["name"])
        rows.append(
            [
                result["name"],
                *(milliseconds(result["first_ms"][name]) for name in ("median_ms", "least_ms")),
                _added(added["first_ms"]) if added else "-",
                *(milliseconds(result["token_ms"][name]) for name in ("median_ms", "least_ms")),
                _added(added["token_ms"]) if added else "-",
                "-" if added is None else "yes" if added["same_text"] else "NO",
            ]
        )
    times = ["LEAST", "BEYOND THE ENGINE"]
    return table(["", "FIRST TEXT", *times, "EACH MORE", *times, "SAME TEXT"], rows)


def _added(found: dict[str, float]) -> str:
    """What is added, in milliseconds; it may be less than nothing."""
    return f"{found['median']:.2f} ms ({found['low']:.2f} to {found['high']:.2f})"


def _goals(report: dict[str, Any]) -> str:
    rows = [
        [
            one["endpoint"],
            one["words"],
            f"{one['value']:.3f}",
            f"≤ {one['most']:g}",
            "met" if one["met"] else "missed",
        ]
        for one in report["goals"]
    ]
    return table(["", "GOAL", "MEASURED", "AT MOST", ""], rows)


def _place(report: dict[str, Any]) -> str:
    """What was asked, and where it was measured."""
    counts = (one for one in report["results"] if "prompt" in one)
    told = [f"{one['name']}: {one['read']:,} of {one['prompt']:,} tokens read from memory" for one in counts]
    return "\n".join([*told, ", ".join(f"{name} {value}" for name, value in report["machine"].items())])
