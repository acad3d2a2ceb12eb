"""Long work in threads of its own, which the page starts, asks about or follows, and can stop."""

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
EARLY_SECONDS = 600.0  # that a stop waits for work which the page has asked for and whose turn has not come


class Result(Protocol):
    """What comes of work."""

    def to_json(self) -> dict[str, Any]:
        """Returns it for the page."""
        ...


class StoppedError(Exception):
    """Somebody asked the work to stop."""


class Job:
    """One piece of work: how far it is, and what has come of it.

    Args:
        key: the key by which the page asks.
        work: the function that does the work; it is given this job, tells it how far it is, and returns the
            result.
        name: the thread's name.
        waiting: the words to show before the first step.
        result: the result to show while the work goes on.
        alone: why no other work may go on beside it, in a sentence that says what to do; "" where any may.
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
        self._what, self._done, self._total, self._fault = waiting, 0, 0, ""
        self._work, self._result = work, result
        self._changed, self._stop = threading.RLock(), threading.Event()
        self._followers: tuple[Callable[[], None], ...] = ()
        self._following = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins the work."""
        self._thread.start()

    def progress(self, done: int, total: int, what: str) -> None:
        """Says how far the work is.

        Raises:
            StoppedError: it is to stop here.
        """
        self.tell(done, total, what)
        if self.stopping:
            raise StoppedError

    def tell(self, done: int, total: int, what: str) -> None:
        """Says how far work is that cannot be stopped here."""
        with self.changing():
            self._done, self._total, self._what = done, total, what

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Holds back whoever looks at the work while what it shows is changed."""
        with self._changed:
            yield
            for told in self._followers:
                told()

    @property
    def stopping(self) -> bool:
        """Whether somebody asked the work to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Has the work stop at its next step."""
        self._stop.set()

    def state(self) -> JobState[Json]:
        """Returns what the page shows."""
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
        """Has somebody hear of each change. When the last who followed the work leaves, it stops.

        Args:
            told: called at each change, by the thread that makes it; it must return at once.
        """
        with self._following:
            self._followers = (*self._followers, told)
        try:
            yield
        finally:
            with self._following:
                self._followers = tuple(one for one in self._followers if one is not told)
                if not self._followers and not self.over:
                    self.stop()

    def _run(self) -> None:
        fault, result = "", self._result
        try:
            result = self._work(self)
        except StoppedError:
            fault = "Stopped."
        except (PromptCacheError, OSError) as error:
            fault = str(error)
        except BaseException as error:  # a library's panic too; the thread has nobody else to tell
            logger.exception("Work in the background failed")
            fault = f"The work failed: {error!r}. The terminal of the studio shows the details."
        self._work = _over  # what it was begun with, a model perhaps, is not kept for its state
        with self.changing():
            self._result, self._fault, self.over = result, fault, True


def _over(_job: Job) -> Result:
    raise AssertionError("work is done once")


class Jobs:
    """The work of this session, by the keys that the page gave it."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._stopped_early: dict[str, float] = {}  # keys, and when
        self._lock = threading.Lock()

    def start(self, job: Job) -> Job:
        """Begins a piece of work; the oldest that is over is forgotten.

        Raises:
            PromptCacheError: other work with its key goes on, or work beside which this may not go on, or as
                much as is kept.
        """
        with self._lock:
            self._require_alone(job)
            self._keep(job.key, job)
            asked = self._stopped_early.pop(job.key, None)
            if asked is not None and time.monotonic() - asked < EARLY_SECONDS:
                job.stop()
        job.start()
        return job

    def join(self, key: str, job: Job) -> None:
        """Has a second key ask about and stop a piece of work.

        Raises:
            PromptCacheError: other work with that key goes on.
        """
        with self._lock:
            self._keep(key, job)

    def _require_alone(self, job: Job) -> None:
        """Refuses work beside what measures, and what measures beside other work."""
        others = [one for one in self._jobs.values() if not one.over and one is not job]
        for other in others:
            if other.alone:
                raise PromptCacheError(other.alone)
        if job.alone and others:
            raise PromptCacheError(
                f"Other work goes on ({others[0].name}), and its share of the machine would be in the times. "
                "Wait for its end, or stop it first."
            )

    def _keep(self, key: str, job: Job) -> None:
        known = self._jobs.get(key)
        if known is not None and known is not job and not known.over:
            raise PromptCacheError("Work with this key goes on. Wait for its end, or stop it first.")
        over = [one for one, kept in self._jobs.items() if kept.over and one != key]
        if known is None and len(self._jobs) >= KEPT:
            if not over:
                raise PromptCacheError(
                    f"{KEPT} pieces of work go on or wait already, perhaps in other tabs. Wait for one of "
                    "them, or stop it, then start this again."
                )
            del self._jobs[over[0]]
        self._jobs[key] = job

    @property
    def under_way(self) -> tuple[Job, ...]:
        """The work that is not over."""
        with self._lock:
            return tuple({id(job): job for job in self._jobs.values() if not job.over}.values())

    def state(self, key: str) -> JobState[Json]:
        """Returns how far a piece of work is, or what came of it.

        Raises:
            PromptCacheError: it is not known any more.
        """
        return {**self.find(key).state(), "key": key}

    def find(self, key: str) -> Job:
        """A piece of work, by one of its keys.

        Raises:
            PromptCacheError: it is not known any more.
        """
        job = self._jobs.get(key)
        if job is None:
            raise PromptCacheError("That work is not kept any more. Start it again.")
        return job

    def stop_all(self) -> None:
        """Has all work stop at its next step."""
        for job in self.under_way:
            job.stop()

    def stop(self, key: str) -> None:
        """Has a piece of work stop at its next step, also one that waits for its turn to be started."""
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                self._stopped_early[key] = time.monotonic()
                while len(self._stopped_early) > KEPT:
                    self._stopped_early.pop(next(iter(self._stopped_early)))
        if job is not None:
            job.stop()
