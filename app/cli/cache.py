"""`pml cache`: the store of segments as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
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
        print_json(found.to_json())
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
@cache_dir_option
@json_option
@debug_option
def clear(cache_dir: Path | None, as_json: bool) -> None:
    """Delete all stored segments; what is needed again is computed again."""
    with _open(cache_dir) as store:
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


def _as_table(segments: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        [
            segment["schema"] or "-",
            segment["path"] or "(anonymous)",
            segment["scope"],
            segment["model"],
            str(segment["tokens"]),
            size(segment["bytes"]),
            str(segment["hits"]),
            datetime.fromtimestamp(segment["last_used"]).strftime("%Y-%m-%d %H:%M"),
        ]
        for segment in segments
    ]
    head = ["SCHEMA", "MODULE", "SCOPE", "MODEL", "TOKENS", "SIZE", "HITS", "LAST USED"]
    return table(head, rows, left=4)
