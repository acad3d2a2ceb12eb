"""Long work that the page asks about and can stop."""

from __future__ import annotations

import threading
import time
from typing import Any

from app.studio.jobs import Job
from engine.errors import PromptCacheError


def ended(job: Job) -> dict[str, Any]:
    until = time.monotonic() + 30
    while not job.over:
        assert time.monotonic() < until
        time.sleep(0.005)
    return job.state()


def test_a_job_says_how_far_it_is_and_stops_at_its_next_step() -> None:
    asked, go = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        job.progress(1, 3, "the first step")
        asked.set()
        go.wait()
        job.progress(2, 3, "the second step")
        raise AssertionError("it was told to stop")

    job = Job(work, "test", "waiting")
    asked.wait()
    state = job.state()
    assert (state["done"], state["total"], state["what"], state["over"]) == (1, 3, "the first step", False)
    job.stop()
    go.set()
    assert ended(job)["error"] == "Stopped."


def test_faults_become_sentences() -> None:
    def refuse(_: Job) -> None:
        raise PromptCacheError("The disk is gone.")

    def fail(_: Job) -> None:
        raise KeyError("x")

    assert ended(Job(refuse, "test"))["error"] == "The disk is gone."
    assert "KeyError" in ended(Job(fail, "test"))["error"]
