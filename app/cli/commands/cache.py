"""`pml cache`: the store of segments as it is."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.base.sizes import size
from app.cli.base.files import require_place
from app.cli.base.options import cache_dir_option, debug_option, json_option
from app.cli.base.output import agreed, counted, inline, print_json, progress_bar, say, table
from app.cli.base.param_types import Age, Name, Size, UserPath, days
from engine.base.errors import StoreError
from engine.base.stopwatch import milliseconds
from engine.base.tiers import Outcome, Reason
from engine.prompt.conversation.search import forget

if TYPE_CHECKING:
    from engine.store import Store

_GOING = {
    "cost": "Segments that are cheapest to recompute per MiB are evicted first; recent use counts for them.",
    "lru": "Least recently used segments are evicted first.",
}


@click.group()
def cache() -> None:
    """Look at the stored segments, verify, bound, move or delete them."""


@cache.command()
@cache_dir_option
@json_option
@debug_option
def stats(cache_dir: Path | None, as_json: bool) -> None:
    """Show how much is stored, how often it was used, and why something was not there."""
    with _open(cache_dir) as store:
        found, pins, gone = store.stats(), store.settings.pins(), store.evictions(20)
        ends, warnings = store.settings.pinned_until(), store.settings.warnings
    for warning in warnings:
        say(f"pml: {warning}", err=True)
    if as_json:
        said = {"pins": pins, "pinned_until": ends, "evictions": gone, "warnings": list(warnings)}
        print_json({**found.to_json(), **said})
        return
    asked = found.hits + found.misses
    rate = f" ({found.hits / asked:.0%})" if asked else ""
    say(
        f"{counted(found.segments, 'segment')}, {size(found.bytes)} of {size(found.budget)} "
        f"({found.policy}, {found.scheme}); {size(found.disk_free)} left on the disk"
    )
    say(f"{found.hits} of {counted(asked, 'look-up')} found what they asked for{rate}")
    say(f"{counted(found.corrupt, 'damaged file')} met and computed again, {found.evicted} evicted")
    if pins:
        say(f"pinned: {_pins(pins, ends)}, {size(found.pinned)}")
    if found.kept_until is not None:
        last = _moment(found.kept_until)
        say(f"kept for a time to live: {size(found.kept)}, the last of it until {last} if it is not read")
    if found.max_age is not None:
        say(f"what was not used for {days(found.max_age)} goes")
    if found.served:
        rows = [
            [
                row["tier"] if row["outcome"] == Outcome.HIT else f"miss: {row['reason']}",
                str(row["count"]),
                size(row["bytes"]),
                milliseconds(row["ms"] / max(1, row["count"])),
            ]
            for row in found.served
        ]
        say("\n" + table(["FOUND IN", "SEGMENTS", "BYTES", "EACH"], rows))


@cache.command(name="list")
@cache_dir_option
@json_option
@debug_option
def list_(cache_dir: Path | None, as_json: bool) -> None:
    """List the stored segments, the last used first."""
    with _open(cache_dir) as store:
        rows = store.segments()
    if as_json:
        print_json({"segments": rows})
    elif rows:
        say(_as_table(rows))
    else:
        say("Nothing is stored yet. `pml encode SCHEMA` fills the store; so does a run.")


@cache.command()
@cache_dir_option
@json_option
@debug_option
def misses(cache_dir: Path | None, as_json: bool) -> None:
    """List the latest segments that were asked for and not there, each with the reason."""
    with _open(cache_dir) as store:
        found = store.misses()
    meanings = {reason.value: reason.meaning for reason in Reason}
    if as_json:
        print_json({"misses": [{**row, "meaning": meanings.get(row["reason"], "")} for row in found]})
    elif found:
        rows = [
            [
                row["schema"] or "-",
                row["path"] or "(fixed text)",
                f"{row['reason']}: {meanings.get(row['reason'], 'not known')}",
                _moment(row["at"]),
                milliseconds(row["ms"]),
            ]
            for row in found
        ]
        say(table(["SCHEMA", "MODULE", "WHY", "ASKED FOR", "COMPUTED IN"], rows, left=4))
    else:
        say("Nothing was asked for that was not there.")


@cache.command(name="next")
@click.argument("free", type=Size(), metavar="SIZE")
@cache_dir_option
@json_option
@debug_option
def next_(free: int, cache_dir: Path | None, as_json: bool) -> None:
    """List what the budget would evict for SIZE more, in that order; nothing is removed."""
    with _open(cache_dir) as store:
        found = store.next_out(free)
    if as_json:
        print_json(found.to_json())
        return
    if not found.total.segments and not found.missing:
        say(f"Nothing would go: {size(found.spare)} of the budget of {size(found.budget)} are free.")
        return
    if found.first:
        rows = [
            [
                row["schema"] or "-",
                row["path"] or "(fixed text)",
                str(row["tokens"]),
                size(row["bytes"]),
                milliseconds(1000 * row["seconds"]),
                _moment(row["last_used"]),
            ]
            for row in found.first
        ]
        say(table(["SCHEMA", "MODULE", "TOKENS", "SIZE", "COMPUTED IN", "LAST USED"], rows, left=2) + "\n")
    say(f"{counted(found.total.segments, 'segment')}, {size(found.total.bytes)}, would go for {size(free)}.")
    say(_GOING[found.policy])
    if found.missing:
        lacking = size(found.missing)
        rest = "the rest is pinned, kept or in use, or the budget is too small"
        say(f"{lacking} would still be lacking: {rest}.")


@cache.command()
@click.option("--pinned", is_flag=True, help="Delete the segments of pinned schemas too.")
@click.option("--conversation", is_flag=True, help="Delete earlier turns of conversations, and nothing else.")
@cache_dir_option
@json_option
@debug_option
def clear(pinned: bool, conversation: bool, cache_dir: Path | None, as_json: bool) -> None:
    """Delete all stored segments except pinned ones. They are computed again when needed.

    What is kept for a time to live is deleted too: that holds against eviction only. The indexes that pml
    ask has kept go as well. A studio that runs on this store lets go of what it holds in memory before its
    next answer.
    """
    with _open(cache_dir) as store:
        removed = store.clear(pinned=pinned, conversation=conversation)
        if not conversation:
            forget(store.folder)
        kept = store.stats().segments
    words = f"Deleted {counted(removed, 'segment')}."
    if kept and not pinned and not conversation:
        words += f" {counted(kept, 'pinned segment')} stayed; --pinned deletes them too."
    _say({"removed": removed, "kept": kept}, words, as_json)


@cache.command()
@click.option(
    "--repair",
    is_flag=True,
    help="Set damage aside, remove stray files of the store, rebuild a damaged index.",
)
@cache_dir_option
@json_option
@debug_option
def verify(repair: bool, cache_dir: Path | None, as_json: bool) -> int:
    """Read every stored file and compare it with the index. Exit status 1 if something is wrong."""
    with _open(cache_dir) as store, progress_bar() as progress:
        found = store.verify(repair=repair, progress=progress)
    if as_json:
        print_json(found.to_json())
        return 0 if found.clean else 1
    pace = found.bytes / found.seconds if found.seconds else 0
    if found.index:
        say(inline(found.index))
    say(f"{counted(found.segments, 'segment')} read, {size(found.bytes)} at {size(int(pace))} a second")
    for fault in (*found.faults, *found.unread):
        say(f"{inline(fault.key)}: {inline(fault.what)}")
    for name in found.orphans:
        say(f"{inline(name)}: belongs to no segment")
    for name in found.foreign:
        say(f"{inline(name)}: is none of the store's, and stays as it is")
    if found.clean:
        say("Index and files agree.")
    elif found.repaired:
        say("What was wrong is set aside, removed or rebuilt; what is gone is computed when needed.")
    elif repair:
        say("Nothing was repaired: the index cannot be written just now.")
    else:
        say("Run it with --repair to set this right.")
    if found.unsure:
        say(f"Files without a segment were not looked for: {inline(found.unsure)}")
    return 0 if found.clean else 1


@cache.command()
@click.option("--max-bytes", type=Size(), metavar="SIZE", help="Evict down to this, for example 5GB.")
@click.option(
    "--older-than", type=Age(), metavar="AGE", help="Evict what was not used for this long, for example 30d."
)
@cache_dir_option
@json_option
@debug_option
def prune(max_bytes: int | None, older_than: float | None, cache_dir: Path | None, as_json: bool) -> None:
    """Evict segments by size or age. Pinned schemas stay, and what is kept for a time to live."""
    if max_bytes is None and older_than is None:
        raise click.UsageError("say what to evict: --max-bytes, --older-than, or both.")
    with _open(cache_dir) as store:
        removed = store.prune(max_bytes=max_bytes, older_than=older_than)
    _say(
        removed.to_json(), f"Evicted {counted(removed.segments, 'segment')}, {size(removed.bytes)}.", as_json
    )


@cache.command()
@click.argument("most", type=Size(), metavar="SIZE", required=False)
@click.option(
    "--policy",
    type=Name(["cost", "lru"]),
    help="What goes first: what is cheapest to compute again for its bytes, or the least recently used.",
)
@click.option(
    "--max-age",
    type=Age(none=True),
    metavar="AGE",
    help="Evict what was not used for this long, for example 30d, at openings and writes; none for never.",
)
@click.option("--yes", is_flag=True, help="Evict what the new budget has no room for without asking.")
@cache_dir_option
@json_option
@debug_option
def budget(
    most: int | None,
    policy: Any,
    max_age: float | None,
    yes: bool,
    cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Show or set, for good, the most that the store may take, for example 50GB, and for how long.

    A smaller budget evicts what it has no room for: that is asked about first, or takes --yes where nobody
    can answer. With 0 all but pinned and kept segments go, and nothing is stored any more.
    """
    with _open(cache_dir) as store:
        before = store.stats()
        if most is not None and not yes:
            _ask_to_evict(store, most)
        if max_age is not None:
            store.set_max_age(max_age if max_age < math.inf else None)
        if most is not None or policy is not None:
            store.set_budget(store.settings.budget if most is None else most, policy)
        after, warnings = store.stats(), store.settings.warnings
    found: dict[str, Any] = {"budget": after.budget, "policy": after.policy, "max_age": after.max_age}
    age = "" if after.max_age is None else f"; what was not used for {days(after.max_age)} goes"
    words = f"The store may take {size(after.budget)}, {after.policy}{age}."
    if (most, policy, max_age) != (None, None, None):
        gone, freed = before.segments - after.segments, before.bytes - after.bytes
        found |= {"evicted": {"segments": gone, "bytes": freed}}
        words += f" Evicted {counted(gone, 'segment')}, {size(freed)}." if gone else ""
    _say(found | {"warnings": list(warnings)}, words, as_json, warnings)


