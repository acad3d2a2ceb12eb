"""`pml bench suite`: the figures that have goals, one after another."""

from __future__ import annotations

from pathlib import Path

import click

from app.cli.base.options import debug_option, json_option
from app.cli.base.output import print_json, say
from app.cli.base.param_types import Name, UserPath
from engine.base.errors import PromptCacheError


@click.command()
@click.option(
    "--out",
    "folder",
    type=UserPath(path_type=Path, file_okay=False),
    help="Takes a file for each part; what the same code has measured here before stays. Default: bench, or "
    "bench-tiny.",
)
@click.option(
    "--only", multiple=True, metavar="PART", help="Only this part, as T1 or lengths; may be given again."
)
@click.option("--again", is_flag=True, help="Measure anew what was measured before.")
@click.option(
    "--scale",
    type=Name(["full", "tiny"]),
    default="full",
    show_default=True,
    help="tiny: a minute on the bundled model, to see that it works; none of its figures means anything.",
)
@json_option
@debug_option
@click.pass_context
def suite(
    context: click.Context, folder: Path | None, only: tuple[str, ...], again: bool, scale: str, as_json: bool
) -> None:
    """Measure the figures that the project has goals for: an hour and more on two cores.

    Each part has a process of its own, and a file as soon as it is done: a suite that was interrupted goes on
    where it stopped. Other software takes turns with ours where it is installed. python -m benchmarks.results
    FOLDER writes the figures into the documents of a checkout.
    """
    from benchmarks.caveats import caveats
    from benchmarks.goals import goals_table
    from benchmarks.suite.parts import NOT_YET
    from benchmarks.suite.running import require_parts
    from benchmarks.suite.running import suite as measure
    from benchmarks.suite.scale import SCALES

    try:
        require_parts(only)
    except PromptCacheError as error:
        raise click.UsageError(str(error)) from error
    place = folder or Path("bench" if scale == "full" else f"bench-{scale}")
    reports = measure(place, SCALES[scale], only, _narrate, again=again)
    failed = {name: report["error"] for name, report in reports.items() if "error" in report}
    if as_json:
        print_json({"reports": reports, "failed": failed, "not_yet": NOT_YET})
    else:
        say(goals_table(reports))
        for sentence in caveats(reports):
            say(f"\n{sentence}")
        for name, needs in () if only else NOT_YET.items():
            say(f"{name} not yet: needs {needs}")
    if failed:
        say(f"pml: failed: {', '.join(failed)}", err=True)
        context.exit(1)


def _narrate(what: str) -> None:
    say(what, err=True)
