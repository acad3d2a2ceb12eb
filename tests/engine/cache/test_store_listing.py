"""The segments of a store as people look through them: pages, sums, modules, what goes next, misses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.base.errors import StoreError
from engine.base.tiers import Outcome, Reason, Tier
from engine.store import Lookup, Store
from engine.store.index.eviction import Removed
from engine.store.index.listing import Sums, Wanted
from engine.store.removal import Queue
from tests.engine.cache.segments import ORIGIN, segment


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Twelve segments: of the modules a to d of the schemas Straße, trips and kept, which is pinned."""
    made = Store.open(tmp_path)
    for number in range(12):
        schema, path = ("Straße", "trips", "kept")[number % 3], "abcd"[number % 4]
        origin = replace(ORIGIN, schema=schema, path=path)
        made.save(segment(f"k{number:02}", 5 + number, number), origin, seconds=0.5)
    made.settings.pin("kept")
    return made


def keys(store: Store, wanted: Wanted, **options) -> list[str]:
    return [row.key for row in store.listing.page(wanted, **options).rows]


def test_pages_join_to_the_whole_and_their_sums_are_of_all(store: Store) -> None:
    found = [store.listing.page(Wanted(), "tokens", start=start, limit=5) for start in (0, 5, 10)]
    assert [row.tokens for page in found for row in page.rows] == list(range(16, 4, -1))
    stats = store.stats()
    for page in found:
        assert (page.all.segments, page.all.bytes) == (stats.segments, stats.bytes)
        assert (page.all.tokens, page.all.seconds, page.all.pinned) == (sum(range(5, 17)), 6.0, 4)
    assert keys(store, Wanted(), order="path", down=False, limit=3) == ["k00", "k04", "k08"]
    with pytest.raises(StoreError, match="cannot be sorted by 'digest'"):
        store.listing.page(Wanted(), "digest")  # type: ignore[arg-type]


def test_words_are_found_in_any_case_and_a_module_by_its_place(store: Store) -> None:
    assert set(keys(store, Wanted(("STRASSE",)))) == {"k00", "k03", "k06", "k09"}
    assert keys(store, Wanted(("trips", "memory")), held={"k01", "k02"}) == ["k01"]
    assert keys(store, Wanted(schema="trips", path="b")) == ["k01"]
    assert keys(store, Wanted(schema="trips", path="")) == []
    held = {row.key: row.tier for row in store.listing.rows({"k05"})}
    assert held["k05"] == Tier.MEMORY
    assert held["k06"] == Tier.DISK


def test_whatever_is_asked_for_is_answered(store: Store) -> None:
    assert set(keys(store, Wanted(("trips",) * 3000))) == {"k01", "k04", "k07", "k10"}
    assert keys(store, Wanted(("trips", *map(str, range(3000))))) == []
    assert keys(store, Wanted(("\ud800",))) == keys(store, Wanted(schema="\ud800", path="\udfff")) == []
    assert store.listing.keys(Wanted(schema="\ud800")) == []
    assert keys(store, Wanted(), start=2**70) == keys(store, Wanted(("trips",)), start=2**70) == []
    assert len(keys(store, Wanted())) == 12


def test_a_segment_of_several_modules_names_all_of_them_in_the_order_of_their_schemas(store: Store) -> None:
    for schema, path in (("alpha", "z"), ("alpha", "a"), ("trips", "z")):
        store.label([Lookup("k01", Tier.DISK, Outcome.HIT, schema=schema, path=path)])
    every = {row.key: row for row in store.listing.rows()}
    assert (every["k01"].schema, every["k01"].path) == ("alpha,trips", "a,z,b")
    assert [(row.schema, row.path) for row in store.listing.chosen(["k01", "k02"])] == [
        (every[key].schema, every[key].path) for key in ("k01", "k02")
    ]
    assert {row.key: row for row in store.listing.page(Wanted()).rows} == every
    assert keys(store, Wanted(("alpha",))) == store.listing.keys(Wanted(("alpha",))) == ["k01"]
    assert set(store.listing.keys(Wanted())) == set(every)
    past = store.listing.page(Wanted(("trips",)), start=50)
    assert (past.rows, past.all.segments) == ((), 4)
    none = store.listing.page(Wanted(("nothing of the kind",)), "schema")
    assert (none.rows, none.all) == ((), Sums(0, 0, 0, 0.0, 0))


