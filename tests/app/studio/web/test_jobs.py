"""Long work that the page asks about and can stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from app.studio.web.jobs import KEPT, Job, Jobs, Result
from app.studio.web.json_answers import JobState, Json
from engine.base.errors import PromptCacheError
from tests.app.studio.followed import follow


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

    class Panic(BaseException):
        """As compiled libraries raise it."""

    def panic(_: Job) -> Result:
        raise Panic

    assert "KeyError" in ended(started(fail))["fault"]
    assert "Panic" in ended(started(panic))["fault"]


def test_its_states_are_told_as_they_change_and_to_the_end() -> None:
    steps = [threading.Event() for _ in range(2)]

    def work(job: Job) -> Result:
        for number, step in enumerate(steps):
            assert step.wait(10)
            job.progress(number + 1, 2, f"step {number + 1}")
        raise PromptCacheError("The end.")

    told = []
    for state in follow(started(work)):
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
    states = follow(job)
    next(states)
    states.close()
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
    with pytest.raises(PromptCacheError, match="no longer exists"):
        jobs.state("0")
    go.set()
    assert ended(long)["fault"] == "The end."


def test_nothing_is_stopped_to_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.studio.web.jobs.KEPT", 3)
    go, jobs = threading.Event(), Jobs()

    def wait(job: Job) -> Result:
        assert go.wait(30)
        job.progress(1, 1, "a step")
        raise PromptCacheError("The end.")

    going = [jobs.start(Job(f"{number}", wait, "test")) for number in range(3)]
    with pytest.raises(PromptCacheError, match="3 jobs are running"):
        jobs.start(Job("more", wait, "test"))
    go.set()
    assert [ended(one)["fault"] for one in going] == ["The end."] * 3
    assert ended(jobs.start(Job("more", wait, "test")))["fault"] == "The end."


def test_a_key_of_work_that_goes_on_is_refused_and_free_again_after_it() -> None:
    go, jobs = threading.Event(), Jobs()

    def wait(job: Job) -> Result:
        assert go.wait(30)
        job.progress(1, 1, "a step")
        raise PromptCacheError("The end.")

    first = jobs.start(Job("k", wait, "test"))
    with pytest.raises(PromptCacheError, match="is already running"):
        jobs.start(Job("k", wait, "test"))
    jobs.stop("k")
    go.set()
    assert ended(first)["fault"] == "Stopped."
    assert ended(jobs.start(Job("k", wait, "test")))["fault"] == "The end."


def refuse(job: Job) -> Result:
    job.progress(1, 1, "a step")
    raise PromptCacheError("The end.")


def test_a_stop_that_comes_before_its_work_stops_that_alone() -> None:
    jobs = Jobs()
    jobs.stop("k")
    assert ended(jobs.start(Job("k", refuse, "test")))["fault"] == "Stopped."
    assert ended(jobs.start(Job("k", refuse, "test")))["fault"] == "The end."


def test_a_stop_whose_work_never_came_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs()
    jobs.stop("k")
    monkeypatch.setattr("app.studio.web.jobs.EARLY_SECONDS", 0)
    assert ended(jobs.start(Job("k", refuse, "test")))["fault"] == "The end."


def test_a_second_key_of_one_piece_of_work_asks_about_it_and_stops_it() -> None:
    go, jobs = threading.Event(), Jobs()

    def wait(job: Job) -> Result:
        assert go.wait(30)
        job.progress(1, 1, "a step")
        raise AssertionError("it was told to stop")

    job = jobs.start(Job("a", wait, "test"))
    jobs.join("b", job)
    assert [jobs.state(key)["key"] for key in "ab"] == ["a", "b"]
    other = jobs.start(Job("c", wait, "test"))
    with pytest.raises(PromptCacheError, match="is already running"):
        jobs.join("c", job)
    jobs.stop("b")
    go.set()
    assert ended(job)["fault"] == jobs.state("b")["fault"] == "Stopped."
    other.stop()


def test_what_measures_goes_on_alone() -> None:
    jobs, go = Jobs(), threading.Event()

    def wait(_: Job) -> Result:
        go.wait()
        raise PromptCacheError("over")

    run = jobs.start(Job("r", wait, "run"))
    with pytest.raises(PromptCacheError, match=r"Other work is running \(run\)"):
        jobs.start(Job("b", wait, "benchmark", alone="It measures. Wait."))
    go.set()
    ended(run)
    go.clear()
    benchmark = jobs.start(Job("b", wait, "benchmark", alone="It measures. Wait."))
    for other in (Job("r2", wait, "run"), Job("b2", wait, "benchmark", alone="Another.")):
        with pytest.raises(PromptCacheError, match=r"It measures\. Wait\."):
            jobs.start(other)
    go.set()
    ended(benchmark)
    ended(jobs.start(Job("r3", wait, "run")))
