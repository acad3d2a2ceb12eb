"""Drawn sequences of what can be done to a store, each held against a plain model of what must be left."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.base.errors import StoreError
from engine.base.segment import Segment
from engine.base.tiers import Outcome, Reason, Tier
from engine.store import Lookup, Origin, Store, StoreStats
from engine.store.index.in_use import Hold
from tests.drawing import draws
from tests.engine.cache.test_store import ORIGIN, audit, segment

KEYS = ("a", "b", "c", "d")
SCHEMAS = ("s", "t")
SIZE = 2400  # a file here takes a little less
CHOICES: dict[str, tuple[int, tuple[Any, ...], tuple[Any, ...]]] = {  # how often, and with what
    "save": (6, KEYS, SCHEMAS),
    "use": (4, KEYS, (None,)),
    "release": (2, (None,), (None,)),
    "load": (2, KEYS, (False, False, True)),
    "record": (2, KEYS, SCHEMAS),
    "pin": (1, SCHEMAS, (None,)),
    "unpin": (1, SCHEMAS, (None,)),
    "keep": (2, KEYS, (60, 600)),
    "renew": (1, KEYS, (None,)),
    "wait": (1, (30, 100), (None,)),
    "expire": (1, (None,), (None,)),
    "prune": (1, (0, 1, 2, 3), (None,)),
    "budget": (1, (1, 2, 3), ("lru", "cost")),
    "remove": (1, KEYS, (None,)),
    "clear": (1, (None, *SCHEMAS), (False, True)),
    "reopen": (1, (None,), (None,)),
}


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, Any, Any]:
    """Something to do, with its two arguments."""
    what = draw(st.sampled_from([name for name, (times, *_) in CHOICES.items() for _ in range(times)]))
    _, first, second = CHOICES[what]
    return what, draw(st.sampled_from(first)), draw(st.sampled_from(second))


def made(key: str) -> Segment:
    """The segment of a key: the same each time."""
    return segment(key, 5, KEYS.index(key))


class Model:
    """What a store must hold, and what must not go from it by itself."""

    def __init__(self) -> None:
        self.there: dict[str, set[str]] = {}
        self.pins: set[str] = set()
        self.gone: dict[str, set[str]] = {}  # why, by key
        self.now = 1e6
        self.keeps: dict[str, tuple[float, float]] = {}  # seconds and end, by key

    def pinned(self) -> set[str]:
        return {key for key, schemas in self.there.items() if schemas & self.pins}

    def kept(self) -> set[str]:
        return {key for key, (_, until) in self.keeps.items() if until > self.now}

    def forget(self, keys: set[str]) -> None:
        for key in keys:
            self.there.pop(key, None)
            self.keeps.pop(key, None)


class Play:
    """A store beside its model."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.model = folder, Model()
        self.store = self.opened()
        self.store.set_budget(2 * SIZE)
        self.holds: list[tuple[str, Hold]] = []

    def opened(self) -> Store:
        return Store.open(self.folder, clock=lambda: self.model.now)

    def spared(self) -> set[str]:
        return self.model.pinned() | self.model.kept() | self.held()

    def held(self) -> set[str]:
        return {key for key, _ in self.holds}

    def stayed(self, before: set[str], *, spared: set[str]) -> None:
        """What went may have gone, and what is there was there before."""
        now = self.store.contains(KEYS)
        assert now <= before
        assert spared & before <= now, "what is pinned, kept or in use went"
        self.model.forget(before - now)

    def play(self, what: str, one: Any, other: Any) -> None:
        getattr(self, f"do_{what}")(one, other)
        assert self.store.contains(KEYS) == set(self.model.there)
        assert set(self.store.settings.pins()) == self.model.pins
        assert {row["key"] for row in self.store.segments() if row["pinned"]} == self.model.pinned()
        found = {key: (keep.seconds, keep.until) for key, keep in self.store.kept(KEYS).items()}
        assert found == {key: self.model.keeps[key] for key in self.model.kept()}
        stats = self.store.stats()
        assert stats.segments == len(self.model.there)
        self.require_budget(stats)
        audit(self.store)

    def require_budget(self, stats: StoreStats) -> None:
        rows = {row["key"]: row["bytes"] for row in self.store.segments()}
        spared = sum(size for key, size in rows.items() if key in self.spared())
        assert stats.bytes <= max(stats.budget, spared)

    def do_save(self, key: str, schema: str) -> None:
        before = {*self.model.there, key}
        spared = self.spared()
        refused = ""
        try:
            self.store.save(made(key), Origin(schema, "m", "anchored", "tiny", "f"))
        except StoreError as error:
            refused = str(error)
        if refused:
            assert "no room left" in refused
            assert self.store.contains(KEYS) == set(self.model.there), "what is refused evicts nothing"
            return
        self.model.there.setdefault(key, set()).add(schema)
        self.stayed(before, spared={*spared, key})

    def do_load(self, key: str, other_tokens: bool) -> None:
        found = self.store.load(key, range(1, 6) if other_tokens else range(5))
        if other_tokens or key not in self.model.there:
            assert found is None
            self.model.there.pop(key, None)
            return
        assert found is not None
        assert torch.equal(found.keys, made(key).keys)
        assert torch.equal(found.values, made(key).values)

    def do_use(self, key: str, _: None) -> None:
        self.holds.append((key, self.store.using([key])))

    def do_release(self, *_: None) -> None:
        if self.holds:
            self.holds.pop(0)[1].release()

    def do_pin(self, schema: str, _: None) -> None:
        if any(schema in labels for labels in self.model.there.values()):
            self.store.settings.pin(schema)
            self.model.pins.add(schema)
        else:
            with pytest.raises(StoreError, match="no stored segments to pin"):
                self.store.settings.pin(schema)

    def do_unpin(self, schema: str, _: None) -> None:
        assert self.store.settings.unpin(schema) == (schema in self.model.pins)
        self.model.pins.discard(schema)

    def do_keep(self, key: str, seconds: float) -> None:
        self.store.keep([key], seconds)
        time_to_live, until = self.model.keeps.get(key, (0.0, 0.0))
        longer = max(time_to_live, seconds) if until > self.model.now else seconds
        self.model.keeps[key] = longer, max(until, self.model.now + seconds)

    def do_renew(self, key: str, _: None) -> None:
        self.store.renew([key])
        if key in self.model.kept():
            seconds, _until = self.model.keeps[key]
            self.model.keeps[key] = seconds, self.model.now + seconds

    def do_wait(self, seconds: float, _: None) -> None:
        self.model.now += seconds

    def do_expire(self, *_: None) -> None:
        ended = {key for key in self.model.there if key in self.model.keeps} - self.model.kept()
        assert self.store.expired() == ended
        assert self.store.remove(ended | self.model.kept(), Reason.EXPIRED).segments == len(ended)
        self.model.forget(ended)

    def do_prune(self, number: int, _: None) -> None:
        before, spared = set(self.model.there), self.spared()
        removed = self.store.prune(max_bytes=number * SIZE)
        self.stayed(before, spared=spared)
        assert removed.segments == len(before) - len(self.model.there)
        if number == 0:
            assert set(self.model.there) <= spared

    def do_budget(self, number: int, policy: Any) -> None:
        before, spared = set(self.model.there), self.spared()
        self.store.set_budget(number * SIZE, policy)
        self.stayed(before, spared=spared)
        assert (self.store.settings.budget, self.store.settings.policy) == (number * SIZE, policy)

    def do_remove(self, key: str, _: None) -> None:
        assert self.store.remove([key, "none"]).segments == (key in self.model.there)
        if key in self.model.there:
            self.model.forget({key})
            assert self.store.evictions(1)[0]["reason"] == Reason.DELETED

    def do_clear(self, schema: str | None, pinned: bool) -> None:
        goes = {
            key
            for key, labels in self.model.there.items()
            if (schema is None or labels == {schema}) and (pinned or not labels & self.model.pins)
        }
        assert self.store.clear(schema, pinned=pinned) == len(goes)
        self.model.forget(goes)

    def do_record(self, key: str, schema: str) -> None:
        hits = self.store.stats().hits
        self.store.record([Lookup(key, Tier.DISK, Outcome.HIT, schema=schema, path="n")])
        assert self.store.stats().hits == hits + 1
        if key in self.model.there:
            self.model.there[key].add(schema)

    def do_reopen(self, *_: None) -> None:
        for _key, hold in self.holds:
            hold.release()
        self.holds = []
        self.store.close()
        self.store = self.opened()