def _ask_to_evict(store: Store, most: int) -> None:
    surplus = store.surplus(most)
    if not surplus.segments:
        return
    what = f"A budget of {size(most)} evicts {counted(surplus.segments, 'segment')}, {size(surplus.bytes)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{what}. Nothing was changed; give --yes to have it so.")
    if not agreed(f"{what}; what is needed again is computed again. Go on?"):
        raise StoreError("the budget stays as it was; nothing was evicted.")


@cache.command()
@click.argument("scheme", type=Name(["plain", "int8", "int4"]), required=False)
@cache_dir_option
@json_option
@debug_option
def scheme(scheme: Any, cache_dir: Path | None, as_json: bool) -> None:
    """Show or set how keys and values of new segments are stored: plain, or in 8 or 4 bits."""
    with _open(cache_dir) as store:
        if scheme is not None:
            store.settings.set_scheme(scheme)
        found = store.settings.scheme
    _say({"scheme": found}, f"New segments are stored {'in ' if found != 'plain' else ''}{found}.", as_json)


@cache.command()
@click.argument("schema", metavar="NAME")
@click.option(
    "--for",
    "seconds",
    type=Age(),
    metavar="AGE",
    help="For how long, for example 1h, from now on, whatever was said before; without it for good.",
)
@cache_dir_option
@json_option
@debug_option
def pin(schema: str, seconds: float | None, cache_dir: Path | None, as_json: bool) -> None:
    """Keep all segments of the schema with this name from being evicted, for good or for a time."""
    with _open(cache_dir) as store:
        store.settings.pin(schema, seconds)
        pins, ends = store.settings.pins(), store.settings.pinned_until()
        warnings = store.settings.warnings
    found = {"pins": pins, "pinned_until": ends, "warnings": list(warnings)}
    _say(found, f"Pinned: {_pins(pins, ends)}.", as_json, warnings)


