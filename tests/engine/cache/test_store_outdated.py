"""Schemas with segments from before texts kept line breaks between modules: each is told of once."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from engine.base.tiers import Outcome, Tier
from engine.store import INDEX, Lookup, Store
from engine.store.index.migrations import VERSION
from engine.store.index.outdated import take_note
from tests.engine.cache.segments import segment
from tests.engine.cache.test_store import ORIGIN

TRIP = replace(ORIGIN, schema="trip")
OTHER = replace(ORIGIN, schema="other")


def store_of_version_2(folder: Path, segments: int = 3) -> Path:
    """A store as the version before left it, with segments of the schema trip and one of another."""
    with closing(Store.open(folder)) as store:
        for number in range(segments):
            store.save(segment(f"k{number}", seed=number), TRIP)
        store.save(segment("o"), OTHER)
    with closing(sqlite3.connect(folder / INDEX)) as connection:
        for table in ("keeps", "combinations", "measurements"):
            connection.execute(f"drop table {table}")
        connection.execute("alter table pins drop column until")
        connection.execute("drop table misses")
        connection.execute("drop table outdated")
        connection.execute("pragma user_version = 2")
        connection.commit()
    return folder


def rows(folder: Path) -> set[str]:
    with closing(sqlite3.connect(folder / INDEX)) as connection:
        return {row[0] for row in connection.execute("select schema from outdated")}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return store_of_version_2(tmp_path / "cache")


@pytest.mark.parametrize("opened_before", [False, True])
def test_each_schema_is_told_of_once(old: Path, opened_before: bool) -> None:
    if opened_before:
        Store.open(old).close()
    assert take_note(old, "missing") == 0
    assert [take_note(old, "trip") for _ in range(2)] == [3, 0]
    assert rows(old) == {"other"}
    assert take_note(old, "other") == 1
    with closing(Store.open(old)) as store:
        assert store.stats().segments == 4, "nothing is deleted"
        assert store.verify().clean


def test_a_new_store_has_nothing_to_tell(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path)) as store:
        store.save(segment(), TRIP)
    assert take_note(tmp_path, "trip") == 0


def test_what_was_used_since_or_is_gone_is_not_counted(old: Path) -> None:
    with closing(Store.open(old)) as store:
        store.record([Lookup("k0", Tier.DISK, Outcome.HIT)])
        store.remove(["k1"])
        store.save(segment("k9"), TRIP)
    assert take_note(old, "trip") == 1


def test_a_cleared_store_has_nothing_to_tell(old: Path) -> None:
    with closing(Store.open(old)) as store:
        store.clear()
    assert take_note(old, "trip") == 0
    assert rows(old) == {"other"}


@pytest.mark.parametrize("name", ["missing", "a/b", "\0"])
def test_nothing_is_made_where_there_is_no_store(tmp_path: Path, name: str) -> None:
    assert take_note(tmp_path / name, "trip") == 0
    assert not list(tmp_path.iterdir())
    (tmp_path / "empty").mkdir()
    assert take_note(tmp_path / "empty", "trip") == 0
    assert not list((tmp_path / "empty").iterdir())


def test_a_newer_an_older_a_foreign_and_a_damaged_index_say_nothing_and_stay(old: Path) -> None:
    index = old / INDEX
    for statement in (
        f"pragma user_version = {VERSION + 1}",
        "pragma user_version = 1",
        "pragma user_version = 2; pragma application_id = 7",
    ):
        with closing(sqlite3.connect(index)) as connection:
            connection.executescript(statement)
        before = index.read_bytes()
        assert take_note(old, "trip") == 0
        assert index.read_bytes() == before
    index.write_bytes(b"no database" * 1000)
    assert take_note(old, "trip") == 0
    assert index.read_bytes() == b"no database" * 1000
    index.unlink()
    assert take_note(old, "trip") == 0
    assert not index.exists()


@pytest.mark.parametrize("migrated", [False, True])
def test_an_index_that_is_held_says_it_later(old: Path, migrated: bool) -> None:
    if migrated:
        Store.open(old).close()
    with closing(sqlite3.connect(old / INDEX, isolation_level=None)) as other:
        other.execute("begin immediate")
        assert take_note(old, "trip") == 0
        other.execute("rollback")
    assert take_note(old, "trip") == 3


ASKING = """
import sys
from pathlib import Path
from engine.store.index.outdated import take_note
sys.stdin.readline()
print(sum(take_note(Path(sys.argv[1]), "trip") for _ in range(20)), "torch" in sys.modules)
"""


def test_of_processes_that_ask_at_once_one_is_told(old: Path) -> None:
    command = [sys.executable, "-c", ASKING, str(old)]
    asking = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for process in asking:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    told = sorted(process.communicate(timeout=60)[0].strip() for process in asking)
    assert told == ["0 False", "0 False", "3 False"]


AS_NOBODY = """
import os, sys
from pathlib import Path
from engine.store.index.outdated import take_note
os.setgid(65534), os.setuid(65534)
print(take_note(Path(sys.argv[1]), "trip"))
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root may write everywhere")
@pytest.mark.parametrize("migrated", [False, True])
def test_a_store_that_is_only_read_says_nothing(migrated: bool) -> None:
    """Nobody could note that it was said."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = store_of_version_2(Path(place) / "cache")
        if migrated:
            Store.open(folder).close()
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(folder)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
        assert take_note(folder, "trip") == 3
