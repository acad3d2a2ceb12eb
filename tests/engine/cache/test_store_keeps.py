"""Times to live: what stays until they end, what begins them anew, and what they do not hold against."""

from __future__ import annotations

import logging
import os
import sqlite3
from pathlib import Path

import pytest

from engine.base.errors import StoreError
from engine.base.tiers import Outcome, Reason, Tier
from engine.store import INDEX, Keep, Lookup, Origin, Store
from tests.engine.cache.segments import ORIGIN, in_processes, segment
from tests.engine.cache.test_store import audit, file_of, overwrite
from tests.engine.cache.test_store_bounds import keys, sought

OTHER = Origin("other", "m", "anchored", "tiny", "f")


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def filled(folder: Path, clock: Clock, count: int = 3) -> tuple[Store, int]:
    """A store with segments k0, k1, … of one size, a second apart; and that size."""
    store = Store.open(folder, clock=clock)
    for number in range(count):
        store.save(segment(f"k{number}", 20, number), ORIGIN)
        clock.now += 1
    return store, store.stats().bytes // max(1, count)


def rows(store: Store, table: str = "keeps") -> int:
    with sqlite3.connect(store.folder / INDEX) as connection:
        return int(connection.execute(f"select count(*) from {table}").fetchone()[0])


def test_what_is_kept_outlasts_budget_and_age_until_its_time_ends(tmp_path: Path, clock: Clock) -> None:
    store, size = filled(tmp_path, clock)
    store.keep(["k0"], 300)
    clock.now += 299
    assert store.surplus(0).segments == 2
    store.set_budget(size)
    assert keys(store) == {"k0"}
    assert store.prune(max_bytes=0, older_than=0).segments == 0
    clock.now += 2
    assert store.expired() == {"k0"}
    assert keys(store) == {"k0"}, "what has ended may stay while there is room"
    store.save(segment("new", 20, 9), ORIGIN)
    assert keys(store) == {"new"}
    assert store.reason(sought("k0")) == Reason.BUDGET
    audit(store)


def test_a_read_just_before_the_end_begins_the_time_anew(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock)
    store.keep(["k0", "k1"], 300)
    clock.now += 299
    store.renew(["k0", "k2", "none"])
    assert store.kept(["k0", "k1", "k2", "none"]) == {
        "k0": Keep(300, clock.now + 300),
        "k1": Keep(300, clock.now + 1),
    }
    clock.now += 2
    store.renew(["k1"])
    assert set(store.kept(["k0", "k1"])) == {"k0"}, "what has ended does not begin anew by itself"
    store.prune(max_bytes=0)
    assert keys(store) == {"k0"}


def test_the_later_end_and_the_longer_time_win(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock)
    store.keep(["k0"], 3600)
    store.keep(["k0"], 300)
    assert store.kept(["k0"]) == {"k0": Keep(3600, clock.now + 3600)}
    clock.now += 3500
    store.keep(["k0"], 300)
    assert store.kept(["k0"]) == {"k0": Keep(3600, clock.now + 300)}
    store.renew(["k0"])
    assert store.kept(["k0"]) == {"k0": Keep(3600, clock.now + 3600)}
    clock.now += 3601
    store.keep(["k0"], 300)
    assert store.kept(["k0"]) == {"k0": Keep(300, clock.now + 300)}, "after its end it is what is said now"


def test_a_clock_that_is_set_back_shortens_nothing(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock)
    store.keep(["k0"], 300)
    (before,) = store.kept(["k0"]).values()
    clock.now -= 1000
    store.renew(["k0"])
    store.keep(["k0"], 300)
    assert store.kept(["k0"]) == {"k0": before}


def test_a_time_may_be_said_of_what_comes_later(tmp_path: Path, clock: Clock) -> None:
    store, size = filled(tmp_path, clock, 1)
    store.set_budget(size)
    store.keep(["later"], 300)
    assert store.expired() == set()
    store.save(segment("later", 20, 9), ORIGIN)
    assert keys(store) == {"later"}
    with pytest.raises(
        StoreError, match="no room left besides segments that are pinned, in their time to live"
    ):
        store.save(segment("more", 20, 8), ORIGIN)
    assert keys(store) == {"later"}
    assert store.stats().kept == size
    assert store.stats().pinned == 0
    clock.now += 301
    store.save(segment("more", 20, 8), ORIGIN)
    assert keys(store) == {"more"}
    assert (store.stats().kept, store.stats().kept_until) == (0, None)


def test_too_much_that_is_kept_is_said(tmp_path: Path, clock: Clock) -> None:
    store, size = filled(tmp_path, clock)
    store.keep(["k0", "k1"], 300)
    store.settings.set_budget(size)
    (words,) = store.settings.warnings
    assert f"take {2 * size:,} bytes" in words
    clock.now += 301
    assert store.settings.warnings == ()


def test_it_survives_a_restart_and_a_damaged_index(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock)
    store.keep(["k0"], 300)
    store.settings.pin("travel", 60)
    said = store.kept(["k0"])
    store.close()
    store = Store.open(tmp_path, clock=clock)
    assert store.kept(["k0"]) == said
    store.close()
    with sqlite3.connect(tmp_path / INDEX) as connection:
        connection.execute("drop table counters")
    store = Store.open(tmp_path, clock=clock)
    assert store.kept(["k0"]) == said
    assert store.settings.pinned_until() == {"travel": clock.now + 60}
    clock.now += 61
    store.prune(max_bytes=0)
    assert keys(store) == {"k0"}


def test_who_deletes_or_clears_takes_what_is_kept(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock)
    store.keep(["k0", "k1", "k2"], 300)
    assert store.remove(["k0"]).segments == 1
    assert store.clear() == 2
    assert store.kept(["k0", "k1", "k2"]) == {}
    assert rows(store) == 0