@cache.command()
@click.argument("schema", metavar="NAME")
@cache_dir_option
@json_option
@debug_option
def unpin(schema: str, cache_dir: Path | None, as_json: bool) -> None:
    """Take a pin away."""
    with _open(cache_dir) as store:
        if not store.settings.unpin(schema):
            raise StoreError(f"schema {schema!r} is not pinned. pml cache stats shows what is.")
        pins = store.settings.pins()
    _say({"pins": pins}, f"Unpinned {inline(schema)}.", as_json)


@cache.command(name="export")
@click.argument("target", type=UserPath(path_type=Path), metavar="FILE")
@click.option("--schema", metavar="NAME", help="Only the segments of the schema with this name.")
@click.option("--conversation", is_flag=True, help="Earlier turns of conversations too.")
@click.option("--force", is_flag=True, help="Replace the file where it is there already.")
@cache_dir_option
@json_option
@debug_option
def export_(
    target: Path, schema: str | None, conversation: bool, force: bool, cache_dir: Path | None, as_json: bool
) -> None:
    """Write segments into one file, for the store of another machine.

    Whoever has the file can read the text of its modules.
    """
    require_place(target, force=force)
    with _open(cache_dir) as store, progress_bar() as progress:
        moved = store.export(target, schema, progress, conversation=conversation, replace=force)
    words = f"Wrote {counted(moved.segments, 'segment')}, {size(moved.bytes)}."
    if moved.left_out:
        words += f" Left out {moved.left_out} of conversations; --conversation includes them."
    _say(moved.to_json(), words, as_json, (f"left out: {what}." for what in moved.unfit))