def test_what_is_chosen_is_weighed_as_it_is_there(store: Store) -> None:
    rows = store.listing.chosen(["k02", "k03", "gone"])
    assert {row.key: row.pinned for row in rows} == {"k02": True, "k03": False}
    assert Sums.of(rows).tokens == 7 + 8


def test_modules_make_up_the_whole_however_few_are_told(store: Store) -> None:
    every, few = store.listing.modules(100), store.listing.modules(2)
    assert sum(row["bytes"] for row in every) == sum(row["bytes"] for row in few) == store.stats().bytes
    assert [row["bytes"] for row in every] == sorted((row["bytes"] for row in every), reverse=True)
    assert [row["path"] for row in few[2:]] == [None] * len(few[2:])
    assert sum(row["segments"] for row in few) == 12


def test_what_would_go_next_is_what_goes(store: Store) -> None:
    used, policy = store.stats().bytes, store.settings.policy
    store.set_budget(used + 5_000)
    assert store.next_out(5_000) == Queue(Removed(0, 0), (), used + 5_000, 5_000, 0, policy), "there is room"
    told = store.next_out(18_000, limit=2)
    assert len(told.first) == 2
    assert told.total.bytes >= 13_000
    assert (told.spare, told.missing) == (5_000, 0)
    all_told = store.next_out(18_000)
    before = {row.key for row in store.listing.rows()}
    removed = store.prune(max_bytes=used - 13_000)
    assert removed == told.total
    assert before - {row.key for row in store.listing.rows()} == {row["key"] for row in all_told.first}
    too_much = store.next_out(1 << 40)
    assert too_much.total.segments == 8 - removed.segments, "what is pinned stays"
    assert too_much.missing == (1 << 40) + store.settings.pinned_bytes - (used + 5_000)


def test_misses_are_told_with_their_reason_and_when_it_had_gone(store: Store) -> None:
    store.remove(["k01"])
    (gone, *_) = store.evictions()
    for key, reason in (("new", Reason.NEW), ("k01", Reason.DELETED), ("k01", Reason.DAMAGED)):
        store.record([Lookup(key, Tier.NONE, Outcome.MISS, reason, 10, 2.5, "trips", "b")])
    store.record([Lookup("k00", Tier.DISK, Outcome.HIT, schema="Straße", path="a")])
    damaged, deleted, new = store.misses()
    assert (new["reason"], new["gone_at"]) == ("new", None)
    assert (deleted["reason"], deleted["gone_at"]) == ("deleted", gone["at"])
    assert (damaged["reason"], damaged["gone_at"]) == ("damaged", None), "when that was is not known"
    assert (new["schema"], new["path"], new["ms"]) == ("trips", "b", 2.5)
    assert store.misses(1) == [damaged]
    store.record([Lookup("k02", Tier.NONE, Outcome.MISS, Reason.NEW, 10, 2.5, "trips", "b")])
    listed = {row.key: row.bytes for row in store.listing.rows()}
    assert (store.misses(1)[0]["bytes"], new["bytes"]) == (listed["k02"], 10), "as in the list of segments"
    assert all(reason.meaning for reason in Reason)


def test_the_list_of_misses_is_bounded(store: Store) -> None:
    store.record([Lookup(f"m{n}", Tier.NONE, Outcome.MISS, Reason.NEW) for n in range(1500)])
    assert len(store.misses(5000)) == 1000
    assert store.misses(1)[0]["key"] == "m1499"
