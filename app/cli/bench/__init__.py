"""`pml bench`: times and qualities that can be measured again, on any model; a file for each theme."""

from __future__ import annotations

import click

from app.cli.lazy_group import Commands

_COMMANDS = {
    "batch": "app.cli.bench.batch:batch",
    "decode": "app.cli.bench.times:decode",
    "first": "app.cli.bench.times:first",
    "guesses": "app.cli.bench.times:guesses",
    "quality": "app.cli.bench.quality:quality",
    "reorder": "app.cli.bench.reorder:reorder",
    "regress": "app.cli.bench.regress:regress",
    "serve": "app.cli.bench.serve:serve",
    "store": "app.cli.bench.store:store",
    "suite": "app.cli.bench.suite:suite",
    "sweep": "app.cli.bench.sweep:sweep",
    "ttft": "app.cli.bench.times:ttft",
}


@click.group(commands=Commands(_COMMANDS))
def bench() -> None:
    """Measure speed and quality on this machine."""
