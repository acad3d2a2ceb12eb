"""Writing behind an answer: within bounds, seen by whoever asks, done before the program ends, never half."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed.kills import context
from engine.base.errors import StoreError
from engine.base.tiers import Reason, Tier
from engine.cache.fetched import Fetched, Request, Unsaved
from engine.engine import Engine
from engine.model.network import Network
from engine.prepared import PreparedPrompt
from engine.store import Origin, Store
from engine.store.blobs.local_files import LocalBlobs
from engine.store.index.eviction import ClearedError
from engine.store.index.in_use import Holds
from engine.store.removal import Remover
from engine.store.write_behind import Behind
from tests.engine.cache.segments import LOADED, in_processes
from tests.engine.cases import held_in_memory, model_of
from tests.engine.tiny import tiny_model

PROCESSES = context(*LOADED)
SCHEMA = '<schema name="s">Read. <module name="a">alpha</module><module name="b">beta</module></schema>'
PROMPT = "<prompt><a/><b/>go</prompt>"
WAIT = 60


class HeldUp:
    """Files that are written when they may be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may, self.begun = threading.Event(), threading.Event()
        self.fault: Exception | None = None
        self.forgotten = False  # somebody waits for what is held up
        write = LocalBlobs.write

        def held_up(blobs: LocalBlobs, *given: Any) -> Any:
            self.begun.set()
            if not self.may.wait(WAIT):
                self.forgotten = True
            if self.fault is not None:
                raise self.fault
            return write(blobs, *given)

        monkeypatch.setattr(LocalBlobs, "write", held_up)


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> Any:
    held_up = HeldUp(monkeypatch)
    yield held_up
    held_up.may.set()
    assert not held_up.forgotten


def engine_in(folder: Path, **options: Any) -> Engine:
    return Engine(model_of("llama-gqa", chat=False), Store.open(folder), **options)


def prompt_of(engine: Engine) -> PreparedPrompt:
    return engine.schema(SCHEMA).prompt(PROMPT)


def test_the_answer_comes_before_its_segments_are_written(tmp_path: Path, held_up: HeldUp) -> None:
    with engine_in(tmp_path) as engine:
        answer = prompt_of(engine).answer(max_new_tokens=3)
        assert answer.tokens["generated"] == 3
        assert list((tmp_path / "files").iterdir()) == []
        again = prompt_of(engine).answer(max_new_tokens=3)
        assert {use.tier for use in again.segments} == {Tier.MEMORY}
        assert again.token_ids == answer.token_ids
        held_up.may.set()
        assert engine.store.stats().segments == 3, "who asks the store waits for what is not written"
        assert engine.store.stats().hits == 3
        assert engine.store.verify().clean


def test_an_answer_that_misses_waits_for_nothing_that_is_not_written(tmp_path: Path, held_up: HeldUp) -> None:
    with engine_in(tmp_path) as engine:
        schema = engine.schema(SCHEMA)
        schema.prompt("<prompt><a/>go</prompt>").answer(max_new_tokens=1)
        other = schema.prompt("<prompt><b/>go</prompt>").answer(max_new_tokens=1)
        assert {use.reason for use in other.segments if use.path == "b"} == {Reason.NEW}
        scoped = schema.prompt("<prompt><a/>go</prompt>").answer(max_new_tokens=1, scope="isolated")
        assert {use.reason for use in scoped.segments if use.path == "a"} == {Reason.SCOPE}
        assert list((tmp_path / "files").iterdir()) == []
        held_up.may.set()


def test_with_sync_all_is_written_before_the_first_token(tmp_path: Path, held_up: HeldUp) -> None:
    with engine_in(tmp_path) as engine:
        held_up.may.set()
        steps = prompt_of(engine).stream(max_new_tokens=3, sync=True)
        next(event for event in steps if type(event).__name__ == "FirstToken")
        assert len(list((tmp_path / "files").iterdir())) == 3
        steps.close()


def test_closing_an_engine_writes_what_is_not_written(tmp_path: Path, held_up: HeldUp) -> None:
    engine = engine_in(tmp_path)
    prompt_of(engine).answer(max_new_tokens=1)
    threading.Timer(0.2, held_up.may.set).start()
    engine.close()
    store = Store.open(tmp_path)
    assert store.stats().segments == 3
    store.close()


def answer_and_end(folder: Path) -> None:
    write, answered = LocalBlobs.write, threading.Event()

    def late(blobs: LocalBlobs, *given: Any) -> Any:
        assert answered.wait(WAIT)
        time.sleep(0.05)  # the program is at its end by then
        return write(blobs, *given)

    LocalBlobs.write = late  # type: ignore[method-assign]
    prompt_of(Engine(tiny_model(chat=False), Store.open(folder))).answer(max_new_tokens=1)
    assert list((folder / "files").iterdir()) == [], "nothing is written yet"
    answered.set()


