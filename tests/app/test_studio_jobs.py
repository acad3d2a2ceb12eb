"""Long work that the page asks about and can stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from app.studio.answers import JobState, Json
from app.studio.jobs import KEPT, Job, Jobs, Result
from engine.errors import PromptCacheError


def started(work: Callable[[Job], Result]) -> Job:
    return Jobs().start(Job("k", work, "test"))


def ended(job: Job) -> JobState[Json]:
    until = time.monotonic() + 30
    while not job.over:
        assert time.monotonic() < until
        time.sleep(0.005)
    return job.state()


def test_a_job_says_how_far_it_is_and_stops_at_its_next_step() -> None:
    asked, go = threading.Event(), threading.Event()

    def work(job: Job) -> Result:
        job.progress(1, 3, "the first step")
        asked.set()
        go.wait()
        job.progress(2, 3, "the second step")
        raise AssertionError("it was told to stop")

    job = Job("k", work, "test", "waiting")
    assert job.state()["what"] == "waiting"
    job.start()
    asked.wait()
    state = job.state()
    assert (state["done"], state["total"], state["what"], state["over"]) == (1, 3, "the first step", False)
    job.stop()
    go.set()
    assert ended(job)["fault"] == "Stopped."


def test_faults_become_sentences() -> None:
    def refuse(_: Job) -> Result:
        raise PromptCacheError("The disk is gone.")

    def fail(_: Job) -> Result:
        raise KeyError("x")

    assert ended(started(refuse))["fault"] == "The disk is gone."
    assert "KeyError" in ended(started(fail))["fault"]


def test_its_states_are_told_as_they_change_and_to_the_end() -> None:
    steps = [threading.Event() for _ in range(2)]

    def work(job: Job) -> Result:
        for number, step in enumerate(steps):
            assert step.wait(10)
            job.progress(number + 1, 2, f"step {number + 1}")
        raise PromptCacheError("The end.")

    told = []
    for state in started(work).states():
        told.append(state)
        if len(told) <= len(steps):
            steps[len(told) - 1].set()
    assert [state["done"] for state in told][:2] == [0, 1]
    assert [state["over"] for state in told] == [False] * (len(told) - 1) + [True]
    assert told[-1]["fault"] == "The end."


def test_work_that_nobody_follows_any_more_is_stopped() -> None:
    go = threading.Event()

    def work(job: Job) -> Result:
        assert go.wait(10)
        job.progress(1, 1, "a step")
        raise AssertionError("it was told to stop")

    job = started(work)
    states = job.states()
    next(states)
    states.close()  # type: ignore[attr-defined]
    go.set()
    assert ended(job)["fault"] == "Stopped."


def test_work_that_goes_on_outlives_later_work_that_is_over() -> None:
    go, jobs = threading.Event(), Jobs()

    def wait(job: Job) -> Result:
        assert go.wait(30)
        job.progress(1, 1, "a step")
        raise PromptCacheError("The end.")

    def refuse(_: Job) -> Result:
        raise PromptCacheError("At once.")

    long = jobs.start(Job("long", wait, "test"))
    for number in range(KEPT + 1):
        ended(jobs.start(Job(str(number), refuse, "test")))
    assert not jobs.state("long")["over"]
    with pytest.raises(PromptCacheError, match="not kept any more"):
        jobs.state("0")
    go.set()
    assert ended(long)["fault"] == "The end."