@settings(max_examples=draws(40), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps(), min_size=10, max_size=25))
def test_whatever_is_done_to_a_store_it_holds_what_it_should(drawn: list[tuple[str, Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        play = Play(Path(folder) / "store")
        for what, one, other in drawn:
            play.play(what, one, other)
        assert play.store.verify().clean
        play.store.close()


def test_what_goes_first_is_what_is_cheap_to_compute_again_or_was_not_used(tmp_path: Path) -> None:
    """By cost a large segment that takes no time goes before a small one that took long, used or not."""
    for policy, goes in (("cost", "cheap"), ("lru", "dear")):
        store = Store.open(tmp_path / policy)
        store.set_budget(1 << 30, policy)  # type: ignore[arg-type]
        store.save(segment("dear", 5), ORIGIN, seconds=10.0)
        store.save(segment("cheap", 50), ORIGIN, seconds=0.001)
        store.record([Lookup("cheap", Tier.DISK, Outcome.HIT)])
        size = store.stats().bytes
        assert store.prune(max_bytes=size - 1).segments == 1
        assert store.contains(["dear", "cheap"]) == {"dear", "cheap"} - {goes}
        store.close()


def test_what_was_dear_once_and_is_used_no_more_goes_at_last(tmp_path: Path) -> None:
    """Whatever goes raises the worth of what comes after it: so age tells, whatever the cost."""
    store = Store.open(tmp_path)
    store.save(segment("old"), ORIGIN, seconds=1.0)
    store.set_budget(3 * store.stats().bytes + 100)
    for number in range(40):
        store.save(segment(f"k{number:02}"), ORIGIN, seconds=0.3)
        if not store.contains(["old"]):
            break
    assert not store.contains(["old"])
    assert number > 2, "what is dear stays longer than what is cheap"
    store.close()
