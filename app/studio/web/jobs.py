"""Background jobs in their own threads; the page starts, follows and stops them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from app.studio.web.json_answers import JobState, Json
from engine.base.errors import PromptCacheError

logger = logging.getLogger(__name__)

KEPT = 16
EARLY_SECONDS = 600.0  # a stop waits this long for a requested job that has not started


class Result(Protocol):
    """The result of a job."""

    def to_json(self) -> dict[str, Any]:
        """Returns the result for the page."""
        ...


class StoppedError(Exception):
    """The job was stopped."""


class Job:
    """A background job: its progress and its result.

    Args:
        key: the key that the page chose.
        work: the function that does the work; it gets this job, reports progress to it, and returns the
            result.
        name: the thread's name.
        waiting: the message before the first step.
        result: the result to show while the job runs.
        alone: why no other job may run at the same time, and what to do; "" if others may.
    """

    def __init__(
        self,
        key: str,
        work: Callable[[Job], Result],
        name: str,
        waiting: str = "",
        result: Result | None = None,
        alone: str = "",
    ) -> None:
        self.key, self.name, self.alone, self.over = key, name, alone, False
        self.left = False  # it was stopped because its last follower left
        self._what, self._done, self._total, self._fault = waiting, 0, 0, ""
        self._work, self._result = work, result
        self._changed, self._stop = threading.RLock(), threading.Event()
        self._followers: tuple[Callable[[], None], ...] = ()
        self._following = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def progress(self, done: int, total: int, what: str) -> None:
        """Reports progress.

        Raises:
            StoppedError: the job was stopped.
        """
        self.tell(done, total, what)
        if self.stopping:
            raise StoppedError

    def tell(self, done: int, total: int, what: str) -> None:
        """Reports progress of work that cannot be stopped here."""
        with self.changing():
            self._done, self._total, self._what = done, total, what

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Blocks readers while the job's result changes."""
        with self._changed:
            yield
            for follower in self._followers:
                follower()

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Requests a stop at the next step."""
        self._stop.set()

    @property
    def words(self) -> str:
        """The current step in words, with its percentage."""
        with self._changed:
            return f"{self._what} {100 * self._done // self._total} %" if self._total else self._what

    def state(self) -> JobState[Json]:
        """Returns the state for the page."""
        with self._changed:
            return {
                "key": self.key,
                "what": self._what,
                "done": self._done,
                "total": self._total,
                "over": self.over,
                "fault": self._fault,
                "result": self._result.to_json() if self._result is not None else None,
            }

    @contextmanager
    def followed(self, told: Callable[[], None]) -> Iterator[None]:
        """Calls a function on each change. The job stops when its last follower leaves.

        Args:
            told: called in the thread of the change; it must return at once.
        """
        with self._following:
            self._followers = (*self._followers, told)
        try:
            yield
        finally:
            with self._following:
                self._followers = tuple(follower for follower in self._followers if follower is not told)
                if not self._followers and not self.over:
                    self.left = not self.stopping
                    self.stop()

    def _run(self) -> None:
        fault, result = "", self._result
        try:
            result = self._work(self)
        except StoppedError:
            fault = "Stopped."
        except (PromptCacheError, OSError) as error:
            fault = str(error)
        except BaseException as error:  # includes panics of libraries
            logger.exception("Work in the background failed")
            fault = f"The work failed: {error!r}. The terminal of the studio shows the details."
        self._work = _over  # free what the function refers to, possibly a model
        with self.changing():
            self._result, self._fault, self.over = result, fault, True


def _over(_job: Job) -> Result:
    raise AssertionError("work is done once")


class Jobs:
    """The jobs of this session by key."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._stopped_early: dict[str, float] = {}  # keys and times
        self._lock = threading.Lock()

    def start(self, job: Job) -> Job:
        """Starts a job and forgets the oldest finished one.

        Raises:
            PromptCacheError: its key is in use, a running job excludes it, or there are too many jobs.
        """
        with self._lock:
            self._require_alone(job)
            self._keep(job.key, job)
            stopped = self._stopped_early.pop(job.key, None)
            if stopped is not None and time.monotonic() - stopped < EARLY_SECONDS:
                job.stop()
        job.start()
        return job

    def join(self, key: str, job: Job) -> None:
        """Adds a second key to a job.

        Raises:
            PromptCacheError: the key belongs to another running job.
        """
        with self._lock:
            self._keep(key, job)

    def _require_alone(self, job: Job) -> None:
        """Rejects jobs alongside a measurement, and a measurement alongside jobs."""
        others = [running for running in self._jobs.values() if not running.over and running is not job]
        for other in others:
            if other.alone:
                raise PromptCacheError(other.alone)
        if job.alone and others:
            raise PromptCacheError(
                f"Other work is running ({others[0].name}) and would affect the times. Wait for its "
                "end, or stop it first."
            )

    def _keep(self, key: str, job: Job) -> None:
        known = self._jobs.get(key)
        if known is not None and known is not job and not known.over:
            raise PromptCacheError("This work is already running. Wait for its end, or stop it first.")
        over = [name for name, other in self._jobs.items() if other.over and name != key]
        if known is None and len(self._jobs) >= KEPT:
            if not over:
                raise PromptCacheError(
                    f"{KEPT} jobs are running or waiting, perhaps in other tabs. Wait for one of "
                    "them, or stop it, then start this again."
                )
            del self._jobs[over[0]]
        self._jobs[key] = job

    @property
    def under_way(self) -> tuple[Job, ...]:
        """The running jobs."""
        with self._lock:
            return tuple({id(job): job for job in self._jobs.values() if not job.over}.values())

    def state(self, key: str) -> JobState[Json]:
        """Returns a job's state.

        Raises:
            PromptCacheError: there is no such job.
        """
        return {**self.find(key).state(), "key": key}

    def find(self, key: str) -> Job:
        """Returns a job by one of its keys.

        Raises:
            PromptCacheError: there is no such job.
        """
        job = self._jobs.get(key)
        if job is None:
            raise PromptCacheError("That job no longer exists. Start it again.")
        return job

    def stop_all(self) -> None:
        """Stops all jobs at their next step."""
        for job in self.under_way:
            job.stop()

    def stop(self, key: str) -> None:
        """Stops a job at its next step, even before it is started."""
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                self._stopped_early[key] = time.monotonic()
                while len(self._stopped_early) > KEPT:
                    self._stopped_early.pop(next(iter(self._stopped_early)))
        if job is not None:
            job.stop()
