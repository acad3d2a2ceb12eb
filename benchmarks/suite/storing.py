"""M1: bytes of a token in files; S: time of a look-up by the size of the store."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.answers import sources
from benchmarks.kills import ORIGIN
from benchmarks.suite.first_token import named
from benchmarks.suite.sampling import Group, Say
from benchmarks.suite.scale import Scale
from benchmarks.turns import Way
from engine.base.segment import Segment
from engine.engine import Engine
from engine.model.loading import load
from engine.store import Store

_WRITTEN = 10  # segments of a store that have files; the others are rows alone
_ASKED = 200  # look-ups of one sample


def memory(scale: Scale, say: Say) -> list[Group]:
    """M1: bytes in files per byte of keys and values."""
    groups = []
    for size in (scale.large, *scale.small):
        model = load(size.model, dtype=size.dtype)
        group = named(size.of(min(size.cached, 1024)), model)
        say(f"{size.label}: storing")
        schema, _ = sources(model, int(group.params["cached"]), size.modules, size.new, 0)
        with (
            tempfile.TemporaryDirectory(prefix="pml-suite-") as folder,
            Engine(model, Store.open(Path(folder))) as engine,
        ):
            engine.schema(schema).encode()
            tokens = sum(int(row["tokens"]) for row in engine.store.segments())
            stored = engine.store.stats().bytes
        group.values |= {
            "bytes per token in files": stored / tokens,
            "bytes per token in theory": model.bytes_per_token,
            "stored by theory": stored / tokens / model.bytes_per_token,
        }
        groups.append(group)
    return groups


def lookups(scale: Scale, say: Say) -> list[Group]:
    """S: the time to look up and to load a segment in a store of many, of one token each.

    The first segments are saved with their files. The others are rows that one transaction of the store's
    index enters, since writing a hundred thousand files to the disk takes a quarter of an hour; what is
    loaded is of the first.
    """
    return [_lookups(count, scale, say) for count in scale.segments]


def _lookups(count: int, scale: Scale, say: Say) -> Group:
    group = Group(f"{count:,} segments", {"segments": count, "with files": min(count, _WRITTEN)})
    states = torch.zeros(1, 1, 1, 8)
    with tempfile.TemporaryDirectory(prefix="pml-suite-") as folder:
        store = Store.open(Path(folder))
        try:
            store.set_budget(1 << 40)
            for number in range(min(count, _WRITTEN)):
                store.save(Segment(f"s{number}", (number,), states, states.clone()), ORIGIN)
            _enter_rows(store, count)
            say(f"{count:,} segments")
            draw = random.Random(0)
            group.measure(
                [
                    Way("load", lambda: _time_of_loads(store, draw)),
                    Way("find", lambda: _time_of_finds(store, draw, count)),
                    Way("miss", lambda: _time_of_finds(store, draw, count, "none")),
                ],
                scale,
                say,
            )
            group.values["rows"] = store.stats().segments
        finally:
            store.close()
    return group


def _enter_rows(store: Store, count: int) -> None:
    """Copies the first row under other keys."""
    rows = store.index.query("select * from segments where key = 's0'")
    (columns,) = rows
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    with store.index.writing() as connection:
        connection.executemany(
            f"insert into segments ({names}) values ({marks})",
            (
                list({**columns, "key": f"s{number}", "file": f"s{number}-none"}.values())
                for number in range(_WRITTEN, count)
            ),
        )


def _time_of_loads(store: Store, draw: random.Random) -> float:
    """Milliseconds of one."""
    keys = [draw.randrange(_WRITTEN) for _ in range(_ASKED)]
    started = time.perf_counter()
    for number in keys:
        assert store.load(f"s{number}", (number,)) is not None
    return (time.perf_counter() - started) * 1000 / _ASKED


def _time_of_finds(store: Store, draw: random.Random, count: int, prefix: str = "s") -> float:
    """Milliseconds of one."""
    keys = [f"{prefix}{draw.randrange(count)}" for _ in range(_ASKED)]
    started = time.perf_counter()
    found = sum(len(store.contains([key])) for key in keys)
    taken = (time.perf_counter() - started) * 1000 / _ASKED
    assert found == (_ASKED if prefix == "s" else 0)
    return taken