def test_what_was_damaged_is_kept_when_it_comes_again(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock, 1)
    store.keep(["k0"], 300)
    store.close()
    store = Store.open(tmp_path, clock=clock)
    overwrite(file_of(store), b"nothing")
    assert store.load("k0", range(20)) is None
    store.save(segment("k0", 20, 0), ORIGIN)
    assert store.prune(max_bytes=0).segments == 0


def test_what_has_ended_goes_only_where_nothing_keeps_it_anew(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock)
    store.keep(["k0", "k1", "none"], 300)
    clock.now += 300
    ended = store.expired()
    assert ended == {"k0", "k1"}
    store.keep(["k1"], 300)
    assert store.remove(ended, Reason.EXPIRED).segments == 1
    assert keys(store) == {"k1", "k2"}
    assert store.reason(sought("k0")) == Reason.EXPIRED
    assert store.evictions(1)[0]["reason"] == "expired"
    assert store.expired() == set()


def test_ended_times_of_what_is_gone_are_forgotten(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock)
    for _ in range(50):
        store.keep([f"never-{clock.now}-{number}" for number in range(10)], 300)
        clock.now += 200
    assert rows(store) <= 30
    clock.now += 301
    store.close()
    store = Store.open(tmp_path, clock=clock)
    assert rows(store) == 0


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_times_that_cannot_be_kept_are_refused(seconds: float, tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock, 1)
    with pytest.raises(StoreError, match="must be above 0"):
        store.keep(["k0"], seconds)
    with pytest.raises(StoreError, match="must be above 0"):
        store.settings.pin("travel", seconds)
    assert store.settings.pins() == []


def test_a_read_of_what_is_not_kept_writes_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = filled(tmp_path, clock)
    store.keep(["k0"], 300)
    monkeypatch.setattr(store.index, "writing", None)
    store.renew(["k1", "k2"])
    with pytest.raises(TypeError):
        store.renew(["k0"])


def test_what_cannot_be_written_down_is_a_warning(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store, _ = filled(tmp_path, clock)
    store.keep(["k0"], 300)
    said = store.kept(["k0"])
    with store.index.writing() as connection:
        connection.execute(
            "create trigger full before insert on keeps begin select raise(abort, 'full'); end"
        )
        connection.execute("create trigger stuck before update on keeps begin select raise(abort, 'no'); end")
    clock.now += 1
    with caplog.at_level(logging.WARNING):
        store.keep(["k1"], 300)
        store.renew(["k0"])
    assert "the time to live of 1 segments could not be recorded" in caplog.text
    assert "were not renewed" in caplog.text
    assert store.kept(["k0", "k1"]) == said


def test_a_pin_with_an_end_is_none_when_it_has_passed(tmp_path: Path, clock: Clock) -> None:
    store, size = filled(tmp_path, clock)
    store.settings.pin("travel", 3600)
    assert store.settings.pinned_until() == {"travel": clock.now + 3600}
    assert store.prune(max_bytes=0).segments == 0
    assert store.stats().pinned == 3 * size
    assert all(row.pinned for row in store.listing.rows())
    clock.now += 3600
    assert store.settings.pins() == []
    assert store.settings.pinned_until() == {}
    assert store.stats().pinned == store.settings.spared_bytes == 0
    assert not any(row["pinned"] for row in store.segments())
    assert not any(row.pinned for row in store.listing.rows())
    assert not store.settings.unpin("travel")
    store.save(segment("o", 20, 9), OTHER)
    store.settings.pin("other")
    assert rows(store, "pins") == 1, "the one that has ended is forgotten"
    assert store.clear() == 3
    assert keys(store) == {"o"}


def test_of_two_pins_the_last_one_holds(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock, 1)
    store.settings.pin("travel")
    store.settings.pin("travel", 60)
    assert store.settings.pinned_until() == {"travel": clock.now + 60}
    store.settings.pin("travel")
    assert store.settings.pinned_until() == {}
    clock.now += 61
    assert store.settings.pins() == ["travel"]


def test_ages_go_by_the_same_clock(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock, 2)
    store.set_max_age(100)
    clock.now += 99
    store.record([Lookup("k1", Tier.DISK, Outcome.HIT)])
    clock.now += 50
    store.save(segment("new", 20, 9), ORIGIN)
    assert keys(store) == {"k1", "new"}


def test_segments_say_until_when_they_are_kept(tmp_path: Path, clock: Clock) -> None:
    store, _ = filled(tmp_path, clock, 2)
    store.keep(["k0"], 300)
    assert {row["key"]: row["kept_until"] for row in store.segments()} == {"k0": clock.now + 300, "k1": None}
    assert store.stats().kept_until == clock.now + 300


def keep_and_prune(folder: str, number: int) -> None:
    """Keeps and renews its own segments while it evicts all it may; leaves with 1 where one of them goes."""
    store = Store.open(Path(folder))
    for turn in range(40):
        mine = f"p{number}-{turn}"
        store.keep([mine, "shared"], 600 + number)
        store.save(segment(mine, 5, number), ORIGIN)
        store.save(segment(f"free-{number}-{turn}", 5, number), ORIGIN)
        store.renew([mine, "shared"])
        store.prune(max_bytes=0)
        if not store.contains([mine]):
            os._exit(1)
    store.close()


def test_processes_hold_to_what_each_has_promised(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    in_processes(keep_and_prune, *((str(tmp_path), number) for number in range(2)))
    store = Store.open(tmp_path)
    store.prune(max_bytes=0)
    mine = {f"p{number}-{turn}" for number in range(2) for turn in range(40)}
    assert keys(store) == set(store.kept(mine)) == mine
    assert store.kept(["shared"])["shared"].seconds == 601
    audit(store)