@cache.command(name="import")
@click.argument("source", type=UserPath(path_type=Path), metavar="FILE")
@cache_dir_option
@json_option
@debug_option
def import_(source: Path, cache_dir: Path | None, as_json: bool) -> None:
    """Take in what `pml cache export` wrote, each segment verified. They serve the same model only."""
    with _open(cache_dir) as store, progress_bar() as progress:
        moved = store.import_(source, progress)
    known = f"; {moved.known} were there already" if moved.known else ""
    _say(
        moved.to_json(), f"Took in {counted(moved.segments, 'segment')}, {size(moved.bytes)}{known}.", as_json
    )


def _say(found: Mapping[str, object], words: str, as_json: bool, warnings: Iterable[str] = ()) -> None:
    if as_json:
        print_json(found)
    else:
        say(words)
    for warning in warnings:
        say(f"pml: {inline(warning)}", err=True)


@contextmanager
def _open(cache_dir: Path | None) -> Iterator[Store]:
    from engine.store import Store

    store = Store.open(cache_dir)
    try:
        yield store
    finally:
        store.close()


def _pins(pins: Iterable[str], ends: Mapping[str, float]) -> str:
    return ", ".join(
        inline(schema) + (f" until {_moment(ends[schema])}" if schema in ends else "") for schema in pins
    )


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _as_table(segments: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        [
            segment["schema"] or "-",
            segment["path"] or "(fixed text)",
            segment["scope"],
            segment["model"],
            str(segment["tokens"]),
            size(segment["bytes"]),
            str(segment["hits"]),
            _moment(segment["last_used"]),
        ]
        for segment in segments
    ]
    head = ["SCHEMA", "MODULE", "SCOPE", "MODEL", "TOKENS", "SIZE", "HITS", "LAST USED"]
    return table(head, rows, left=4)
