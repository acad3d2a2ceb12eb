"""`pml bench`: times and qualities that can be measured again, on any model; a file for each theme."""

from __future__ import annotations

import click

from app.cli.bench.quality import quality
from app.cli.bench.regress import regress
from app.cli.bench.store import store
from app.cli.bench.suite import suite
from app.cli.bench.times import decode, first, guesses, ttft


@click.group()
def bench() -> None:
    """Measure speed and quality on this machine."""


for command in (suite, ttft, decode, guesses, first, quality, store, regress):
    bench.add_command(command)
