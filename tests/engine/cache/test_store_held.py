"""A store that another program holds: the first wait is paid, the answer comes, and a sentence says why."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import lock_descriptor

from engine.base.errors import StoreError
from engine.engine import Engine
from engine.store import INDEX, Store
from engine.store.blobs import locks
from engine.store.index import database
from tests.engine.cache.test_store import ORIGIN, segment
from tests.engine.cache.test_store_failures import answered, filled, loaded
from tests.engine.tiny import tiny_model

KEYS = [f"{number:040x}" for number in range(6)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.2)
    monkeypatch.setattr(locks, "PATIENCE_SECONDS", 0.2)


@contextlib.contextmanager
def lock_held(folder: Path) -> Iterator[None]:
    with (folder / "writing.lock").open("w") as file:
        assert lock_descriptor(file.fileno(), blocking=False)
        yield


@contextlib.contextmanager
def index_held(folder: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(folder / INDEX, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        yield


def test_a_lock_that_is_never_let_go_costs_the_saving_and_not_the_answer(tmp_path: Path) -> None:
    filled(tmp_path).close()
    engine = Engine(tiny_model(chat=False), Store.open(tmp_path))
    with lock_held(tmp_path):
        found = answered(engine)
        (warning,) = found.warnings
        assert "another program has the lock writing.lock" in warning
        assert "prune" not in warning
        assert engine.store.disk.patience == 0, "only the first wait is paid"
    assert engine.store.stats().segments == 6
    engine.memory_tier.clear()
    assert answered(engine).warnings == ()
    assert engine.store.stats().segments > 6
    assert engine.store.disk.patience > 0
    engine.close()


def test_an_index_that_another_program_holds_at_opening_is_read(tmp_path: Path, caplog) -> None:
    filled(tmp_path).close()
    with index_held(tmp_path):
        store = Store.open(tmp_path)
        assert "locked by another program" in store.read_only
        assert "Wait for that program" in caplog.text
        assert loaded(store) == [True] * 6
        with pytest.raises(StoreError, match="locked by another program"):
            store.save(segment("new"), ORIGIN)
        found = store.verify(repair=True)
        assert (found.orphans, found.repaired) == ((), False)
    store.save(segment("new"), ORIGIN)
    assert (store.read_only, store.stats().segments) == ("", 7)


def test_an_index_that_is_held_while_answering_is_waited_for_once(tmp_path: Path) -> None:
    engine = Engine(tiny_model(chat=False), Store.open(tmp_path))
    with index_held(tmp_path):
        (warning,) = answered(engine).warnings
        assert "locked by another program" in warning
        with engine.store.index.reading() as connection:
            assert connection.execute("pragma busy_timeout").fetchone()[0] == 0
    engine.store.save(segment("new"), ORIGIN)
    with engine.store.index.reading() as connection:
        engine.store.set_budget(1 << 30)
        assert connection.execute("pragma busy_timeout").fetchone()[0] > 0
    engine.close()


def sent(folder: Path) -> Store:
    """A store of six segments that can travel."""
    store = Store.open(folder)
    for number, key in enumerate(KEYS):
        store.save(segment(key, 20, number), ORIGIN, seconds=float(number))
    return store


def test_what_an_import_takes_in_is_not_evicted_by_it(tmp_path: Path) -> None:
    here = sent(tmp_path / "here")
    size = here.stats().bytes // 6
    here.export(tmp_path / "six.tar")
    there = Store.open(tmp_path / "there")
    for number in range(6):
        there.save(segment(f"dear{number}", 20, number), ORIGIN, seconds=1e6)
    there.set_budget(int(size * 6.5))
    assert there.import_(tmp_path / "six.tar").segments == 6
    assert there.contains(KEYS) == {*KEYS}


def test_an_import_without_room_for_all_says_how_many_are_kept_and_what_would_do(tmp_path: Path) -> None:
    here = sent(tmp_path / "here")
    size = here.stats().bytes // 6
    here.export(tmp_path / "six.tar")
    here.remove(KEYS[:3])
    here.export(tmp_path / "three.tar")
    there = Store.open(tmp_path / "there")
    there.import_(tmp_path / "three.tar")
    there.set_budget(int(size * 4.5))
    with pytest.raises(StoreError, match=r"4 of its 6 segments are stored.*pml cache budget") as said:
        there.import_(tmp_path / "six.tar")
    assert there.stats().segments == 4
    would_do = int(str(said.value).split("A budget of ")[1].split(" bytes")[0].replace(",", ""))
    there.set_budget(would_do)
    assert there.import_(tmp_path / "six.tar").known == 4
    assert there.contains(KEYS) == {*KEYS}


def test_a_budget_without_room_names_what_would_help(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.settings.pin("travel")
    store.set_budget(store.stats().bytes)
    with pytest.raises(StoreError, match=r"pml cache budget SIZE.*pml cache unpin") as said:
        store.save(segment("new"), ORIGIN)
    assert "prune" not in str(said.value)
    assert "writable" not in str(said.value)
