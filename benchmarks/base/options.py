"""The options of the commands, each with its default."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import click

from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, say
from app.cli.base.param_types import Whole
from benchmarks.base.case import Pace, Report, Size, words_of

HELP = {
    "blocks": "Texts of a request.",
    "cached": "Tokens in stored modules.",
    "damages": "Files to damage.",
    "kills": "Writers to kill.",
    "modules": "Modules of these tokens.",
    "new": "New tokens after them.",
    "own": "Tokens of each prompt's own text.",
    "prompts": "Prompts at once.",
    "questions": "Questions for the compression.",
    "repeats": "Samples of each side.",
    "rounds": "Turns of each side.",
    "seconds": "Seconds that four processes share a store.",
    "seed": "Seed of texts and orders.",
    "shared": "Tokens of the modules that all prompts share.",
    "tokens": "Tokens of each answer or text.",
}


def narrate(what: str) -> None:
    """Reports progress on a terminal."""
    if sys.stderr.isatty():
        say(what, err=True)


def numbers(**defaults: int) -> Callable[[Any], Any]:
    """Options for whole numbers, by name with their default."""

    def decorate(command: Any) -> Any:
        for name, default in reversed(defaults.items()):
            least = 0 if name in ("seed", "kills", "damages") else 1
            command = click.option(
                f"--{name.replace('_', '-')}",
                type=Whole(least),
                default=default,
                show_default=True,
                help=HELP[name],
            )(command)
        return command

    return decorate


def command(
    words: Callable[[Report], str] = words_of, *, model: bool = True, **defaults: int
) -> Callable[[Any], click.Command]:
    """Makes a command with model options, these numbers, --json and --debug."""

    def decorate(function: Callable[..., Report]) -> click.Command:
        @functools.wraps(function)
        def run(as_json: bool, **given: Any) -> None:
            if model:
                names = ("model", "device", "dtype", "weights", "quantize")
                given["options"] = ModelOptions(cache_dir=None, **{name: given.pop(name) for name in names})
            report = function(**given)
            if as_json:
                print_json(report)
            else:
                say(words(report))

        decorated: Any = debug_option(json_option(run))
        if model:
            decorated = model_options(quantize_option(decorated))
        return click.command()(numbers(**defaults)(decorated))

    return decorate


def size_of(options: ModelOptions, cached: int, modules: int, new: int, seed: int = 0) -> Size:
    """The size that options ask for."""
    given = options.loading
    dtype = given.pop("dtype")
    return Size("", options.name, dtype, cached, modules, new, seed, tuple(given.items()))


def pace_of(repeats: int, seed: int) -> Pace:
    return Pace(repeats, None, seed)
