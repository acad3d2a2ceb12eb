"""`pml bench ttft`, `decode`, `guesses` and `first`: times, the sides taking turns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from app.cli.base.documents import read_prompt, read_schema, require_sound
from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, say, table
from app.cli.base.param_types import DOCUMENT, UserPath, Whole
from engine.base.stopwatch import milliseconds
from engine.pml import bind

Command = TypeVar("Command", bound=Callable[..., Any])
_MODULES = click.option(
    "--modules", type=Whole(1), default=8, show_default=True, help="Modules they are split over."
)
_NEW = click.option("--new", type=Whole(1), default=32, show_default=True, help="New tokens after them.")
_REPEATS = click.option(
    "--repeats", type=Whole(1), default=5, show_default=True, help="Measured runs of each kind."
)
_SEED = click.option(
    "--seed", type=Whole(0), default=0, show_default=True, help="Of texts, tokens and orders."
)


def _cached(tokens: int) -> Callable[[Command], Command]:
    """The option --cached, with its default."""
    return click.option(
        "--cached", type=Whole(1), default=tokens, show_default=True, help="Tokens in stored modules."
    )


def _common(options: ModelOptions, repeats: int, seed: int) -> dict[str, Any]:
    """What every measurement here is told, by name."""
    return {
        "device": options.device,
        "dtype": options.dtype,
        "repeats": repeats,
        "seed": seed,
        "progress": _narrate if sys.stderr.isatty() else None,
    }


@click.command()
@_cached(1024)
@_MODULES
@_NEW
@_REPEATS
@_SEED
@model_options
@quantize_option
@json_option
@debug_option
def ttft(
    cached: int, modules: int, new: int, repeats: int, seed: int, as_json: bool, **model_choice: Any
) -> None:
    """Time to first token: uncached, from segments in memory and in files, repaired, and the floor.

    From the text of a prompt: parsing, binding, planning, loading and repair are in it. Files are read as
    later in a process (their digests were checked before), as at its first load (checked now), and cold.
    Rows that begin with tokens_ begin at token ids with the segments in hand: `floor` is the new tokens with
    nothing before them; `copy` and `concat` bring the modules into one buffer first, a kept or a fresh one.

    The kinds take turns in orders that favour none, each after a run of its own to warm up. With --model
    random:tinyllama-1.1b a model of that shape is timed without a download.
    """
    if cached < modules:
        raise click.UsageError(
            f"--cached {cached} cannot be split over --modules {modules}: a module needs a token."
        )
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import ttft as measurement

    report = measurement.run(
        options.name,
        **_common(options, repeats, seed),
        weights=options.weights,
        quantize=options.quantize,
        cached=cached,
        modules=modules,
        new=new,
    )
    _show(report, as_json)


@click.command()
@_cached(512)
@_MODULES
@click.option("--steps", type=Whole(2), default=16, show_default=True, help="Tokens of an answer.")
@_REPEATS
@_SEED
@model_options
@quantize_option
@json_option
@debug_option
def decode(
    cached: int, modules: int, steps: int, repeats: int, seed: int, as_json: bool, **model_choice: Any
) -> None:
    """Time per token of an answer after cached tokens, with plain and with packed weights in turn.

    A sample is the median step of one answer: from the token before to the text of this one. The model is
    held twice, once for each side, unless --weights names one. --quantize adds a side with rounded weights;
    all sides compute in bf16 then, unless --dtype names another format for the others.
    """
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import decode as measurement

    report = measurement.run(
        options.name,
        **_common(options, repeats, seed),
        cached=cached,
        modules=modules,
        steps=steps,
        sides=measurement.SIDES if options.weights == "auto" else (options.weights,),
        quantize=options.quantize,
    )
    if as_json:
        print_json(report)
        return
    rows = [
        [
            one["name"],
            one["params"]["dtype"],
            milliseconds(one["median_ms"]),
            milliseconds(min(one["samples_ms"])),
        ]
        for one in report["results"]
    ]
    about = {"model": options.name, **report["machine"]}
    del about["weights"]  # each row has its own
    machine = ", ".join(f"{name} {value}" for name, value in about.items())
    say(f"{table(['', 'IN', 'MEDIAN', 'LEAST'], rows)}\n\n{machine}")


@click.command()
@click.argument("prompts", nargs=-1, required=True, metavar="PROMPT...", type=UserPath(path_type=Path))
@click.option("--schema", required=True, type=UserPath(path_type=Path), help="Of the prompts.")
@click.option("--tokens", type=Whole(1), default=128, show_default=True, help="Of an answer, at most.")
@_REPEATS
@_SEED
@model_options
@quantize_option
@json_option
@debug_option
def guesses(
    prompts: tuple[Path, ...],
    schema: Path,
    tokens: int,
    repeats: int,
    seed: int,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """Passes and time per token of answers to each PROMPT, with guesses and without, in turns."""
    options = ModelOptions(cache_dir=None, **model_choice)
    over = read_schema(str(schema))
    for path in prompts:  # before a model is loaded for them
        prompt = read_prompt(str(path))
        require_sound(prompt.name, "prompt", prompt.source, bind(over.tree, prompt.tree).diagnostics)
    from benchmarks import guesses as measurement

    report = measurement.run(
        options.name,
        prompts,
        schema,
        **_common(options, repeats, seed),
        weights=options.weights,
        quantize=options.quantize,
        tokens=tokens,
    )
    if as_json:
        print_json(report)
        return
    rows = [
        [
            one["prompt"],
            str(one["tokens"]),
            f"{one['passes']['off']} / {one['passes']['on']}",
            f"{one['accepted']} of {one['drafted']}",
            f"{milliseconds(one['median_ms']['off'])} / {milliseconds(one['median_ms']['on'])}",
            "yes" if one["same_text"] else "NO",
        ]
        for one in report["results"]
    ]
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    head = ["", "TOKENS", "PASSES WITHOUT / WITH", "GUESSED RIGHT", "PER TOKEN", "SAME TEXT"]
    say(f"{table(head, rows)}\n\n{machine}")


@click.command()
@click.argument("documents", nargs=-1, metavar="[SCHEMA PROMPT]", type=DOCUMENT)
@_cached(1024)
@_MODULES
@_NEW
@_REPEATS
@_SEED
@model_options
@quantize_option
@json_option
@debug_option
def first(
    documents: tuple[str, ...],
    cached: int,
    modules: int,
    new: int,
    repeats: int,
    seed: int,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """Time to first token of a prompt of which nothing is stored, against no cache at all.

    Every run has an empty store. `first` writes behind the answer, `first_sync` before its first token, and
    `first_written` is over when all is written. Without SCHEMA and PROMPT the modules are drawn.
    """
    if len(documents) not in (0, 2):
        raise click.UsageError("name a schema and a prompt over it, or neither.")
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import first as measurement
    from engine.files.text_files import read_text_file

    texts = [read_text_file(Path(path)) for path in documents]
    report = measurement.run(
        options.name,
        **_common(options, repeats, seed),
        weights=options.weights,
        quantize=options.quantize,
        cached=cached,
        modules=modules,
        new=new,
        documents=(texts[0], texts[1]) if texts else None,
    )
    _show(report, as_json)


def _narrate(what: str) -> None:
    say(what, err=True)


def _show(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        say(_as_table(report))


def _as_table(report: dict[str, Any]) -> str:
    results = report["results"]
    medians = {result["name"]: result["median_ms"] for result in results}
    rows = []
    for result in results:
        level = "tokens_" if result["name"].startswith("tokens_") else ""
        slowest = medians.get(f"{level}uncached")
        rows.append(
            [
                result["name"],
                milliseconds(result["median_ms"]),
                f"{milliseconds(min(result['samples_ms']))} to {milliseconds(max(result['samples_ms']))}",
                f"{slowest / result['median_ms']:.1f}" if slowest else "-",
            ]
        )
    counts = report["tokens"]
    about = f"{counts['from_cache']:,} tokens from the cache, {counts['prompt'] - counts['from_cache']} new"
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    return f"{table(['', 'MEDIAN', 'RANGE', 'UNCACHED ÷'], rows)}\n\n{about}\n{machine}"
