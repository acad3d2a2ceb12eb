"""`pml cache`: manages the store of segments."""

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
    """List, verify, limit, move or delete the stored segments."""


@cache.command()
@cache_dir_option
@json_option
@debug_option
def stats(cache_dir: Path | None, as_json: bool) -> None:
    """Show how much is stored, how often it was used, and why segments were missing."""
    with _open(cache_dir) as store:
        stats, pins, evicted = store.stats(), store.settings.pins(), store.evictions(20)
        ends, warnings = store.settings.pinned_until(), store.settings.warnings
    for warning in warnings:
        say(f"pml: {warning}", err=True)
    if as_json:
        more = {"pins": pins, "pinned_until": ends, "evictions": evicted, "warnings": list(warnings)}
        print_json({**stats.to_json(), **more})
        return
    lookups = stats.hits + stats.misses
    rate = f" ({stats.hits / lookups:.0%})" if lookups else ""
    say(
        f"{counted(stats.segments, 'segment')}, {size(stats.bytes)} of {size(stats.budget)} "
        f"({stats.policy}, {stats.scheme}); {size(stats.disk_free)} left on the disk"
    )
    say(f"{stats.hits} of {counted(lookups, 'look-up')} hit{rate}")
    say(f"{counted(stats.corrupt, 'damaged file')} recomputed, {stats.evicted} evicted")
    if pins:
        say(f"pinned: {_pins(pins, ends)}, {size(stats.pinned)}")
    if stats.kept_until is not None:
        last = _moment(stats.kept_until)
        say(f"stored for a time to live: {size(stats.kept)}, until {last} at the latest unless read")
    if stats.max_age is not None:
        say(f"segments unused for {days(stats.max_age)} are evicted")
    if stats.served:
        rows = [
            [
                row["tier"] if row["outcome"] == Outcome.HIT else f"miss: {row['reason']}",
                str(row["count"]),
                size(row["bytes"]),
                milliseconds(row["ms"] / max(1, row["count"])),
            ]
            for row in stats.served
        ]
        say("\n" + table(["SOURCE", "SEGMENTS", "BYTES", "EACH"], rows))


@cache.command(name="list")
@cache_dir_option
@json_option
@debug_option
def list_(cache_dir: Path | None, as_json: bool) -> None:
    """List the stored segments, most recently used first."""
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
    """List the latest missing segments, each with the reason."""
    with _open(cache_dir) as store:
        latest = store.misses()
    meanings = {reason.value: reason.meaning for reason in Reason}
    if as_json:
        print_json({"misses": [{**row, "meaning": meanings.get(row["reason"], "")} for row in latest]})
    elif latest:
        rows = [
            [
                row["schema"] or "-",
                row["path"] or "(fixed text)",
                f"{row['reason']}: {meanings.get(row['reason'], 'not known')}",
                _moment(row["at"]),
                milliseconds(row["ms"]),
            ]
            for row in latest
        ]
        say(table(["SCHEMA", "MODULE", "WHY", "REQUESTED", "COMPUTED IN"], rows, left=4))
    else:
        say("No segment was missing.")


@cache.command(name="next")
@click.argument("free", type=Size(), metavar="SIZE")
@cache_dir_option
@json_option
@debug_option
def next_(free: int, cache_dir: Path | None, as_json: bool) -> None:
    """List the segments that the budget would evict for SIZE more. Nothing is removed."""
    with _open(cache_dir) as store:
        plan = store.next_out(free)
    if as_json:
        print_json(plan.to_json())
        return
    if not plan.total.segments and not plan.missing:
        say(f"Nothing would be evicted: {size(plan.spare)} of the budget of {size(plan.budget)} are free.")
        return
    if plan.first:
        rows = [
            [
                row["schema"] or "-",
                row["path"] or "(fixed text)",
                str(row["tokens"]),
                size(row["bytes"]),
                milliseconds(1000 * row["seconds"]),
                _moment(row["last_used"]),
            ]
            for row in plan.first
        ]
        say(table(["SCHEMA", "MODULE", "TOKENS", "SIZE", "COMPUTED IN", "LAST USED"], rows, left=2) + "\n")
    total = f"{counted(plan.total.segments, 'segment')}, {size(plan.total.bytes)}"
    say(f"{total}, would be evicted for {size(free)}.")
    say(_GOING[plan.policy])
    if plan.missing:
        lacking = size(plan.missing)
        rest = "the rest is pinned, within its time to live or in use, or the budget is too small"
        say(f"{lacking} would still be missing: {rest}.")


