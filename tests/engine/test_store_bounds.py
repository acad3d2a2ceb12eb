"""A store within its budget: what goes, what stays, and that it says so."""

from __future__ import annotations

import random
import sqlite3
import time
from pathlib import Path

import pytest
import torch

from engine.engine import Engine
from engine.errors import StoreError
from engine.events import Finished
from engine.settings import RunSettings
from engine.store import INDEX, Origin, Store
from tests.engine.cases import model_of, prompt_of, schema_of
from tests.engine.test_store import ORIGIN, audit, overwrite, segment


def filled(folder: Path, count: int = 6, **options) -> tuple[Store, int]:
    """A store with segments k0, k1, … of one size, used one after the other; and that size."""
    store = Store.open(folder)
    for number in range(count):
        store.save(segment(f"k{number}", 20, number), ORIGIN, **options)
        _age(store, f"k{number}", 1000 - number)
    return store, store.stats().bytes // max(1, count)


def _age(store: Store, key: str, seconds: float) -> None:
    with sqlite3.connect(store.folder / INDEX) as connection:
        connection.execute("update segments set last_used = ? where key = ?", [time.time() - seconds, key])


def keys(store: Store) -> set[str]:
    return {row["key"] for row in store.segments()}


def test_the_budget_holds_and_survives_a_restart(tmp_path: Path) -> None:
    store, size = filled(tmp_path)
    removed = store.set_budget(3 * size)
    assert (removed.segments, removed.bytes) == (3, 3 * size)
    assert keys(store) == {"k3", "k4", "k5"}
    store.close()
    again = Store.open(tmp_path)
    assert again.budget == 3 * size
    again.save(segment("new", 20, 9), ORIGIN)
    assert keys(again) == {"k4", "k5", "new"}
    stats = again.stats()
    assert stats.bytes == sum(path.stat().st_size for path in again.files.iterdir()) <= stats.budget
    assert stats.evicted == 4
    assert [row["key"] for row in again.evictions()] == ["k3", "k2", "k1", "k0"]
    assert {row["reason"] for row in again.evictions()} == {"evicted: budget"}
    assert again.reason("k0", ORIGIN) == "evicted: budget"
    audit(again)


def test_random_saves_never_exceed_the_budget_and_count_exactly(tmp_path: Path) -> None:
    store, size = filled(tmp_path)
    store.set_budget(5 * size)
    draw = random.Random(1)
    for number in range(60):
        key = f"r{draw.randrange(20)}"
        store.save(segment(key, draw.randrange(1, 60), number), ORIGIN)
        total = sum(path.stat().st_size for path in store.files.iterdir())
        assert store.stats().bytes == total <= 5 * size
        assert key in keys(store)
    audit(store)


def test_pinned_schemas_stay_and_a_full_store_refuses(tmp_path: Path) -> None:
    store, size = filled(tmp_path, 3)
    store.pin("travel")
    store.save(segment("other", 20, 9), Origin("other", "m", "anchored", "tiny", "f"))
    assert {row["key"] for row in store.segments() if row["pinned"]} == {"k0", "k1", "k2"}
    store.set_budget(3 * size)
    assert keys(store) == {"k0", "k1", "k2"}
    with pytest.raises(StoreError, match="no room left beside what is pinned"):
        store.save(segment("k7", 20, 8), Origin("other", "m", "anchored", "tiny", "f"))
    assert keys(store) == {"k0", "k1", "k2"}
    audit(store)
    assert store.prune(older_than=0).segments == 0
    assert store.unpin("travel")
    assert not store.unpin("travel")
    store.save(segment("k7", 20, 8), ORIGIN)
    assert keys(store) == {"k1", "k2", "k7"}


