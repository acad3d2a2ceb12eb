"""Several processes, crashes, full disks, network folders: nothing wrong is served, little is lost."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from benchmarks.speed.kills import context
from engine.base.errors import StoreError
from engine.engine import Engine
from engine.files.directory import Directory
from engine.store import Store
from engine.store.blobs import locks
from tests.drawing import EVERY
from tests.engine.cache.segments import LOADED, in_processes
from tests.engine.cache.test_store import ORIGIN, audit, file_of, overwrite, segment
from tests.engine.cases import held_in_memory, schema_of
from tests.engine.tiny import tiny_model

PROCESSES = context(*LOADED)
SCHEMA = '<schema name="s">Read these:<module name="a">alpha</module><module name="b">beta</module></schema>'


def write_and_prune(folder: str, number: int, rounds: int) -> None:
    """Writes, reads, evicts; leaves with status 1 where something wrong is served."""
    store, draw = Store.open(Path(folder)), random.Random(number)
    for _ in range(rounds):
        what = draw.randrange(12)
        made = segment(f"k{what}", 20 + what, what)
        read = store.load(made.key, made.token_ids)
        if read is None:
            with store.disk.compute_lock(made.key, 60):
                store.save(made, ORIGIN)
        elif not torch.equal(read.keys, made.keys):
            os._exit(1)
        if draw.random() < 0.1:
            store.prune(max_bytes=draw.randrange(60_000))
    store.close()


def test_processes_that_write_and_prune_one_store(tmp_path: Path) -> None:
    Store.open(tmp_path).set_budget(80_000)
    in_processes(write_and_prune, *((str(tmp_path), number, 300 if EVERY else 60) for number in range(3)))
    store = Store.open(tmp_path)
    assert store.verify().clean
    assert store.stats().corrupt == 0
    audit(store)


def test_a_process_killed_at_any_time_leaves_a_store_that_agrees_with_itself(tmp_path: Path) -> None:
    draw = random.Random(0)
    for number in range(5 if EVERY else 2):
        worker = PROCESSES.Process(target=write_and_prune, args=(str(tmp_path), number, 1_000_000))
        worker.start()
        deadline = time.time() + 30
        while time.time() < deadline and not (tmp_path / "files").exists():
            time.sleep(0.02)
        time.sleep(0.5 + draw.random() * 0.5)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        store = Store.open(tmp_path)
        found = store.verify()
        assert found.clean, found
        for what in range(12):
            read = store.load(f"k{what}", range(20 + what))
            assert read is None or torch.equal(read.keys, segment(f"k{what}", 20 + what, what).keys)
        store.close()


def test_opening_removes_what_a_crash_has_left(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment(), ORIGIN)
    (store.files / f".{'0a' * 16}.tmp").write_bytes(b"half")
    whole = file_of(store).read_bytes().replace(b'"key":"k"', b'"key":"w"')
    (store.files / "w-0123456789abcdef.safetensors").write_bytes(whole)
    assert len(store.verify().orphans) == 2
    with store.disk.shared():  # somebody is writing, so nothing may be taken away
        Store.open(tmp_path).close()
        assert len(list((tmp_path / "files").iterdir())) == 3
    store.close()
    again = Store.open(tmp_path)
    assert again.verify().clean
    audit(again)


def test_a_writer_that_died_keeps_nobody_from_clearing_up(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with store.disk.shared():
        (held,) = (tmp_path / "locks").iterdir()
        assert store.verify().unsure == "another process is writing"
        assert held.exists()
    assert not held.exists()
    held.touch()  # as who was killed leaves it
    assert store.verify().unsure == ""
    assert not held.exists()


def test_writers_keep_no_writer_out(tmp_path: Path) -> None:
    store, other = Store.open(tmp_path), Store.open(tmp_path)
    with store.disk.shared(), store.disk.shared(), other.disk.shared():
        assert len(list((tmp_path / "locks").iterdir())) == 3
        other.save(segment(), ORIGIN)
    assert list((tmp_path / "locks").iterdir()) == []


def opens_and_finds(folder: str, keys: list[str]) -> None:
    store = Store.open(Path(folder))
    assert sorted(row["key"] for row in store.segments()) == keys
    store.close()


def test_two_stores_of_one_process_lose_nothing_to_another_process(tmp_path: Path) -> None:
    """SQLite's locks are the process's: a descriptor that it closes itself lets go of all of them."""
    one, two = Store.open(tmp_path), Store.open(tmp_path)
    for keys in ([], ["k"]):
        in_processes(opens_and_finds, (str(tmp_path), keys))
        one.save(segment(), ORIGIN)
    two.close()
    one.close()


def test_verification_finds_and_mends_every_damage(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for number in range(5):
        store.save(segment(f"k{number}", 20, number), ORIGIN)
    paths = sorted(store.files.iterdir())
    overwrite(paths[0], paths[0].read_bytes()[:-1] + b"\x00")
    overwrite(paths[1], b"")
    paths[2].unlink()
    overwrite(paths[3], paths[4].read_bytes())
    steps: list[int] = []
    found = store.verify(progress=lambda done, total, _: steps.append(total - done))
    assert steps == [5, 4, 3, 2, 1, 0]
    assert len(found.faults) == 4
    assert not found.clean
    assert store.stats().segments == 5
    assert not store.verify(repair=True).clean
    assert store.verify().clean
    assert store.stats().corrupt == 4
    assert len(list((tmp_path / "quarantine").iterdir())) == 3


@pytest.mark.parametrize("policy", ["always", "first", "never"])
def test_when_digests_are_checked(tmp_path: Path, policy) -> None:
    Store.open(tmp_path).save(segment("k", 20), ORIGIN)
    store = Store.open(tmp_path, verify=policy)
    assert store.load("k", range(20)) is not None
    (path,) = store.files.iterdir()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    overwrite(path, bytes(data))
    assert (store.load("k", range(20)) is None) == (policy != "never")
    fresh = Store.open(tmp_path, verify=policy)
    assert (fresh.load("k", range(20)) is None) == (policy != "never")


def test_a_policy_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="verify is 'often'"):
        Store.open(tmp_path, verify="often")  # type: ignore[arg-type]


def test_two_engines_that_encode_at_once_agree(tmp_path: Path) -> None:
    engines = [Engine(tiny_model(chat=False), Store.open(tmp_path)) for _ in range(2)]
    start = threading.Barrier(2)

    def encode(engine: Engine) -> None:
        start.wait()
        engine.schema(schema_of(SCHEMA)).encode()

    threads = [threading.Thread(target=encode, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engines[0].store.verify().clean
    assert engines[0].store.stats().segments == 3


def test_what_another_process_computes_meanwhile_is_not_computed_again(tmp_path: Path) -> None:
    """The other process holds the turn of one segment and stores it while an engine waits for it."""
    other = Engine(tiny_model(chat=False), Store.open(tmp_path / "other"))
    schema = schema_of(SCHEMA)
    other.schema(schema).encode()
    held = held_in_memory(other).values()
    (made,) = [segment for segment in held if segment.tokens == len("alpha")]
    engine = Engine(tiny_model(chat=False), Store.open(tmp_path / "shared"))
    reports = []
    thread = threading.Thread(target=lambda: reports.append(engine.schema(schema).encode()))
    with engine.store.disk.compute_lock(made.key, 60):
        thread.start()
        while engine.store.stats().segments < 1:  # it is past the text before, and waits
            time.sleep(0.01)
        time.sleep(0.1)
        engine.store.save(made, ORIGIN)
    thread.join()
    assert (reports[0].encoded, reports[0].reused, reports[0].elsewhere) == (2, 0, 1)
    assert (reports[0].kept, reports[0].total) == (3, 3)
    assert engine.store.stats().segments == 3


def test_who_waits_finds_what_the_other_has_computed(tmp_path: Path) -> None:
    folder, order = Directory.at(tmp_path), []
    held = threading.Event()

    def first() -> None:
        with locks.compute_lock(folder, "k.lock", 5) as waited:
            held.set()
            time.sleep(0.2)
            order.append(("first", waited))

    thread = threading.Thread(target=first)
    thread.start()
    held.wait()
    with locks.compute_lock(folder, "k.lock", 5) as waited:
        order.append(("second", waited))
    thread.join()
    assert order == [("first", False), ("second", True)]
    assert not (tmp_path / "k.lock").exists()


def test_who_waits_in_vain_goes_on(tmp_path: Path) -> None:
    folder = Directory.at(tmp_path)
    with locks.compute_lock(folder, "k.lock", 5), locks.compute_lock(folder, "k.lock", 0.05) as waited:
        assert waited
    with locks.compute_lock(folder, "k.lock", 0) as waited:
        assert not waited


MOUNTS = """/dev/vda / ext4 rw 0 0
server:/home {home} nfs4 rw 0 0
tmpfs {home}/fast tmpfs rw 0 0
"""


def test_network_folders_are_known(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.format(home=tmp_path / "home"))
    for folder, kind in (("home/cache", "nfs4"), ("home/fast/cache", None), ("other", None)):
        (tmp_path / folder).mkdir(parents=True)
        assert locks.network_kind(tmp_path / folder, mounts) == kind
    assert locks.network_kind(tmp_path, tmp_path / "no-such-file") is None


def test_on_a_network_folder_the_index_is_used_more_carefully_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "network_kind", lambda _: "nfs4")
    with caplog.at_level(logging.WARNING):
        store = Store.open(tmp_path)
    assert "is on a network (nfs4)" in caplog.text
    with store.index.reading() as connection:
        assert connection.execute("pragma journal_mode").fetchone()[0] == "delete"
    store.save(segment(), ORIGIN)
    assert store.load("k", range(5)) is not None


@pytest.mark.parametrize("junk", [b"\x00", b"{", b"\xff"])
def test_a_file_that_is_no_segment_is_noticed_even_where_digests_are_not_checked(
    tmp_path: Path, junk: bytes
) -> None:
    store = Store.open(tmp_path, verify="never")
    store.save(segment("k", 20), ORIGIN)
    (path,) = store.files.iterdir()
    overwrite(path, junk * path.stat().st_size)
    assert store.load("k", range(20)) is None
    assert store.stats().corrupt == 1
