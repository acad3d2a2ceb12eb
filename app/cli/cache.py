"""`pml cache`: the store of segments as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.options import cache_dir_option, debug_option, json_option
from app.cli.output import counted, print_json, size, table

if TYPE_CHECKING:
    from engine.store import Store


@click.group()
def cache() -> None:
    """Look at the stored segments, or delete them."""


@cache.command()
@cache_dir_option
@json_option
@debug_option
def stats(cache_dir: Path | None, as_json: bool) -> None:
    """Show how much is stored and how often it was used."""
    with _open(cache_dir) as store:
        found = store.stats()
    if as_json:
        print_json(
            {
                "segments": found.segments,
                "bytes": found.bytes,
                "hits": found.hits,
                "misses": found.misses,
                "corrupt": found.corrupt,
            }
        )
        return
    asked = found.hits + found.misses
    rate = f" ({found.hits / asked:.0%})" if asked else ""
    click.echo(f"{counted(found.segments, 'segment')}, {size(found.bytes)}")
    click.echo(f"{found.hits} of {counted(asked, 'look-up')} found what they asked for{rate}")
    click.echo(f"{counted(found.corrupt, 'damaged file')} met and computed again")


@cache.command(name="list")
@cache_dir_option
@json_option
@debug_option
def list_(cache_dir: Path | None, as_json: bool) -> None:
    """List the stored segments, the last used first."""
    with _open(cache_dir) as store:
        rows = store.list()
    if as_json:
        print_json({"segments": rows})
    elif rows:
        click.echo(_as_table(rows))
    else:
        click.echo("Nothing is stored yet. `pml encode SCHEMA` fills the store; so does a run.")


@cache.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@cache_dir_option
@json_option
@debug_option
def clear(yes: bool, cache_dir: Path | None, as_json: bool) -> None:
    """Delete all stored segments; they are computed again when needed."""
    with _open(cache_dir) as store:
        held = store.stats()
        if held.segments and not yes and not as_json:
            click.confirm(
                f"Delete {counted(held.segments, 'segment')} ({size(held.bytes)})?", abort=True, err=True
            )
        removed = store.clear()
    if as_json:
        print_json({"removed": removed})
    else:
        click.echo(f"Deleted {counted(removed, 'segment')}.")


@contextmanager
def _open(cache_dir: Path | None) -> Iterator[Store]:
    from engine.store import Store

    store = Store.open(cache_dir)
    try:
        yield store
    finally:
        store.close()


def _as_table(segments: list[dict[str, Any]]) -> str:
    columns = list(segments[0])
    cells = [[str(segment[column]) for column in columns] for segment in segments]
    return table([column.upper() for column in columns], cells)