def test_a_program_that_ends_without_closing_writes_what_is_not_written(tmp_path: Path) -> None:
    in_processes(answer_and_end, (tmp_path,))
    store = Store.open(tmp_path)
    assert store.stats().segments == 3
    assert store.verify().clean
    store.close()


def test_what_is_evicted_from_memory_before_it_is_written_is_waited_for(
    tmp_path: Path, held_up: HeldUp
) -> None:
    with engine_in(tmp_path, memory=0) as engine:
        first = prompt_of(engine).answer(max_new_tokens=2)
        assert held_up.begun.wait(WAIT)
        threading.Timer(0.2, held_up.may.set).start()
        second = prompt_of(engine).answer(max_new_tokens=2)
        assert {use.tier for use in second.segments} == {Tier.DISK}
        assert second.token_ids == first.token_ids


def test_a_failure_is_told_by_the_answer_that_runs_or_else_by_the_next(
    tmp_path: Path, held_up: HeldUp, caplog: pytest.LogCaptureFixture
) -> None:
    held_up.fault = OSError("no block is left")
    with engine_in(tmp_path) as engine, caplog.at_level(logging.WARNING):
        answer = prompt_of(engine).answer(max_new_tokens=1)
        assert answer.warnings == (), "it had ended before"
        held_up.may.set()
        engine.store.finish_writing()
        assert caplog.text.count("could not be stored") == 1
        told = prompt_of(engine).answer(max_new_tokens=1)
        (warning,) = told.warnings
        assert "3 segments of an earlier answer could not be stored" in warning
        assert "no block is left" in warning
        engine.store.finish_writing()
        assert len(prompt_of(engine).answer(max_new_tokens=1).warnings) == 1, "it was tried again"
        engine.store.finish_writing()
        held_up.fault = None
        assert len(prompt_of(engine).answer(max_new_tokens=1).warnings) == 1
        engine.store.finish_writing()
        assert len(engine.store.segments()) == 3
        assert prompt_of(engine).answer(max_new_tokens=1).warnings == ()
        held_up.fault = OSError("no block is left")
        engine.store.clear()
        engine.memory_tier.clear()
        (warning,) = prompt_of(engine).answer(max_new_tokens=1, sync=True).warnings
        assert "no block is left" in warning


def test_what_a_prompt_reads_does_not_go_for_its_own_segments_after_it_ended(
    tmp_path: Path, held_up: HeldUp
) -> None:
    with engine_in(tmp_path) as engine:
        engine.store.settings.set_budget(6000, None)
        held_up.may.set()
        prompt_of(engine).answer(max_new_tokens=1, sync=True)
        synced = {row["key"] for row in engine.store.segments()}
        engine.store.clear()
        engine.memory_tier.clear()
        held_up.may.clear()
        prompt_of(engine).answer(max_new_tokens=1)
        held_up.may.set()
        assert {row["key"] for row in engine.store.segments()} == synced
        assert 0 < len(synced) < 3
        assert engine.store.holds.keys() == set()


def answer_and_die(folder: str, reached: Any) -> None:
    """Is killed while a file is half written."""

    def write(_: LocalBlobs, *__: Any) -> Any:
        (Path(folder) / "files" / f".{'0a' * 16}.tmp").write_bytes(b"half")
        reached.set()
        threading.Event().wait()

    LocalBlobs.write = write  # type: ignore[method-assign]
    engine = Engine(tiny_model(chat=False), Store.open(Path(folder)))
    prompt_of(engine).answer(max_new_tokens=1)
    assert reached.wait(WAIT)
    os.kill(os.getpid(), 9)


def test_a_kill_before_writing_loses_the_segments_and_nothing_else(tmp_path: Path) -> None:
    reached = PROCESSES.Event()
    worker = PROCESSES.Process(target=answer_and_die, args=(str(tmp_path), reached))
    worker.start()
    worker.join(2 * WAIT)
    assert worker.exitcode == -9
    with engine_in(tmp_path) as engine:
        assert engine.store.verify().clean
        assert engine.store.stats().segments == 0
        answer = prompt_of(engine).answer(max_new_tokens=1)
        assert {use.reason for use in answer.segments} == {"new"}
        assert engine.store.stats().segments == 3


def test_another_who_wants_the_same_waits_until_it_is_written(tmp_path: Path, held_up: HeldUp) -> None:
    with engine_in(tmp_path) as engine, engine_in(tmp_path) as other:
        prompt_of(engine).answer(max_new_tokens=1)
        assert held_up.begun.wait(WAIT)
        threading.Timer(0.2, held_up.may.set).start()
        answer = prompt_of(other).answer(max_new_tokens=1)
        assert {use.reason for use in answer.segments} == {"computed elsewhere meanwhile"}


