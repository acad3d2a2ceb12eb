"""`python -m benchmarks`: a command for each module of measurements."""

from __future__ import annotations

import click

from app.cli.command import Root, main
from app.cli.lazy_group import Commands

NAME = "python -m benchmarks"
_NAMES = ("ttft", "first", "decode", "batch", "arrivals", "attention", "sweep", "serve", "reorder", "crowd")
_OTHERS = ("store", "quality", "regress", "suite", "results")
_FILES = {"arrivals": "batch", "reorder": "serve", "crowd": "serve"}


@click.group(
    cls=Root,
    commands=Commands({name: f"benchmarks.{_FILES.get(name, name)}:{name}" for name in (*_NAMES, *_OTHERS)}),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def bench() -> None:
    """Measure speed and quality on this machine."""


if __name__ == "__main__":
    main(None, bench, NAME)
