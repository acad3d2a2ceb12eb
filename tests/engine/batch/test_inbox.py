"""What is handed to a thread: nothing is left behind when the thread is about to end."""

from __future__ import annotations

import threading
import time

import pytest

from engine.batch import worker_queue
from engine.batch.worker_queue import Inbox


def test_what_comes_while_the_thread_ends_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_queue, "IDLE_SECONDS", 0.01)
    found, ending, ends = list[int](), threading.Event(), threading.Event()

    def work() -> None:
        while box.take(found):
            pass
        ending.set()
        ends.wait(10)

    box: Inbox[int] = Inbox(work)
    box.put(1)
    assert ending.wait(10)
    box.put(2)
    until = time.monotonic() + 10
    while found != [1, 2] and time.monotonic() < until:
        time.sleep(0.005)
    ends.set()
    assert found == [1, 2]
    assert not box
    box.close()


def test_as_many_are_taken_as_are_wanted() -> None:
    started = threading.Event()
    box: Inbox[int] = Inbox(started.set)
    for number in range(3):
        box.put(number)
    into: list[int] = []
    assert started.wait(10)
    assert box.take(into, 2, wait=False)
    assert into == [0, 1]
    assert box.take(into, wait=False)
    assert not box.take(into, wait=False)
    assert into == [0, 1, 2]
