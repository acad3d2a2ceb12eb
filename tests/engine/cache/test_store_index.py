"""A damaged index: set aside, and built again from the files; while it is damaged, the answer comes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import xxhash

from engine.base.errors import StoreError
from engine.engine import Engine
from engine.store import INDEX, Origin, Store
from tests.engine.cache.test_store import ORIGIN, audit, file_of, overwrite, segment
from tests.engine.cache.test_store_failures import answered, filled, loaded
from tests.engine.tiny import tiny_model


def no_database(path: Path) -> None:
    path.write_bytes(b"this is no database" * 100)


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def zeroed_in_the_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:-4096] = bytes(len(data) - 8192)
    path.write_bytes(bytes(data))


def without_a_table(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("drop table segments")


def without_a_column(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("alter table segments drop column digest")


def without_counters(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("alter table counters drop column value")


def deleted(path: Path) -> None:
    path.unlink()


DAMAGES = [
    no_database,
    cut_in_half,
    zeroed_in_the_middle,
    without_a_table,
    without_a_column,
    without_counters,
    deleted,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_set_aside_and_built_again_from_the_files(
    tmp_path: Path, damage: Callable[[Path], None], caplog
) -> None:
    store = filled(tmp_path)
    store.save(segment("packed", 20, 9), Origin("other", "m", "isolated", "n", "g"), scheme="int8")
    want = {row["key"]: row for row in store.segments()}
    store.close()
    damage(tmp_path / INDEX)
    broken = (tmp_path / INDEX).read_bytes() if damage is not deleted else b""
    again = Store.open(tmp_path)
    assert "rebuilt from its files" in caplog.text
    assert loaded(again) == [True] * 6
    assert again.load("packed", range(20)) is not None
    found = {row["key"]: row for row in again.segments()}
    same = ("schema", "path", "tokens", "bytes", "scope", "model", "dtype", "scheme")
    for key, row in want.items():
        assert {name: found[key][name] for name in same} == {name: row[name] for name in same}
        assert found[key]["seconds"] == pytest.approx(row["seconds"])
        assert found[key]["created"] == pytest.approx(row["created"], abs=1e-3)
    assert again.verify().clean
    assert again.stats().corrupt == 0
    audit(again)
    kept = [
        path for path in tmp_path.glob("index.sqlite.damaged-*") if not path.name.endswith(("-wal", "-shm"))
    ]
    assert [path.read_bytes() for path in kept] == ([broken] if broken else [])
    again.save(segment("new"), ORIGIN)
    assert again.clear() == 8


def test_what_can_be_read_of_a_damaged_index_is_kept(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.set_budget(123_456_789, "lru")
    store.set_max_age(86400)
    store.settings.pin("travel")
    store.close()
    without_a_column(tmp_path / INDEX)
    again = Store.open(tmp_path)
    kept = again.settings
    assert (kept.budget, kept.policy, kept.pins()) == (123_456_789, "lru", ["travel"])
    assert kept.max_age == 86400


def of_an_earlier_version(store: Store, key: str) -> None:
    """Rewrites a segment's file as earlier versions wrote it: it does not say what its tokens are."""
    (row,) = store.index.query("select * from segments where key = ?", [key])
    path = store.files / row["file"]
    tensors = safetensors.torch.load(path.read_bytes())
    overwrite(path, safetensors.torch.save(tensors, {"key": key, "scheme": "plain"}))
    digest = xxhash.xxh3_128_hexdigest(path.read_bytes())
    with store.index.writing() as connection:
        connection.execute(
            "update segments set bytes = ?, digest = ? where key = ?", [path.stat().st_size, digest, key]
        )


@pytest.mark.parametrize("damage", [without_a_table, without_counters])
def test_files_of_earlier_versions_are_entered_as_far_as_the_old_index_knows_them(
    tmp_path: Path, damage: Callable[[Path], None], caplog
) -> None:
    store = filled(tmp_path)
    of_an_earlier_version(store, "k0")
    assert store.verify().clean
    store.close()
    damage(tmp_path / INDEX)
    again = Store.open(tmp_path)
    known = damage is without_counters
    assert loaded(again) == [known, *[True] * 5]
    assert ("earlier version" in caplog.text) == (not known)
    assert len(list((tmp_path / "quarantine").glob("*"))) == (not known)
    audit(again)


def test_a_damaged_file_is_not_made_whole_by_building_the_index_again(tmp_path: Path) -> None:
    store = filled(tmp_path)
    path = file_of(store)
    store.close()
    said = path.read_bytes().index(b'"token_ids":"') + 15
    for place in (-1, said):  # in a tensor, and in what the file says of itself
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        overwrite(path, bytes(data))
        deleted(tmp_path / INDEX)
        again = Store.open(tmp_path)
        assert len(again.segments()) == 5
        assert sum(loaded(again)) == 5
        again.close()
        path = tmp_path / "quarantine" / path.name
        path.rename(tmp_path / "files" / path.name)
        path = tmp_path / "files" / path.name
        data[place] ^= 1
        overwrite(path, bytes(data))


def spoil_in_use(store: Store) -> None:
    """Damages the database under an open store."""
    with store.index.reading() as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.execute("pragma cache_size = 0")
    path = store.folder / INDEX
    path.write_bytes(path.read_bytes()[:4096] + os.urandom(path.stat().st_size - 4096))


def test_an_index_that_is_damaged_meanwhile_costs_no_answer_and_is_said_in_words(tmp_path: Path) -> None:
    engine = Engine(tiny_model(chat=False), Store.open(tmp_path))
    want = answered(engine)
    engine.memory_tier.clear()
    spoil_in_use(engine.store)
    found = answered(engine)
    assert found.token_ids == want.token_ids
    assert any("is damaged" in warning and "verify --repair" in warning for warning in found.warnings)
    with pytest.raises(StoreError, match="verify --repair"):
        engine.store.segments()
    engine.close()


@pytest.mark.parametrize("sync", [True, False])
def test_an_index_that_is_damaged_before_something_is_encoded_costs_no_answer(
    tmp_path: Path, sync: bool
) -> None:
    engine = Engine(tiny_model(chat=False), Store.open(tmp_path))
    answered(engine)
    spoil_in_use(engine.store)
    schema = engine.schema('<schema name="other"><module name="new">what is not there yet</module></schema>')
    found = schema.prompt("<prompt><new/>so?</prompt>").answer(max_new_tokens=2, sync=sync)
    assert found.tokens["generated"] == 2
    assert list((engine.store.folder / "locks").iterdir()) == [], "others need not wait for it"
    engine.close()


def test_verification_sees_a_damaged_index_and_repair_mends_it(tmp_path: Path) -> None:
    store = filled(tmp_path)
    spoil_in_use(store)
    found = store.verify()
    assert not found.clean
    assert "is damaged" in found.index
    found = store.verify(repair=True)
    assert (found.clean, found.repaired, found.segments) == (False, True, 6)
    assert store.verify().clean
    assert loaded(store) == [True] * 6
    audit(store)