@cache.command()
@click.option("--pinned", is_flag=True, help="Delete the segments of pinned schemas too.")
@click.option("--conversation", is_flag=True, help="Delete earlier turns of conversations, and nothing else.")
@cache_dir_option
@json_option
@debug_option
def clear(pinned: bool, conversation: bool, cache_dir: Path | None, as_json: bool) -> None:
    """Delete all stored segments except pinned ones. They are computed again when needed.

    This includes segments within their time to live, which prevents eviction only, and the indexes of pml
    ask. A running studio with this store frees its memory before its next answer.
    """
    with _open(cache_dir) as store:
        removed = store.clear(pinned=pinned, conversation=conversation)
        if not conversation:
            forget(store.folder)
        remaining = store.stats().segments
    words = f"Deleted {counted(removed, 'segment')}."
    if remaining and not pinned and not conversation:
        words += f" {counted(remaining, 'pinned segment')} stayed; --pinned deletes them too."
    _say({"removed": removed, "kept": remaining}, words, as_json)


@cache.command()
@click.option(
    "--repair",
    is_flag=True,
    help="Quarantine damaged files, remove stray files, rebuild a damaged index.",
)
@cache_dir_option
@json_option
@debug_option
def verify(repair: bool, cache_dir: Path | None, as_json: bool) -> int:
    """Read every stored file and compare it with the index. Exit status 1 if something is wrong."""
    with _open(cache_dir) as store, progress_bar() as progress:
        report = store.verify(repair=repair, progress=progress)
    if as_json:
        print_json(report.to_json())
        return 0 if report.clean else 1
    pace = report.bytes / report.seconds if report.seconds else 0
    if report.index:
        say(inline(report.index))
    say(f"{counted(report.segments, 'segment')} read, {size(report.bytes)} at {size(int(pace))} a second")
    for fault in (*report.faults, *report.unread):
        say(f"{inline(fault.key)}: {inline(fault.what)}")
    for name in report.orphans:
        say(f"{inline(name)}: belongs to no segment")
    for name in report.foreign:
        say(f"{inline(name)}: does not belong to the store; unchanged")
    if report.clean:
        say("Index and files agree.")
    elif report.repaired:
        say("Damaged files were quarantined, removed or rebuilt; lost segments are recomputed when needed.")
    elif repair:
        say("Nothing was repaired: the index is not writable now.")
    else:
        say("Run it with --repair to fix this.")
    if report.unsure:
        say(f"Stray files were not searched: {inline(report.unsure)}")
    return 0 if report.clean else 1


