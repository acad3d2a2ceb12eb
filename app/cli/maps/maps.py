"""`pml maps`: builds, lists and removes stored attention maps."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from app.base.sizes import size
from app.cli.base.options import ModelOptions, debug_option, engine_options, json_option
from app.cli.base.output import a_line_a_minute, counted, print_json, progress_bar, say, table
from app.cli.base.param_types import DOCUMENT, Size, UserPath, Whole
from app.cli.commands.batch import opened, time_words
from app.cli.embeddings.text_rows import read_text_rows

_SHOWN = 20  # entries on the terminal
_folder = click.argument("folder", type=UserPath(path_type=Path))


@click.group()
def maps() -> None:
    """Build, list or remove attention maps, which `pml embed` and `pml decide` reuse for similar texts."""


@maps.command()
@click.argument("corpus", type=DOCUMENT)
@click.option(
    "--maps",
    "folder",
    required=True,
    type=UserPath(path_type=Path),
    metavar="FOLDER",
    help="The folder of the maps. An existing one gets more texts.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="Column with the texts, as in `pml embed`; give it twice for two. Default: text.",
)
@click.option(
    "--template",
    metavar="NAME_OR_FILE",
    help="The template of `pml embed` for these texts. Default: the text alone.",
)
@click.option(
    "--budget",
    type=Size(),
    metavar="SIZE",
    help="Most bytes of all maps. Texts that do not fit are left out. Default: 2GiB.",
)
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Seed of the training.")
@engine_options
@json_option
@debug_option
def build(
    corpus: str,
    folder: Path,
    columns: tuple[str, ...],
    template: str | None,
    budget: int | None,
    seed: int,
    as_json: bool,
    **engine_choice: Any,
) -> None:
    """Run the texts of CORPUS once and store their attention maps: lines, CSV, TSV or JSONL, or `-`.

    Then a small network learns to find texts with similar maps. The same command continues an interrupted
    build.
    """
    if len(columns) > 2:
        raise click.UsageError("--column takes one column, or two")
    with opened(corpus) as file:
        from engine.files.text_files import Lines

        rows = read_text_rows(Lines(file, corpus), corpus, columns, None)
    engine = click.get_current_context().with_resource(ModelOptions(**engine_choice).open())
    from engine.embeddings.templates import BUILT_IN
    from engine.maps.build import building
    from engine.maps.passes import MapPasses
    from engine.maps.projector import Training
    from engine.maps.store import BUDGET, MapStore

    source = template if template is None or template in BUILT_IN else Path(template)
    embedder = engine.embedder("last", source)
    texts = [text for row in rows.texts for text in row]
    embedder.require(texts)
    tokens = [embedder.template.around(text)[0] for text in texts]
    passes = MapPasses(engine.model.network, engine.model.name)
    store = MapStore.create(folder, engine.model, passes.heads)
    started, before = time.monotonic(), len(store.entries)
    with progress_bar() as bar:
        minutely = a_line_a_minute(of_total=True)

        phase: dict[str, tuple[float, int]] = {}

        def tell(done: int, total: int, what: str) -> None:
            since, first = phase.setdefault(what, (time.monotonic(), done))
            words = what
            if done > first:
                rate = (done - first) / max(time.monotonic() - since, 1e-3)
                speed = f"{rate:.1f} texts/s" if what == "texts" else what
                words = f"{speed}, {time_words((total - done) / rate)} left"
            for report in (bar, minutely):
                report(done, total, words)

        try:
            work = building(passes, store, tokens, BUDGET if budget is None else budget, Training(seed=seed))
            built = engine.computing.finish(work, "uncached", progress=tell)
        except KeyboardInterrupt:
            made = counted(len(store.entries) - before, "new text")
            say(f"pml: the maps of {made} are in {folder}. The same command continues.", err=True)
            raise
    report = {
        "model": engine.model.name,
        "entries": len(store.entries),
        "bytes": store.bytes,
        "new": built.new,
        "known": built.known,
        "left_out": built.left_out,
        "losses": list(built.losses),
        "seconds": round(time.monotonic() - started, 3),
    }
    if as_json:
        print_json(report)
    else:
        say(f"{counted(len(store.entries), 'text')} with {size(store.bytes)} of maps in {folder}.")
    if built.left_out:
        say(f"pml: {counted(built.left_out, 'text')} left out: the budget is full (--budget).", err=True)
    say(f"pml: {built.new} new, {built.known} known; {report['seconds']} s.", err=True)


@maps.command(name="list")
@_folder
@json_option
@debug_option
def list_(folder: Path, as_json: bool) -> None:
    """List the stored maps of FOLDER, the last used first."""
    from engine.maps.store import MapStore

    store = MapStore.open(folder)
    entries = sorted(store.entries.values(), key=lambda entry: -entry.used)
    rows = [
        {
            "key": entry.key,
            "tokens": entry.rows,
            "bytes": entry.bytes,
            "used": datetime.fromtimestamp(entry.used / 1e9).astimezone().isoformat(timespec="seconds"),
        }
        for entry in entries
    ]
    if as_json:
        made = store.made
        print_json({"model": made.model, "dtype": made.dtype, "bytes": store.bytes, "entries": rows})
        return
    shown = [
        [str(row["key"]), str(row["tokens"]), size(entry.bytes), str(row["used"])]
        for row, entry in zip(rows[:_SHOWN], entries, strict=False)
    ]
    say(table(["", "TOKENS", "SIZE", "LAST USE"], shown))
    more = f", {len(rows) - _SHOWN} not shown" if len(rows) > _SHOWN else ""
    say(f"{counted(len(rows), 'text')} of {store.made.model}, {size(store.bytes)}{more}.")


@maps.command()
@_folder
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--all", "everything", is_flag=True, help="Remove all maps.")
@json_option
@debug_option
def remove(folder: Path, keys: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Remove stored maps of FOLDER by KEY, as `pml maps list` shows it."""
    from engine.maps.store import MapStore

    if everything == bool(keys):
        raise click.UsageError("Name keys, or give --all.")
    store = MapStore.open(folder)
    before = store.bytes
    with store.building():
        if unknown := [key for key in keys if key not in store.entries]:
            raise click.UsageError(f"{folder} has no maps {', '.join(unknown)}; see pml maps list.")
        chosen = [*store.entries] if everything else [*dict.fromkeys(keys)]
        store.remove(chosen)
    if as_json:
        print_json({"removed": len(chosen), "bytes": before - store.bytes})
    else:
        say(f"Removed {counted(len(chosen), 'text')}, {size(before - store.bytes)}.")
