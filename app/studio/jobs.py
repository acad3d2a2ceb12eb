"""Long work in threads of its own, which the page starts, asks about or follows, and can stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from app.studio.answers import JobState, Json
from engine.errors import PromptCacheError

logger = logging.getLogger(__name__)

KEPT = 16
FRAME_SECONDS = 0.05
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
    """

    def __init__(
        self,
        key: str,
        work: Callable[[Job], Result],
        name: str,
        waiting: str = "",
        result: Result | None = None,
    ) -> None:
        self.key, self.over = key, False
        self._what, self._done, self._total, self._fault = waiting, 0, 0, ""
        self._work, self._result, self._version = work, result, 0
        self._changed, self._stop = threading.Condition(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins the work."""
        self._thread.start()

    def progress(self, done: int, total: int, what: str) -> None:
        """Says how far the work is.

        Raises:
            StoppedError: it is to stop here.
        """
        with self.changing():
            self._done, self._total, self._what = done, total, what
        if self.stopping:
            raise StoppedError

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Holds back whoever looks at the work while what it shows is changed."""
        with self._changed:
            yield
            self._version += 1
            self._changed.notify_all()

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

    def states(self) -> Iterator[JobState[Json]]:
        """Yields its states as they change, the last one included. Closing it stops the work."""
        seen = -1
        try:
            while True:
                with self._changed:
                    while self._version == seen:
                        self._changed.wait()
                    seen, state = self._version, self.state()
                yield state
                if state["over"]:
                    return
                time.sleep(FRAME_SECONDS)
        finally:
            self.stop()

    def _run(self) -> None:
        fault, result = "", self._result
        try:
            result = self._work(self)
        except StoppedError:
            fault = "Stopped."
        except (PromptCacheError, OSError) as error:
            fault = str(error)
        except Exception as error:  # the page shows it; the thread has nobody else to tell
            logger.exception("Work in the background failed")
            fault = f"The work failed: {error!r}. The terminal of the studio shows the details."
        with self.changing():
            self._result, self._fault, self.over = result, fault, True


class Jobs:
    """The work of this session, by the keys that the page gave it."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._stopped_early: dict[str, float] = {}  # keys, and when
        self._lock = threading.Lock()

    def start(self, job: Job) -> Job:
        """Begins a piece of work; the oldest that is over is forgotten, or the oldest, which is stopped.

        Raises:
            PromptCacheError: other work with its key goes on.
        """
        with self._lock:
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

    def _keep(self, key: str, job: Job) -> None:
        known = self._jobs.get(key)
        if known is not None and known is not job and not known.over:
            raise PromptCacheError("Work with this key goes on. Wait for its end, or stop it first.")
        self._jobs[key] = job
        while len(self._jobs) > KEPT:
            over = (one for one, kept in self._jobs.items() if kept.over)
            self._jobs.pop(next(over, next(iter(self._jobs)))).stop()

    def state(self, key: str) -> JobState[Json]:
        """Returns how far a piece of work is, or what came of it.

        Raises:
            PromptCacheError: it is not known any more.
        """
        job = self._jobs.get(key)
        if job is None:
            raise PromptCacheError("That work is not kept any more. Start it again.")
        return {**job.state(), "key": key}

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