def test_age_limits(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    assert store.prune(older_than=996.5).segments == 4
    assert keys(store) == {"k4", "k5"}
    assert store.reason("k0", ORIGIN) == "evicted: age"
    audit(store)


def test_what_is_in_use_is_not_evicted(tmp_path: Path) -> None:
    store, size = filled(tmp_path)
    with store.using(["k0", "k1"]):
        store.set_budget(2 * size)
        assert keys(store) == {"k0", "k1"}
        assert store.prune(older_than=0).segments == 0
    store.prune(older_than=0)
    assert keys(store) == set()


def test_a_segment_that_is_mapped_stays_readable_when_another_process_evicts_it(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 1)
    held = store.load("k0", range(20))
    other = Store.open(tmp_path)
    other.clear()
    assert held is not None
    assert torch.equal(held.keys, segment("k0", 20, 0).keys)
    assert store.load("k0", range(20)) is None
    assert store.stats().corrupt == 0


def test_cost_keeps_what_took_long_to_compute(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for number, seconds in enumerate((9.0, 0.1, 5.0, 0.2)):
        store.save(segment(f"k{number}", 20, number), ORIGIN, seconds=seconds)
    size = store.stats().bytes // 4
    store.set_budget(2 * size, "cost")
    assert keys(store) == {"k0", "k2"}
    assert Store.open(tmp_path).policy == "cost"


@pytest.mark.parametrize(("size", "policy"), [(-1, None), (5, "luck")])
def test_a_budget_that_is_none_is_refused(tmp_path: Path, size: int, policy) -> None:
    with pytest.raises(StoreError):
        Store.open(tmp_path).set_budget(size, policy)


def test_every_miss_has_its_reason(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 2)
    changed = Origin("travel", "trip/tokyo", "anchored", "tiny", "f")
    assert store.reason("x", Origin("unknown", "m", "anchored", "tiny", "f")) == "new"
    assert store.reason("x", changed) == "text or sight changed"
    assert store.reason("x", Origin("travel", "trip/tokyo", "isolated", "tiny", "f")) == "other scope"
    assert store.reason("x", Origin("travel", "trip/tokyo", "anchored", "tiny", "g")) == "other model"
    (row,) = store.query("select file from segments where key = 'k0'")
    overwrite(store.files / row["file"], b"")
    assert store.load("k0", range(20)) is None
    assert store.reason("k0", changed) == "damaged"
    store.clear()
    assert store.reason("k1", changed) == "cleared"


SCHEMA = """<schema name="s">Read. <module name="a">alpha {}</module><union><module name="b">beta</module>
<module name="c">gamma</module></union></schema>"""


def answered(engine: Engine, schema: str, settings: RunSettings | None = None):
    prompt = prompt_of("<prompt><a/><b/> so?</prompt>")
    events = engine.run(schema_of(schema), prompt, settings or RunSettings(max_new_tokens=2), "cached")
    return next(e.answer for e in events if isinstance(e, Finished))


def test_runs_say_why_something_was_computed_and_keep_books(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    assert {use.reason for use in answered(engine, SCHEMA).segments} == {"new"}
    changed = answered(engine, SCHEMA.format("more"))
    assert {use.path: use.reason for use in changed.segments} == {
        "": "",
        "a": "text or sight changed",
        "b": "",
    }
    served = {(row["tier"], row["outcome"], row["reason"]): row for row in engine.store.stats().served}
    assert served["none", "miss", "new"]["count"] == 3
    assert served["memory", "hit", ""]["count"] == 2
    assert all(row["bytes"] > 0 and row["ms"] > 0 for row in served.values())
    engine.close()


def test_a_budget_too_small_costs_a_warning_and_no_answer(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    want = answered(engine, SCHEMA)
    engine.store.set_budget(100)
    engine.residency.clear()
    found = answered(engine, SCHEMA)
    assert found.token_ids == want.token_ids
    (warning,) = found.warnings
    assert "budget of 100 bytes has no room left" in warning
    assert engine.store.stats().segments == 0
    engine.close()


def test_other_members_of_a_union_are_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    engine.encode(schema_of(SCHEMA))
    engine.residency.clear()
    asked: list[str] = []
    monkeypatch.setattr(engine.store, "expect_soon", lambda keys: asked.extend(keys))
    answered(engine, SCHEMA)
    paths = {row["key"]: row["path"] for row in engine.store.segments()}
    assert [paths[key] for key in asked][-1] == "c"
    assert {paths[key] for key in asked} == {"", "a", "b", "c"}
    engine.close()