def test_whoever_asks_for_more_than_there_is_room_for_waits() -> None:
    behind, may, done = Behind(most_bytes=10, most=3), threading.Event(), list[str]()

    def work(name: str) -> Any:
        def run() -> None:
            assert may.wait(WAIT)
            done.append(name)

        return run

    behind.put(work("large"), "large", 100)
    waiting = threading.Thread(target=lambda: behind.put(work("small"), "small", 1))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    may.set()
    waiting.join()
    behind.wait(["small"])
    assert done == ["large", "small"]
    for name in "abcdef":
        behind.put(work(name), name, 1)
    behind.close()
    assert done[2:] == list("abcdef")
    assert not behind.busy


def test_work_that_fails_is_logged_and_keeps_nothing_from_being_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    behind, done = Behind(10, 3), list[int]()
    behind.put(lambda: done.append(1 // 0))
    behind.put(lambda: done.append(1))
    behind.close()
    assert done == [1]
    assert "ZeroDivisionError" in caplog.text


def test_a_failure_of_an_answer_that_was_stopped_is_told_by_the_next() -> None:
    unsaved = Unsaved()
    fetched = Fetched(Request("s", "anchored"), (), Holds().hold(()), unsaved)
    for _ in range(2):
        fetched.saved(StoreError("the disk is full"))
    fetched.release()
    told = unsaved.take()
    assert told is not None
    assert "2 segments of an earlier answer could not be stored: the disk is full" in told
    assert unsaved.take() is None


def test_a_failure_that_was_told_is_not_told_again() -> None:
    unsaved = Unsaved()
    fetched = Fetched(Request("s", "anchored"), (), Holds().hold(()), unsaved)
    fetched.saved(StoreError("the disk is full"))
    assert fetched.warnings() == ("the disk is full",)
    fetched.release()
    assert unsaved.take() is None


def test_an_interrupt_while_work_is_handed_over_leaves_nothing_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind, done, submit = Behind(10, 3), list[int](), ThreadPoolExecutor.submit

    def interrupted(*given: Any) -> None:
        submit(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ThreadPoolExecutor, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            behind.put(lambda: done.append(1), "key", 1)
    assert not behind.busy
    behind.put(lambda: done.append(2))
    closing = threading.Thread(target=behind.close, daemon=True)
    closing.start()
    closing.join(WAIT)
    assert not closing.is_alive()
    assert done == [2], "who was interrupted has let go of what the work needs"


def test_work_for_which_there_is_no_thread_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    behind, done = Behind(10, 3), list[int]()

    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        behind.put(lambda: done.append(1))
    assert done == [1]
    behind.put(lambda: done.append(2))
    behind.close()
    assert done == [1, 2]


def test_what_waits_to_be_written_when_the_store_is_cleared_is_not_written(
    tmp_path: Path, held_up: HeldUp
) -> None:
    """By another program, as `pml cache clear` is: its text was to go, and must not come back."""
    with engine_in(tmp_path) as engine, contextlib.closing(Store.open(tmp_path)) as other:
        prompt = prompt_of(engine)
        answer = prompt.answer(max_new_tokens=1)
        assert held_up.begun.wait(WAIT)
        other.clear()
        held_up.may.set()
        engine.store.finish_writing()
        assert (engine.store.stats().segments, other.stats().segments) == (0, 0)
        assert not any(other.folder.glob("files/*")), "a file without a row"
        assert answer.warnings == ()
        assert engine.segment_cache.unsaved() is None
        again = prompt.answer(max_new_tokens=1)
        assert {use.tier for use in again.segments} == {Tier.NONE}, "it is held in memory no more"
        engine.store.finish_writing()
        assert other.stats().segments > 0, "what is computed after it is stored as ever"


@pytest.mark.parametrize("sync", [True, False])
def test_what_was_begun_before_the_store_was_cleared_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    with engine_in(tmp_path) as engine, contextlib.closing(Store.open(tmp_path)) as other:
        encode = Network.encode

        def cleared_meanwhile(network: Network, texts: Any) -> None:
            encode(network, texts)
            other.clear()

        monkeypatch.setattr(Network, "encode", cleared_meanwhile)
        answer = prompt_of(engine).answer(max_new_tokens=1, sync=sync)
        assert (engine.store.stats().segments, answer.warnings) == (0, ())
        monkeypatch.undo()
        prompt_of(engine).answer(max_new_tokens=1, sync=sync)
        assert engine.store.stats().segments == 3


def test_what_is_entered_while_the_store_is_cleared_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at what there is and its removal another program writes what it had computed."""
    with engine_in(tmp_path) as engine, contextlib.closing(Store.open(tmp_path)) as other:
        prompt_of(engine).answer(max_new_tokens=1, sync=True)
        known = engine.store.settings.cleared
        remove = Remover.remove

        def late(remover: Remover, *given: Any) -> Any:
            held = {handle.key: handle for handle in held_in_memory(engine).values()}
            one = next(iter(held.values()))
            with pytest.raises(ClearedError):
                engine.store.save(one, Origin("s", "a", "anchored", "m", "f"), cleared=known)
            return remove(remover, *given)

        monkeypatch.setattr(Remover, "remove", late)
        other.clear()
        assert other.stats().segments == 0