@cache.command()
@click.option("--max-bytes", type=Size(), metavar="SIZE", help="Evict down to this, for example 5GB.")
@click.option(
    "--older-than", type=Age(), metavar="AGE", help="Evict segments unused for this long, for example 30d."
)
@cache_dir_option
@json_option
@debug_option
def prune(max_bytes: int | None, older_than: float | None, cache_dir: Path | None, as_json: bool) -> None:
    """Evict segments by size or age, except pinned ones and those within their time to live."""
    if max_bytes is None and older_than is None:
        raise click.UsageError("give --max-bytes, --older-than, or both.")
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
    help="Eviction order: cheapest to recompute per byte, or least recently used.",
)
@click.option(
    "--max-age",
    type=Age(none=True),
    metavar="AGE",
    help="Evict segments unused for this long, for example 30d; none means never. "
    "Checked when the store is opened or written.",
)
@click.option("--yes", is_flag=True, help="Evict without asking if the new budget is too small.")
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
    """Show or set the store's permanent budget, for example 50GB, and maximum age.

    A smaller budget evicts segments after confirmation, or with --yes. With 0, only pinned segments and
    those within their time to live remain, and nothing more is stored.
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
    fields: dict[str, Any] = {"budget": after.budget, "policy": after.policy, "max_age": after.max_age}
    age = "" if after.max_age is None else f"; segments unused for {days(after.max_age)} are evicted"
    words = f"The budget is {size(after.budget)}, {after.policy}{age}."
    if (most, policy, max_age) != (None, None, None):
        evicted, freed = before.segments - after.segments, before.bytes - after.bytes
        fields |= {"evicted": {"segments": evicted, "bytes": freed}}
        words += f" Evicted {counted(evicted, 'segment')}, {size(freed)}." if evicted else ""
    _say(fields | {"warnings": list(warnings)}, words, as_json, warnings)


def _ask_to_evict(store: Store, most: int) -> None:
    surplus = store.surplus(most)
    if not surplus.segments:
        return
    effect = f"A budget of {size(most)} evicts {counted(surplus.segments, 'segment')}, {size(surplus.bytes)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{effect}. Nothing was changed; use --yes to confirm.")
    if not agreed(f"{effect}; they are recomputed when needed. Continue?"):
        raise StoreError("the budget is unchanged; nothing was evicted.")


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
        kind = store.settings.scheme
    _say({"scheme": kind}, f"New segments are stored {'in ' if kind != 'plain' else ''}{kind}.", as_json)


@cache.command()
@click.argument("schema", metavar="NAME")
@click.option(
    "--for",
    "seconds",
    type=Age(),
    metavar="AGE",
    help="Duration from now, for example 1h. Default: unlimited.",
)
@cache_dir_option
@json_option
@debug_option
def pin(schema: str, seconds: float | None, cache_dir: Path | None, as_json: bool) -> None:
    """Protect all segments of a schema from eviction, permanently or for a time."""
    with _open(cache_dir) as store:
        store.settings.pin(schema, seconds)
        pins, ends = store.settings.pins(), store.settings.pinned_until()
        warnings = store.settings.warnings
    fields = {"pins": pins, "pinned_until": ends, "warnings": list(warnings)}
    _say(fields, f"Pinned: {_pins(pins, ends)}.", as_json, warnings)


@cache.command()
@click.argument("schema", metavar="NAME")
@cache_dir_option
@json_option
@debug_option
def unpin(schema: str, cache_dir: Path | None, as_json: bool) -> None:
    """Remove a pin."""
    with _open(cache_dir) as store:
        if not store.settings.unpin(schema):
            raise StoreError(f"schema {schema!r} is not pinned. pml cache stats lists pinned schemas.")
        pins = store.settings.pins()
    _say({"pins": pins}, f"Unpinned {inline(schema)}.", as_json)


@cache.command(name="export")
@click.argument("target", type=UserPath(path_type=Path), metavar="FILE")
@click.option("--schema", metavar="NAME", help="Only the segments of the schema with this name.")
@click.option("--conversation", is_flag=True, help="Earlier turns of conversations too.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@cache_dir_option
@json_option
@debug_option
def export_(
    target: Path, schema: str | None, conversation: bool, force: bool, cache_dir: Path | None, as_json: bool
) -> None:
    """Write segments into one file, for the store of another machine.

    Anyone with the file can read the text of its modules.
    """
    require_place(target, force=force)
    with _open(cache_dir) as store, progress_bar() as progress:
        moved = store.export(target, schema, progress, conversation=conversation, replace=force)
    words = f"Wrote {counted(moved.segments, 'segment')}, {size(moved.bytes)}."
    if moved.left_out:
        words += f" Left out {moved.left_out} of conversations; --conversation includes them."
    _say(moved.to_json(), words, as_json, (f"left out: {reason}." for reason in moved.unfit))


@cache.command(name="import")
@click.argument("source", type=UserPath(path_type=Path), metavar="FILE")
@cache_dir_option
@json_option
@debug_option
def import_(source: Path, cache_dir: Path | None, as_json: bool) -> None:
    """Import a file of `pml cache export` and verify each segment. Only the same model can use them."""
    with _open(cache_dir) as store, progress_bar() as progress:
        moved = store.import_(source, progress)
    duplicates = f"; {moved.known} were already stored" if moved.known else ""
    _say(
        moved.to_json(),
        f"Imported {counted(moved.segments, 'segment')}, {size(moved.bytes)}{duplicates}.",
        as_json,
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
