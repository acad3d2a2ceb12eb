"""`python -m benchmarks`: a command for each module of measurements."""

from __future__ import annotations

import click

from app.cli.command import Root, main
from app.cli.lazy_group import Commands

NAME = "python -m benchmarks"
_MODULES = {
    **{name: f"speed.{name}" for name in ("ttft", "first", "decode", "batch")},
    "arrivals": "speed.batch",
    **{name: f"speed.{name}" for name in ("attention", "sweep", "serve", "formats")},
    **dict.fromkeys(("reorder", "crowd"), "speed.serve"),
    "agents": "agents.agents",
    "store": "speed.store",
    "quality": "quality.quality",
    "decide": "quality.decide",
    "maps": "maps.maps",
    **{name: f"suite.{name}" for name in ("regress", "suite", "results")},
}


@click.group(
    cls=Root,
    commands=Commands({name: f"benchmarks.{module}:{name}" for name, module in _MODULES.items()}),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def bench() -> None:
    """Measure speed and quality on this machine."""


if __name__ == "__main__":
    main(None, bench, NAME)
